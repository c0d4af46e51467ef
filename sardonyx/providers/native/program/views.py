"""How a value lies in a buffer: element type, sizes, strides. Transposing, slicing, broadcasting and reshaping make other views of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.steps import At, Buffer
from sardonyx.providers.native.program.values import dims, stored
from sardonyx.startup.records import dataclass, replace

Dims = tuple[Dim, ...]


@dataclass(frozen=True)
class View:
    """Elements of a buffer; strides and offset are counted in elements."""

    buffer: Buffer
    type: Type
    shape: Dims
    strides: Dims
    offset: Dim = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one after the other (axes of size 1 don't matter)."""
        wanted = contiguous_strides(self.shape)
        return all(size == 1 or mine == his for size, mine, his in zip(self.shape, self.strides, wanted))

    @property
    def place(self) -> At:
        """Where the first element lies."""
        return At(self.buffer, self.offset * self.type.bytes)

    def transposed(self, axes: Sequence[int]) -> View:
        return replace(self, shape=tuple(self.shape[axis] for axis in axes), strides=tuple(self.strides[axis] for axis in axes))

    def broadcast(self, shape: Dims) -> View:
        """The same elements repeated along axes of size 1 and new leading ones."""
        missing = len(shape) - len(self.shape)
        strides = (0,) * missing + tuple(
            broadcast_stride(stride, size, wanted) for stride, size, wanted in zip(self.strides, self.shape, shape[missing:])
        )
        return replace(self, shape=shape, strides=strides)

    def split(self, axis: int, size: int) -> View:
        """With an axis, a multiple of `size`, as two: parts of that size, and what is in them."""
        count, stride = dim.floordiv(self.shape[axis], size), self.strides[axis]
        shape = (*self.shape[:axis], count, size, *self.shape[axis + 1 :])
        return replace(self, shape=shape, strides=(*self.strides[:axis], stride * size, stride, *self.strides[axis + 1 :]))

    def with_axes_behind(self, count: int) -> View:
        """With so many axes of size 1 behind the others."""
        return replace(self, shape=(*self.shape, *(1,) * count), strides=(*self.strides, *(0,) * count))

    def sliced(self, axis: int, start: Dim, size: Dim, step: Dim = 1) -> View:
        """`size` elements of an axis, from `start` on, each `step` after the one before; backward if that is negative."""
        shape, strides = list(self.shape), list(self.strides)
        shape[axis], strides[axis] = size, self.strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=self.offset + start * self.strides[axis])

    def reshaped(self, shape: Dims) -> View | None:
        """The same elements in another shape; None if that needs a copy."""
        if self.is_contiguous or 0 in shape:
            return replace(self, shape=shape, strides=contiguous_strides(shape))
        mine = [(size, stride) for size, stride in zip(self.shape, self.strides) if size != 1]
        kept = [size for size in shape if size != 1]
        steps = _reshaped_strides([size for size, _ in mine], [stride for _, stride in mine], kept)
        if steps is None:
            return None
        rest = iter(steps)
        return replace(self, shape=shape, strides=tuple(0 if size == 1 else next(rest) for size in shape))


def _reshaped_strides(shape: Sequence[Dim], strides: Sequence[Dim], wanted: Sequence[Dim]) -> list[Dim] | None:
    """Strides for the shape `wanted`; None where it cuts across axes that are not evenly stepped through.

    Both shapes are cut where as many elements lie before the cut in the one as in the other. What lies between two cuts must be one
    axis, evenly stepped through, which then falls into the wanted sizes.
    """
    ends = {dim.product(wanted[:count]): count for count in range(1, len(wanted) + 1)}
    new_strides: list[Dim] = []
    start = axis = 0
    for count in range(1, len(shape) + 1):
        end = ends.get(dim.product(shape[:count]))
        if end is None:
            continue
        sizes, steps = collapse(tuple(shape[start:count]), [tuple(strides[start:count])])
        if len(sizes) > 1 or end <= axis:
            return None
        new_strides += [inner * steps[0][0] for inner in contiguous_strides(wanted[axis:end])]
        start, axis = count, end
    return new_strides if start == len(shape) and axis == len(wanted) else None


def permuted(items: Sequence[Dim], order: Sequence[int]) -> Dims:
    """Sizes or strides in another order of axes."""
    return tuple(items[axis] for axis in order)


def dense_order(view: View) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost, if the elements lie without gaps in that order; else None."""
    left = [axis for axis, size in enumerate(view.shape) if size != 1]
    order: list[int] = []
    total: Dim = 1
    while left:
        following = next((axis for axis in reversed(left) if view.strides[axis] == total), None)
        if following is None:
            return None
        left.remove(following)
        order.append(following)
        total = total * view.shape[following]
    ones = [axis for axis, size in enumerate(view.shape) if size == 1]
    return (*ones, *reversed(order))


def memory_order(view: View) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost, behind whose elements alone there may be gaps: some channels of pixels."""
    dense = dense_order(view)
    if dense is not None:
        return dense
    inner = next((axis for axis in reversed(range(len(view.shape))) if view.strides[axis] == 1 and view.shape[axis] != 1), None)
    if inner is None:
        return None
    for axis, size in enumerate(view.shape):
        if axis != inner and size != 1:
            # as if the gaps belonged to the elements: pixels of so many channels each
            rest = [other for other in range(len(view.shape)) if other != inner]
            whole = replace(
                view,
                shape=(*permuted(view.shape, rest), view.strides[axis]),
                strides=(*permuted(view.strides, rest), 1),
            )
            order = dense_order(whole)
            if order is not None and order[-1] == len(rest):
                return (*(rest[place] for place in order[:-1]), inner)
    return None


def dense_strides(shape: Sequence[Dim], order: Sequence[int]) -> Dims:
    """Strides of elements that lie without gaps with the axes in this order, the outermost first."""
    strides = dict(zip(order, contiguous_strides(permuted(shape, order))))
    return tuple(strides[axis] for axis in range(len(shape)))


def contiguous_view(value: Value, buffer: Buffer) -> View:
    """A value without gaps in a buffer."""
    return View(buffer, stored(value), dims(value), contiguous_strides(dims(value)))


def contiguous_strides(shape: Sequence[Dim]) -> Dims:
    return _contiguous_strides(tuple(shape))


@functools.lru_cache(maxsize=1024)
def _contiguous_strides(shape: Dims) -> Dims:
    strides: list[Dim] = []
    total: Dim = 1
    for size in reversed(shape):
        strides.append(total)
        total = total * size
    return tuple(reversed(strides))


def broadcast_stride(stride: Dim, size: Dim, wanted: Dim) -> Dim:
    """0 where one element stands for all. Whether it does may be known only at run time, when a size turns out to be 1."""
    if size == 1:
        return 0
    if size == wanted or isinstance(size, int):
        return stride
    return stride * dim.minimum(size - 1, 1)


def collapse(shape: Dims, strides: Sequence[Dims]) -> tuple[Dims, list[Dims]]:
    """The same loops with fewer axes: those of size 1 left out, neighbours joined where every operand steps through both evenly."""
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    sizes: list[Dim] = []
    steps: list[list[Dim]] = [[] for _ in strides]
    for axis in kept:
        size = shape[axis]
        if sizes and all(joined[-1] == operand[axis] * size for joined, operand in zip(steps, strides)):
            sizes[-1] = sizes[-1] * size
            for joined, operand in zip(steps, strides):
                joined[-1] = operand[axis]
        else:
            sizes.append(size)
            for joined, operand in zip(steps, strides):
                joined.append(operand[axis])
    if not sizes:
        return (1,), [(0,) for _ in strides]
    return tuple(sizes), [tuple(joined) for joined in steps]


def grouped_shape(shape: Dims, groups: Sequence[int]) -> Dims:
    """The sizes of a domain's axes, each standing for some axes of a shape."""
    sizes, axis = [], 0
    for count in groups:
        sizes.append(dim.product(shape[axis : axis + count]))
        axis += count
    return tuple(sizes)


def regrouped(shape: Dims, strides: Dims, groups: Sequence[int]) -> Dims | None:
    """Strides along the axes of a domain; None where an operand does not step evenly through the axes that one of them stands for."""
    return _regrouped(shape, strides, tuple(groups))


@functools.lru_cache(maxsize=1024)
def _regrouped(shape: Dims, strides: Dims, groups: tuple[int, ...]) -> Dims | None:
    new_strides: list[Dim] = []
    axis = 0
    for count in groups:
        sizes, steps = collapse(shape[axis : axis + count], [strides[axis : axis + count]])
        if len(sizes) > 1:
            return None
        new_strides.append(steps[0][0])
        axis += count
    return tuple(new_strides)
