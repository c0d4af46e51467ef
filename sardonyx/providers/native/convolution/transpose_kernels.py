"""Kernels that add up what the windows of a transposed convolution give to each pixel of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, I64, Type
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.movement.walking import runs
from sardonyx.providers.native.rows.passes import items
from sardonyx.records import dataclass

VECTORS = 4


@dataclass(frozen=True)
class Spread:
    """What shapes the code."""

    type: Type
    axes: int


@dataclass(frozen=True)
class _Axis:
    """A spatial axis, as numbers among the kernel's arguments."""

    output: Value
    input: Value
    kernel: Value
    stride: Value
    dilation: Value
    begin: Value
    pixel_step: Value
    """From the products of one pixel to those of the next."""
    tap_step: Value
    next_tap: Value
    back: Value
    first_taps: Value

    def start(self, f: KernelFunction, place: Value) -> tuple[Value, Value]:
        """The first tap that may meet a pixel of the result, and the pixel that it belongs to then."""
        whole = place + self.begin
        turns = whole // self.stride
        phase = whole - turns * self.stride
        negative = phase < 0
        phase, turns = f.select(negative, phase + self.stride, phase), f.select(negative, turns - 1, turns)
        tap = f.load(self.first_taps, phase, I64)
        return tap, turns - (tap * self.dilation - phase) // self.stride


class _Code:
    """What both kernels have in common."""

    def __init__(self, f: KernelFunction, spread: Spread, chain: Chain):
        self.f = f
        self.type = spread.type
        self.products, self.bias = f.pointer(), f.pointer()
        self.groups, self.filters, self.image_step, self.taps = (f.size() for _ in range(4))
        self.axes = [_Axis(*(f.size() if number < 10 else f.pointer() for number in range(11))) for _ in range(spread.axes)]
        self.code = ChainCode(f, chain)

    def position(self, places: Sequence[Value]) -> Value:
        number = self.f.const(I64, 0)
        for axis, place in zip(self.axes, places):
            number = number * axis.output + place
        return number

    def each(
        self, axes: Sequence[_Axis], starts: Sequence[tuple[Value, Value]], offset: Value, do: Callable[[Value], None]
    ) -> None:
        """`do(offset)` for each product that some axes' taps give to a pixel."""
        if not axes:
            do(offset)
            return
        f, axis, (first, pixel) = self.f, axes[0], starts[0]
        with f.loop(first, axis.kernel, axis.next_tap) as tap:
            here = pixel - ((tap - first) // axis.next_tap) * axis.back
            with f.if_((here >= 0) & (here < axis.input)):
                self.each(axes[1:], starts[1:], offset + here * axis.pixel_step + tap * axis.tap_step, do)


@kernel("sum products")
def spread_kernel(f: KernelFunction, spread: Spread, chain: Chain) -> None:
    """Vectors run along the channels. Items are pixels of the result."""
    code = _Code(f, spread, chain)
    lanes = f.lanes(spread.type)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        image, *places = outer
        starts = [axis.start(f, place) for axis, place in zip(code.axes, places)]
        with f.loop(column, column + count) as last:
            found = [*starts, code.axes[-1].start(f, last)]
            target = code.code.row([image, code.position([*places, last])])
            with f.loop(0, code.groups) as group:
                channels(image * code.image_step + group * code.taps * code.filters, group * code.filters, found, target)

    def channels(offset: Value, first: Value, starts: Sequence[tuple[Value, Value]], target: object) -> None:
        many = code.filters - code.filters % (VECTORS * lanes)
        for start, stop, vectors in ((f.const(I64, 0), many, VECTORS), (many, code.filters, 1)):
            with f.loop(start, stop, vectors * lanes) as channel:
                remaining = code.filters - channel if vectors == 1 else None
                block(offset + channel, first + channel, vectors, remaining, starts, target)

    def block(
        offset: Value,
        channel: Value,
        vectors: int,
        remaining: Value | None,
        starts: Sequence[tuple[Value, Value]],
        target: object,
    ) -> None:
        places = [channel + number * lanes for number in range(vectors)]
        totals = [f.variable(f.load(code.bias, place, spread.type, lanes, remaining=remaining)) for place in places]

        def add(here: Value) -> None:
            for number, total in enumerate(totals):
                part = f.load(code.products, here + number * lanes, spread.type, lanes, remaining=remaining)
                total.set(total.get() + part)

        code.each(code.axes, starts, offset, add)
        for place, total in zip(places, totals):
            target.emit(place, lanes, remaining, given=[total.get()])  # type: ignore[attr-defined]

    runs(f, [axis.output for axis in code.axes], run)


@kernel("sum rows of products")
def spread_rows_kernel(f: KernelFunction, spread: Spread, chain: Chain) -> None:
    """Vectors run along rows of one channel. Items are rows of the result."""
    code = _Code(f, spread, chain)
    *outer, axis = code.axes
    lanes = f.lanes(spread.type)
    with items(f, [code.groups * code.filters, *(one.output for one in outer)]) as (_, (image, channel, *places)):
        starts = [one.start(f, place) for one, place in zip(outer, places)]
        group, filter = channel // code.filters, channel % code.filters
        offset = image * code.image_step + group * code.taps * code.filters + filter
        target = code.code.row([image, channel])
        base = code.position([*places, f.const(I64, 0)])
        bias = f.load(code.bias, channel, spread.type)
        inverse = f.splat(1.0 / f.convert(axis.stride, F32), lanes)

        with f.loop(0, axis.output, lanes) as column:
            total = f.variable(f.splat(bias, lanes))
            left = f.first_lanes(axis.output - column, lanes)
            numbers = f.iota(I64, lanes) + f.splat(column + axis.begin, lanes)

            def line(here: Value) -> None:
                with f.loop(0, axis.kernel) as tap:
                    whole = f.convert(numbers - f.splat(tap * axis.dilation, lanes), F32)
                    turns = f.floor((whole + 0.5) * inverse)
                    pixel = f.convert(turns, I64)
                    meets = turns * f.splat(f.convert(axis.stride, F32), lanes) == whole
                    meets = meets & (pixel >= 0) & (pixel < f.splat(axis.input, lanes)) & left
                    indices = pixel * f.splat(axis.pixel_step, lanes) + f.splat(here + tap * axis.tap_step, lanes)
                    part = f.gather(code.products, indices, spread.type, mask=meets)
                    total.set(total.get() + part)

            code.each(outer, starts, offset, line)
            target.emit(base + column, lanes, axis.output - column, given=[total.get()])
