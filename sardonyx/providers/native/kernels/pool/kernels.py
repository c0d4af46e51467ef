"""Kernels of pools over windows: vectors run along the channels where these lie in a row, else along the rows of the image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.powers import pow
from sardonyx.compiler.types import I64
from sardonyx.providers.native.kernels.conv.tiles import WindowAxis
from sardonyx.providers.native.kernels.image.image import Image
from sardonyx.providers.native.kernels.pool.form import Pool
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.shape.walking import runs
from sardonyx.providers.native.program.arguments import Arguments, Operands, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel

VECTORS = 4
"""So many vectors of channels are combined side by side."""


class Axis(WindowAxis):
    """A spatial axis."""

    end: Size
    """Pixels of padding behind it."""
    step: Size
    """From pixel to pixel in memory."""

    def first(self, place: Value) -> Value:
        """The pixel under the first tap of a window."""
        return place * self.stride - self.begin

    def range(self, f: KernelFunction, first: Value, before: Value | int = 0, after: Value | int = 0) -> tuple[Value, Value]:
        """Which taps lie inside the image, or inside some padding around it."""
        low = f.maximum(0, f.minimum(self.kernel, self._steps(f, -before - first)))
        high = f.maximum(low, f.minimum(self.kernel, self._steps(f, self.input + after - first)))
        return low, high

    def inner(self, f: KernelFunction, lanes: int) -> tuple[Value, Value]:
        """From where to where windows lie inside the image, whole vectors of them."""
        span = (self.kernel - 1) * self.dilation
        begin = f.minimum(self.output, (f.maximum(self.begin, 0) + (self.stride - 1)) // self.stride)
        fit = f.maximum(0, self.input + self.begin - span + (self.stride - 1)) // self.stride
        inside = f.maximum(0, f.minimum(self.output, fit) - begin)
        return begin, begin + (inside - inside % lanes)

    def _steps(self, f: KernelFunction, distance: Value) -> Value:
        """How many taps it takes to go so far, at least."""
        return (f.maximum(distance, 0) + (self.dilation - 1)) // self.dilation


Ranges = Sequence[tuple[Value, Value]]


class Windowed:
    """What both kernels have in common: how pixels are combined."""

    def __init__(self, f: KernelFunction, image: Image, axes: Sequence[Axis], pool: Pool):
        self.f = f
        self.image = image
        self.axes = axes
        self.pool = pool
        self.computed = pool.type.computed

    @property
    def neutral(self) -> float:
        """What a window begins with."""
        if self.pool.op != "max":
            return 0.0
        if self.pool.type.is_float:
            return -math.inf
        return -(1 << self.pool.type.bits - 1) if self.pool.type.is_signed else 0

    def start(self, lanes: int) -> Variable:
        return self.f.variable(self.f.const(self.computed.vector(lanes), self.neutral))

    def take(self, total: Variable, pixels: Value) -> None:
        """Combine what a tap meets with what the others met."""
        f, so_far = self.f, total.get()
        if self.pool.op == "max":
            larger = f.maximum(pixels, so_far)
            total.set(f.select(f.is_nan(pixels), pixels, larger) if pixels.type.is_float else larger)
        elif self.pool.op == "average":
            total.set(so_far + pixels)
        elif self.pool.p == 2:
            total.set(f.fma(pixels, pixels, so_far))
        else:
            magnitude = f.abs(pixels)
            total.set(so_far + (magnitude if self.pool.p == 1 else self._power(magnitude, self.pool.p)))

    def _power(self, x: Value, exponent: float) -> Value:
        return pow(x, self.f.const(x.type, exponent))

    def finished(self, total: Value, count: Value) -> Value:
        """A result; `count` pixels are averaged over."""
        f = self.f
        if self.pool.op == "average":
            return total / f.splat(f.convert(count, self.computed), total.type.lanes)
        if self.pool.op == "lp" and self.pool.p != 1:
            return f.sqrt(total) if self.pool.p == 2 else self._power(total, 1 / self.pool.p)
        return total

    def counted(self, axes: Sequence[Axis], firsts: Sequence[Value]) -> Value:
        """How many pixels windows are averaged over along some axes."""
        f, count = self.f, self.f.const(I64, 1)
        for axis, first in zip(axes, firsts):
            before, after = (axis.begin, axis.end) if self.pool.counts_pads else (0, 0)
            low, high = axis.range(f, first, before, after)
            count = count * (high - low)
        return f.maximum(count, 1)

    def taps(
        self, place: Value, axes: Sequence[Axis], firsts: Sequence[Value], ranges: Ranges, do: Callable[[Value], None]
    ) -> None:
        """`do(pointer)` for each tap along some axes that lies inside the image."""
        if not axes:
            do(place)
            return
        axis, first, (low, high) = axes[0], firsts[0], ranges[0]
        with self.f.loop(low, high) as tap:
            here = self.f.address(place, (first + tap * axis.dilation) * axis.step, self.pool.type)
            self.taps(here, axes[1:], firsts[1:], ranges[1:], do)

    def position(self, places: Sequence[Value]) -> Value:
        """The number of a pixel of the result."""
        number = self.f.const(I64, 0)
        for axis, place in zip(self.axes, places):
            number = number * axis.output + place
        return number


class PoolArguments(Arguments):
    image: Image
    axes: Sequence[Axis] = each(lambda pool: pool.axes)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("pool", PoolArguments)
def pool_kernel(f: KernelFunction, a: PoolArguments, pool: Pool, chain: Chain) -> None:
    """Channels lie in a row. Items are pixels of the result."""
    code, epilogue = Windowed(f, a.image, a.axes, pool), ChainCode(f, chain, a.sink)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        image, *places = outer
        plane = f.address(code.image.x, image * code.image.image_step, pool.type)
        with f.loop(column, column + count) as last:
            here = [*places, last]
            firsts = [axis.first(place) for axis, place in zip(code.axes, here)]
            _pixel(code, plane, firsts, epilogue.row([image, code.position(here)]))

    runs(f, [axis.output for axis in code.axes], run)


def _pixel(code: Windowed, plane: Value, firsts: Sequence[Value], target: ChainRow) -> None:
    """All channels of one pixel."""
    f, lanes = code.f, code.f.lanes(code.computed)
    ranges = [axis.range(f, first) for axis, first in zip(code.axes, firsts)]
    count = code.counted(code.axes, firsts) if code.pool.op == "average" else f.const(I64, 1)

    def block(channel: Value, vectors: int, remaining: Value | None) -> None:
        totals = [code.start(lanes) for _ in range(vectors)]

        def tap(place: Value) -> None:
            for number, total in enumerate(totals):
                code.take(total, f.load(place, channel + number * lanes, code.pool.type, lanes, remaining=remaining))

        code.taps(plane, code.axes, firsts, ranges, tap)
        for number, total in enumerate(totals):
            target.emit(channel + number * lanes, lanes, remaining, given=[code.finished(total.get(), count)])

    channels = code.image.channels
    many, whole = channels - channels % (VECTORS * lanes), channels - channels % lanes
    with f.loop(0, many, VECTORS * lanes) as channel:
        block(channel, VECTORS, None)
    with f.loop(many, whole, lanes) as channel:
        block(channel, 1, None)
    with f.if_(whole < channels):
        block(whole, 1, channels - whole)


@kernel("pool of rows", PoolArguments)
def pool_rows_kernel(f: KernelFunction, a: PoolArguments, pool: Pool, chain: Chain) -> None:
    """Pixels of a row lie side by side. Items are rows of the result."""
    code, epilogue = Windowed(f, a.image, a.axes, pool), ChainCode(f, chain, a.sink)
    outer = [axis.output for axis in a.axes[:-1]]
    with items(f, [code.image.channels, *outer]) as (_, (image, channel, *places)):
        plane = f.address(code.image.x, image * code.image.image_step + channel * code.image.channel_step, pool.type)
        _row(code, plane, places, epilogue.row([image, channel]))


def _row(code: Windowed, plane: Value, places: Sequence[Value], target: ChainRow) -> None:
    """Pixels at the ends, whose windows may hang over the edge, one by one; those between in vectors."""
    f, lanes = code.f, code.f.lanes(code.computed)
    *outer, axis = code.axes
    firsts = [above.first(place) for above, place in zip(outer, places)]
    ranges = [above.range(f, first) for above, first in zip(outer, firsts)]
    count = code.counted(outer, firsts) if code.pool.op == "average" else f.const(I64, 1)
    base = code.position([*places, f.const(I64, 0)])
    begin, whole = axis.inner(f, lanes)

    def pixels(column: Value, width: int) -> None:
        first = axis.first(column)
        total = code.start(width)
        low, high = axis.range(f, first) if width == 1 else (f.const(I64, 0), axis.kernel)

        def line(place: Value) -> None:
            with f.loop(low, high) as tap:
                code.take(total, spaced(code, place, first + tap * axis.dilation, width))

        code.taps(plane, outer, firsts, ranges, line)
        counted = count * code.counted([axis], [first]) if code.pool.op == "average" else count
        target.emit(base + column, width, given=[code.finished(total.get(), counted)])

    for start, stop, width in ((f.const(I64, 0), begin, 1), (begin, whole, lanes), (whole, axis.output, 1)):
        with f.loop(start, stop, width) as column:
            pixels(column, width)


def spaced(code: Windowed, place: Value, first: Value, width: int) -> Value:
    """Pixels of a row as far apart as windows are."""
    f, type, stride = code.f, code.pool.type, code.pool.stride
    if width == 1:
        return f.load(place, first, type)
    if stride == 1:
        return f.load(place, first, type, width)
    if stride == 2:
        # the second vector begins one pixel early, so that nothing behind the last one is read
        near, far = f.load(place, first, type, width), f.load(place, first + (width - 1), type, width)
        half = width // 2
        chosen = [2 * lane if lane < half else width + 2 * (lane - half) + 1 for lane in range(width)]
        return f.shuffle(near, far, chosen)
    steps = f.iota(I64, width) * f.splat(code.axes[-1].stride, width) + f.splat(first, width)
    return f.gather(place, steps, type)
