"""Ops that only look at a value in another way: reshaping, transposing, slicing, expanding. They become views, without a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.ir import Dim, Node, TensorType, Value, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.ops.shape import INFINITE, slice_end
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, is_plain, required, stored
from sardonyx.providers.native.program.views import View
from sardonyx.providers.provider import CannotCompile, element_type
from sardonyx.startup.records import dataclass, replace


def content(node: Node, name: str) -> list[Dim] | None:
    """The whole numbers that an operand is made of, some of them symbolic; None if it is absent or depends on data."""
    value = input_named(node, name)
    if value is not None:
        return known_sizes(value)
    numbers = operand(node, name)
    if numbers is None:
        return None
    return [numbers] if isinstance(numbers, int) else [int(item) for item in np.reshape(numbers, -1)]


def is_known(node: Node, *names: str) -> bool:
    """Whether those of these operands that are there have contents that don't depend on data."""
    return all(input_named(node, name) is None or content(node, name) is not None for name in names)


def axis_of(node: Node, rank: int, default: int = 0) -> int:
    """The attribute `axis`, or a constant input of one element, counted from the front."""
    axis = operand(node, "axis")
    axes = [default] if axis is None else np.reshape(axis, -1)
    if len(axes) != 1:
        raise CannotCompile(f"{node}: axis has {len(axes)} elements", quiet=True)
    axis = int(axes[0])
    if not -rank <= axis < max(rank, 1):
        raise CannotCompile(f"{node}: axis {axis} is outside [{-rank}, {rank - 1}]", quiet=True)
    return axis % max(rank, 1)


# --- the same elements in another shape -----------------------------------------------------------------------------


@lower("Reshape", claims=lambda node: is_known(node, "shape"), costly=False)
@lower("Unsqueeze", "Flatten", costly=False)
@lower("Identity", claims=lambda node: is_plain(node.inputs[0]), costly=False)
@lower("ExpandDims", domain="com.microsoft", costly=False)
def reshape(lowerer: Lowerer, node: Node) -> None:
    """The same elements in the shape that inference has found."""
    value, result = required(node.inputs[0]), node.outputs[0]
    shape = dims(result)
    lowerer.require(dim.product(dims(value)), dim.product(shape))
    view = lowerer.view(value).reshaped(shape) or _channels_last(lowerer, lowerer.view(value), result)
    view = view or lowerer.contiguous(value).reshaped(shape)
    assert view is not None
    lowerer.set_view(result, view)


@lower("Squeeze", costly=False)
def squeeze(lowerer: Lowerer, node: Node) -> None:
    """The same elements without axes of size 1. Where all is empty, only these sizes tell whether that can be."""
    shape = dims(required(node.inputs[0]))
    for axis in content(node, "axes") or ():
        assert isinstance(axis, int)
        lowerer.require(shape[axis], 1)
    reshape(lowerer, node)


def _channels_last(lowerer: Lowerer, view: View, result: Value) -> View | None:
    """A copy of images whose channels are grouped otherwise, shuffled say, that leaves them last in memory if they are; else None."""
    shape = dims(result)
    lead = len(view.shape) - (len(shape) - 2)
    if not 4 <= len(shape) <= 5 or lead < 2 or view.shape[lead:] != shape[2:] or 1 not in view.strides[:lead]:
        return None
    back = lowerer.output(result, (0, *range(2, len(shape)), 1)).reshaped(view.shape)
    if back is None:
        return None
    lowerer.copy(view, back)
    return lowerer.view(result)


def _keeps_width(node: Node) -> bool:
    types = [value.type.dtype for value in (node.inputs[0], node.outputs[0]) if value and isinstance(value.type, TensorType)]
    return len({dtype.bits for dtype in types if dtype is not None}) == 1


@lower("BitCast", claims=_keeps_width, costly=False)
def bit_cast(lowerer: Lowerer, node: Node) -> None:
    """The same bits as elements of another type."""
    lowerer.set_view(node.outputs[0], replace(lowerer.view(required(node.inputs[0])), type=stored(node.outputs[0])))


def _code_of(value: Value) -> int:
    dtype = element_type(value)
    assert dtype is not None
    return dtype.code


@compose("CastLike")
def cast_like(op: Composer, input: Value, target_type: Value, saturate: int | None, round_mode: str | None) -> Value:
    made: Value = op.Cast(input, to=_code_of(target_type), saturate=saturate, round_mode=round_mode)
    return made


@lower("Transpose")
def transpose(lowerer: Lowerer, node: Node) -> None:
    """The axes in another order."""
    view = lowerer.view(required(node.inputs[0]))
    perm = node.attribute("perm") or list(reversed(range(len(view.shape))))
    lowerer.set_view(node.outputs[0], view.transposed(perm))


@lower("Expand", costly=False)
def expand(lowerer: Lowerer, node: Node) -> None:
    """The same elements again and again."""
    lowerer.set_view(node.outputs[0], lowerer.broadcast(lowerer.view(required(node.inputs[0])), dims(node.outputs[0])))


# --- parts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """What a slice takes of an axis."""

    axis: int
    start: Dim
    size: Dim
    step: int


def slice_windows(node: Node) -> list[Window] | None:
    """What a Slice takes; None if that depends on data."""
    data = required(node.inputs[0])
    shape = dims(data)
    starts, ends = content(node, "starts"), content(node, "ends")
    if starts is None or ends is None or not is_known(node, "axes", "steps"):
        return None
    axes = content(node, "axes") or list(range(len(starts)))
    steps = content(node, "steps") or [1] * len(starts)
    windows = []
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if not isinstance(axis, int) or not isinstance(step, int) or step == 0:
            return None
        window = _window(axis % len(shape), shape[axis], start, slice_end(end, step), step)
        if window is None:
            return None
        windows.append(window)
    return windows


def _window(axis: int, size: Dim, start: Dim, end: Dim, step: int) -> Window | None:
    """The spec's rules for bounds: negative ones count from the end, and all are clamped into the axis."""
    if step < 0:
        return _window_backward(axis, size, start, end, step)
    first = _clamped(size, start)
    if first is None:
        return None
    if isinstance(start, int) and start < 0 and isinstance(end, int) and end >= INFINITE:
        return Window(axis, first, dim.ceildiv(dim.minimum(size, -start), step), step)
    last = _clamped(size, end)
    return None if last is None else Window(axis, first, dim.maximum(0, dim.ceildiv(last - first, step)), step)


def _clamped(size: Dim, bound: Dim) -> Dim | None:
    """A bound inside [0, size], None if it is not known on which side it counts."""
    if isinstance(bound, int):
        if bound >= INFINITE:
            return size
        return dim.minimum(bound, size) if bound >= 0 else dim.maximum(0, size + bound)
    return dim.minimum(bound, size) if dim.is_nonnegative(bound) else None


def _window_backward(axis: int, size: Dim, start: Dim, end: Dim, step: int) -> Window | None:
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        start, end = (bound + size if bound < 0 else bound for bound in (start, end))
        start, end = max(min(start, size - 1), 0), min(max(end, -1), size - 1)
        return Window(axis, start, len(range(start, end, step)) if size else 0, step)
    from_end = isinstance(start, int) and (start == -1 or start >= INFINITE)
    to_front = isinstance(end, int) and end <= -INFINITE
    if to_front and not from_end and isinstance(start, int) and start >= 0:
        return Window(axis, dim.minimum(start, size - 1), dim.ceildiv(dim.minimum(start + 1, size), -step), step)
    return Window(axis, size - 1, dim.ceildiv(size, -step), step) if from_end and to_front else None


def is_known_part(node: Node) -> bool:
    """Whether shapes tell what a Slice takes. The sign of a bound may be open where its size is known."""
    windows = slice_windows(node)
    if windows is None:
        return False
    result = dims(node.outputs[0])
    return all(result[window.axis] == window.size for window in windows)


@lower("Slice", claims=is_known_part, costly=False)
def slice_data(lowerer: Lowerer, node: Node) -> None:
    """A part of a value."""
    view = lowerer.view(required(node.inputs[0]))
    for window in slice_windows(node) or ():
        view = view.sliced(window.axis, window.start, window.size, window.step)
    lowerer.set_view(node.outputs[0], view)


@lower("Split", claims=lambda node: is_known(node, "split"), costly=False, strided=True)
def split(lowerer: Lowerer, node: Node) -> None:
    """Parts of a value side by side along an axis."""
    view = lowerer.view(required(node.inputs[0]))
    axis = axis_of(node, len(view.shape))
    start: Dim = 0
    for result in node.outputs:
        size = dims(result)[axis]
        lowerer.set_view(result, view.sliced(axis, start, size))
        start = start + size
    lowerer.require(start, view.shape[axis])


@lower("UnfoldTensor", domain="com.microsoft", costly=False)
def unfold_tensor(lowerer: Lowerer, node: Node) -> None:
    """Overlapping parts of an axis, each of them along a new last axis."""
    view = lowerer.view(required(node.inputs[0]))
    axis = int(operand(node, "dim")) % len(view.shape)
    step, size = int(operand(node, "step")), int(operand(node, "size"))
    count = dims(node.outputs[0])[axis]
    lowerer.require(dim.maximum(count, 0), count)
    parts = view.sliced(axis, 0, count, step)
    lowerer.set_view(node.outputs[0], replace(parts, shape=(*parts.shape, size), strides=(*parts.strides, view.strides[axis])))


# --- one element everywhere -----------------------------------------------------------------------------------------


def filled(lowerer: Lowerer, number: np.ndarray, value: Value) -> View:
    """A view of a value's shape that shows one element everywhere."""
    type = element_of(value)
    assert type is not None and isinstance(value.type, TensorType) and value.type.dtype is not None
    element = lowerer.constant(np.array(number, value.type.dtype.numpy).reshape(1))
    shape = dims(value)
    return View(element, type, shape, (0,) * len(shape))


@lower("ConstantOfShape", claims=lambda node: content(node, "input") is not None, costly=False)
def constant_of_shape(lowerer: Lowerer, node: Node) -> None:
    """One number in a shape."""
    number = operand(node, "value")
    result = node.outputs[0]
    lowerer.set_view(result, filled(lowerer, np.zeros(1) if number is None else number, result))


def broadcast_element(view: View, shape: Sequence[Dim]) -> View:
    """A view of one element as it stands everywhere in a shape."""
    return replace(view, shape=tuple(shape), strides=(0,) * len(shape))
