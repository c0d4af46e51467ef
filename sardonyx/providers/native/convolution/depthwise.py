"""Depthwise convolutions and those of small groups: vectors run along the channels, which lie last. Lowerings of convolutions call it.

A tile is a few pixels of a row by one or two vectors of filters. Of each row of the window the columns under the tile are loaded once and
multiplied by every tap that meets them; a column outside the image is read from a row of zeros, rows outside it are left out. Where a group
has several channels, a vector holds whole groups, and a shuffle brings one channel of each group to all filters of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import I64, PTR, Type
from sardonyx.ir import Dim, dim
from sardonyx.ir import Value as Constant
from sardonyx.providers.native.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.convolution.form import Geometry, axes_of
from sardonyx.providers.native.convolution.tiles import Axis, chain_weight, grain_for
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer, Sink
from sardonyx.providers.native.views import View
from sardonyx.providers.native.weights import aligned_empty
from sardonyx.providers.prepacking import Layout
from sardonyx.records import dataclass

DEPTHWISE = Layout("depthwise")
MAX_TAPS = 7
"""How many taps of a row are multiplied by a column while it is at hand."""
PIXELS = 7
"""Pixels of a tile: images are often 7, 14, 28, 56 or 112 pixels wide."""
LIGHT = 32
"""Up to how many instructions per vector what follows is repeated for each register of a tile; beyond, it is a loop."""


@dataclass(frozen=True)
class Rows:
    """What shapes the code."""

    type: Type
    outer: int
    """Spatial axes other than the innermost."""
    taps: int
    """Taps along the innermost axis that are done at once; the kernel's size is a multiple of it."""
    stride: int
    dilation: int
    vectors: int
    inputs: int = 1
    """Channels of a group."""
    outputs: int = 1
    """Filters of a group; they divide the lanes of a vector, and are not fewer than the channels."""


def has_small_groups(lowerer: Lowerer, geometry: Geometry, type: Type) -> bool:
    """Whether vectors hold whole groups."""
    lanes = lowerer.target.lanes(type)
    filters = geometry.filters
    return geometry.groups > 1 and geometry.channels <= filters and filters < lanes and lanes % filters == 0


def depthwise_steps(lowerer: Lowerer, geometry: Geometry, view: View, W: Constant, B: Constant | None, sink: Sink) -> None:
    """Add the step of a convolution of small groups."""
    dtype = np.dtype(f"f{view.type.bytes}")
    inputs, outputs = geometry.channels, geometry.filters
    channels = geometry.groups * outputs

    def pack(weights: np.ndarray, bias: np.ndarray | None = None) -> list[np.ndarray]:
        ordered = aligned_empty((geometry.taps, inputs, channels), dtype)
        ordered[...] = weights.reshape(channels, inputs, geometry.taps).transpose(2, 1, 0)
        return [ordered, np.zeros(channels, dtype) if bias is None else bias.astype(dtype)]

    sizes = [geometry.taps * inputs * channels * view.type.bytes, channels * view.type.bytes]
    filters, bias = lowerer.packed([W] if B is None else [W, B], DEPTHWISE, (inputs, channels, dtype.str), sizes, pack)
    width = geometry.kernel[-1]
    taps = max(count for count in range(1, MAX_TAPS + 1) if width % count == 0)
    vectors = 2 if lowerer.target.vector_registers >= 32 and taps < MAX_TAPS and outputs == 1 else 1
    rows = Rows(
        view.type, len(geometry.kernel) - 1, taps, geometry.strides[-1], geometry.dilations[-1], vectors, inputs, outputs
    )
    *outer, row = axes_of(geometry, view)
    lines: Dim = dim.product(geometry.output[:-1])
    lowerer.call(
        depthwise_kernel(lowerer.target, rows, sink.chain),
        DepthwiseArguments(
            x=view.place,
            w=filters,
            bias=bias,
            zeros=lowerer.constant(np.zeros(geometry.groups * inputs, dtype)),
            channels=channels,
            image_step=view.strides[0],
            outer=outer,
            row=row,
            sink=sink.arguments,
        ),
        geometry.batch * lines,
        grain_for(geometry.output[-1] * (channels * (geometry.taps * inputs + 4))),
        flops=geometry.flops,
        traffic=geometry.batch
        * (dim.product(geometry.input) * inputs + geometry.positions * outputs)
        * (geometry.groups * view.type.bytes),
    )


class DepthwiseArguments(Arguments):
    x: Pointer
    w: Pointer
    """Filters by taps, then by the channels of a group."""
    bias: Pointer
    zeros: Pointer
    """A pixel of the padding."""
    channels: Size
    """Of the result."""
    image_step: Size
    outer: Sequence[Axis] = each(lambda rows: rows.outer)
    row: Axis
    """The innermost axis. Its stride and dilation shape the code."""
    sink: Operands = group(lambda chain: chain.slots)


@kernel("depthwise", DepthwiseArguments)
def depthwise_kernel(f: KernelFunction, a: DepthwiseArguments, rows: Rows, chain: Chain) -> None:
    """Items are rows of the result."""
    code = _Depthwise(f, a, rows, chain)
    with f.loop(f.begin, f.end) as item:
        code.line(item)


class _Depthwise:
    """The code."""

    def __init__(self, f: KernelFunction, a: DepthwiseArguments, rows: Rows, chain: Chain):
        self.f = f
        self.a = a
        self.rows = rows
        self.lanes = f.lanes(rows.type)
        self.code = ChainCode(f, chain, a.sink)
        self.is_light = chain_weight(f.target, chain, self.lanes) <= LIGHT
        self.spilled = f.stack(rows.type, PIXELS * rows.vectors * self.lanes)
        used = sorted({self._column(pixel, tap) for pixel in range(PIXELS) for tap in range(rows.taps)})
        self.columns = used
        """Columns that a tile meets, counted from its window's first."""

    def _column(self, pixel: int, tap: int) -> int:
        return pixel * self.rows.stride + tap * self.rows.dilation

    def line(self, item: Value) -> None:
        """One row of an image."""
        f = self.f
        places: list[Value] = []
        rest = item
        for axis in reversed(self.a.outer):
            places.insert(0, rest % axis.output)
            rest = rest // axis.output
        image = f.address(self.a.x, rest * self.a.image_step, self.rows.type)
        position = f.const(I64, 0)
        for axis, place in zip(self.a.outer, places):
            position = position * axis.output + place
        firsts = [place * axis.stride - axis.begin for axis, place in zip(self.a.outer, places)]
        with f.loop(0, self.a.row.output, PIXELS) as start:
            first = f.maximum(f.minimum(start, self.a.row.output - PIXELS), 0)
            count = f.minimum(self.a.row.output - first, PIXELS)
            self._tile(image, firsts, rest, position * self.a.row.output + first, first, count)

    def _tile(self, image: Value, firsts: list[Value], batch: Value, position: Value, first: Value, count: Value) -> None:
        """A few pixels, all channels."""
        f, vectors = self.f, self.rows.vectors
        width = vectors * self.lanes
        origin = first * self.rows.stride - self.a.row.begin
        whole = self.a.channels - self.a.channels % width

        def block(channel: Value, vectors: int, remaining: Value | None) -> None:
            for pixel in range(PIXELS):  # what follows needs the next tile's place soon
                columns = [channel + one * self.lanes for one in range(vectors)]
                self.code.row([batch, position + (PIXELS + pixel)]).prefetch(columns)
            sums = self._sums(image, firsts, origin, channel, vectors, remaining)
            self._hand_on(sums, batch, position, count, channel, remaining)

        with f.loop(0, whole, width) as channel:
            block(channel, vectors, None)
        with f.loop(whole, self.a.channels, self.lanes) as channel:
            block(channel, 1, self.a.channels - channel)

    def _sums(
        self, image: Value, firsts: list[Value], origin: Value, channel: Value, vectors: int, remaining: Value | None
    ) -> list[list[Variable]]:
        f, type, lanes = self.f, self.rows.type, self.lanes
        starts = [f.load(self.a.bias, channel + one * lanes, type, lanes, remaining=remaining) for one in range(vectors)]
        sums = [[f.variable(start) for start in starts] for _ in range(PIXELS)]
        self._window(sums, image, firsts, origin, f.const(I64, 0), channel, remaining)
        return sums

    def _window(
        self,
        sums: list[list[Variable]],
        line: Value,
        firsts: Sequence[Value],
        origin: Value,
        tap: Value,
        channel: Value,
        remaining: Value | None,
    ) -> None:
        """All taps: loops over the outer axes, then a row of the window."""
        f = self.f
        depth = len(self.a.outer) - len(firsts)
        if not firsts:
            with f.loop(0, self.a.row.kernel, self.rows.taps) as first:
                moved = origin + first * self.rows.dilation
                self._row(sums, line, moved, tap * self.a.row.kernel + first, channel, remaining)
            return
        axis = self.a.outer[depth]
        low, high = axis.range(f, firsts[0])
        with f.loop(low, high) as k:
            place = firsts[0] + k * axis.dilation
            inner = f.address(line, place * axis.step, self.rows.type)
            self._window(sums, inner, firsts[1:], origin, tap * axis.kernel + k, channel, remaining)

    def _row(
        self, sums: list[list[Variable]], line: Value, origin: Value, tap: Value, channel: Value, remaining: Value | None
    ) -> None:
        """Some taps of one row, by every pixel of the tile."""
        f, rows = self.f, self.rows
        filters = [
            [self._filters(tap + number, part, channel, len(sums[0]), remaining) for part in range(rows.inputs)]
            for number in range(rows.taps)
        ]
        for column in self.columns:
            place = origin + column
            inside = (place >= 0) & (place < self.a.row.input)
            here = f.address(line, place * self.a.row.step, rows.type)
            here = f.emit(PTR, f"select {inside}, {here}, {self.a.zeros}")
            for part, pixels in enumerate(self._pixels(here, channel, len(sums[0]), remaining)):
                for pixel in range(PIXELS):
                    for number in range(rows.taps):
                        if self._column(pixel, number) == column:
                            for one, variable in enumerate(sums[pixel]):
                                variable.set(f.fma(pixels[one], filters[number][part][one], variable.get()))

    def _filters(self, tap: Value, part: int, channel: Value, vectors: int, remaining: Value | None) -> list[Value]:
        """Of one tap and one channel of each group."""
        f, rows, lanes = self.f, self.rows, self.lanes
        start = (tap * rows.inputs + part) * self.a.channels + channel
        return [f.load(self.a.w, start + one * lanes, rows.type, lanes, remaining=remaining) for one in range(vectors)]

    def _pixels(self, place: Value, channel: Value, vectors: int, remaining: Value | None) -> list[list[Value]]:
        """A pixel's channels under the filters: for each channel of a group, vectors with that of all groups."""
        f, rows, lanes = self.f, self.rows, self.lanes
        if rows.outputs == 1:
            return [[f.load(place, channel + one * lanes, rows.type, lanes, remaining=remaining) for one in range(vectors)]]
        groups = lanes // rows.outputs
        left = None if remaining is None else (remaining // rows.outputs) * rows.inputs
        if rows.inputs < rows.outputs:
            whole = f.const(I64, groups * rows.inputs)
            left = whole if left is None else f.minimum(whole, left)
        found = f.load(place, (channel // rows.outputs) * rows.inputs, rows.type, lanes, remaining=left)
        return [
            [f.shuffle(found, found, [lane // rows.outputs * rows.inputs + part for lane in range(lanes)])]
            for part in range(rows.inputs)
        ]

    def _hand_on(
        self,
        sums: list[list[Variable]],
        batch: Value,
        position: Value,
        count: Value,
        channel: Value,
        remaining: Value | None,
    ) -> None:
        """Through what follows: register by register, or from the stack where that is a loop."""
        f, lanes, vectors = self.f, self.lanes, len(sums[0])
        if self.is_light:
            for pixel, variables in enumerate(sums):
                with f.if_(count > pixel):
                    target = self.code.row([batch, position + pixel])
                    for number, variable in enumerate(variables):
                        target.emit(channel + number * lanes, lanes, remaining, given=[variable.get()])
            return
        for pixel, variables in enumerate(sums):
            for number, variable in enumerate(variables):
                f.store(variable.get(), self.spilled, (pixel * vectors + number) * lanes, self.rows.type)
        with f.loop(0, count) as index:
            target = self.code.row([batch, position + index])
            with f.loop(0, vectors) as one:
                vector = f.load(self.spilled, (index * vectors + one) * lanes, self.rows.type, lanes)
                target.emit(channel + one * lanes, lanes, remaining, given=[vector])
