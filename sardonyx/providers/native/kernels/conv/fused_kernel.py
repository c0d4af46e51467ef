"""The code of a 1×1 convolution and the depthwise one behind it in one step. `fused.py` calls it.

An item is a section of an image, some rows of the result, by a chunk of channels: a few panels of filters. Band by band the expanded rows
that are missing are computed into scratch memory of the thread, with zeros beside them; then the windows of the band's rows are summed from
there. Rows that the next band reads too move to the beginning of the scratch memory.

From the outside in: `fused_kernel` takes items, `_section` goes from band to band, `_Expansion.rows` and `_Windows.row` from tile to tile.
The inner loops are `add_products` of `_Expansion._products` and `_Windows._add_row`; the epilogues are `_apply_epilogue`, behind the
expansion, and `_Windows._epilogue`, behind the windows. The arguments are `FusedArguments`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import real
from sardonyx.compiler.types import I64, PTR
from sardonyx.providers.native.kernels.conv.direct import Tile
from sardonyx.providers.native.kernels.conv.tiles import EvenTiles, add_products, is_light, sizes_up_to, totals_of, zero_sums
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, ScratchSlotArguments, Size, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

PIXELS = 7
"""Pixels of a tile of the depthwise convolution: images are often 7, 14, 28, 56 or 112 pixels wide."""


@dataclass(frozen=True)
class FusedForm:
    """What shapes the code of both convolutions."""

    tile: Tile
    """The register tile of the expansion."""
    panels: int
    """Panels of filters in a chunk."""
    result: int
    """Which item of the chain between the convolutions is the expanded element."""
    taps: int
    """Taps of the depthwise convolution along a row."""
    stride: int
    """From window to window along a row."""

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


class Bands(Arguments):
    """How the work is cut."""

    sections: Size
    """Sections of an image."""
    band: Size
    """Rows of the result that are computed at a time."""
    capacity: Size
    """Expanded rows that a band needs."""
    pitch: Size
    """Pixels of an expanded row, with its padding."""
    size: Size
    """Elements of a scratch slot."""


class FusedArguments(Arguments):
    x: Pointer
    w: Pointer
    """Filters of the expansion, in panels."""
    bias: Pointer
    depthwise_w: Pointer
    """Filters of the depthwise convolution, in panels."""
    depthwise_bias: Pointer
    scratch: Pointer
    scratch_slots: ScratchSlotArguments
    depth: Size
    """Channels of X."""
    channels: Size
    """Channels of the expanded image, and so of the result."""
    image_step: Size
    pixel_step: Size
    chunks: Size
    bands: Bands
    height: Size
    """Height of the expanded image."""
    width: Size
    """Width of the expanded image."""
    rows: Size
    """Height of the result."""
    columns: Size
    """Width of the result."""
    kernel: Size
    """Rows of a window of the depthwise convolution."""
    stride: Size
    """From window to window, in rows."""
    top: Size
    """Rows of padding above the image."""
    side: Size
    """Pixels of padding before each row."""
    between: Operands = group(lambda between: between.slots)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("conv and depthwise", FusedArguments)
def fused_kernel(f: KernelFunction, a: FusedArguments, form: FusedForm, between: Chain, chain: Chain) -> None:
    """Items are sections of images by chunks of channels."""
    scratch = _Scratch(f, a, form)
    expansion, windows = _Expansion(scratch, between), _Windows(scratch, chain)
    scratch.clear_sides()
    with f.loop(f.begin, f.end) as item:
        _section(scratch, expansion, windows, item)


@dataclass(frozen=True)
class _Piece:
    """Some channels of an image: those of a chunk, or of a panel."""

    image: Value
    panel: Value
    """The first panel of filters."""
    column: Value
    """The first channel."""
    left: Value
    """How many channels there are from there on."""
    shift: Value
    """Where they begin in a pixel of the scratch memory."""


class _Scratch:
    """The expanded rows of a band, with the zeros beside them."""

    def __init__(self, f: KernelFunction, a: FusedArguments, form: FusedForm):
        self.f = f
        self.a = a
        self.form = form
        self.place = f.address(a.scratch, f.scratch_slot(a.scratch_slots) * a.bands.size, form.tile.type)
        self.row_size = a.bands.pitch * form.pixel

    def clear_sides(self) -> None:
        """Zeros before and behind each row."""
        f, a, pixel = self.f, self.a, self.form.pixel
        with f.loop(0, a.bands.capacity) as row:
            start = row * self.row_size
            self._clear(start, start + a.side * pixel)
            self._clear(start + (a.side + a.width) * pixel, start + self.row_size)

    def _clear(self, start: Value, stop: Value) -> None:
        f, tile = self.f, self.form.tile
        with f.loop(start, stop, tile.lanes) as place:
            f.store(f.const(tile.type.vector(tile.lanes), 0), self.place, place, tile.type)

    def drop_rows(self, dropped: Value, kept: Value) -> None:
        """Move the last rows to the beginning of the scratch memory; `dropped` rows before them are not needed any more."""
        f, tile = self.f, self.form.tile
        start = dropped * self.row_size
        with f.loop(0, kept * self.row_size, tile.lanes) as place:
            f.store(f.load(self.place, start + place, tile.type, tile.lanes), self.place, place, tile.type)

    @contextlib.contextmanager
    def panels(self, chunk: _Piece) -> Iterator[_Piece]:
        """A loop over the panels of a chunk."""
        f, width = self.f, self.form.tile.width
        if self.form.panels == 1:
            yield chunk
            return
        with f.loop(0, f.minimum(chunk.left, self.form.pixel), width) as shift:
            yield _Piece(chunk.image, chunk.panel + shift // width, chunk.column + shift, chunk.left - shift, shift)


def _section(scratch: _Scratch, expansion: _Expansion, windows: _Windows, item: Value) -> None:
    """Some rows of the result, of one chunk: band by band, the expanded rows that are missing first."""
    f, a, form = scratch.f, scratch.a, scratch.form
    number, rest = item % a.chunks, item // a.chunks
    section, image = rest % a.bands.sections, rest // a.bands.sections
    column = number * form.pixel
    chunk = _Piece(image, number * form.panels, column, a.channels - column, f.const(I64, 0))
    start, stop = a.rows * section // a.bands.sections, a.rows * (section + 1) // a.bands.sections
    base = f.variable(start * a.stride - a.top)  # the expanded row with which the scratch memory begins
    end = f.variable(f.const(I64, 0))  # the first row that is still to be expanded
    with f.loop(start, stop, a.bands.band) as first:
        last = f.minimum(first + a.bands.band, stop)
        low = first * a.stride - a.top
        high = f.minimum((last - 1) * a.stride - a.top + a.kernel, a.height)
        with f.if_((low > base.get()) & (end.get() > low)):
            scratch.drop_rows(low - base.get(), end.get() - low)
        base.set(low)
        fresh = f.maximum(f.maximum(end.get(), low), 0)
        expansion.rows(chunk, fresh, high, low)
        f.empty_registers()
        end.set(f.maximum(fresh, high))
        with f.loop(first, last) as row:
            windows.row(chunk, row, low)


# --- the expansion --------------------------------------------------------------------------------------------------


class _Expansion:
    """The 1×1 convolution, from the image into the scratch memory. A tile is some pixels by a panel."""

    def __init__(self, scratch: _Scratch, between: Chain):
        f = self.f = scratch.f
        self.a, self.form, self.scratch = scratch.a, scratch.form, scratch
        self.tile = tile = scratch.form.tile
        self.epilogue = ChainCode(f, between, scratch.a.between)
        self.is_light = is_light(f.target, between, tile.lanes)
        self.sources = f.stack(I64, tile.row)
        """Where the channels of a tile's pixels begin."""
        self.places = f.stack(I64, tile.row)
        """Where the expanded pixels of a tile go, as offsets in the scratch memory."""

    def rows(self, chunk: _Piece, first: Value, last: Value, base: Value) -> None:
        """Rows of the expanded image, by tiles of pixels that follow each other across rows; the scratch memory begins with `base`."""
        f, a = self.f, self.a
        tiles = EvenTiles(f, f.maximum(last - first, 0) * a.width, self.tile.pixels)
        image = f.address(a.x, chunk.image * a.image_step, self.tile.type)
        with f.loop(0, tiles.count) as number:
            start, count = tiles.start(number), tiles.size(number)
            row, column = start // a.width, start % a.width
            position = first * a.width + start
            self._find_sources(image, position, count)
            self._find_places(((first - base + row) * a.bands.pitch + a.side + column) * self.form.pixel, column, count)
            with self.scratch.panels(chunk) as panel:
                self._tile(panel, position, count)

    def _find_sources(self, image: Value, position: Value, count: Value) -> None:
        f, lanes = self.f, self.tile.row
        numbers = (self._steps(count) + f.splat(position, lanes)) * f.splat(self.a.pixel_step, lanes)
        begin = f.emit(I64, f"ptrtoint {image} to i64")
        f.store(numbers * self.tile.type.bytes + f.splat(begin, lanes), self.sources, 0, I64)

    def _find_places(self, place: Value, column: Value, count: Value) -> None:
        """`place` and `column` are those of the first pixel."""
        f, tile, lanes, size = self.f, self.tile, self.tile.row, self.form.pixel
        width = self.a.width
        gap = (self.a.bands.pitch - width) * size
        with f.if_else(width >= tile.pixels) as otherwise:
            # a tile reaches into the next row at most
            steps = self._steps(count)
            wraps = steps >= f.splat(width - column, lanes)
            offsets = f.select(wraps, f.splat(gap, lanes), f.const(I64.vector(lanes), 0))
            f.store(f.splat(place, lanes) + steps * size + offsets, self.places, 0, I64)
            otherwise()
            here, at = f.variable(place), f.variable(column)
            with f.loop(0, tile.pixels) as pixel:
                f.store(here.get(), self.places, pixel, I64)
                with f.if_(pixel + 1 < count):
                    wraps = at.get() + 1 >= width
                    here.set(here.get() + f.select(wraps, gap, 0) + size)
                    at.set(f.select(wraps, 0, at.get() + 1))

    def _steps(self, count: Value) -> Value:
        """0, 1, … of the pixels of a tile; the last one stands for those behind it too."""
        f, lanes = self.f, self.tile.row
        return f.minimum(f.iota(I64, lanes), f.splat(count - 1, lanes))

    def _tile(self, panel: _Piece, position: Value, count: Value) -> None:
        """One tile, by the code for its number of pixels. A light epilogue works in registers if the tile is whole; else it is a loop."""
        f, tile = self.f, self.tile
        before = whole = 0
        for pixels in sizes_up_to(tile.pixels):
            is_final = self.is_light and pixels == tile.pixels
            with f.if_((count > before) & (count <= pixels)):
                self._store(panel, self._products(panel, pixels), position, count, is_final)
            whole = before if is_final else pixels
            before = pixels
        with f.if_(count <= whole):
            self._apply_epilogue(panel, position, count)

    def _products(self, panel: _Piece, pixels: int) -> list[list[Value]]:
        """The sums of a tile: the bias, and products over all channels."""
        f, a, tile = self.f, self.a, self.tile
        sums = zero_sums(f, pixels, tile.vectors, tile.type, tile.lanes)
        biases = [f.load(a.bias, panel.column + vector * tile.lanes, tile.type, tile.lanes) for vector in range(tile.vectors)]
        for registers in sums[0]:
            for register, bias in zip(registers, biases):
                register.set(bias)
        filters = f.address(a.w, panel.panel * (a.depth * tile.width), tile.type)
        rows = [f.load(self.sources, pixel, PTR) for pixel in range(pixels)]
        add_products(f, sums, rows, filters, a.depth, real(tile.type), tile.lanes)
        return totals_of(sums)

    def _store(self, panel: _Piece, sums: Sequence[Sequence[Value]], position: Value, count: Value, is_final: bool) -> None:
        """Store a tile in the scratch memory, as sums or behind the epilogue. Pixels beyond the last one equal it and have its place."""
        f, tile = self.f, self.tile
        for pixel, vectors in enumerate(sums):
            place = f.address(self.scratch.place, f.load(self.places, pixel, I64) + panel.shift, tile.type)
            number = position + f.minimum(count - 1, pixel)
            for index, vector in enumerate(vectors):
                stored = self._expanded(panel, number, index * tile.lanes, vector) if is_final else vector
                f.store(stored, place, index * tile.lanes, tile.type)

    def _apply_epilogue(self, panel: _Piece, position: Value, count: Value) -> None:
        """Apply the epilogue to a tile in the scratch memory."""
        f, tile = self.f, self.tile
        with f.loop(0, count) as pixel:
            place = f.address(self.scratch.place, f.load(self.places, pixel, I64) + panel.shift, tile.type)
            with f.loop(0, tile.width, tile.lanes) as first:
                vector = f.load(place, first, tile.type, tile.lanes)
                f.store(self._expanded(panel, position + pixel, first, vector), place, first, tile.type)

    def _expanded(self, panel: _Piece, position: Value, first: Value | int, sums: Value) -> Value:
        """What the epilogue makes of a vector of sums."""
        row = self.epilogue.row([panel.image, position])
        left = self.f.maximum(panel.left - first, 0)
        return row.lanewise(panel.column + first, self.tile.lanes, left, item=self.form.result, given=[sums])


# --- the depthwise convolution --------------------------------------------------------------------------------------


class _Windows:
    """The depthwise convolution, from the scratch memory. A tile is a few pixels by some vectors of a panel."""

    def __init__(self, scratch: _Scratch, chain: Chain):
        f = self.f = scratch.f
        self.a, self.form, self.scratch = scratch.a, scratch.form, scratch
        self.tile = tile = scratch.form.tile
        self.epilogue = ChainCode(f, chain, scratch.a.sink)
        self.is_light = is_light(f.target, chain, tile.lanes)
        self.spilled = f.stack(tile.type, PIXELS * tile.width)
        self.columns = sorted({pixel * self.form.stride + tap for pixel in range(PIXELS) for tap in range(self.form.taps)})
        """The columns that a tile reads, counted from the first one of its window."""

    def row(self, chunk: _Piece, row: Value, base: Value) -> None:
        """One row of the result; the scratch memory begins with the expanded row `base`."""
        f, a, tile = self.f, self.a, self.tile
        origin = row * a.stride - a.top
        window_rows = f.maximum(-origin, 0), f.minimum(a.kernel, a.height - origin)
        line = f.address(self.scratch.place, (origin - base) * self.scratch.row_size, tile.type)
        with f.loop(0, a.columns, PIXELS) as start:
            first = f.maximum(f.minimum(start, a.columns - PIXELS), 0)
            count = f.minimum(a.columns - first, PIXELS)
            window = f.address(line, first * (self.form.stride * self.form.pixel), tile.type)
            with self.scratch.panels(chunk) as panel:
                for vectors in self.form.groups(f.target.vector_registers):
                    self._prefetch(panel, vectors, row * a.columns + first + PIXELS)
                    sums = self._products(panel, f.address(window, panel.shift, tile.type), window_rows, vectors)
                    self._epilogue(panel, sums, vectors, row * a.columns + first, count)

    def _prefetch(self, panel: _Piece, vectors: range, position: Value) -> None:
        """The epilogue needs the next tile's place soon."""
        column, count = panel.column + vectors[0] * self.tile.lanes, len(vectors) * self.tile.lanes
        for pixel in range(PIXELS):
            self.epilogue.row([panel.image, position + pixel]).prefetch(column, count)

    def _products(self, panel: _Piece, window: Value, rows: tuple[Value, Value], vectors: range) -> list[list[Variable]]:
        """The sums of a tile: the bias, and products over the rows of the window that lie inside the image."""
        f, a, tile, form = self.f, self.a, self.tile, self.form
        biases = self._vectors(a.depthwise_bias, panel.column, vectors)
        sums = [[f.variable(bias) for bias in biases] for _ in range(PIXELS)]
        filters = f.address(a.depthwise_w, panel.column * (a.kernel * form.taps), tile.type)
        with f.loop(*rows) as k:
            line = f.address(window, k * self.scratch.row_size, tile.type)
            self._add_row(sums, line, f.address(filters, k * (form.taps * tile.width), tile.type), vectors)
        return sums

    def _add_row(self, sums: list[list[Variable]], line: Value, filters: Value, vectors: range) -> None:
        """The inner loop, unrolled: each column of a row of the window is loaded once and multiplied by all taps that meet it."""
        f, form = self.f, self.form
        factors = [self._vectors(filters, tap * self.tile.width, vectors) for tap in range(form.taps)]
        for column in self.columns:
            pixels = self._vectors(line, column * form.pixel, vectors)
            for number, registers in enumerate(sums):
                tap = column - number * form.stride
                if 0 <= tap < form.taps:
                    for register, pixel, factor in zip(registers, pixels, factors[tap]):
                        register.set(f.fma(pixel, factor, register.get()))

    def _vectors(self, place: Value, first: Value | int, vectors: range) -> list[Value]:
        """Some vectors of the panel whose elements begin with `first`."""
        tile = self.tile
        return [self.f.load(place, first + vector * tile.lanes, tile.type, tile.lanes) for vector in vectors]

    def _epilogue(self, panel: _Piece, sums: list[list[Variable]], vectors: range, position: Value, count: Value) -> None:
        """Apply the epilogue to each register; or to the stack, in a loop, where it is heavy or a vector is not whole."""
        f, tile = self.f, self.tile
        if not self.is_light:
            self._epilogue_from_stack(panel, sums, vectors, position, count)
            return
        with f.if_else(panel.left >= vectors.stop * tile.lanes) as otherwise:
            for pixel, registers in enumerate(sums):
                with f.if_(count > pixel):
                    target = self.epilogue.row([panel.image, position + pixel])
                    for vector, register in zip(vectors, registers):
                        target.emit(panel.column + vector * tile.lanes, tile.lanes, given=[register.get()])
            otherwise()
            self._epilogue_from_stack(panel, sums, vectors, position, count)

    def _epilogue_from_stack(
        self, panel: _Piece, sums: list[list[Variable]], vectors: range, position: Value, count: Value
    ) -> None:
        f, tile = self.f, self.tile
        for number, registers in enumerate(sums):
            for vector, register in zip(vectors, registers):
                f.store(register.get(), self.spilled, number * tile.width + vector * tile.lanes, tile.type)
        stop = f.minimum(panel.left, vectors.stop * tile.lanes)
        with f.loop(0, count) as pixel:
            target = self.epilogue.row([panel.image, position + pixel])
            with f.loop(vectors.start * tile.lanes, stop, tile.lanes) as first:
                sums_here = f.load(self.spilled, pixel * tile.width + first, tile.type, tile.lanes)
                target.emit(panel.column + first, tile.lanes, stop - first, given=[sums_here])
