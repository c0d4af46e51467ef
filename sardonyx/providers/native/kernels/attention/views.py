"""Operands of attention and rotary embeddings as views of heads; the lowerings of these ops ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.providers.native.kernels.attention.cache import contiguous_heads
from sardonyx.providers.native.kernels.attention.form import LARGEST_OPEN_SIZE, LARGEST_SIZE, Form, Mask
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import may_equal, shape_of
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.startup.records import replace


def output_of(node: Node, index: int) -> Value | None:
    """An output that has a name."""
    output = node.outputs[index] if index < len(node.outputs) else None
    return output if output is not None and output.name else None


def heads_shape(value: Value, heads: Dim | None) -> Dims | None:
    """(batch, heads, sequence, size) of a tensor with heads apart, or side by side in its last axis; None if it is neither."""
    shape = shape_of(value)
    if shape is None or len(shape) == 4:
        return shape
    if len(shape) != 3 or not heads:
        return None
    batch, length, hidden = shape
    if isinstance(hidden, int) and isinstance(heads, int) and hidden % heads:
        return None
    return batch, heads, length, dim.floordiv(hidden, heads)


def can_hold(shape: Dims) -> bool:
    """Whether the kernels can hold a head, as far as its size is known."""
    _, heads, _, size = shape
    return (not isinstance(heads, int) or heads > 0) and (not isinstance(size, int) or 0 < size <= LARGEST_SIZE)


def require_heads(lowerer: Lowerer, view: View) -> None:
    """Leave runs to NumPy in which there are no heads, or some that the kernels cannot hold."""
    _, heads, _, size = view.shape
    lowerer.require(dim.maximum(1, heads), heads)
    if not isinstance(size, int):
        lowerer.require(dim.minimum(dim.maximum(1, size), LARGEST_OPEN_SIZE), size)


def require_groups(lowerer: Lowerer, query: View, key: View) -> None:
    """As many heads of queries must share each of keys."""
    for view in (query, key):
        require_heads(lowerer, view)
    heads, key_heads = query.shape[1], key.shape[1]
    lowerer.require(dim.floordiv(heads, dim.maximum(1, key_heads)) * key_heads, heads)
    lowerer.require(query.shape[3], key.shape[3])


def can_group(query: Dims, key: Dims) -> bool:
    """Whether heads of queries may share those of keys, as far as their numbers and sizes are known."""
    heads, key_heads = query[1], key[1]
    fits = not (isinstance(heads, int) and isinstance(key_heads, int)) or heads % key_heads == 0
    return fits and may_equal(query[3], key[3])


def can_follow(past: Dims | None, new: Dims) -> bool:
    """Whether rows can stand behind those of the past."""
    return past is not None and len(past) == 4 and all(may_equal(past[axis], new[axis]) for axis in (0, 1, 3))


def rows_view(lowerer: Lowerer, value: Value) -> View:
    """A value whose last axis lies without gaps."""
    view = lowerer.view(value)
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else lowerer.contiguous(value)


def heads_view(lowerer: Lowerer, value: Value, heads: Dim | None, view: View | None = None) -> View:
    """A tensor as (batch, heads, sequence, size)."""
    shape = heads_shape(value, heads)
    assert shape is not None
    if len(shape_of(value) or ()) == 4:
        return view or rows_view(lowerer, value)
    return with_heads_apart(lowerer, view or rows_view(lowerer, value), shape[1], shape[3])


def with_heads_apart(lowerer: Lowerer, view: View, heads: Dim, size: Dim) -> View:
    """(batch, sequence, heads·size) as (batch, heads, sequence, size)."""
    batch, length, hidden = view.shape
    lowerer.require(hidden, heads * size)
    rows, tokens, step = view.strides
    return replace(view, shape=(batch, heads, length, size), strides=(rows, size * step, tokens, step))


def size_of(view: View) -> int | None:
    """The size of a head; None if a run tells it."""
    size = view.shape[3]
    return size if isinstance(size, int) else None


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
