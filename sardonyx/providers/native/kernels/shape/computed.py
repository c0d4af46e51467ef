"""Ops whose results are as large as numbers say that a run computes: shapes, bounds of slices, repeats, margins, counts.

Small kernels read the numbers and say how large results are; the steps behind them settle these sizes. What is left is as it is where
the numbers are known. Numbers that make no sense are left to NumPy, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx import dtypes
from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, F64, I64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, operand, word
from sardonyx.providers.native.kernels.shape.blocks import PAD_MODES, Margins, pad_by
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES
from sardonyx.providers.native.kernels.shape.filling import claims_range, marks_with_two_values, one_hot
from sardonyx.providers.native.kernels.shape.views import axis_of, constant_of_shape, content, is_known_part, reshape
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.computed_sizes import (
    axes_of,
    has_numbers,
    numbers_at,
    numbers_of,
    positions,
    settle_shape,
    settle_to,
)
from sardonyx.providers.native.program.kernel import DeclaredKernel, KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required
from sardonyx.providers.native.program.views import View, contiguous_strides

CASE = "computed sizes"
LARGEST = 1 << 40
"""Counts beyond this are left to NumPy."""
INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1


def _is_computed(node: Node, name: str) -> bool:
    """Whether an operand has whole numbers that only a run tells."""
    value = input_named(node, name)
    return value is not None and content(node, name) is None and has_numbers(value)


def _input(node: Node, name: str) -> Value:
    return required(input_named(node, name))


def _count(node: Node, name: str) -> int:
    """How many numbers an operand has."""
    count = dim.product(dims(_input(node, name)))
    assert isinstance(count, int)
    return count


def _has_one_each(node: Node, name: str, wanted: int) -> bool:
    return _is_computed(node, name) and _count(node, name) == wanted


# --- shapes ---------------------------------------------------------------------------------------------------------


class ShapeArguments(Arguments):
    wanted: Pointer
    """What the operand asks for, int64."""
    sizes: Sequence[Size] = each(lambda rank: rank)
    """Those of the data."""
    target: Pointer
    """The sizes of the result."""
    status: Pointer


def _shape_by(
    lowerer: Lowerer, node: Node, make: Callable[..., DeclaredKernel], sizes: Sequence[Dim], *parameters: object
) -> None:
    """Settle a result's shape by a kernel that reads the operand `shape`."""
    numbers = numbers_of(lowerer, _input(node, "shape"))
    rank = rank_of(node.outputs[0])
    target = lowerer.scratch(I64.bytes * max(rank, 1))
    wanted = numbers[0] if numbers else At(target, 0)
    arguments = ShapeArguments(wanted=wanted, sizes=sizes, target=target, status=lowerer.status())
    lowerer.call(make(lowerer.target, len(sizes), len(numbers), *parameters), arguments, 1)
    settle_shape(lowerer, node.outputs[0], enumerate(numbers_at(target, rank)))


@kernel("shape of reshape", ShapeArguments)
def reshape_kernel(f: KernelFunction, a: ShapeArguments, rank: int, count: int, keeps_zeros: bool) -> None:
    """A 0 stands for the size that the data has there, and -1 for what is left."""
    found: list[Code] = []
    missing, rest, is_wrong = f.variable(0, I64), f.variable(1, I64), f.variable(False, BOOL)
    for axis in range(count):
        size = f.load(a.wanted, axis, I64)
        if not keeps_zeros:
            if axis < rank:
                size = f.select(size == 0, a.sizes[axis], size)
            else:
                is_wrong.set(is_wrong.get() | (size == 0))
        is_left = size == -1
        is_wrong.set(is_wrong.get() | (size < -1) | (size > LARGEST) | (rest.get() > LARGEST))
        missing.set(missing.get() + f.select(is_left, f.const(I64, 1), 0))
        rest.set(f.select(is_left, rest.get(), f.select(is_wrong.get(), f.const(I64, 1), rest.get() * size)))
        found.append(size)
    total = f.const(I64, 1)
    for size in a.sizes:
        total = total * size
    has_left = missing.get() > 0
    divisor = f.select(rest.get() == 0, f.const(I64, 1), rest.get())
    left = total // divisor
    is_even = (left * rest.get() == total) & (rest.get() != 0)
    is_wrong.set(is_wrong.get() | (missing.get() > 1) | (has_left & ~is_even))
    for axis, size in enumerate(found):
        f.store(f.select(size == -1, left, size), a.target, axis, I64)
    with f.if_(is_wrong.get()):
        f.store(1, a.status, 0, I64)


def _claims_reshape(node: Node) -> bool:
    return _has_one_each(node, "shape", rank_of(node.outputs[0])) and rank_of(_input(node, "data")) <= 8


@lower("Reshape", claims=_claims_reshape, case=CASE, costly=False, settles=True)
def reshape_to_computed(lowerer: Lowerer, node: Node) -> None:
    _shape_by(lowerer, node, reshape_kernel, dims(_input(node, "data")), bool(operand(node, "allowzero")))
    reshape(lowerer, node)


@kernel("shape of expansion", ShapeArguments)
def expand_kernel(f: KernelFunction, a: ShapeArguments, rank: int, count: int) -> None:
    """What is asked for, and the data's own size where that is 1 or nothing."""
    whole = max(rank, count)
    for axis in range(whole):
        own = a.sizes[axis - (whole - rank)] if axis >= whole - rank else f.const(I64, 1)
        if axis >= whole - count:
            wanted = f.load(a.wanted, axis - (whole - count), I64)
            own = f.select(wanted == 1, own, wanted)
        f.store(own, a.target, axis, I64)


@lower("Expand", claims=lambda node: _is_computed(node, "shape"), case=CASE, costly=False, settles=True)
def expand_to_computed(lowerer: Lowerer, node: Node) -> None:
    value = _input(node, "input")
    view = lowerer.view(value)
    _shape_by(lowerer, node, expand_kernel, dims(value))
    lowerer.set_view(node.outputs[0], lowerer.broadcast(view, dims(node.outputs[0])))


@lower(
    "ConstantOfShape",
    claims=lambda node: _has_one_each(node, "input", rank_of(node.outputs[0])),
    case=CASE,
    costly=False,
    settles=True,
)
def constant_of_computed_shape(lowerer: Lowerer, node: Node) -> None:
    settle_shape(lowerer, node.outputs[0], enumerate(numbers_of(lowerer, _input(node, "input"))))
    constant_of_shape(lowerer, node)


# --- repeats and margins --------------------------------------------------------------------------------------------


def _claims_tile(node: Node) -> bool:
    return _has_one_each(node, "repeats", rank_of(_input(node, "input")))


@lower("Tile", since=6, claims=_claims_tile, case=CASE, settles=True)
def tile_by_computed(lowerer: Lowerer, node: Node) -> None:
    value, result = _input(node, "input"), node.outputs[0]
    view, sizes = lowerer.view(value), dims(value)
    repeats = positions(lowerer, numbers_of(lowerer, _input(node, "repeats")))
    settle_shape(lowerer, result, enumerate(size * count for size, count in zip(sizes, repeats)))
    single = tuple(size for pair in zip([1] * len(sizes), sizes) for size in pair)
    copies = tuple(size for pair in zip(repeats, sizes) for size in pair)
    source = view.reshaped(single) or lowerer.contiguous(value).reshaped(single)
    target = lowerer.output(result)
    assert source is not None
    lowerer.copy(source.broadcast(copies), View(target.buffer, target.type, copies, contiguous_strides(copies), target.offset))


def _padded_axes(node: Node) -> list[int] | None:
    """Which axes get margins; None if that depends on data."""
    rank = rank_of(_input(node, "data"))
    axes = list(range(rank)) if input_named(node, "axes") is None else content(node, "axes")
    if axes is None or not all(isinstance(axis, int) and -rank <= axis < rank for axis in axes):
        return None
    found = [axis % rank for axis in axes if isinstance(axis, int)]
    return found if len(set(found)) == len(found) else None


def _claims_pad(node: Node) -> bool:
    if word(node, "mode", "constant") not in PAD_MODES or not _is_computed(node, "pads"):
        return False
    axes = _padded_axes(node)
    return axes is not None and _count(node, "pads") == 2 * len(axes)


@lower("Pad", since=11, claims=_claims_pad, case=CASE, settles=True)
def pad_by_computed(lowerer: Lowerer, node: Node) -> None:
    """Margins that take something away are left to NumPy."""
    value, axes = _input(node, "data"), _padded_axes(node) or []
    lowerer.view(value)
    widths = positions(lowerer, numbers_of(lowerer, _input(node, "pads")))
    margins: Margins = [(0, 0)] * rank_of(value)
    for axis, before, after in zip(axes, widths[: len(axes)], widths[len(axes) :]):
        margins[axis] = before, after
    sizes = [size + before + after for size, (before, after) in zip(dims(value), margins)]
    settle_shape(lowerer, node.outputs[0], enumerate(sizes))
    pad_by(lowerer, node, margins)


# --- slices ---------------------------------------------------------------------------------------------------------


class SliceArguments(Arguments):
    starts: Pointer
    ends: Pointer
    sizes: Sequence[Size] = each(lambda steps: len(steps))
    """Those of the axes that are cut."""
    target: Pointer
    """Where slices begin, and how much they take."""


@kernel("bounds of slices", SliceArguments)
def slice_kernel(f: KernelFunction, a: SliceArguments, steps: tuple[int, ...]) -> None:
    """Bounds that are negative count from the end, and all are clamped into the axis."""
    for number, (size, step) in enumerate(zip(a.sizes, steps)):
        start, end = f.load(a.starts, number, I64), f.load(a.ends, number, I64)
        if step < 0:
            end = f.select((end == (1 << 31) - 1) | (end == INT_MAX), f.const(I64, INT_MIN), end)
        start, end = (f.select(bound < 0, bound + size, bound) for bound in (start, end))
        if step > 0:
            start, end = (f.minimum(f.maximum(bound, 0), size) for bound in (start, end))
            distance = end - start
        else:
            start, end = f.maximum(f.minimum(start, size - 1), 0), f.minimum(f.maximum(end, -1), size - 1)
            distance = f.select(size > 0, start - end, 0)
        width = min(abs(step), LARGEST)
        f.store(start, a.target, 2 * number, I64)
        f.store(f.maximum(distance + (width - 1), 0) // width, a.target, 2 * number + 1, I64)


def _cut_axes(node: Node) -> tuple[list[int], tuple[int, ...]] | None:
    """The axes that a Slice cuts, and its steps; None if they depend on data or there are others than bounds."""
    rank, count = rank_of(required(node.inputs[0])), _count(node, "starts")
    axes, steps = (
        default if input_named(node, name) is None else content(node, name)
        for name, default in (("axes", list(range(count))), ("steps", [1] * count))
    )
    if axes is None or steps is None or len(axes) != count or len(steps) != count or _count(node, "ends") != count:
        return None
    if not all(isinstance(axis, int) and -rank <= axis < rank for axis in axes):
        return None
    cut = [axis % rank for axis in axes if isinstance(axis, int)]
    strides = tuple(step for step in steps if isinstance(step, int) and step != 0)
    return (cut, strides) if len(set(cut)) == len(cut) and len(strides) == count else None


def _claims_slice(node: Node) -> bool:
    bounds = [input_named(node, name) for name in ("starts", "ends")]
    return not is_known_part(node) and all(map(has_numbers, bounds)) and _cut_axes(node) is not None


@lower("Slice", since=10, claims=_claims_slice, case=CASE, costly=False, settles=True)
def slice_by_computed(lowerer: Lowerer, node: Node) -> None:
    value = required(node.inputs[0])
    cut = _cut_axes(node)
    assert cut is not None
    axes, steps = cut
    view = lowerer.view(value)
    starts, ends = (numbers_of(lowerer, _input(node, name)) for name in ("starts", "ends"))
    target = lowerer.scratch(I64.bytes * 2 * max(len(axes), 1))
    if axes:
        arguments = SliceArguments(starts=starts[0], ends=ends[0], sizes=[view.shape[axis] for axis in axes], target=target)
        lowerer.call(slice_kernel(lowerer.target, steps), arguments, 1)
    found = numbers_at(target, 2 * len(axes))
    first = [lowerer.sizes.add_data_size() for _ in axes]
    settle_to(lowerer, [*axes_of(node.outputs[0], zip(axes, found[1::2])), *zip(first, found[::2])])
    for axis, start, step in zip(axes, first, steps):
        view = view.sliced(axis, start, dims(node.outputs[0])[axis], step)
    lowerer.set_view(node.outputs[0], view)


@lower(
    "Split",
    since=13,
    claims=lambda node: _has_one_each(node, "split", len(node.outputs)),
    case=CASE,
    costly=False,
    settles=True,
)
def split_by_computed(lowerer: Lowerer, node: Node) -> None:
    view = lowerer.view(_input(node, "input"))
    axis = axis_of(node, len(view.shape))
    numbers = numbers_of(lowerer, _input(node, "split"))
    settle_to(lowerer, [pair for result, number in zip(node.outputs, numbers) for pair in axes_of(result, [(axis, number)])])
    start: Dim = 0
    for result in node.outputs:
        size = dims(result)[axis]
        lowerer.set_view(result, view.sliced(axis, start, size))
        start = start + size
    lowerer.require(start, view.shape[axis])


# --- numbers of things ----------------------------------------------------------------------------------------------


def _claims_one_hot(node: Node) -> bool:
    return _has_one_each(node, "depth", 1) and marks_with_two_values(node)


@lower("OneHot", claims=_claims_one_hot, case=CASE, settles=True, text=True)
def one_hot_of_computed_depth(lowerer: Lowerer, node: Node) -> None:
    result = node.outputs[0]
    axis = axis_of(node, rank_of(result), default=-1)
    settle_shape(lowerer, result, [(axis, number) for number in numbers_of(lowerer, _input(node, "depth"))])
    one_hot(lowerer, node)


def _claims_range(node: Node) -> bool:
    """Signed integers, and floats that are computed in float32 or float64, one number each."""
    type = element_of(node.outputs[0])
    if type is not None and type.is_narrow_float and operand(node, "stash_type") not in (None, dtypes.float32.code):
        return False
    values = [input_named(node, name) for name in ("start", "limit", "delta")]
    is_taken = type is not None and (type.is_float or (type.bits >= 32 and type.is_signed))
    return is_taken and all(value and dim.product(dims(value)) == 1 for value in values) and not claims_range(node)


@lower("Range", claims=_claims_range, case=CASE, costly=False, settles=True)
def computed_range(lowerer: Lowerer, node: Node) -> None:
    """Numbers at even distances, as many as they say themselves."""
    result = node.outputs[0]
    start, limit, delta = (lowerer.view(_input(node, name)).place for name in ("start", "limit", "delta"))
    type, count = element_of(result), lowerer.scratch(I64.bytes)
    assert type is not None
    bounds = RangeBounds(start=start, limit=limit, delta=delta, target=count, status=lowerer.status())
    lowerer.call(range_count_kernel(lowerer.target, type), bounds, 1)
    settle_shape(lowerer, result, [(0, count)])
    target = lowerer.output(result)
    length = target.shape[0]
    lowerer.call(
        computed_range_kernel(lowerer.target, type),
        ComputedRangeArguments(start=start, delta=delta, target=target.place),
        length,
        PIECE_BYTES // type.bytes,
        traffic=length * type.bytes,
    )


class RangeBounds(Arguments):
    start: Pointer
    limit: Pointer
    delta: Pointer
    target: Pointer
    status: Pointer


@kernel("length of range", RangeBounds)
def range_count_kernel(f: KernelFunction, a: RangeBounds, type: Type) -> None:
    start, limit, delta = (f.load(place, 0, type) for place in (a.start, a.limit, a.delta))
    wide = [f.convert(number, F64) for number in (start, limit, delta)]
    with f.exact():
        about = (wide[1] - wide[0]) / f.select(wide[2] == 0.0, f.const(F64, 1.0), wide[2])
    fits = (delta != f.const(type.computed, 0)) & (f.abs(about) < float(LARGEST))
    with f.if_else(fits) as otherwise:
        if type.is_float:
            count = f.convert(f.ceil(about), I64)
        else:
            distance, step = f.convert(limit, I64) - f.convert(start, I64), f.convert(delta, I64)
            quotient, rest = distance // step, distance % step
            count = quotient + f.select((rest != 0) & ((rest ^ step) >= 0), f.const(I64, 1), 0)
        f.store(f.maximum(count, 0), a.target, 0, I64)
        otherwise()
        f.store(1, a.status, 0, I64)


class ComputedRangeArguments(Arguments):
    start: Pointer
    delta: Pointer
    target: Pointer


@kernel("computed range", ComputedRangeArguments)
def computed_range_kernel(f: KernelFunction, a: ComputedRangeArguments, type: Type) -> None:
    """Items are elements. Integers out of range wrap around; floats are rounded after the product and after the sum."""
    start, delta = f.load(a.start, 0, type), f.load(a.delta, 0, type)
    with f.loop(f.begin, f.end) as item, f.exact():
        f.store(start + f.convert(item, type) * delta, a.target, item, type)
