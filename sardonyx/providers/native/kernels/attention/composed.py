"""Attention of the standard in forms and types that its kernel does not take, composed of products and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops import checking
from sardonyx.ops.reading import operand
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile, element_type


def _is_rounded_once(node: Node) -> bool:
    """Whether no step is rounded to fewer digits than it is computed with: that leaves no room for sums in another order."""
    precision = operand(node, "softmax_precision")
    return element_type(node.outputs[0]) is not dtypes.bfloat16 and (
        not precision or dtypes.from_code(precision) not in dtypes.HALVES
    )


@compose("Attention", claims=_is_rounded_once, widen=True)
def attention(
    op: Composer,
    Q: Value,
    K: Value,
    V: Value,
    attn_mask: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    nonpad_kv_seqlen: Value | None,
    is_causal: int,
    kv_num_heads: int | None,
    left_window_size: int | None,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    right_window_size: int | None,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
    node: Node,
) -> Sequence[Value]:
    query, key, value = (_heads(op, x, n) for x, n in ((Q, q_num_heads), (K, kv_num_heads), (V, kv_num_heads)))
    past: Dim = 0
    if past_key is not None:
        past = dims(past_key)[2]
        key, value = op.Concat(past_key, key, axis=2), op.Concat(past_value, value, axis=2)
    raw = scores = _scores(op, query, key, scale)
    if softcap > 0:
        cap = op.number(softcap, scores)
        scores = op.Mul(op.Tanh(op.Div(scores, cap)), cap)
    capped = scores
    windows = (left_window_size, right_window_size)
    allowed = _visible(op, scores, past, nonpad_kv_seqlen, is_causal, *(-1 if size is None else size for size in windows))
    if attn_mask is not None:
        pads = checking.signature_of(node).since_version >= 24
        scores, allowed = _masked(op, scores, allowed, attn_mask, pads)
    if allowed is not None:
        scores = op.Where(allowed, scores, op.number(-math.inf, scores))
    weights = _softmax(op, scores, softmax_precision)
    output = _weighed(op, weights, value)
    if rank_of(Q) == 3:
        batch, heads, queries, size = dims(output)
        output = op.reshape(op.Transpose(output, perm=[0, 2, 1, 3]), batch, queries, heads * size)
    return output, key, value, (raw, capped, scores, weights)[qk_matmul_output_mode]


def _heads(op: Composer, tensor: Value, heads: int | None) -> Value:
    """(batch, sequence, heads·size) as (batch, heads, sequence, size); a 4-D tensor has that layout already."""
    if rank_of(tensor) == 4:
        return tensor
    batch, sequence, hidden = dims(tensor)
    if not heads:
        raise CannotCompile("the number of heads is missing", quiet=True)
    size: Dim = dim.floordiv(hidden, heads)
    op.require(size * heads, hidden)
    made: Value = op.Transpose(op.reshape(tensor, batch, sequence, heads, size), perm=[0, 2, 1, 3])
    return made


def _group(op: Composer, heads: Dim, shared: Dim) -> Dim:
    """How many heads of queries share one of keys."""
    count: Dim = dim.floordiv(heads, dim.maximum(1, shared))
    op.require(count * shared, heads)
    return count


def _scores(op: Composer, query: Value, key: Value, scale: float | None) -> Value:
    """scale · query · keyᵀ per head; each key head serves a run of neighbouring query heads."""
    batch, heads, queries, size = dims(query)
    factor = op.number(scale, query) if scale is not None else _inverse_root(op, size, query)
    shared, keys = dims(key)[1:3]
    grouped = op.reshape(op.Mul(query, factor), batch, shared, _group(op, heads, shared) * queries, size)
    return op.reshape(op.MatMul(grouped, op.Transpose(key, perm=[0, 1, 3, 2])), batch, heads, queries, keys)


def _inverse_root(op: Composer, size: Dim, like: Value) -> Value:
    if isinstance(size, int):
        return op.number(1 / math.sqrt(size) if size else 1.0, like)
    made: Value = op.Reciprocal(op.Sqrt(op.cast(op.sizes(dim.maximum(1, size)), like)))
    return made


def _weighed(op: Composer, weights: Value, value: Value) -> Value:
    batch, heads, queries, keys = dims(weights)
    shared, size = dims(value)[1], dims(value)[3]
    if element_type(weights) is not element_type(value):  # one of them is float64
        weights, value = (op.cast_to(factor, dtypes.float64) for factor in (weights, value))
    grouped = op.reshape(weights, batch, shared, _group(op, heads, shared) * queries, keys)
    return op.reshape(op.MatMul(grouped, value), batch, heads, queries, size)


def _softmax(op: Composer, scores: Value, precision: int | None) -> Value:
    """Where all scores of a row are -inf, all weights are 0."""
    type = element_type(scores)
    assert type is not None
    if precision:
        narrow = dtypes.from_code(precision)
        rounded = op.cast_to(scores, narrow)
        wide = op.cast_to(rounded, dtypes.float64 if narrow is dtypes.float64 else dtypes.float32)
        return op.cast_to(op.cast_to(_softmax(op, wide, None), narrow), type)
    peak = op.ReduceMax(scores, axes=[-1], keepdims=1)
    is_empty = op.Equal(peak, op.number(-math.inf, scores))
    made: Value = op.Where(is_empty, op.number(0, scores), op.Softmax(scores, axis=-1))
    return made


def _both(op: Composer, allowed: Value | None, condition: Value) -> Value:
    made: Value = condition if allowed is None else op.And(allowed, condition)
    return made


def _visible(
    op: Composer, scores: Value, past: Dim, lengths: Value | None, is_causal: int, left: int, right: int
) -> Value | None:
    """Which keys each query may attend, broadcastable to (batch, heads, queries, keys); None means all of them."""
    queries, keys = dims(scores)[2:]
    key, allowed, offset = op.counted(keys), None, op.sizes(past)
    if lengths is not None:
        lengths = op.reshape(op.cast_to(lengths, dtypes.int64), dims(lengths)[0], 1, 1, 1)
        allowed = op.Less(key, lengths)
        offset = op.Sub(lengths, op.sizes(queries)) if past == 0 else offset
    if not is_causal and left < 0 and right < 0:
        return allowed
    position = op.Add(op.reshape(op.counted(queries), queries, 1), offset)
    upper = 0 if is_causal else right
    if upper >= 0:
        bound = upper if right < 0 else min(upper, right)
        allowed = _both(op, allowed, op.LessOrEqual(key, op.Add(position, op.constant(bound))))
    if left >= 0:
        allowed = _both(op, allowed, op.GreaterOrEqual(key, op.Sub(position, op.constant(left))))
    return allowed


def _masked(op: Composer, scores: Value, allowed: Value | None, mask: Value, pads: bool) -> tuple[Value, Value | None]:
    """Add a mask of numbers to the scores, or let one of truth values decide with `allowed`.

    From opset 24 on a mask that is too short is padded with "no"; before, one of length 1 was broadcast.
    """
    keys = dims(scores)[-1]
    length = dims(mask)[-1] if dims(mask) else keys
    if isinstance(length, int) and isinstance(keys, int) and length < keys and (pads or length != 1):
        allowed = _both(op, allowed, op.Less(op.counted(keys), op.sizes(length)))
        mask = op.Pad(mask, op.constant([*[0] * (2 * rank_of(mask) - 1), keys - length]))
    elif length != keys and not (length == 1 and not pads):
        op.require(length, keys)
    if element_type(mask) is dtypes.bool_:
        return scores, _both(op, allowed, mask)
    mask = op.cast(mask, scores)
    # chosen instead of added: -inf on top of an infinite or undefined score would be NaN
    blocked = op.Equal(mask, op.number(-math.inf, scores))
    added = op.Add(scores, op.Where(blocked, op.number(0, scores), mask))
    return added, _both(op, allowed, op.Not(blocked))
