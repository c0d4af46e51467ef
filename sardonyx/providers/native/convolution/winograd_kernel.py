"""The code of Winograd's convolution: transform a block of tiles, multiply at every point, transform back. `winograd.py` calls it.

All of it is one step, so that a block stays in the cache of the thread that works on it. Items are blocks of tiles by chunks of filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, I64, PTR
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.convolution.tiles import EvenTiles, add_products, chain_weight, sizes_up_to, totals_of, zero_sums
from sardonyx.providers.native.kernel import KernelFunction, kernel

LIGHT = 32
"""Up to how many instructions per vector what follows is repeated for each pixel of a tile; beyond, it is a loop."""


@dataclass(frozen=True)
class Transform:
    """The points of F(size×size, 3×3): 0, ± each of `pairs`, ∞."""

    size: int
    pairs: tuple[float, ...]

    @property
    def width(self) -> int:
        """Input pixels of a tile, along an axis."""
        return self.size + 2

    @property
    def points(self) -> list[float]:
        """All but the one at infinity."""
        return [0.0, *(sign * pair for pair in self.pairs for sign in (1, -1))]

    def _without(self, left_out: float | None) -> np.ndarray:
        """The coefficients of the product of x² - p² over all pairs but one, of x² that is, the lowest power first."""
        found = np.ones(1)
        for pair in self.pairs:
            if pair != left_out:
                found = np.convolve(found, [-pair * pair, 1.0])
        return found

    def forward(self, f: KernelFunction, d: Sequence[Value]) -> list[Value]:
        """Pixels along an axis, at the points."""
        full = self._without(None)
        found = [_combined(f, full, d[0::2])]
        for pair in self.pairs:
            rest = self._without(pair)
            even, odd = _combined(f, rest, d[2::2]), _combined(f, rest, d[1::2])
            found += [f.fma(pair, odd, even), f.fma(-pair, odd, even)]
        return [*found, _combined(f, full, d[1::2])]

    def backward(self, f: KernelFunction, m: Sequence[Value]) -> list[Value]:
        """Sums at the points, as pixels along an axis."""
        pairs = [(m[1 + 2 * number], m[2 + 2 * number]) for number in range(len(self.pairs))]
        sums, differences = [a + b for a, b in pairs], [a - b for a, b in pairs]
        found = []
        for power in range(self.size):
            terms = sums if power % 2 == 0 else differences
            start = m[0] if power == 0 else m[-1] if power == self.size - 1 else None
            for pair, term in zip(self.pairs, terms):
                factor = pair**power
                if start is None:
                    start = term if factor == 1 else term * factor
                else:
                    start = start + term if factor == 1 else f.fma(factor, term, start)
            assert start is not None
            found.append(start)
        return found


def _combined(f: KernelFunction, coefficients: np.ndarray, values: Sequence[Value]) -> Value:
    """A sum of values with coefficients, of which the last one is 1."""
    total = values[len(coefficients) - 1]
    for coefficient, value in zip(coefficients[:-1], values):
        total = f.fma(float(coefficient), value, total)
    return total


@dataclass(frozen=True)
class WinogradForm:
    """What shapes the code."""

    transform: Transform
    rows: int
    """Tiles by which panels of filters are multiplied at once."""
    vectors: int
    lanes: int
    masked: bool
    """Whether the last vector of channels is not whole."""


@kernel("winograd")
def winograd_kernel(f: KernelFunction, form: WinogradForm, chain: Chain) -> None:
    """Items are blocks of tiles by chunks of filters."""
    code = _Winograd(f, form, chain)
    with f.loop(f.begin, f.end) as item:
        code.block_of(item)


@dataclass(frozen=True)
class _Axis:
    """A spatial axis, as numbers among the kernel's arguments."""

    input: Value
    output: Value
    begin: Value
    step: Value


@dataclass(frozen=True)
class _Block:
    """Some tiles of an image, and some panels of filters."""

    image: Value
    start: Value
    count: Value
    panel: Value
    panels: Value


class _Winograd:
    """The code, with its arguments."""

    def __init__(self, f: KernelFunction, form: WinogradForm, chain: Chain):
        self.f = f
        self.form = form
        self.transform = form.transform
        self.x, self.u, self.bias, self.zeros, self.v, self.m = (f.pointer() for _ in range(6))
        self.channels, self.filters, self.panels, self.chunk, self.limit = (f.size() for _ in range(5))
        self.v_pitch, self.m_pitch, self.image_step, self.down, self.across = (f.size() for _ in range(5))
        self.axes = [_Axis(*(f.size() for _ in range(4))) for _ in range(2)]
        self.code = ChainCode(f, chain)
        self.is_light = chain_weight(f.target, chain, form.lanes) <= LIGHT
        points = self.transform.width**2
        self.table = f.stack(I64, points)
        self.spilled = f.stack(F32, self.transform.size**2 * form.lanes)
        self.v = f.address(self.v, f.worker * (self.limit * self.v_pitch * points), F32)
        self.m = f.address(self.m, f.worker * (self.limit * self.m_pitch * points), F32)
        self.tiles = EvenTiles(f, self.down * self.across, self.limit)
        self.chunks = (self.panels + (self.chunk - 1)) // self.chunk

    def block_of(self, item: Value) -> None:
        f = self.f
        chunk, rest = item % self.chunks, item // self.chunks
        number, image = rest % self.tiles.count, rest // self.tiles.count
        panel = chunk * self.chunk
        panels = f.minimum(self.chunk, self.panels - panel)
        block = _Block(image, self.tiles.start(number), self.tiles.size(number), panel, panels)
        self._transform_input(block)
        self._multiply(block)
        self._transform_sums(block)

    def _corner(self, block: _Block, tile: Value) -> tuple[Value, Value]:
        """The first output pixel of a tile."""
        number = block.start + tile
        return (number // self.across) * self.transform.size, (number % self.across) * self.transform.size

    # --- there

    def _transform_input(self, block: _Block) -> None:
        f, lanes = self.f, self.form.lanes
        image = f.address(self.x, block.image * self.image_step, F32)
        with f.loop(0, block.count) as tile:
            self._find_pixels(image, *self._corner(block, tile))
            with f.loop(0, self.channels, lanes) as channel:
                remaining = self.channels - channel if self.form.masked else None
                self._transform_tile(f.address(self.v, tile * self.v_pitch + channel, F32), channel, remaining)

    def _find_pixels(self, image: Value, row: Value, column: Value) -> None:
        """Where the pixels of a tile lie: in the image, or among zeros."""
        f, width = self.f, self.transform.width
        rows, columns = ([first - axis.begin + one for one in range(width)] for first, axis in zip((row, column), self.axes))
        for i, y in enumerate(rows):
            line = f.address(image, y * self.axes[0].step, F32)
            is_row = (y >= 0) & (y < self.axes[0].input)
            for j, x in enumerate(columns):
                inside = is_row & (x >= 0) & (x < self.axes[1].input)
                place = f.address(line, x * self.axes[1].step, F32)
                place = f.emit(PTR, f"select {inside}, {place}, {self.zeros}")
                f.line(f"store {place}, {f.address(self.table, i * width + j, I64)}, align 8")

    def _transform_tile(self, target: Value, channel: Value, remaining: Value | None) -> None:
        f, width = self.f, self.transform.width
        columns = []
        for j in range(width):
            places = [f.load(self.table, i * width + j, PTR) for i in range(width)]
            pixels = [f.load(place, channel, F32, self.form.lanes, remaining=remaining) for place in places]
            columns.append(self.transform.forward(f, pixels))
        for i in range(width):
            for j, value in enumerate(self.transform.forward(f, [column[i] for column in columns])):
                f.store(value, target, (self.limit * self.v_pitch) * (i * width + j), F32)

    # --- products

    def _multiply(self, block: _Block) -> None:
        """At every point, a product of as many rows as there are tiles."""
        f, form = self.f, self.form
        groups = EvenTiles(f, block.count, form.rows)
        panel_size = self.channels * (form.vectors * form.lanes)
        with f.loop(0, self.transform.width**2) as point:
            rows = f.address(self.v, point * (self.limit * self.v_pitch), F32)
            sums = f.address(self.m, point * (self.limit * self.m_pitch), F32)
            with f.loop(0, block.panels) as panel:
                filters = f.address(self.u, (point * self.panels + block.panel + panel) * panel_size, F32)
                columns = f.address(sums, panel * (form.vectors * form.lanes), F32)
                with f.loop(0, groups.count) as group:
                    start, height = groups.start(group), groups.size(group)
                    self._multiply_rows(
                        f.address(rows, start * self.v_pitch, F32),
                        f.address(columns, start * self.m_pitch, F32),
                        filters,
                        height,
                    )

    def _multiply_rows(self, source: Value, target: Value, filters: Value, height: Value) -> None:
        """A panel by some tiles; if there is code for more of them only, the last one is taken several times."""
        f, form = self.f, self.form
        before = 0
        for count in sizes_up_to(form.rows):
            with f.if_((height > before) & (height <= count)):
                numbers = [f.minimum(height - 1, row) for row in range(count)]
                rows = [f.address(source, number * self.v_pitch, F32) for number in numbers]
                sums = zero_sums(f, count, form.vectors, F32, form.lanes)
                add_products(f, sums, rows, filters, self.channels, F32, form.lanes)
                for number, vectors in zip(numbers, totals_of(sums)):
                    place = f.address(target, number * self.m_pitch, F32)
                    for one, vector in enumerate(vectors):
                        f.store(vector, place, one * form.lanes, F32)
            before = count

    # --- and back

    def _transform_sums(self, block: _Block) -> None:
        f, lanes = self.f, self.form.lanes
        first = block.panel * (self.form.vectors * lanes)
        stop = f.minimum(block.panels * (self.form.vectors * lanes), self.filters - first)
        with f.loop(0, block.count) as tile:
            row, column = self._corner(block, tile)
            with f.loop(0, stop, lanes) as channel:
                pixels = self._transform_back(f.address(self.m, tile * self.m_pitch + channel, F32), first + channel)
                self._hand_on(pixels, block.image, row, column, first + channel)

    def _transform_back(self, source: Value, channel: Value) -> list[list[Value]]:
        """The pixels of a tile, rows of columns, with the bias."""
        f, width, lanes = self.f, self.transform.width, self.form.lanes
        bias = f.load(self.bias, channel, F32, lanes)
        columns = []
        for j in range(width):
            points = [f.load(source, (self.limit * self.m_pitch) * (i * width + j), F32, lanes) for i in range(width)]
            columns.append(self.transform.backward(f, points))
        rows = [self.transform.backward(f, [column[i] for column in columns]) for i in range(self.transform.size)]
        return [[pixel + bias for pixel in row] for row in rows]

    def _hand_on(self, pixels: list[list[Value]], image: Value, row: Value, column: Value, channel: Value) -> None:
        """Through what follows: pixel by pixel, or from the stack where that is a loop."""
        f, lanes = self.f, self.form.lanes
        down, across = self.axes[0].output - row, self.axes[1].output - column
        remaining = self.filters - channel
        position = row * self.axes[1].output + column
        if self.is_light:
            for i, line in enumerate(pixels):
                with f.if_(down > i):
                    for j, pixel in enumerate(line):
                        with f.if_(across > j):
                            target = self.code.row([image, position + self.axes[1].output * i + j])
                            target.emit(channel, lanes, remaining, given=[pixel])
            return
        size = len(pixels)
        for i, line in enumerate(pixels):
            for j, pixel in enumerate(line):
                f.store(pixel, self.spilled, (i * size + j) * lanes, F32)
        with f.loop(0, f.minimum(down, size)) as y, f.loop(0, f.minimum(across, size)) as x:
            target = self.code.row([image, position + self.axes[1].output * y + x])
            target.emit(channel, lanes, remaining, given=[f.load(self.spilled, (y * size + x) * lanes, F32, lanes)])
