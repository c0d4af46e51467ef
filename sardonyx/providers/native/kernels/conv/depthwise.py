"""Depthwise convolutions and those of small groups: vectors run along the channels, which lie last. Lowerings of convolutions call it.

A tile is a few pixels of a row by one or two vectors of filters. Of each row of the window the columns under the tile are loaded once and
multiplied by every tap that meets them; a column outside the image is read from a row of zeros, rows outside it are left out. Where a group
has several channels, a vector holds whole groups, and a shuffle brings one channel of each group to all filters of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import F32, I32, I64, PTR, Type
from sardonyx.ir import Value as Constant
from sardonyx.ir import dim
from sardonyx.providers.native.kernels.conv.choice import Candidate, Convolution
from sardonyx.providers.native.kernels.conv.form import Geometry, axes_of
from sardonyx.providers.native.kernels.conv.tiles import Axis, grain_for, is_light
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.kernel import DeclaredKernel, KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass

DEPTHWISE = PackedFormat("depthwise")
MAX_TAPS = 7
"""How many taps of a row are multiplied by a column while it is at hand."""
PIXELS = 7
"""Pixels of a tile: images are often 7, 14, 28, 56 or 112 pixels wide."""


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
    small: Type | None = None
    """What pixels are in memory, if another type: whole numbers, of which `zero_point` is subtracted."""
    is_centered: bool = True
    """Whether there is no zero point to subtract."""
    height: int = 0
    """Rows of the window, where their bytes are multiplied in groups; see `depthwise_bytes`."""

    @property
    def pixel(self) -> Type:
        return self.small or self.type


def candidates(convolution: Convolution) -> Iterator[Candidate]:
    """Itself, if vectors hold whole groups."""
    geometry, lanes = convolution.geometry, convolution.lowerer.target.lanes(convolution.view.type)
    filters = geometry.filters
    if has_small_groups(geometry, lanes) and convolution.filters.arrange is None:
        cycles = convolution.direct_cycles * filters / lanes  # no lane is empty
        yield Candidate("depthwise", cycles, lambda sink: depthwise_step(convolution, sink))


def has_small_groups(geometry: Geometry, lanes: int) -> bool:
    """Whether vectors hold whole groups."""
    filters = geometry.filters
    return geometry.groups > 1 and geometry.channels <= filters and filters < lanes and lanes % filters == 0


def depthwise_step(convolution: Convolution, sink: Sink) -> None:
    """Add the step of a convolution of small groups."""
    lowerer, geometry, view = convolution.lowerer, convolution.geometry, convolution.view
    w, bias = _packed(lowerer, geometry, view.type, convolution.filters.W, convolution.filters.B)
    real_step(lowerer, geometry, view, w, bias, sink)


def real_step(
    lowerer: Lowerer, geometry: Geometry, view: View, w: Pointer, bias: Pointer, sink: Sink, zero_point: int = 0
) -> None:
    """The same with filters and a bias as the kernel reads them, and perhaps pixels of whole numbers with a zero point."""
    rows = _rows_of(lowerer, geometry, view.type, zero_point)
    padding = np.full(geometry.groups * geometry.channels, zero_point, f"{view.type.kind[0]}{view.type.bytes}")
    constants = (w, bias, lowerer.constant(padding))
    packed_step(lowerer, depthwise_kernel(lowerer.target, rows, sink.chain), geometry, view, constants, sink, zero_point)


def packed_step(
    lowerer: Lowerer,
    kernel: DeclaredKernel,
    geometry: Geometry,
    view: View,
    constants: tuple[Pointer, Pointer, Pointer],
    sink: Sink,
    zero_point: int = 0,
) -> None:
    """Add the step of a kernel; `constants` are filters, bias and a pixel of the padding."""
    inputs, outputs = geometry.channels, geometry.filters
    channels = geometry.groups * outputs
    *outer, row = axes_of(geometry, view)
    pixels = dim.product(geometry.input) * inputs + geometry.positions * outputs
    w, bias, zeros = constants
    lowerer.call(
        kernel,
        DepthwiseArguments(
            x=view.place,
            w=w,
            bias=bias,
            zeros=zeros,
            zero_point=zero_point or None,
            channels=channels,
            image_step=view.strides[0],
            outer=outer,
            row=row,
            sink=sink.arguments,
        ),
        geometry.batch * dim.product(geometry.output[:-1]),
        grain_for(geometry.output[-1] * (channels * (geometry.taps * inputs + 4))),
        flops=geometry.flops,
        traffic=geometry.batch * pixels * (geometry.groups * view.type.bytes),
    )


def _packed(lowerer: Lowerer, geometry: Geometry, type: Type, W: Constant, B: Constant | None) -> Sequence[Pointer]:
    """Filters by taps, then by the channels of a group; and the bias."""
    dtype, inputs, channels = np.dtype(f"f{type.bytes}"), geometry.channels, geometry.groups * geometry.filters

    def pack(weights: np.ndarray, bias: np.ndarray | None = None) -> list[np.ndarray]:
        ordered = aligned_empty((geometry.taps, inputs, channels), dtype)
        ordered[...] = weights.reshape(channels, inputs, geometry.taps).transpose(2, 1, 0)
        return [ordered, np.zeros(channels, dtype) if bias is None else bias.astype(dtype)]

    sizes = [geometry.taps * inputs * channels * type.bytes, channels * type.bytes]
    if not lowerer.can_pack(W, B):
        return packed_in_runs(lowerer, geometry, type, W, B)
    return lowerer.packed([W] if B is None else [W, B], DEPTHWISE, (inputs, channels, dtype.str), sizes, pack)


def packed_in_runs(lowerer: Lowerer, geometry: Geometry, type: Type, W: Constant, B: Constant | None) -> list[Pointer]:
    """The same of filters or a bias that are computed."""
    inputs, channels = geometry.channels, geometry.groups * geometry.filters
    filters = lowerer.contiguous(W).reshaped((channels, inputs, geometry.taps))
    assert filters is not None
    buffers: list[Pointer] = [_copied(lowerer, filters.transposed((2, 1, 0)), type)]
    if B is None:
        return [*buffers, lowerer.zeros(channels, type)]
    return [*buffers, _copied(lowerer, lowerer.view(B), type)]


def _copied(lowerer: Lowerer, view: View, type: Type) -> Buffer:
    """What a view shows, without gaps and in another type."""
    buffer = lowerer.scratch(dim.product(view.shape) * type.bytes)
    lowerer.copy(view, View(buffer, type, view.shape, contiguous_strides(view.shape)))
    return buffer


def _rows_of(lowerer: Lowerer, geometry: Geometry, type: Type, zero_point: int) -> Rows:
    """What shapes the code: as many taps of a row at once, and as many vectors, as registers hold."""
    outer, inputs, outputs = len(geometry.kernel) - 1, geometry.channels, geometry.filters
    taps = max(count for count in range(1, MAX_TAPS + 1) if geometry.kernel[-1] % count == 0)
    vectors = 2 if lowerer.target.vector_registers >= 32 and taps < MAX_TAPS and outputs == 1 else 1
    small = None if type.is_float else type
    computed, steps = F32 if small else type, (geometry.strides[-1], geometry.dilations[-1])
    return Rows(computed, outer, taps, *steps, vectors, inputs, outputs, small, not zero_point)


class DepthwiseArguments(Arguments):
    x: Pointer
    w: Pointer
    """Filters by taps, then by the channels of a group."""
    bias: Pointer
    zeros: Pointer
    """A pixel of the padding."""
    zero_point: Size | None = when(lambda rows: not rows.is_centered)
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
    code = Depthwise(f, a, rows, chain)
    with f.loop(f.begin, f.end) as item:
        code.row(item)


@dataclass(frozen=True)
class Pixels:
    """A few pixels of a row of the result."""

    number: Value
    """Of the image in the batch."""
    image: Value
    """Where it begins."""
    outer: Sequence[Value]
    """Where the windows begin along the outer axes."""
    origin: Value
    """Where the first window begins along the row."""
    position: Value
    """The number of the first pixel in the result's image."""
    count: Value


@dataclass(frozen=True)
class Channels:
    """Some vectors of filters."""

    first: Value
    vectors: int
    remaining: Value | None
    """How many filters there are, if the last vector may not be whole."""


Sums = list[list[Variable]]
"""Of a tile: for each pixel, vectors."""


class Depthwise:
    """The code of a row of the result. A tile is a few pixels by some vectors of filters."""

    def __init__(self, f: KernelFunction, a: DepthwiseArguments, rows: Rows, chain: Chain):
        self.f = f
        self.a = a
        self.rows = rows
        self.lanes = f.lanes(rows.type)
        self.epilogue = ChainCode(f, chain, a.sink)
        self.is_light = is_light(f.target, chain, self.lanes)
        self.spilled = f.stack(rows.type, PIXELS * rows.vectors * self.lanes)
        self.columns = sorted({self.column(pixel, tap) for pixel in range(PIXELS) for tap in range(rows.taps)})
        """Those that a tile meets, counted from its window's first."""

    def column(self, pixel: int, tap: int) -> int:
        return pixel * self.rows.stride + tap * self.rows.dilation

    def row(self, item: Value) -> None:
        """One row of an image."""
        f, a = self.f, self.a
        places: list[Value] = []
        number = item
        for axis in reversed(a.outer):
            places.insert(0, number % axis.output)
            number = number // axis.output
        image = f.address(a.x, number * a.image_step, self.rows.pixel)
        line = f.const(I64, 0)
        for axis, place in zip(a.outer, places):
            line = line * axis.output + place
        outer = [place * axis.stride - axis.begin for axis, place in zip(a.outer, places)]
        with f.loop(0, a.row.output, PIXELS) as start:
            first = f.maximum(f.minimum(start, a.row.output - PIXELS), 0)
            count = f.minimum(a.row.output - first, PIXELS)
            origin = first * self.rows.stride - a.row.begin
            self._tiles(Pixels(number, image, outer, origin, line * a.row.output + first, count))

    def _tiles(self, pixels: Pixels) -> None:
        """A few pixels, all channels."""
        f, channels, vectors = self.f, self.a.channels, self.rows.vectors
        width = vectors * self.lanes
        whole = channels - channels % width
        with f.loop(0, whole, width) as channel:
            self._tile(pixels, Channels(channel, vectors, None))
        with f.loop(whole, channels, self.lanes) as channel:
            self._tile(pixels, Channels(channel, 1, channels - channel))

    def _tile(self, pixels: Pixels, channels: Channels) -> None:
        self._prefetch(pixels, channels)
        self._epilogue(self.products(pixels, channels), pixels, channels)

    def vectors(self, place: Value, first: Value, channels: Channels, type: Type | None = None) -> list[Value]:
        """Some vectors of channels that begin with the element `first`."""
        f, lanes = self.f, self.lanes
        starts = [first + vector * lanes for vector in range(channels.vectors)]
        return [f.load(place, start, type or self.rows.type, lanes, remaining=channels.remaining) for start in starts]

    # --- products

    def products(self, pixels: Pixels, channels: Channels) -> Sums:
        """The sums of a tile: the bias, and products over the window."""
        biases = self.vectors(self.a.bias, channels.first, channels)
        sums = [[self.f.variable(bias) for bias in biases] for _ in range(PIXELS)]
        self._add_window(sums, pixels, channels, pixels.image, self.f.const(I64, 0))
        return sums

    def _add_window(self, sums: Sums, pixels: Pixels, channels: Channels, place: Value, tap: Value, depth: int = 0) -> None:
        """All taps: loops over the outer axes from `depth` on, then a row of the window."""
        f, a = self.f, self.a
        if depth == len(a.outer):
            with f.loop(0, a.row.kernel, self.rows.taps) as first:
                moved = pixels.origin + first * self.rows.dilation
                self._add_row(sums, channels, place, moved, tap * a.row.kernel + first)
            return
        axis = a.outer[depth]
        low, high = axis.range(f, pixels.outer[depth])
        with f.loop(low, high) as k:
            offset = pixels.outer[depth] + k * axis.dilation
            inner = f.address(place, offset * axis.step, self.rows.pixel)
            self._add_window(sums, pixels, channels, inner, tap * axis.kernel + k, depth + 1)

    def _add_row(self, sums: Sums, channels: Channels, line: Value, origin: Value, tap: Value) -> None:
        """The inner loop, without a loop: some taps of a row of the window, by every pixel of the tile."""
        f, rows, a = self.f, self.rows, self.a
        filters = [[self._filters(tap + number, part, channels) for part in range(rows.inputs)] for number in range(rows.taps)]
        for column in self.columns:
            place = origin + column
            inside = (place >= 0) & (place < a.row.input)
            here = f.address(line, place * a.row.step, rows.pixel)
            here = f.emit(PTR, f"select {inside}, {here}, {a.zeros}")
            for part, vectors in enumerate(self._inputs(here, channels)):
                for pixel in range(PIXELS):
                    for number in range(rows.taps):
                        if self.column(pixel, number) == column:
                            for register, vector, factor in zip(sums[pixel], vectors, filters[number][part]):
                                register.set(f.fma(vector, factor, register.get()))

    def _filters(self, tap: Value, part: int, channels: Channels) -> list[Value]:
        """Of one tap and one channel of each group."""
        return self.vectors(self.a.w, (tap * self.rows.inputs + part) * self.a.channels + channels.first, channels)

    def _inputs(self, place: Value, channels: Channels) -> list[list[Value]]:
        """A pixel's channels under the filters: for each channel of a group, vectors with that of all groups."""
        f, rows, lanes = self.f, self.rows, self.lanes
        if rows.outputs == 1:
            return [[self._real(pixel) for pixel in self.vectors(place, channels.first, channels, rows.pixel)]]
        groups = lanes // rows.outputs
        left = None if channels.remaining is None else (channels.remaining // rows.outputs) * rows.inputs
        if rows.inputs < rows.outputs:
            whole = f.const(I64, groups * rows.inputs)
            left = whole if left is None else f.minimum(whole, left)
        loaded = f.load(place, (channels.first // rows.outputs) * rows.inputs, rows.pixel, lanes, remaining=left)
        pixel = self._real(loaded)
        return [
            [f.shuffle(pixel, pixel, [lane // rows.outputs * rows.inputs + part for lane in range(lanes)])]
            for part in range(rows.inputs)
        ]

    def _real(self, pixel: Value) -> Value:
        """Whole numbers less their zero point, in the type that is computed with."""
        f, a = self.f, self.a
        if self.rows.small is None:
            return pixel
        whole = f.convert(pixel, I32)
        if a.zero_point is not None:
            whole = whole - f.splat(f.convert(a.zero_point, I32), self.lanes)
        return f.convert(whole, self.rows.type)

    # --- the epilogue

    def _prefetch(self, pixels: Pixels, channels: Channels) -> None:
        """The epilogue needs the next tile's place soon."""
        for pixel in range(PIXELS):
            row = self.epilogue.row([pixels.number, pixels.position + (PIXELS + pixel)])
            row.prefetch(channels.first, channels.vectors * self.lanes)

    def _epilogue(self, sums: Sums, pixels: Pixels, channels: Channels) -> None:
        """Register by register, or from the stack where the epilogue is a loop."""
        f, lanes = self.f, self.lanes
        if not self.is_light:
            self._epilogue_from_stack(sums, pixels, channels)
            return
        for pixel, registers in enumerate(sums):
            with f.if_(pixels.count > pixel):
                target = self.epilogue.row([pixels.number, pixels.position + pixel])
                for number, register in enumerate(registers):
                    target.emit(channels.first + number * lanes, lanes, channels.remaining, given=[register.get()])

    def _epilogue_from_stack(self, sums: Sums, pixels: Pixels, channels: Channels) -> None:
        f, type, lanes, vectors = self.f, self.rows.type, self.lanes, channels.vectors
        for number, register in enumerate(itertools.chain.from_iterable(sums)):
            f.store(register.get(), self.spilled, number * lanes, type)
        with f.loop(0, pixels.count) as pixel:
            target = self.epilogue.row([pixels.number, pixels.position + pixel])
            with f.loop(0, vectors) as vector:
                total = f.load(self.spilled, (pixel * vectors + vector) * lanes, type, lanes)
                target.emit(channels.first + vector * lanes, lanes, channels.remaining, given=[total])
