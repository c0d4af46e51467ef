"""GroupQueryAttention of com.microsoft: groups of query heads share keys and values, each batch has its own length."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import BF16, F16, F32, I32, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, inputs_named
from sardonyx.providers.native.kernels.attention.cache import check_lengths, contiguous_heads
from sardonyx.providers.native.kernels.attention.form import ENDLESS, Attention, Bounds
from sardonyx.providers.native.kernels.attention.rotary import Angles, can_turn, rotary_step
from sardonyx.providers.native.kernels.attention.steps import attend, merged_output, rows_before
from sardonyx.providers.native.kernels.attention.views import (
    caches_of,
    can_broadcast,
    can_follow,
    can_group,
    can_hold,
    form_of,
    heads_shape,
    heads_view,
    mask_of,
    output_of,
    require_groups,
)
from sardonyx.providers.native.program.known import is_symbolic, known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, may_equal, shape_of
from sardonyx.providers.native.program.views import Dims, View

NOT_SUPPORTED = ("position_ids", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight")


def _shapes(node: Node) -> tuple[Dims, Dims] | None:
    """Query and key, (batch, heads, sequence, size)."""
    heads, key_heads = node.attribute("num_heads"), node.attribute("kv_num_heads")
    query, key, value = inputs_named(node, "query", "key", "value")
    assert query is not None
    if key is None:
        whole = heads_shape(query, heads + 2 * key_heads)
        return None if whole is None else ((whole[0], heads, *whole[2:]), (whole[0], key_heads, *whole[2:]))
    first, second = heads_shape(query, heads), heads_shape(key, key_heads)
    third = None if value is None else heads_shape(value, key_heads)
    if first is None or second is None or third is None or not all(map(may_equal, second, third)):
        return None
    return first, second


def _total(node: Node) -> Dim | None:
    """total_sequence_length, if shapes tell it."""
    value = input_named(node, "total_sequence_length")
    sizes = None if value is None else known_sizes(value)
    return sizes[0] if sizes and not dim.is_anonymous(sizes[0]) else None


def claims_grouped(node: Node) -> bool:
    query, past_key, past_value = inputs_named(node, "query", "past_key", "past_value")
    assert query is not None
    shapes, total, type = _shapes(node), _total(node), element_of(query)
    if shapes is None or total is None or type not in (F32, F16, BF16) or any(inputs_named(node, *NOT_SUPPORTED)):
        return False
    if node.attribute("sliding_window_cache") or output_of(node, 3):
        return False
    q, k = shapes
    if not can_hold(q) or not can_hold(k) or not can_group(q, k) or not may_equal(q[2], k[2]) or not may_equal(q[0], k[0]):
        return False
    if (past_key is None) != (past_value is None):
        return False
    for past in (past_key, past_value):
        if past is not None and (not can_follow(shape_of(past), k) or element_of(past) is not type):
            return False
    lengths = input_named(node, "seqlens_k")
    if lengths is None or not may_equal(dim.product(shape_of(lengths) or (0,)), q[0]):
        return False
    bias = input_named(node, "attention_bias")
    if bias is not None and not can_broadcast(shape_of(bias), (*q[:3], total)):
        return False
    if not node.attribute("do_rotary"):
        return True
    cos, sin = (shape_of(angles) if angles is not None else None for angles in inputs_named(node, "cos_cache", "sin_cache"))
    return cos is not None and sin is not None and len(cos) == len(sin) == 2 and can_turn(q[3], 2 * cos[1])


@lower("GroupQueryAttention", domain="com.microsoft", claims=claims_grouped)
def group_query_attention(lowerer: Lowerer, node: Node) -> None:
    """Attention of the new tokens to those before and among themselves; the cache grows by them."""
    query, key, value = _views(lowerer, node)
    for axis in (0, 2):
        lowerer.require(query.shape[axis], key.shape[axis])
    lowerer.require_shape(key.shape, value.shape)
    require_groups(lowerer, query, key)
    output = merged_output(lowerer, node.outputs[0], query.shape[1], value.shape[3])
    total, attention_bias = _total(node), input_named(node, "attention_bias")
    assert total is not None
    past_values, present_values = inputs_named(node, "past_key", "past_value"), [output_of(node, 1), output_of(node, 2)]
    past, present = caches_of(lowerer, past_values, present_values)
    for past_value, present_value in zip(past_values, present_values):
        _share(lowerer, node, past_value, present_value)
    bounds = _checked_bounds(lowerer, node, query, total, rows_before(lowerer, past, present, key, value))
    if node.attribute("do_rotary"):
        query, key = _rotated(lowerer, node, query, query.type.computed, bounds), _rotated(lowerer, node, key, key.type, bounds)
    masks = [] if attention_bias is None else [mask_of(lowerer, attention_bias, (*query.shape[:3], total))]
    sink = _sink(lowerer, node, input_named(node, "head_sink"))
    softcap = node.attribute("softcap") or 0.0
    form = form_of(
        *(query, key, value, output.type, masks),
        bounded=bounds.right == 0,
        lengths=I32,
        capped=softcap > 0,
        sink=None if sink is None else sink.type,
        empty_is_zero=True,
        ragged=True,
    )
    attend(
        lowerer,
        Attention(
            form,
            query,
            key,
            value,
            output,
            keys=total,
            scale=node.attribute("scale") or None,
            masks=[view for _, view in masks],
            bounds=bounds,
            cap=softcap,
            sink=None if sink is None else sink.place,
            past=past,
            present=present,
        ),
    )


def _checked_bounds(lowerer: Lowerer, node: Node, query: View, total: Dim, capacity: Dim) -> Bounds:
    """What queries see, once the lengths of batches are checked; `capacity` is how many rows the past has room for."""
    batch, _, queries, _ = query.shape
    value = input_named(node, "seqlens_k")
    assert value is not None
    lengths = lowerer.contiguous(value)
    lowerer.require(dim.product(lengths.shape), batch)
    # a batch of whole prompts is padded on the right; otherwise all new tokens are valid, the last of them at the end
    lowerer.require(dim.minimum(total, queries), queries)
    from_length = dim.minimum(1, total - queries)
    check_lengths(lowerer, lengths, 1, dim.maximum(1, queries * from_length), dim.minimum(total, capacity + queries))
    return _bounds(node, lengths.place, from_length)


def _share(lowerer: Lowerer, node: Node, past: Value | None, present: Value | None) -> None:
    """Let a caller who binds one memory to past and present have new rows written behind the old ones, and nothing copied."""
    inputs, outputs = lowerer.cluster.inputs, lowerer.cluster.outputs
    if past in inputs and present in outputs and all(user is node or is_symbolic(user) for user in past.users):  # type: ignore[union-attr]
        lowerer.program.shared.append((inputs.index(past), outputs.index(present)))


def _views(lowerer: Lowerer, node: Node) -> list[View]:
    heads, key_heads = node.attribute("num_heads"), node.attribute("kv_num_heads")
    query, key, value = inputs_named(node, "query", "key", "value")
    assert query is not None
    if key is None or value is None:
        whole = heads_view(lowerer, query, heads + 2 * key_heads)
        return [whole.sliced(1, *part) for part in ((0, heads), (heads, key_heads), (heads + key_heads, key_heads))]
    return [heads_view(lowerer, query, heads), *(heads_view(lowerer, operand, key_heads) for operand in (key, value))]


def _bounds(node: Node, lengths: At, from_length: Dim) -> Bounds:
    """What a query sees: a window counts where nothing behind it is seen."""
    causal, window = node.attribute("causal"), node.attribute("local_window_size")
    if causal == 0:
        return Bounds(lengths=lengths, more=1, from_length=from_length)
    left = ENDLESS if window is None or window < 0 else window - 1
    return Bounds(0, left, 0, lengths, 1, from_length)


def _rotated(lowerer: Lowerer, node: Node, view: View, type: Type, bounds: Bounds) -> View:
    cos, sin = inputs_named(node, "cos_cache", "sin_cache")
    assert cos is not None and sin is not None
    cosines, sines = lowerer.contiguous(cos), lowerer.contiguous(sin)
    lowerer.require_shape(cosines.shape, sines.shape)
    rows, half = cosines.shape
    angles = Angles(cosines.place, sines.place, cosines.type, rows, "lengths", bounds=bounds, lengths=I32)
    turned = contiguous_heads(lowerer, view.shape, type)
    rotary_step(lowerer, view, turned, angles, width=2 * half, interleaved=bool(node.attribute("rotary_interleaved")))
    return turned


def _sink(lowerer: Lowerer, node: Node, scores: Value | None) -> View | None:
    """A score of nothing for each head."""
    if scores is not None:
        return lowerer.contiguous(scores)
    if node.attribute("smooth_softmax") != 1:
        return None
    heads = node.attribute("num_heads")
    return View(lowerer.constant(np.zeros(heads, np.float32)), F32, (heads,), (1,))
