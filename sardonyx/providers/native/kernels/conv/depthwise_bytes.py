"""Depthwise convolutions of bytes, for CPUs that multiply four of them at a time. Lowerings of quantized convolutions call it.

The taps of a column of the window, up to four of them, are a group. The bytes of these rows are interleaved once for all pixels whose
windows meet the column, channel by channel: then one instruction adds a column of the window for a vector of channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import add_bytes
from sardonyx.compiler.types import I8, I32, I64, PTR, U8, Type
from sardonyx.providers.native.kernels.conv.depthwise import (
    MAX_TAPS,
    PIXELS,
    Channels,
    Depthwise,
    DepthwiseArguments,
    Pixels,
    Rows,
    Sums,
)
from sardonyx.providers.native.kernels.conv.form import Geometry
from sardonyx.providers.native.program.chain import Chain
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.weights import aligned_empty

GROUP = 4
MAX_HEIGHT = 8
"""How many rows of a window there is code for, two groups."""


def takes(geometry: Geometry) -> bool:
    """Whether there is code for a convolution."""
    is_depthwise = geometry.groups > 1 and geometry.channels == geometry.filters == 1 and len(geometry.kernel) == 2
    return is_depthwise and geometry.kernel[0] <= MAX_HEIGHT and geometry.kernel[1] <= MAX_TAPS


def rows_of(geometry: Geometry, pixel: Type) -> Rows:
    """What shapes the code."""
    height, taps = geometry.kernel
    return Rows(I32, 1, taps, geometry.strides[1], geometry.dilations[1], 2, small=pixel, height=height)


def grouped_filters(filters: np.ndarray) -> np.ndarray:
    """Filters (channels, 1, height, taps) of 8 bits as (groups of rows, taps, channels, 4); rows that are missing are 0."""
    channels, _, height, taps = filters.shape
    groups = -(-height // GROUP)
    whole = np.zeros((channels, groups * GROUP, taps), np.int8)
    whole[:, :height] = filters[:, 0]
    packed = aligned_empty((groups, taps, channels, GROUP), np.int8)
    packed[...] = whole.reshape(channels, groups, GROUP, taps).transpose(1, 3, 0, 2)
    return packed


@kernel("depthwise of bytes", DepthwiseArguments)
def depthwise_bytes_kernel(f: KernelFunction, a: DepthwiseArguments, rows: Rows, chain: Chain) -> None:
    """Items are rows of the result."""
    code = _Bytes(f, a, rows, chain)
    with f.loop(f.begin, f.end) as item:
        code.row(item)


Line = tuple[Value, Value]
"""Where a row of the image begins, and how far its pixels lie apart: nowhere, for a row of the padding."""


class _Bytes(Depthwise):
    """Rows of the window are taken four at a time."""

    def products(self, pixels: Pixels, channels: Channels) -> Sums:
        """The sums of a tile, from the bias on."""
        f, rows, a = self.f, self.rows, self.a
        biases = self.vectors(a.bias, channels.first, channels)
        sums = [[f.variable(bias) for bias in biases] for _ in range(PIXELS)]
        for first in range(0, rows.height, GROUP):
            self._add_rows(sums, pixels, channels, first)
        return sums

    def _add_rows(self, sums: Sums, pixels: Pixels, channels: Channels, first: int) -> None:
        """The rows of the window from `first` on, a group of them."""
        f, rows, a = self.f, self.rows, self.a
        lines = [self._line(pixels, row) for row in range(first, min(first + GROUP, rows.height))]
        filters = [self._groups_of(first // GROUP * rows.taps + tap, channels) for tap in range(rows.taps)]
        for column in self.columns:
            place = pixels.origin + column
            inside = (place >= 0) & (place < a.row.input)
            there = [f.address(line, place * step, rows.pixel) for line, step in lines]
            places = [f.emit(PTR, f"select {inside}, {one}, {a.zeros}") for one in there]
            for number in range(channels.vectors):
                group = self._group(places, channels, number)
                for pixel in range(PIXELS):
                    for tap in range(rows.taps):
                        if self.column(pixel, tap) == column:
                            register = sums[pixel][number]
                            register.set(add_bytes(f, group, filters[tap][number], register.get()))

    def _line(self, pixels: Pixels, row: int) -> Line:
        f, a = self.f, self.a
        (axis,) = a.outer
        number = pixels.outer[0] + axis.dilation * row
        inside = (number >= 0) & (number < axis.input)
        there = f.address(pixels.image, number * axis.step, self.rows.pixel)
        return f.emit(PTR, f"select {inside}, {there}, {a.zeros}"), f.select(inside, a.row.step, f.const(I64, 0))

    def _groups_of(self, tap: int, channels: Channels) -> list[Value]:
        """Groups of one column of the window."""
        f = self.f
        groups = self.vectors(self.a.w, self.a.channels * tap + channels.first, channels, I32)
        return [f.bitcast(group, I8.vector(GROUP * self.lanes)) for group in groups]

    def _group(self, places: Sequence[Value], channels: Channels, number: int) -> Value:
        """A vector of channels of some rows, interleaved; what rows are missing is any number, by filters of 0."""
        f, lanes, type = self.f, self.lanes, self.rows.pixel
        first = channels.first + number * lanes
        rows = [f.load(place, first, type, lanes, remaining=channels.remaining) for place in places]
        rows += [rows[-1]] * (GROUP - len(rows))
        upper, lower = f.shuffle(rows[0], rows[1], range(2 * lanes)), f.shuffle(rows[2], rows[3], range(2 * lanes))
        group = f.shuffle(upper, lower, [row * lanes + lane for lane in range(lanes) for row in range(GROUP)])
        return group if type == U8 else f.bitcast(group ^ -128, U8.vector(group.type.lanes))
