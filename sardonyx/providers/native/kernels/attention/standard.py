"""ONNX's own Attention."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.compiler.types import BF16, BOOL, F16, F32, F64
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import input_named, inputs_named
from sardonyx.providers.native.kernels.attention.cache import check_lengths
from sardonyx.providers.native.kernels.attention.form import ENDLESS, Attention, Bounds, Mask
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
    require_heads,
)
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, may_equal, shape_of
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.startup.records import replace

TYPES = (F32, F16, BF16, F64)
ROUNDED_KEYS = 16
"""Up to how many keys bfloat16 is left to NumPy. It rounds after every step, as the standard's cases do; the kernel rounds once."""


def _shapes(node: Node) -> tuple[Dims, Dims, Dims] | None:
    """Q, K and V as (batch, heads, sequence, size)."""
    heads = (node.attribute("q_num_heads"), *[node.attribute("kv_num_heads")] * 2)
    shapes = [heads_shape(value, count) for value, count in zip(node.inputs, heads) if value is not None]
    query, key, value = shapes
    if query is None or key is None or value is None:
        return None
    return query, key, value


def claims_standard(node: Node) -> bool:
    q, k, v, mask = inputs_named(node, "Q", "K", "V", "attn_mask")
    past_key, past_value, lengths = inputs_named(node, "past_key", "past_value", "nonpad_kv_seqlen")
    assert q is not None and k is not None and v is not None
    shapes = _shapes(node)
    if (
        shapes is None
        or len({element_of(operand) for operand in (q, k, v)}) > 1
        or element_of(q) not in TYPES
        or output_of(node, 3)
    ):
        return False
    query, key, value = shapes
    if not all(map(can_hold, shapes)) or not can_group(query, key) or not may_equal(key[1], value[1]):
        return False
    if not may_equal(query[0], key[0]) or not may_equal(key[0], value[0]) or not may_equal(key[2], value[2]):
        return False
    if node.attribute("softmax_precision") not in (
        None,
        0,
        dtypes.float64.code if element_of(q) is F64 else dtypes.float32.code,
    ):
        return False
    keys = key[2]
    if (past_key is None) != (past_value is None):
        return False
    if past_key is not None and past_value is not None:
        if not can_follow(shape_of(past_key), key) or not can_follow(shape_of(past_value), value):
            return False
        keys = keys + (shape_of(past_key) or ())[2]
    if element_of(q) == BF16 and isinstance(keys, int) and keys <= ROUNDED_KEYS:
        return False
    if lengths is not None and not (len(shape_of(lengths) or ()) == 1 and may_equal((shape_of(lengths) or ())[0], query[0])):
        return False
    if mask is None:
        return True
    shape = shape_of(mask) or ()
    return (
        element_of(mask) in (BOOL, element_of(q))
        and len(shape) >= 2
        and may_equal(shape[-1], keys)
        and can_broadcast(shape, (*query[:3], keys))
    )


@lower("Attention", claims=claims_standard)
def attention(lowerer: Lowerer, node: Node) -> None:
    """Softmax of the scaled products of queries and keys, as weights of the values."""
    query, key, value = _views(lowerer, node)
    past, present = caches_of(lowerer, inputs_named(node, "past_key", "past_value"), (output_of(node, 1), output_of(node, 2)))
    before = rows_before(lowerer, past, present, key, value)
    wanted = (*query.shape[:3], before + key.shape[2])
    masks = _masks(lowerer, node, wanted)
    is_bounded, bounds = _bounds(node, before)
    lengths = _lengths(lowerer, node, wanted)
    if lengths is not None:
        from_length = 1 if past is None else 1 - dim.minimum(1, before)
        bounds = replace(bounds, lengths=lengths.place, from_length=from_length)
    softcap, scale = node.attribute("softcap") or 0.0, node.attribute("scale")
    form = form_of(
        *(query, key, value, query.type, masks),
        bounded=is_bounded,
        lengths=None if lengths is None else lengths.type,
        capped=softcap > 0,
        empty_is_zero=True,
    )
    attend(
        lowerer,
        Attention(
            form,
            query,
            key,
            value,
            merged_output(lowerer, node.outputs[0], query.shape[1], value.shape[3]),
            keys=wanted[3],
            scale=scale,
            masks=[view for _, view in masks],
            bounds=bounds,
            cap=softcap,
            past=past,
            present=present,
        ),
    )


def _views(lowerer: Lowerer, node: Node) -> list[View]:
    """Q, K and V as (batch, heads, sequence, size)."""
    q, k, v = inputs_named(node, "Q", "K", "V")
    assert q is not None and k is not None and v is not None
    key_heads = node.attribute("kv_num_heads")
    query = heads_view(lowerer, q, node.attribute("q_num_heads"))
    key, value = heads_view(lowerer, k, key_heads), heads_view(lowerer, v, key_heads)
    for left, right in ((query, key), (key, value)):
        lowerer.require(left.shape[0], right.shape[0])
    for axis in (1, 2):
        lowerer.require(key.shape[axis], value.shape[axis])
    require_groups(lowerer, query, key)
    require_heads(lowerer, value)
    return [query, key, value]


def _masks(lowerer: Lowerer, node: Node, wanted: Dims) -> list[tuple[Mask, View]]:
    mask = input_named(node, "attn_mask")
    if mask is None:
        return []
    # a mask of another length means more than repeating it
    lowerer.require((shape_of(mask) or ())[-1], wanted[3])
    return [mask_of(lowerer, mask, wanted, is_final=True)]


def _lengths(lowerer: Lowerer, node: Node, wanted: Dims) -> View | None:
    """How many keys each batch has, checked."""
    value = input_named(node, "nonpad_kv_seqlen")
    if value is None:
        return None
    lengths = lowerer.contiguous(value)
    lowerer.require(lengths.shape[0], wanted[0])
    check_lengths(lowerer, lengths, 0, 0, wanted[3])
    return lengths


def _bounds(node: Node, before: dim.Dim) -> tuple[bool, Bounds]:
    """Whether queries see some keys only, by their positions, and which."""
    left, right = (-1 if (size := node.attribute(f"{side}_window_size")) is None else size for side in ("left", "right"))
    upper = (0 if right < 0 else min(0, right)) if node.attribute("is_causal") else right
    is_bounded = upper >= 0 or left >= 0
    return is_bounded, Bounds(before, ENDLESS if left < 0 else left, ENDLESS if upper < 0 else upper)
