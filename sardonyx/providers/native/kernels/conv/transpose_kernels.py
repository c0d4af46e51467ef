"""Kernels that add up what the windows of a transposed convolution give to each pixel of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import F32, I64, Type
from sardonyx.providers.native.kernels.conv.tiles import WindowAxis
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.shape.walking import runs
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

VECTORS = 4


@dataclass(frozen=True)
class Spread:
    """What shapes the code."""

    type: Type
    axes: int


class TransposedAxis(WindowAxis):
    """A spatial axis; `begin` is how many pixels of the result are left out before it."""

    pixel_step: Size
    """From the products of one pixel to those of the next."""
    tap_step: Size
    next_tap: Size
    """How many taps behind one that meets a pixel of the result the next one is that does,"""
    back: Size
    """and how many pixels before the other's the pixel is that it belongs to."""
    first_taps: Pointer
    """The first tap that meets a pixel of the result, by the pixel's place modulo the stride; more than there are if none does."""

    def start(self, f: KernelFunction, place: Value) -> tuple[Value, Value]:
        """The first tap that may meet a pixel of the result, and the pixel that it belongs to then."""
        whole = place + self.begin
        turns = whole // self.stride
        phase = whole - turns * self.stride
        negative = phase < 0
        phase, turns = f.select(negative, phase + self.stride, phase), f.select(negative, turns - 1, turns)
        tap = f.load(self.first_taps, phase, I64)
        return tap, turns - (tap * self.dilation - phase) // self.stride


class SpreadArguments(Arguments):
    products: Pointer
    """(images, pixels, groups, taps, filters)."""
    bias: Pointer
    groups: Size
    filters: Size
    """Of a group."""
    image_step: Size
    taps: Size
    axes: Sequence[TransposedAxis] = each(lambda spread: spread.axes)
    sink: Operands = group(lambda chain: chain.slots)


Starts = Sequence[tuple[Value, Value]]
"""For each axis what `TransposedAxis.start` says."""


class _Code:
    """What both kernels have in common."""

    def __init__(self, f: KernelFunction, a: SpreadArguments, spread: Spread, chain: Chain):
        self.f = f
        self.a = a
        self.type = spread.type
        self.lanes = f.lanes(spread.type)
        self.epilogue = ChainCode(f, chain, a.sink)

    def position(self, places: Sequence[Value]) -> Value:
        number = self.f.const(I64, 0)
        for axis, place in zip(self.a.axes, places):
            number = number * axis.output + place
        return number

    def each(self, axes: Sequence[TransposedAxis], starts: Starts, offset: Value, do: Callable[[Value], None]) -> None:
        """`do(offset)` for each product that some axes' taps give to a pixel."""
        if not axes:
            do(offset)
            return
        f, axis, (first, pixel) = self.f, axes[0], starts[0]
        with f.loop(first, axis.kernel, axis.next_tap) as tap:
            here = pixel - ((tap - first) // axis.next_tap) * axis.back
            with f.if_((here >= 0) & (here < axis.input)):
                self.each(axes[1:], starts[1:], offset + here * axis.pixel_step + tap * axis.tap_step, do)


# --- vectors along the channels -------------------------------------------------------------------------------------


@kernel("sum products", SpreadArguments)
def spread_kernel(f: KernelFunction, a: SpreadArguments, spread: Spread, chain: Chain) -> None:
    """Vectors run along the channels. Items are pixels of the result."""
    code = _Code(f, a, spread, chain)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        image, *places = outer
        starts = [axis.start(f, place) for axis, place in zip(a.axes, places)]
        with f.loop(column, column + count) as last:
            all_starts = [*starts, a.axes[-1].start(f, last)]
            target = code.epilogue.row([image, code.position([*places, last])])
            with f.loop(0, a.groups) as number:
                _group(code, image * a.image_step + number * a.taps * a.filters, number * a.filters, all_starts, target)

    runs(f, [axis.output for axis in a.axes], run)


def _group(code: _Code, offset: Value, first: Value, starts: Starts, target: ChainRow) -> None:
    """All filters of a group: several vectors at a time, then single ones."""
    f, filters = code.f, code.a.filters
    many = filters - filters % (VECTORS * code.lanes)
    for start, stop, vectors in ((f.const(I64, 0), many, VECTORS), (many, filters, 1)):
        with f.loop(start, stop, vectors * code.lanes) as channel:
            remaining = filters - channel if vectors == 1 else None
            _vectors(code, offset + channel, first + channel, vectors, remaining, starts, target)


def _vectors(
    code: _Code, offset: Value, channel: Value, vectors: int, remaining: Value | None, starts: Starts, target: ChainRow
) -> None:
    """Add up the products that some channels of a pixel are given."""
    f, a, type, lanes = code.f, code.a, code.type, code.lanes
    places = [channel + number * lanes for number in range(vectors)]
    totals = [f.variable(f.load(a.bias, place, type, lanes, remaining=remaining)) for place in places]

    def add(here: Value) -> None:
        for number, total in enumerate(totals):
            part = f.load(a.products, here + number * lanes, type, lanes, remaining=remaining)
            total.set(total.get() + part)

    code.each(a.axes, starts, offset, add)
    for place, total in zip(places, totals):
        target.emit(place, lanes, remaining, given=[total.get()])


# --- vectors along rows ---------------------------------------------------------------------------------------------


@kernel("sum rows of products", SpreadArguments)
def spread_rows_kernel(f: KernelFunction, a: SpreadArguments, spread: Spread, chain: Chain) -> None:
    """Vectors run along rows of one channel. Items are rows of the result."""
    code = _Code(f, a, spread, chain)
    *outer, axis = a.axes
    with items(f, [a.groups * a.filters, *(above.output for above in outer)]) as (_, (image, channel, *places)):
        starts = [above.start(f, place) for above, place in zip(outer, places)]
        number, filter = channel // a.filters, channel % a.filters
        offset = image * a.image_step + number * a.taps * a.filters + filter
        target = code.epilogue.row([image, channel])
        base = code.position([*places, f.const(I64, 0)])
        bias = f.load(a.bias, channel, spread.type)
        inverse = f.splat(1.0 / f.convert(axis.stride, F32), code.lanes)
        with f.loop(0, axis.output, code.lanes) as column:
            total = f.variable(f.splat(bias, code.lanes))

            def add(here: Value) -> None:
                _add_line(code, total, column, here, inverse)

            code.each(outer, starts, offset, add)
            target.emit(base + column, code.lanes, axis.output - column, given=[total.get()])


def _add_line(code: _Code, total: Variable, column: Value, offset: Value, inverse: Value) -> None:
    """Products of one line of the image for a vector of pixels: of each tap those whose pixel it meets."""
    f, axis, lanes = code.f, code.a.axes[-1], code.lanes
    left = f.first_lanes(axis.output - column, lanes)
    numbers = f.iota(I64, lanes) + f.splat(column + axis.begin, lanes)
    with f.loop(0, axis.kernel) as tap:
        whole = f.convert(numbers - f.splat(tap * axis.dilation, lanes), F32)
        turns = f.floor((whole + 0.5) * inverse)
        pixel = f.convert(turns, I64)
        meets = turns * f.splat(f.convert(axis.stride, F32), lanes) == whole
        meets = meets & (pixel >= 0) & (pixel < f.splat(axis.input, lanes)) & left
        indices = pixel * f.splat(axis.pixel_step, lanes) + f.splat(offset + tap * axis.tap_step, lanes)
        part = f.gather(code.a.products, indices, code.type, mask=meets)
        total.set(total.get() + part)
