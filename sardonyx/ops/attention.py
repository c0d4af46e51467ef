"""Type and shape inference of attention: Attention, FlexAttention, LinearAttention, RotaryEmbedding."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.operand import Operand
from sardonyx.ops.shapes import element_type, fresh_shape, merge_dims, require_positive, same_as, text
from sardonyx.ops.table import infer

infer("RotaryEmbedding")(same_as("X"))


@infer("Attention")
def attention(Q, K, V, past_key, past_value, q_num_heads, kv_num_heads, scale, softmax_precision, qk_matmul_output_mode):
    require_positive(q_num_heads=q_num_heads or None, kv_num_heads=kv_num_heads or None)
    if scale is not None and scale <= 0:
        raise InferenceError(f"scale must be greater than 0 if specified, not {scale}")
    if softmax_precision:
        element_type(softmax_precision, "softmax_precision")
    if qk_matmul_output_mode not in (None, 0, 1, 2, 3):
        raise InferenceError(f"qk_matmul_output_mode must be 0, 1, 2 or 3, not {qk_matmul_output_mode}")
    query = _heads_apart(Q, q_num_heads, "Q", "q_num_heads")
    key, value = (_heads_apart(operand, kv_num_heads, name, "kv_num_heads") for operand, name in ((K, "K"), (V, "V")))
    _check_sharing(query[1], key[1])
    batch, heads, length, _ = query
    present_key = _with_past(key, past_key, "past_key")
    present_value = _with_past(value, past_value, "past_value")
    if Q.rank == 3:
        output = (batch, length, heads * value[3])
    else:
        output = (batch, heads, length, value[3]) if Q.rank == 4 else None
    return [output, present_key, present_value, (batch, heads, length, present_key[2])]


def _heads_apart(operand, heads, name, attribute):
    """The shape as (batch, heads, sequence, size)."""
    shape = operand.require_rank(3, 4, name=name)
    if shape is None:
        return fresh_shape(4)
    if len(shape) == 4:
        return shape
    if not heads:
        raise InferenceError(f"{name} has rank 3, so the attribute {attribute} is needed")
    batch, length, hidden = shape
    if isinstance(hidden, int) and hidden % heads:
        raise InferenceError(f"{name}'s hidden size {hidden} is not a multiple of {attribute} {heads}")
    return batch, heads, length, dim.floordiv(hidden, heads)


def _check_sharing(query_heads, key_heads):
    if isinstance(query_heads, int) and isinstance(key_heads, int) and (key_heads == 0 or query_heads % key_heads):
        raise InferenceError(f"{query_heads} query heads cannot share {key_heads} key heads")


def _with_past(shape, past, name):
    if past is None:
        return shape
    before = past.require_rank(4, name=name)
    batch, heads, length, size = shape
    if before is None:
        return batch, heads, dim.fresh(), size
    return merge_dims(batch, before[0], name), merge_dims(heads, before[1], name), before[2] + length, size


@infer("FlexAttention", domain="ai.onnx.preview")
def flex_attention(Q, K, V, softmax_precision, score_mod, prob_mod):
    query, key, value = (
        operand.require_rank(4, name=name) or fresh_shape(4) for operand, name in ((Q, "Q"), (K, "K"), (V, "V"))
    )
    _check_sharing(query[1], key[1])
    precise = dtypes.float64 if Q.dtype is dtypes.float64 else dtypes.float32
    if softmax_precision:
        precise = element_type(softmax_precision, "softmax_precision")
    scores = Operand(TensorType(precise, (*query[:3], key[2])))
    for name, modify in (("score_mod", score_mod), ("prob_mod", prob_mod)):
        if modify is not None:
            _check_modifier(name, scores.type, modify(scores))
    return (*query[:3], value[3])


def _check_modifier(name, expected, results):
    if len(results) != 1:
        raise InferenceError(f"{name} must have one output, not {len(results)}")
    output = results[0]
    if output.dtype not in (None, expected.dtype):
        raise InferenceError(f"{name} turns {expected.dtype} into {output.dtype}")
    if output.shape is not None and len(output.shape) != 4:
        raise InferenceError(f"{name} must keep the shape {text(expected.shape)}, it makes {text(output.shape)}")


def recurrence_shapes(query, key, value, decay, beta):
    """Shapes of the first three operands, whose ranks and those of the others must be 3."""
    for operand, name in ((decay, "decay"), (beta, "beta")):
        if operand is not None:
            operand.require_rank(3, name=name)
    operands = ((query, "query"), (key, "key"), (value, "value"))
    return [operand.require_rank(3, name=name) or fresh_shape(3) for operand, name in operands]


@infer("LinearAttention")
def linear_attention(query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads):
    require_positive(q_num_heads=q_num_heads, kv_num_heads=kv_num_heads)
    _check_sharing(q_num_heads, kv_num_heads)
    queries, keys, values = recurrence_shapes(query, key, value, decay, beta)
    key_size, value_size = dim.floordiv(keys[2], kv_num_heads), dim.floordiv(values[2], kv_num_heads)
    state = TensorType(
        query.dtype if past_state is None else past_state.dtype, (queries[0], kv_num_heads, key_size, value_size)
    )
    return [(*queries[:2], q_num_heads * value_size), state]
