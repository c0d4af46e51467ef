"""MultiHeadAttention and Attention of com.microsoft; the latter has the projections inside.

The other attention ops and rotary embeddings are imported here, so that they too are in the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import BF16, F16, F32, F64, I32
from sardonyx.ir import Dim, Node, TensorType, Value, dim
from sardonyx.ops.reading import input_named, inputs_named
from sardonyx.providers.native.kernels.attention import grouped as attention_grouped
from sardonyx.providers.native.kernels.attention import rotary
from sardonyx.providers.native.kernels.attention import standard as attention_standard
from sardonyx.providers.native.kernels.attention.cache import append_step, contiguous_heads
from sardonyx.providers.native.kernels.attention.form import Attention, Bounds, Mask
from sardonyx.providers.native.kernels.attention.steps import attend, merged_output, rows_before
from sardonyx.providers.native.kernels.attention.views import (
    caches_of,
    can_broadcast,
    can_follow,
    can_hold,
    form_of,
    heads_shape,
    heads_view,
    mask_of,
    output_of,
    require_groups,
    require_heads,
    rows_view,
    with_heads_apart,
)
from sardonyx.providers.native.kernels.linalg.matmul import product_steps
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, may_have_shape, shape_of
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.startup.records import replace

__all__ = ["attention_grouped", "attention_standard", "attention_with_projection", "multi_head_attention", "rotary"]

FLOATS = (F32, F16, BF16, F64)
OPSET = 13
"""Of the nodes that are made here."""


def _multi_head_shapes(node: Node) -> tuple[Dims, Dims, Dims] | None:
    """Query, key and value as (batch, heads, sequence, size)."""
    heads = node.attribute("num_heads")
    query, key, value = inputs_named(node, "query", "key", "value")
    assert query is not None
    packed = shape_of(query)
    if packed is not None and len(packed) == 5:
        whole = (packed[0], packed[2], packed[1], packed[4])
        return whole, whole, whole
    if key is None:
        return None
    joined = shape_of(key)
    first = heads_shape(query, heads)
    if joined is not None and len(joined) == 5:
        both = (joined[0], joined[2], joined[1], joined[4])
        return (first, both, both) if first else None
    if value is None:
        return None
    shapes = first, heads_shape(key, heads), heads_shape(value, heads)
    return shapes if None not in shapes else None  # type: ignore[return-value]


def claims_multi_head(node: Node) -> bool:
    query, bias, padding, attention_bias = inputs_named(node, "query", "bias", "key_padding_mask", "attention_bias")
    past_key, past_value, past_length = inputs_named(node, "past_key", "past_value", "past_sequence_length")
    indirection = input_named(node, "cache_indirection")
    assert query is not None
    shapes = _multi_head_shapes(node)
    if shapes is None or element_of(query) not in FLOATS or past_length or indirection or output_of(node, 3):
        return False
    q, k, v = shapes
    if not all(map(can_hold, shapes)) or not all(map(may_equal, (q[3], k[1], q[1]), (k[3], v[1], k[1]))):
        return False
    if not may_equal(q[0], k[0]) or not may_equal(k[0], v[0]) or not may_equal(k[2], v[2]):
        return False
    keys = k[2]
    if (past_key is None) != (past_value is None):
        return False
    if past_key is not None and past_value is not None:
        before = shape_of(past_key) or ()
        if len(before) != 4 or not can_follow(before, k) or not can_follow(shape_of(past_value) or (), v):
            return False
        keys = before[2] + k[2]
    if bias is not None and (_has_own_keys(node) or not may_have_shape(shape_of(bias), (q[1] * (q[3] + k[3] + v[3]),))):
        return False
    if attention_bias is not None and not can_broadcast(shape_of(attention_bias), (q[0], q[1], q[2], keys)):
        return False
    return padding is None or any(
        may_have_shape(shape_of(padding), wanted) for wanted in ((q[0],), (q[0], keys), (q[0], q[2], keys))
    )


def _has_own_keys(node: Node) -> bool:
    """Whether keys are those of an encoder, which have had their bias."""
    key = input_named(node, "key")
    return key is not None and len(shape_of(key) or ()) == 4


def _multi_head_views(lowerer: Lowerer, node: Node) -> list[View]:
    heads = node.attribute("num_heads")
    query, key, value = inputs_named(node, "query", "key", "value")
    assert query is not None
    if len(shape_of(query) or ()) == 5:
        return _unpacked(lowerer, query, heads, 3)
    assert key is not None
    first = heads_view(lowerer, query, heads)
    if len(shape_of(key) or ()) == 5:
        return [first, *_unpacked(lowerer, key, heads, 2)]
    assert value is not None
    return [first, heads_view(lowerer, key, heads), heads_view(lowerer, value, heads)]


def _unpacked(lowerer: Lowerer, value: Value, heads: int, parts: int) -> list[View]:
    """(batch, sequence, heads, parts, size) as views of its parts."""
    _, _, own_heads, own_parts, _ = dims(value)
    lowerer.require(own_heads, heads)
    lowerer.require(own_parts, parts)
    whole = rows_view(lowerer, value).transposed((3, 0, 2, 1, 4))
    return [_part(whole, part) for part in range(parts)]


def _part(view: View, index: Dim) -> View:
    """One of those along the first axis."""
    return replace(view, shape=view.shape[1:], strides=view.strides[1:], offset=view.offset + view.strides[0] * index)


@lower("MultiHeadAttention", domain="com.microsoft", claims=claims_multi_head)
def multi_head_attention(lowerer: Lowerer, node: Node) -> None:
    """Softmax of the scaled products of queries and keys, as weights of the values."""
    query, key, value = _multi_head_views(lowerer, node)
    bias, padding, attention_bias = inputs_named(node, "bias", "key_padding_mask", "attention_bias")
    if bias is not None:
        query, key, value = _with_bias(lowerer, [query, key, value], bias)
    for left, right in ((query, key), (key, value)):
        for axis in (0, 1):
            lowerer.require(left.shape[axis], right.shape[axis])
    lowerer.require(key.shape[2], value.shape[2])
    past, present = caches_of(lowerer, inputs_named(node, "past_key", "past_value"), (output_of(node, 1), output_of(node, 2)))
    _attend_padded(lowerer, node, [query, key, value], padding, attention_bias, past, present)


def _attend_padded(
    lowerer: Lowerer,
    node: Node,
    views: Sequence[View],
    padding: Value | None,
    attention_bias: Value | None,
    past: tuple[View, View] | None,
    present: tuple[View | None, View | None],
) -> None:
    """With what the attributes of both ops say."""
    query, key, value = views
    require_groups(lowerer, query, key)
    require_heads(lowerer, value)
    before = rows_before(lowerer, past, present, key, value)
    wanted = (*query.shape[:3], before + key.shape[2])
    masks, ranges, range_ends = _padding(lowerer, padding, wanted)
    if attention_bias is not None:
        masks.append(mask_of(lowerer, attention_bias, wanted))
    is_causal, filter_value = bool(node.attribute("unidirectional")), node.attribute("mask_filter_value")
    form = form_of(query, key, value, query.type, masks, ranges=range_ends, bounded=is_causal)
    attend(
        lowerer,
        Attention(
            form,
            query,
            key,
            value,
            merged_output(lowerer, node.outputs[0], value.shape[1], value.shape[3]),
            keys=wanted[3],
            scale=node.attribute("scale") or None,
            masks=[view for _, view in masks],
            ranges=ranges,
            filter_value=-10000.0 if filter_value is None else filter_value,
            bounds=Bounds(before, right=0) if is_causal else Bounds(),
            past=past,
            present=present,
        ),
    )


def _padding(lowerer: Lowerer, padding: Value | None, wanted: Dims) -> tuple[list[tuple[Mask, View]], At | None, int]:
    """What hides padding: a mask, or where each batch ends (1) and perhaps where it starts (2)."""
    if padding is None:
        return [], None, 0
    shape = shape_of(padding) or ()
    if len(shape) != 1:
        return [_padding_mask(lowerer, padding, wanted)], None, 0
    ends = 2 if shape[0] == 2 * wanted[0] and wanted[0] != 0 else 1
    places = lowerer.contiguous(padding).place
    lowerer.require(shape[0], ends * wanted[0])
    return [], places, ends


def _with_bias(lowerer: Lowerer, views: Sequence[View], bias: Value) -> list[View]:
    numbers = lowerer.contiguous(bias)
    lowerer.require(numbers.shape[0], sum((view.shape[1] * view.shape[3] for view in views), start=0))
    views_with_bias: list[View] = []
    start: Dim = 0
    for view in views:
        biased = contiguous_heads(lowerer, view.shape, view.type)
        append_step(lowerer, None, view, biased, bias=At(numbers.buffer, (numbers.offset + start) * view.type.bytes))
        views_with_bias.append(biased)
        start = start + view.shape[1] * view.shape[3]
    return views_with_bias


def _padding_mask(lowerer: Lowerer, padding: Value, wanted: Dims) -> tuple[Mask, View]:
    """(batch, keys) or (batch, queries, keys) of ones and zeros."""
    view = lowerer.contiguous(padding)
    batch, _, queries, keys = wanted
    lowerer.require_shape(view.shape, (batch, keys) if len(view.shape) == 2 else (batch, queries, keys))
    if len(view.shape) == 2:
        return Mask(I32, per_query=False), replace(view, shape=wanted, strides=(keys, 0, 0, 1))
    return Mask(I32, per_query=True), replace(view, shape=wanted, strides=(queries * keys, 0, keys, 1))


# --- Attention: the projections are part of it


def _head_sizes(node: Node) -> Dims | None:
    """The sizes of a head in query, key and value; None if the columns of the weights cannot be split into heads."""
    weights, heads = input_named(node, "weights"), node.attribute("num_heads")
    shape = None if weights is None else shape_of(weights)
    if shape is None or len(shape) != 2:
        return None
    hidden = node.attribute("qkv_hidden_sizes") or [dim.floordiv(shape[1], 3)] * 3
    sizes = tuple(dim.floordiv(size, heads) for size in hidden)
    fits = may_equal(shape[1], _columns(heads, sizes)) and may_equal(sizes[0], sizes[1])
    return sizes if fits and all(can_hold((1, heads, 1, size)) for size in sizes) else None


def _columns(heads: int, sizes: Dims) -> Dim:
    return heads * sum(sizes, start=0)


def _claims_projected(node: Node) -> bool:
    input, weights, bias, mask = inputs_named(node, "input", "weights", "bias", "mask_index")
    past, attention_bias, past_length = inputs_named(node, "past", "attention_bias", "past_sequence_length")
    assert input is not None and weights is not None
    shape, sizes, heads = shape_of(input), _head_sizes(node), node.attribute("num_heads")
    if shape is None or len(shape) != 3 or sizes is None or element_of(input) not in FLOATS or past_length is not None:
        return False
    if node.attribute("do_rotary") or node.attribute("past_present_share_buffer"):
        return False
    if not may_equal(shape[2], (shape_of(weights) or (0,))[0]):
        return False
    if bias is not None and not may_have_shape(shape_of(bias), (_columns(heads, sizes),)):
        return False
    batch, length = shape[:2]
    keys = length
    if (past is not None or output_of(node, 1)) and not may_equal(sizes[1], sizes[2]):
        return False
    if past is not None:
        before = shape_of(past) or ()
        if len(before) != 5 or not can_follow(before[1:], (batch, heads, length, sizes[1])):
            return False
        keys = keys + before[3]
    if attention_bias is not None and not can_broadcast(shape_of(attention_bias), (batch, heads, length, keys)):
        return False
    return mask is None or any(
        may_have_shape(shape_of(mask), wanted) for wanted in ((batch,), (2 * batch,), (batch, keys), (batch, length, keys))
    )


@lower("Attention", domain="com.microsoft", claims=_claims_projected)
def attention_with_projection(lowerer: Lowerer, node: Node) -> None:
    """The input projected to queries, keys and values in one product; then as before."""
    mask, past, attention_bias = inputs_named(node, "mask_index", "past", "attention_bias")
    sizes, heads = _head_sizes(node), node.attribute("num_heads")
    assert sizes is not None
    whole = _projected(lowerer, node, _columns(heads, sizes))
    views: list[View] = []
    start: Dim = 0
    for size in sizes:
        views.append(with_heads_apart(lowerer, whole.sliced(2, start, heads * size), heads, size))
        start = start + heads * size
    before = None if past is None else rows_view(lowerer, past)
    kept = output_of(node, 1)
    after = None if kept is None else lowerer.output(kept)
    _attend_padded(
        lowerer,
        node,
        views,
        mask,
        attention_bias,
        None if before is None else (_part(before, 0), _part(before, 1)),
        (None, None) if after is None else (_part(after, 0), _part(after, 1)),
    )


def _projected(lowerer: Lowerer, node: Node, columns: Dim) -> View:
    """Input times weights plus bias: a product that no node of the graph stands for."""
    input, weights, bias = inputs_named(node, "input", "weights", "bias")
    assert input is not None and weights is not None and isinstance(input.type, TensorType) and input.type.shape is not None
    rows, _ = dims(weights)
    lowerer.require_shape(dims(weights), (input.type.shape[2], columns))
    if bias is not None:
        lowerer.require_shape(dims(bias), (columns,))
    left = Value("input", TensorType(input.type.dtype, (*input.type.shape[:2], rows)))
    right = Value("weights", TensorType(input.type.dtype, (rows, columns)), weights.constant)
    lowerer.set_view(left, replace(lowerer.view(input), shape=(*input.type.shape[:2], rows)))
    if not weights.is_constant:
        right.constant = None
        lowerer.set_view(right, lowerer.view(weights))
    projected = Value("projected", TensorType(input.type.dtype, (*input.type.shape[:2], columns)))
    product = Node("MatMul", [left, right], [projected], version=OPSET)
    Node("Identity", [projected], ["seen"], version=OPSET)  # a value that nobody uses would not be stored
    product_steps(lowerer, product, [] if bias is None else [Operation("Add", (None, bias))])
    return lowerer.contiguous(projected)
