"""Operands of attention and rotary embeddings as views of heads; the lowerings of these ops ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.compiler.types import Type
from sardonyx.ir import Node, Value
from sardonyx.providers.native.kernels.attention.cache import contiguous_heads
from sardonyx.providers.native.kernels.attention.form import Form, Mask
from sardonyx.providers.native.kernels.attention.tile import LARGEST_SIZE
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import fixed, may_equal, shape_of
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.startup.records import replace


def output_of(node: Node, index: int) -> Value | None:
    """An output that has a name."""
    output = node.outputs[index] if index < len(node.outputs) else None
    return output if output is not None and output.name else None


def heads_shape(value: Value, heads: int | None) -> Dims | None:
    """(batch, heads, sequence, size) of a tensor with heads apart, or side by side in its last axis; None if it is neither."""
    shape = shape_of(value)
    if shape is None or len(shape) == 4:
        return shape
    if len(shape) != 3 or not heads:
        return None
    batch, length, hidden = shape
    if not isinstance(hidden, int) or hidden % heads:
        return None
    return batch, heads, length, hidden // heads


def is_known(shape: Dims) -> bool:
    """Whether the number of heads and their size are known, and the kernels can hold one."""
    return isinstance(shape[1], int) and isinstance(shape[3], int) and 0 < shape[3] <= LARGEST_SIZE and shape[1] > 0


def can_follow(past: Dims | None, new: Dims) -> bool:
    """Whether rows can stand behind those of the past."""
    return past is not None and len(past) == 4 and may_equal(past[0], new[0]) and past[1] == new[1] and past[3] == new[3]


def rows_view(lowerer: Lowerer, value: Value) -> View:
    """A value whose last axis lies without gaps."""
    view = lowerer.view(value)
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else lowerer.contiguous(value)


def heads_view(lowerer: Lowerer, value: Value, heads: int | None, view: View | None = None) -> View:
    """A tensor as (batch, heads, sequence, size)."""
    shape = heads_shape(value, heads)
    assert shape is not None
    if len(shape_of(value) or ()) == 4:
        return view or rows_view(lowerer, value)
    batch, count, length, size = shape
    apart = (batch, length, count, size)
    heads_apart = (view or lowerer.view(value)).reshaped(apart)
    if heads_apart is None or heads_apart.strides[-1] != 1:
        heads_apart = lowerer.contiguous(value).reshaped(apart)
    assert heads_apart is not None
    return heads_apart.transposed((0, 2, 1, 3))


def size_of(view: View) -> int:
    """The size of a head."""
    return fixed(view.shape[3], "the size of a head")


def form_of(query: View, key: View, value: View, output: Type, masks: Sequence[tuple[Mask, View]], **rest: Any) -> Form:
    """The form of an attention over these tensors; `rest` are its other fields."""
    sizes = size_of(query), size_of(value)
    return Form(query.type, key.type, value.type, output, *sizes, tuple(mask for mask, _ in masks), **rest)


def can_broadcast(shape: Dims | None, wanted: Dims) -> bool:
    """Whether a shape may turn out to fit a larger one; its last axis is as long or 1."""
    if shape is None or len(shape) > len(wanted):
        return False
    return all(size == 1 or may_equal(size, other) for size, other in zip(reversed(shape), reversed(wanted)))


def mask_of(lowerer: Lowerer, value: Value, wanted: Dims, *, is_final: bool = False) -> tuple[Mask, View]:
    """A mask that is broadcast to (batch, heads, queries, keys)."""
    view = lowerer.broadcast(lowerer.view(value), wanted)
    if view.strides[3] != 1:
        kept = (*(1 if stride == 0 else size for stride, size in zip(view.strides, wanted[:3])), wanted[3])
        copied = contiguous_heads(lowerer, kept, view.type)
        lowerer.copy(replace(view, shape=kept), copied)
        view = copied.broadcast(wanted)
    return Mask(view.type, view.strides[2] != 0, is_final), view


def caches_of(
    lowerer: Lowerer, past: Sequence[Value | None], present: Sequence[Value | None]
) -> tuple[tuple[View, View] | None, tuple[View | None, View | None]]:
    """Views of the past, and of the outputs for what becomes of it."""
    key, value = past
    before = None if key is None or value is None else (rows_view(lowerer, key), rows_view(lowerer, value))
    first, second = (None if value is None else lowerer.output(value) for value in present)
    return before, (first, second)
