"""The code of a 1×1 convolution and the depthwise one behind it in one step. `fused.py` calls it.

An item is a section of an image, some rows of the result, by a chunk of channels: a few panels of filters. Band by band the expanded rows
that are missing are computed into scratch memory of the thread, with zeros beside them; then the windows of the band's rows are summed from
there. Rows that the next band reads too move to the beginning of the scratch memory.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import I64, PTR
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.convolution.direct import Tile
from sardonyx.providers.native.convolution.tiles import EvenTiles, add_products, chain_weight, sizes_up_to, totals_of, zero_sums
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.records import dataclass

PIXELS = 7
"""Pixels of a tile of the depthwise convolution: images are often 7, 14, 28, 56 or 112 pixels wide."""
LIGHT = 32
"""Up to how many instructions per vector what follows is repeated for each register of a tile; beyond, it is a loop."""


@dataclass(frozen=True)
class FusedForm:
    """What shapes the code."""

    tile: Tile
    """Of the expansion."""
    panels: int
    """Of a chunk."""
    result: int
    """Which item of the chain between the convolutions is the expanded element."""
    taps: int
    """Of the depthwise convolution along a row."""
    stride: int

    @property
    def pixel(self) -> int:
        """Elements of a pixel in the scratch memory."""
        return self.panels * self.tile.width

    def groups(self, registers: int) -> list[range]:
        """Vectors of a panel, as many together as the registers hold with their sums and filters."""
        most = max(1, (registers - 1) // (PIXELS + self.taps))
        count = -(-self.tile.vectors // most)
        bounds = [self.tile.vectors * number // count for number in range(count + 1)]
        return [range(first, last) for first, last in itertools.pairwise(bounds)]


@kernel("conv and depthwise")
def fused_kernel(f: KernelFunction, form: FusedForm, between: Chain, chain: Chain) -> None:
    """Items are sections of images by chunks of channels."""
    code = _Fused(f, form, between, chain)
    code.clear_sides()
    with f.loop(f.begin, f.end) as item:
        code.section(item)


@dataclass(frozen=True)
class _Piece:
    """What an item is about."""

    image: Value
    panel: Value
    column: Value
    """The first channel."""
    left: Value
    """How many channels there are from there on."""
    shift: Value
    """Where they begin in a pixel of the scratch memory."""


class _Fused:
    """The code, with its arguments."""

    def __init__(self, f: KernelFunction, form: FusedForm, between: Chain, chain: Chain):
        self.f = f
        self.form = form
        self.tile = tile = form.tile
        self.x, self.w, self.bias, self.taps, self.offsets, scratch = (f.pointer() for _ in range(6))
        self.depth, self.channels, self.image_step, self.pixel_step = (f.size() for _ in range(4))
        self.chunks, self.sections, self.band, self.capacity, self.pitch, size = (f.size() for _ in range(6))
        self.height, self.width, self.rows, self.columns = (f.size() for _ in range(4))
        self.kernel, self.stride, self.top, self.side = (f.size() for _ in range(4))
        self.scratch = f.address(scratch, f.room() * size, tile.type)
        self.between = ChainCode(f, between)
        self.code = ChainCode(f, chain)
        self.expands_lightly = chain_weight(f.target, between, tile.lanes) <= LIGHT
        self.is_light = chain_weight(f.target, chain, tile.lanes) <= LIGHT
        self.row_size = self.pitch * form.pixel
        self.sources = f.stack(I64, tile.row)
        """Where the channels of a tile's pixels begin."""
        self.places = f.stack(I64, tile.row)
        """Where the expanded pixels of a tile go, as offsets in the scratch memory."""
        self.spilled = f.stack(tile.type, PIXELS * tile.width)
        self.windows = sorted({pixel * form.stride + tap for pixel in range(PIXELS) for tap in range(form.taps)})
        """Columns that a tile meets, counted from its window's first."""

    def clear_sides(self) -> None:
        """Zeros before and behind each row."""
        f, pixel = self.f, self.form.pixel
        with f.loop(0, self.capacity) as row:
            start = row * self.row_size
            self._clear(start, start + self.side * pixel)
            self._clear(start + (self.side + self.width) * pixel, start + self.row_size)

    def _clear(self, start: Value, stop: Value) -> None:
        f, tile = self.f, self.tile
        with f.loop(start, stop, tile.lanes) as place:
            f.store(f.const(tile.type.vector(tile.lanes), 0), self.scratch, place, tile.type)

    # --- the order of the work

    def section(self, item: Value) -> None:
        """Some rows of the result, of one chunk."""
        f = self.f
        chunk, rest = item % self.chunks, item // self.chunks
        section, image = rest % self.sections, rest // self.sections
        column = chunk * self.form.pixel
        piece = _Piece(image, chunk * self.form.panels, column, self.channels - column, f.const(I64, 0))
        start, stop = self.rows * section // self.sections, self.rows * (section + 1) // self.sections
        base = f.variable(start * self.stride - self.top)  # the expanded row with which the scratch memory begins
        end = f.variable(f.const(I64, 0))  # the first row that is still to be expanded
        with f.loop(start, stop, self.band) as first:
            last = f.minimum(first + self.band, stop)
            low = first * self.stride - self.top
            high = f.minimum((last - 1) * self.stride - self.top + self.kernel, self.height)
            with f.if_((low > base.get()) & (end.get() > low)):
                self._move((low - base.get()) * self.row_size, (end.get() - low) * self.row_size)
            base.set(low)
            fresh = f.maximum(f.maximum(end.get(), low), 0)
            self._expand(piece, fresh, high, low)
            f.empty_registers()
            end.set(f.maximum(fresh, high))
            with f.loop(first, last) as row:
                self._line(piece, row, low)

    @contextlib.contextmanager
    def _panels(self, piece: _Piece) -> Iterator[_Piece]:
        """A loop over the panels of a chunk."""
        f, width = self.f, self.tile.width
        if self.form.panels == 1:
            yield piece
            return
        with f.loop(0, f.minimum(piece.left, self.form.pixel), width) as shift:
            yield _Piece(piece.image, piece.panel + shift // width, piece.column + shift, piece.left - shift, shift)

    def _move(self, start: Value, count: Value) -> None:
        """What lies from `start` on to the beginning."""
        f, tile = self.f, self.tile
        with f.loop(0, count, tile.lanes) as place:
            f.store(f.load(self.scratch, start + place, tile.type, tile.lanes), self.scratch, place, tile.type)

    # --- the expansion

    def _expand(self, piece: _Piece, first: Value, last: Value, base: Value) -> None:
        """Rows of the expanded image, by tiles of pixels that follow each other across rows."""
        f, tile = self.f, self.tile
        tiles = EvenTiles(f, f.maximum(last - first, 0) * self.width, tile.pixels)
        image = f.address(self.x, piece.image * self.image_step, tile.type)
        with f.loop(0, tiles.count) as number:
            start, count = tiles.start(number), tiles.size(number)
            row, column = start // self.width, start % self.width
            position = first * self.width + start
            self._find_sources(image, position, count)
            self._find_places(((first - base + row) * self.pitch + self.side + column) * self.form.pixel, column, count)
            with self._panels(piece) as part:
                self._expand_tile(part, position, count)

    def _expand_tile(self, piece: _Piece, position: Value, count: Value) -> None:
        """By the code for this number of pixels. What follows is repeated for each register of a whole tile only."""
        f, tile = self.f, self.tile
        before = whole = 0
        for pixels in sizes_up_to(tile.pixels):
            is_final = self.expands_lightly and pixels == tile.pixels
            with f.if_((count > before) & (count <= pixels)):
                self._keep(piece, self._products(piece, pixels), position, count, is_final)
            whole = before if is_final else pixels
            before = pixels
        with f.if_(count <= whole):
            self._apply(piece, position, count)

    def _steps(self, count: Value) -> Value:
        """0, 1, … of the pixels of a tile; the last one stands for those behind it too."""
        f, lanes = self.f, self.tile.row
        return f.minimum(f.iota(I64, lanes), f.splat(count - 1, lanes))

    def _find_sources(self, image: Value, position: Value, count: Value) -> None:
        f, lanes = self.f, self.tile.row
        numbers = (self._steps(count) + f.splat(position, lanes)) * f.splat(self.pixel_step, lanes)
        begin = f.emit(I64, f"ptrtoint {image} to i64")
        f.store(numbers * self.tile.type.bytes + f.splat(begin, lanes), self.sources, 0, I64)

    def _find_places(self, place: Value, column: Value, count: Value) -> None:
        """`place` and `column` are those of the first pixel."""
        f, tile, lanes, size = self.f, self.tile, self.tile.row, self.form.pixel
        gap = (self.pitch - self.width) * size
        with f.if_else(self.width >= tile.pixels) as otherwise:
            # a tile reaches into the next row at most
            steps = self._steps(count)
            wraps = steps >= f.splat(self.width - column, lanes)
            offsets = f.select(wraps, f.splat(gap, lanes), f.const(I64.vector(lanes), 0))
            f.store(f.splat(place, lanes) + steps * size + offsets, self.places, 0, I64)
            otherwise()
            here, at = f.variable(place), f.variable(column)
            with f.loop(0, tile.pixels) as pixel:
                f.store(here.get(), self.places, pixel, I64)
                with f.if_(pixel + 1 < count):
                    wraps = at.get() + 1 >= self.width
                    here.set(here.get() + f.select(wraps, gap, 0) + size)
                    at.set(f.select(wraps, 0, at.get() + 1))

    def _products(self, piece: _Piece, pixels: int) -> list[list[Value]]:
        f, tile = self.f, self.tile
        sums = zero_sums(f, pixels, tile.vectors, tile.type, tile.lanes)
        starts = [f.load(self.bias, piece.column + one * tile.lanes, tile.type, tile.lanes) for one in range(tile.vectors)]
        for vectors in sums[0]:
            for vector, start in zip(vectors, starts):
                vector.set(start)
        panel = f.address(self.w, piece.panel * (self.depth * tile.width), tile.type)
        rows = [f.load(self.sources, pixel, PTR) for pixel in range(pixels)]
        add_products(f, sums, rows, panel, self.depth, tile.type, tile.lanes)
        return totals_of(sums)

    def _keep(self, piece: _Piece, sums: Sequence[Sequence[Value]], position: Value, count: Value, is_final: bool) -> None:
        """A tile into the scratch memory, as sums or final; pixels beyond its last one come to lie on that, which is the same."""
        f, tile = self.f, self.tile
        for pixel, vectors in enumerate(sums):
            place = f.address(self.scratch, f.load(self.places, pixel, I64) + piece.shift, tile.type)
            number = position + f.minimum(count - 1, pixel)
            for one, vector in enumerate(vectors):
                made = self._expanded(piece, number, one * tile.lanes, vector) if is_final else vector
                f.store(made, place, one * tile.lanes, tile.type)

    def _apply(self, piece: _Piece, position: Value, count: Value) -> None:
        """What follows the expansion, for a tile in the scratch memory."""
        f, tile = self.f, self.tile
        with f.loop(0, count) as pixel:
            place = f.address(self.scratch, f.load(self.places, pixel, I64) + piece.shift, tile.type)
            with f.loop(0, tile.width, tile.lanes) as first:
                vector = f.load(place, first, tile.type, tile.lanes)
                f.store(self._expanded(piece, position + pixel, first, vector), place, first, tile.type)

    def _expanded(self, piece: _Piece, position: Value, first: Value | int, vector: Value) -> Value:
        f, lanes = self.f, self.tile.lanes
        row = self.between.row([piece.image, position])
        left = f.maximum(piece.left - first, 0)
        return row.lanewise(piece.column + first, lanes, left, item=self.form.result, given=[vector])

    # --- the windows

    def _line(self, piece: _Piece, row: Value, base: Value) -> None:
        """One row of the result."""
        f, tile = self.f, self.tile
        origin = row * self.stride - self.top
        taps = f.maximum(-origin, 0), f.minimum(self.kernel, self.height - origin)
        line = f.address(self.scratch, (origin - base) * self.row_size, tile.type)
        with f.loop(0, self.columns, PIXELS) as start:
            first = f.maximum(f.minimum(start, self.columns - PIXELS), 0)
            count = f.minimum(self.columns - first, PIXELS)
            window = f.address(line, first * (self.form.stride * self.form.pixel), tile.type)
            with self._panels(piece) as part:
                for vectors in self.form.groups(f.target.vector_registers):
                    self._prefetch(part, vectors, row * self.columns + first + PIXELS)
                    sums = self._sums(part, f.address(window, part.shift, tile.type), taps, vectors)
                    self._hand_on(part, sums, vectors, row * self.columns + first, count)

    def _prefetch(self, piece: _Piece, vectors: range, position: Value) -> None:
        """What follows needs the next tile's place soon."""
        columns = [piece.column + one * self.tile.lanes for one in vectors]
        for pixel in range(PIXELS):
            self.code.row([piece.image, position + pixel]).prefetch(columns)

    def _sums(self, piece: _Piece, window: Value, taps: tuple[Value, Value], vectors: range) -> list[list[Variable]]:
        """Of a few pixels; rows of the window outside the image are left out."""
        f, tile, form = self.f, self.tile, self.form
        starts = [f.load(self.offsets, piece.column + one * tile.lanes, tile.type, tile.lanes) for one in vectors]
        sums = [[f.variable(start) for start in starts] for _ in range(PIXELS)]
        filters = f.address(self.taps, piece.column * (self.kernel * form.taps), tile.type)
        with f.loop(*taps) as k:
            line = f.address(window, k * self.row_size, tile.type)
            weights = f.address(filters, k * (form.taps * tile.width), tile.type)
            factors = [
                [f.load(weights, tap * tile.width + one * tile.lanes, tile.type, tile.lanes) for one in vectors]
                for tap in range(form.taps)
            ]
            for column in self.windows:
                loaded = [f.load(line, column * form.pixel + one * tile.lanes, tile.type, tile.lanes) for one in vectors]
                for pixel, variables in enumerate(sums):
                    tap = column - pixel * form.stride
                    if 0 <= tap < form.taps:
                        for variable, value, factor in zip(variables, loaded, factors[tap]):
                            variable.set(f.fma(value, factor, variable.get()))
        return sums

    def _hand_on(self, piece: _Piece, sums: list[list[Variable]], vectors: range, position: Value, count: Value) -> None:
        """Through what follows: register by register, or from the stack where that is a loop or a vector is not whole."""
        f, tile = self.f, self.tile
        if not self.is_light:
            self._hand_on_slowly(piece, sums, vectors, position, count)
            return
        with f.if_else(piece.left >= vectors.stop * tile.lanes) as otherwise:
            for pixel, variables in enumerate(sums):
                with f.if_(count > pixel):
                    target = self.code.row([piece.image, position + pixel])
                    for one, variable in zip(vectors, variables):
                        target.emit(piece.column + one * tile.lanes, tile.lanes, given=[variable.get()])
            otherwise()
            self._hand_on_slowly(piece, sums, vectors, position, count)

    def _hand_on_slowly(self, piece: _Piece, sums: list[list[Variable]], vectors: range, position: Value, count: Value) -> None:
        f, tile = self.f, self.tile
        for pixel, variables in enumerate(sums):
            for one, variable in zip(vectors, variables):
                f.store(variable.get(), self.spilled, pixel * tile.width + one * tile.lanes, tile.type)
        stop = f.minimum(piece.left, vectors.stop * tile.lanes)
        with f.loop(0, count) as index:
            target = self.code.row([piece.image, position + index])
            with f.loop(vectors.start * tile.lanes, stop, tile.lanes) as place:
                vector = f.load(self.spilled, index * tile.width + place, tile.type, tile.lanes)
                target.emit(piece.column + place, tile.lanes, stop - place, given=[vector])
