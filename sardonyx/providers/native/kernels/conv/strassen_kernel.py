"""The code of Strassen's product for pointwise convolutions: seven products of half the sizes instead of eight. `strassen.py` calls it.

Pixels, channels and filters are halved: A is four blocks of pixels by channels, B four of channels by filters. Sums of A's blocks are made
for some tiles at a time, those of B's lie packed. A tile's seven products follow each other in the same registers, so that their sums, the
four blocks of the result, cost nothing but a few loads and stores. The variant is Winograd's, with the fewest additions.
"""

from __future__ import annotations

import itertools

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import real
from sardonyx.compiler.types import F32
from sardonyx.providers.native.kernels.conv.tiles import EvenTiles, Sums, add_products, to_fetch, zero_sums
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, ScratchSlotArguments, Size, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

PRODUCTS = 7


@dataclass(frozen=True)
class StrassenForm:
    """What shapes the code."""

    rows: int
    """Pixels of one half of a tile."""
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Filters of one half of a pair of panels."""
        return self.vectors * self.lanes


class Grid(Arguments):
    """Where the pixels of an image lie: rows of so many, and how far rows and pixels are apart."""

    columns: Size
    row_step: Size
    pixel_step: Size


class StrassenArguments(Arguments):
    x: Pointer
    u: Pointer
    """Sums of the blocks of filters: for each pair of panels, the second factors of all products."""
    bias: Pointer
    v: Pointer
    """Scratch memory for the first factors: sums of the blocks of some tiles."""
    scratch_slots: ScratchSlotArguments
    depth: Size
    """Half of the channels."""
    positions: Size
    """Pixels of an image of the result."""
    pairs: Size
    """Of panels of filters."""
    chunk: Size
    """Pairs of an item."""
    limit: Size
    """Tiles of a block, at most."""
    pitch: Size
    """From row to row in scratch memory."""
    image_step: Size
    grid: Grid
    sink: Operands = group(lambda chain: chain.slots)


@kernel("strassen", StrassenArguments)
def strassen_kernel(f: KernelFunction, a: StrassenArguments, form: StrassenForm, chain: Chain) -> None:
    """Items are blocks of tiles by chunks of filters."""
    code = _Strassen(f, a, form, chain)
    with f.loop(f.begin, f.end) as item:
        code.block_of(item)


@dataclass(frozen=True)
class _Tile:
    """Some pixels of an image: the upper half of them and the lower one."""

    image: Value
    first: Value
    size: Value
    upper: Value


class _Strassen:
    """The code."""

    def __init__(self, f: KernelFunction, a: StrassenArguments, form: StrassenForm, chain: Chain):
        self.f = f
        self.a = a
        self.form = form
        self.epilogue = ChainCode(f, chain, a.sink)
        self.kept = [f.stack(F32, form.rows * form.width) for _ in range(3)]
        self.spilled = f.stack(F32, form.rows * form.width)
        slot = f.scratch_slot(a.scratch_slots)
        self.tile_size = a.pitch * (PRODUCTS * form.rows)
        self.v = f.address(a.v, slot * (a.limit * self.tile_size), F32)
        self.tiles = EvenTiles(f, a.positions, 2 * form.rows)
        self.blocks = EvenTiles(f, self.tiles.count, a.limit)
        self.chunks = (a.pairs + (a.chunk - 1)) // a.chunk

    def block_of(self, item: Value) -> None:
        f = self.f
        chunk, rest = item % self.chunks, item // self.chunks
        number, image = rest % self.blocks.count, rest // self.blocks.count
        start, count = self.blocks.start(number), self.blocks.size(number)
        with f.loop(0, count) as number:
            self._add_blocks(self._tile(image, start + number), f.address(self.v, number * self.tile_size, F32))
        first = chunk * self.a.chunk
        with f.loop(first, f.minimum(first + self.a.chunk, self.a.pairs)) as pair, f.loop(0, count) as number:
            self._multiply(self._tile(image, start + number), f.address(self.v, number * self.tile_size, F32), pair, number)

    def _tile(self, image: Value, number: Value) -> _Tile:
        size = self.tiles.size(number)
        return _Tile(image, self.tiles.start(number), size, (size + 1) // 2)

    def _add_blocks(self, tile: _Tile, target: Value) -> None:
        """The first factors of all products; if there are fewer pixels than rows the last ones are taken several times."""
        f, lanes = self.f, self.form.lanes
        image = f.address(self.a.x, tile.image * self.a.image_step, F32)
        with f.loop(0, self.form.rows) as row:
            upper = f.minimum(row, tile.upper - 1)
            lower = f.minimum(tile.upper + row, tile.size - 1)
            tops, bottoms = (self._pixel(image, tile.first + pixel) for pixel in (upper, lower))
            with f.loop(0, self.a.depth, lanes) as k:
                a11, a12, a21, a22 = (
                    f.load(place, k + side, F32, lanes) for place in (tops, bottoms) for side in (0, self.a.depth)
                )
                total = a21 + a22
                most = total - a11
                for number, factor in enumerate((a11, a12, most, a11 - a21, a22, total, a12 - most)):
                    f.store(factor, target, (row + number * self.form.rows) * self.a.pitch + k, F32)

    def _pixel(self, image: Value, position: Value) -> Value:
        row, column = position // self.a.grid.columns, position % self.a.grid.columns
        return self.f.address(image, row * self.a.grid.row_step + column * self.a.grid.pixel_step, F32)

    def _multiply(self, tile: _Tile, factors: Value, pair: Value, passed: Value) -> None:
        """All products P of a tile. Upper pixels are P0 + P1 for the first half of the filters, U + P5 + P6 for the second half, lower
        ones L + P4 and L + P5, where U = P0 + P2 and L = U + P3.
        """
        f, form = self.f, self.form
        sums = zero_sums(f, form.rows, form.vectors, F32, form.lanes)
        size = self.a.depth * form.width

        def add(number: int) -> None:
            rows = [f.address(factors, (number * form.rows + row) * self.a.pitch, F32) for row in range(form.rows)]
            panel = f.address(self.a.u, (pair * PRODUCTS + number) * size, F32)
            following = f.address(panel, size * PRODUCTS, F32)
            fetched = to_fetch(f, panel, following, self.a.depth, form.width * F32.bytes, passed)
            add_products(f, sums, rows, panel, self.a.depth, real(F32), form.lanes, fetched)

        first, shared, lower = self.kept
        column = pair * (2 * form.width)
        add(0)
        self._keep(sums, first)
        add(1)
        self._epilogue(sums, tile, 0, column)
        self._fetch_back(sums, first)
        add(2)
        self._keep(sums, shared)
        add(3)
        self._keep(sums, lower)
        add(4)
        self._epilogue(sums, tile, 1, column)
        self._clear(sums)
        add(5)
        self._keep(sums, first)
        self._add_back(sums, lower)
        self._epilogue(sums, tile, 1, column + form.width)
        self._fetch_back(sums, first)
        self._add_back(sums, shared)
        add(6)
        self._epilogue(sums, tile, 0, column + form.width)

    # --- the registers

    def _clear(self, sums: Sums) -> None:
        f = self.f
        for row in sums[0]:
            for register in row:
                register.set(f.const(F32.vector(self.form.lanes), 0))

    def _keep(self, sums: Sums, place: Value) -> None:
        for number, register in enumerate(itertools.chain.from_iterable(sums[0])):
            self.f.store(register.get(), place, number * self.form.lanes, F32)

    def _fetch_back(self, sums: Sums, place: Value) -> None:
        for number, register in enumerate(itertools.chain.from_iterable(sums[0])):
            register.set(self.f.load(place, number * self.form.lanes, F32, self.form.lanes))

    def _add_back(self, sums: Sums, place: Value) -> None:
        for number, register in enumerate(itertools.chain.from_iterable(sums[0])):
            register.set(register.get() + self.f.load(place, number * self.form.lanes, F32, self.form.lanes))

    def _epilogue(self, sums: Sums, tile: _Tile, half: int, column: Value) -> None:
        """One of four blocks of the result, through the epilogue."""
        f, form = self.f, self.form
        self._keep(sums, self.spilled)
        first, count = (tile.first + tile.upper, tile.size - tile.upper) if half else (tile.first, tile.upper)
        biases = [f.load(self.a.bias, column + vector * form.lanes, F32, form.lanes) for vector in range(form.vectors)]
        with f.loop(0, count) as pixel:
            target = self.epilogue.row([tile.image, first + pixel])
            for vector, bias in enumerate(biases):
                sums_here = f.load(self.spilled, pixel * form.width + vector * form.lanes, F32, form.lanes)
                target.emit(column + vector * form.lanes, form.lanes, given=[sums_here + bias])
