"""Direct convolutions: sums of products of pixels by filters, in registers. Lowerings of convolutions call it.

A micro-kernel holds a tile of the result, some pixels by some vectors of filters. For every tap and pixel a table on the stack says where
the channels of the pixel under that tap begin, in the image or, where the window hangs over its edge, in a row of zeros. So the innermost
loop, over channels, knows nothing of strides, dilations and pads; the pixels of a tile are any that follow each other, across rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import BOOL, I32, I64, PTR, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.arguments import Arguments, Operands, Pointer, Size, each, group, when
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.convolution.tiles import (
    Axis,
    EvenTiles,
    Sums,
    add_products,
    chain_weight,
    fetched_from,
    grain_for,
    sizes_up_to,
    to_fetch,
    totals_of,
    zero_sums,
)
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.records import dataclass

TABLE_TAPS = 128
"""How many taps the table holds; a larger kernel is summed in several rounds."""
PART = 256
"""How many products are summed at a time. Errors of a sum grow with its length: that of its parts, and that of their sum."""
LIGHT = 32
"""Up to how many instructions per vector what follows is repeated for each register of a tile; beyond, it is a loop."""


@dataclass(frozen=True)
class Tile:
    """A micro-kernel's shape."""

    type: Type
    pixels: int
    vectors: int
    lanes: int
    axes: int
    """How many spatial axes a window moves along; 0 if every pixel makes one alone, all of them evenly spaced."""

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.vectors * self.lanes

    @property
    def row(self) -> int:
        """Entries of the table per tap."""
        return 1 << (self.pixels - 1).bit_length()


PIXELS = {"avx512": {1: 14, 2: 14, 3: 9, 4: 7}, "avx2": {1: 12, 2: 6, 3: 4}, "neon": {1: 14, 2: 12, 3: 8, 4: 6}}
"""How many pixels of so many vectors fit into registers."""
FEW_PIXELS = {1: 8, 2: 5, 3: 3}
"""The same for other targets."""
SPLITTING_CPUS = ("znver4",)
"""CPUs that compute on a vector in two halves: half as wide ones are as fast, and may fit better."""
ALIASING = 4096
"""Pixels that lie a multiple of this apart (bytes) meet in one set of the first-level cache, which holds eight lines."""


def pixels_of(target: Target) -> dict[int, int]:
    return PIXELS.get(target.name, FEW_PIXELS)


def tile_for(target: Target, type: Type, filters: int, axes: int, distance: Dim) -> Tile:
    """The tile that wastes least of its last vectors; few pixels of many filters if pixels lie at an unlucky `distance`."""
    lanes = target.lanes(type)
    counts = pixels_of(target)
    is_unlucky = isinstance(distance, int) and distance * type.bytes % ALIASING == 0
    shapes = [(lanes, count) for count in ((4, 2, 3, 1) if 4 in counts and is_unlucky else (2, 3, 1))]
    if target.cpu in SPLITTING_CPUS:
        shapes += [(lanes // 2, count) for count in (3, 2, 1)]

    def cost(shape: tuple[int, int]) -> float:
        """Lanes that are multiplied; with few and narrow vectors reading the pixels takes longer than that."""
        width = shape[0] * shape[1]
        return -(-filters // width) * width * (1.0 if width >= lanes else 1.6)

    width, vectors = min(shapes, key=cost)
    return Tile(type, counts[vectors], vectors, width, axes)


class ConvArguments(Arguments):
    """Channels and filters are those of one group."""

    x: Pointer
    w: Pointer
    """Filters in panels."""
    bias: Pointer
    zeros: Pointer
    """A pixel of the padding."""
    groups: Size
    channels: Size
    filters: Size
    positions: Size
    """Pixels of an image of the result."""
    block: Size
    """How many tiles pass by a panel of filters before the next panel comes."""
    image_step: Size
    pixel_step: Size | None = when(lambda tile: tile.axes == 0)
    axes: Sequence[Axis] = each(lambda tile: tile.axes)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("conv", ConvArguments)
def conv_kernel(f: KernelFunction, a: ConvArguments, tile: Tile, chain: Chain) -> None:
    """Items are tiles of the result: image by image, block by block, in a block panel by panel."""
    product = _Direct(f, a, tile, chain)
    place = product.first()
    with f.loop(f.begin, f.end):
        product.tile(place)
        product.advance(place)


@dataclass
class _Place:
    """Which tile comes next."""

    tile: Variable
    panel: Variable
    block: Variable
    image: Variable
    built: Variable
    """Of which tile the table is."""


class _Direct:
    """The code of a convolution."""

    def __init__(self, f: KernelFunction, a: ConvArguments, tile: Tile, chain: Chain):
        self.f = f
        self.a = a
        self.shape = tile
        self.code = ChainCode(f, chain, a.sink)
        self.is_light = chain_weight(f.target, chain, tile.lanes) <= LIGHT
        self.spilled = f.stack(tile.type, tile.pixels * tile.width)
        self.parts = f.stack(tile.type, tile.pixels * tile.width)
        """The sum of the parts of long sums, if `part_count` says that there are some."""
        self.part_count, self.summed = f.variable(0, I64), f.variable(0, I64)
        self.table = f.stack(I64, (TABLE_TAPS if tile.axes else 1) * tile.row)
        self.numbers = f.stack(I64, TABLE_TAPS)
        """Which taps the rows of the table are for."""
        self.used = f.variable(0, I64)
        """How many rows there are: a tap that lies outside the image for all pixels has none."""
        self.tiles = EvenTiles(f, self.a.positions, tile.pixels)
        self.panels = (self.a.filters + (tile.width - 1)) // tile.width
        self.taps = f.const(I64, 1)
        for axis in self.a.axes:
            self.taps = self.taps * axis.kernel

    # --- the order of items

    def _tiles_in(self, block: Value) -> Value:
        return self.f.minimum(self.a.block, self.tiles.count - block * self.a.block)

    def first(self) -> _Place:
        """Where the item `begin` is."""
        f = self.f
        panels = self.panels * self.a.groups
        per_image, per_block = self.tiles.count * panels, self.a.block * panels
        image, rest = f.begin // per_image, f.begin % per_image
        block, rest = rest // per_block, rest % per_block
        height = self._tiles_in(block)
        return _Place(*(f.variable(one, I64) for one in (rest % height, rest // height, block, image, -1)))

    def advance(self, place: _Place) -> None:
        f = self.f
        place.tile.set(place.tile.get() + 1)
        with f.if_(place.tile.get() >= self._tiles_in(place.block.get())):
            place.tile.set(0)
            place.panel.set(place.panel.get() + 1)
            with f.if_(place.panel.get() >= self.panels * self.a.groups):
                place.panel.set(0)
                place.block.set(place.block.get() + 1)
                with f.if_(place.block.get() * self.a.block >= self.tiles.count):
                    place.block.set(0)
                    place.image.set(place.image.get() + 1)

    # --- a tile

    def tile(self, place: _Place) -> None:
        """Compute one tile and hand it on."""
        f, shape = self.f, self.shape
        image, number = place.image.get(), place.block.get() * self.a.block + place.tile.get()
        group, panel = place.panel.get() // self.panels, place.panel.get() % self.panels
        start, height = self.tiles.start(number), self.tiles.size(number)
        self.image = f.address(self.a.x, image * self.a.image_step + group * self.a.channels, shape.type)
        column = panel * shape.width
        self.filters_at = f.address(self.a.w, place.panel.get() * (self.taps * self.a.channels * shape.width), shape.type)
        self.bias_at = f.address(self.a.bias, place.panel.get() * shape.width, shape.type)
        self.passed = place.tile.get()
        left = self.a.filters - column
        exact = (left >= shape.width) & (height == shape.pixels)
        column = column + group * self.a.filters
        key = (image * self.tiles.count + number) * self.a.groups + group
        with f.loop(0, self.taps, TABLE_TAPS) as first:
            with f.if_((key != place.built.get()) | (self.taps > TABLE_TAPS)):
                self.build(start, height, first)
                place.built.set(key)
            self._round(first, image, start, height, column, exact & (first + TABLE_TAPS >= self.taps))
        with f.if_(~exact if self.is_light else f.const(BOOL, True)):
            self._finish(image, start, height, column, f.minimum(left, shape.width))

    def _round(self, first: Value, image: Value, start: Value, height: Value, column: Value, is_last: Value) -> None:
        """The taps that are in the table, by the code for this number of pixels."""
        f, shape = self.f, self.shape
        before = 0
        for pixels in sizes_up_to(shape.pixels):
            with f.if_((height > before) & (height <= pixels)):
                if pixels == shape.pixels:
                    for pixel in range(pixels):
                        self.code.row([image, start + pixel]).prefetch(
                            [column + one * shape.lanes for one in range(shape.vectors)]
                        )
                sums = self._sums(pixels, first)
                if pixels == shape.pixels and self.is_light:
                    self._hand_on(sums, image, start, column, is_last)
                else:
                    self._spill(sums)
            before = pixels

    def _hand_on(self, sums: Sequence[Sequence[Value]], image: Value, start: Value, column: Value, is_last: Value) -> None:
        """Through what follows, or to the stack if the tile is not whole."""
        f, lanes = self.f, self.shape.lanes
        with f.if_else(is_last) as otherwise:
            for pixel, vectors in enumerate(sums):
                target = self.code.row([image, start + pixel])
                for number, vector in enumerate(vectors):
                    target.emit(column + number * lanes, lanes, given=[vector])
            otherwise()
            self._spill(sums)

    def _spill(self, sums: Sequence[Sequence[Value]]) -> None:
        self._store(sums, self.spilled)

    def _store(self, sums: Sequence[Sequence[Value]], target: Value) -> None:
        for pixel, vectors in enumerate(sums):
            for number, vector in enumerate(vectors):
                self.f.store(vector, target, pixel * self.shape.width + number * self.shape.lanes, self.shape.type)

    def _finish(self, image: Value, start: Value, height: Value, column: Value, stop: Value) -> None:
        """What follows, for a tile on the stack."""
        f, shape = self.f, self.shape
        with f.loop(0, height) as pixel:
            target = self.code.row([image, start + pixel])
            with f.loop(0, stop, shape.lanes) as first:
                vector = f.load(self.spilled, pixel * shape.width + first, shape.type, shape.lanes)
                target.emit(column + first, shape.lanes, stop - first, given=[vector])

    # --- where the channels of each pixel begin

    def build(self, start: Value, height: Value, first: Value) -> None:
        """Fill the table for the taps from `first` on."""
        f, shape = self.f, self.shape
        lanes = shape.row
        if self.a.pixel_step is not None:
            numbers = f.iota(I64, lanes) + f.splat(start, lanes)
            numbers = f.minimum(numbers, f.splat(start + height - 1, lanes)) * f.splat(self.a.pixel_step, lanes)
            f.store(self._addresses(numbers), self.table, 0, I64)
            return
        self.used.set(0)
        origins, offsets = self._origins(start, height)
        self._fill(origins, offsets, 0, None, f.const(I64, 0), f.const(I64, 0), first)

    def _addresses(self, offsets: Value) -> Value:
        f = self.f
        base = f.emit(I64, f"ptrtoint {self.image} to i64")
        return offsets * self.shape.type.bytes + f.splat(base, offsets.type.lanes)

    def _origins(self, start: Value, height: Value) -> tuple[list[Value], Value]:
        """Of each pixel of the tile: where its window begins along each axis, and as an offset into the image."""
        f, lanes = self.f, self.shape.row
        coordinates: list[Value] = []
        rest = start
        for axis in reversed(self.a.axes[1:]):
            coordinates.insert(0, rest % axis.output)
            rest = rest // axis.output
        coordinates.insert(0, rest)
        places = self._coordinates(coordinates, height)
        offsets = f.const(I64.vector(lanes), 0)
        for number, axis in enumerate(self.a.axes):
            places[number] = places[number] * f.splat(axis.stride, lanes) - f.splat(axis.begin, lanes)
            offsets = offsets + places[number] * f.splat(axis.step, lanes)
        return [f.convert(place, I32) for place in places], offsets

    def _coordinates(self, first: list[Value], height: Value) -> list[Value]:
        """The coordinates of all pixels of a tile, the last of which stands for those behind it too."""
        f, lanes = self.f, self.shape.row
        places = [f.variable(f.const(I64.vector(lanes), 0)) for _ in self.a.axes]
        with f.if_else(self.a.axes[-1].output >= self.shape.pixels) as otherwise:
            # a tile reaches into the next row at most
            step = f.minimum(f.iota(I64, lanes), f.splat(height - 1, lanes))
            for number in reversed(range(len(self.a.axes))):
                moved, size = step + f.splat(first[number], lanes), f.splat(self.a.axes[number].output, lanes)
                wraps = (moved >= size) if number else f.const(BOOL.vector(lanes), False)
                places[number].set(f.select(wraps, moved - size, moved))
                step = f.convert(wraps, I64)
            otherwise()
            vectors = [f.const(I64.vector(lanes), 0) for _ in self.a.axes]
            coordinates = first
            for lane in range(self.shape.pixels):
                vectors = [f.insert(vector, one, lane) for vector, one in zip(vectors, coordinates)]
                coordinates = self._following(coordinates, height > lane + 1)
            for place, vector in zip(places, vectors):
                place.set(vector)
        return [place.get() for place in places]

    def _following(self, coordinates: list[Value], has_more: Value) -> list[Value]:
        """The next pixel's coordinates; the last pixel is its own successor."""
        f = self.f
        found: list[Value] = []
        step = f.convert(has_more, I64)
        for axis, coordinate in zip(reversed(self.a.axes), reversed(coordinates)):
            moved = coordinate + step
            if len(found) + 1 == len(self.a.axes):
                found.insert(0, moved)
                break
            wraps = moved >= axis.output
            found.insert(0, f.select(wraps, 0, moved))
            step = f.select(wraps, step, 0)
        return found

    def _fill(
        self, origins: list[Value], offsets: Value, depth: int, mask: Value | None, offset: Value, tap: Value, first: Value
    ) -> None:
        f, lanes, axis = self.f, self.shape.row, self.a.axes[depth]
        limit = f.splat(f.convert(axis.input, I32), lanes)
        with f.loop(0, axis.kernel) as k:
            moved = k * axis.dilation
            place = origins[depth] + f.splat(f.convert(moved, I32), lanes)
            inside = (place >= 0) & (place < limit)
            inside = inside if mask is None else inside & mask
            here = offset + moved * axis.step
            number = tap * axis.kernel + k
            if depth + 1 < len(self.a.axes):
                self._fill(origins, offsets, depth + 1, inside, here, number, first)
            else:
                self._enter(inside, offsets + f.splat(here, lanes), number, first)

    def _enter(self, inside: Value, offsets: Value, tap: Value, first: Value) -> None:
        """One tap's row of the table, if it is among those that have a place now and any pixel has something under it."""
        f, lanes = self.f, self.shape.row
        bits = Type("uint", lanes)
        wanted = (f.bitcast(inside, bits) != 0) & (tap >= first) & (tap < first + TABLE_TAPS)
        with f.if_(wanted):
            zeros = f.emit(I64, f"ptrtoint {self.a.zeros} to i64")
            row = self.used.get()
            f.store(f.select(inside, self._addresses(offsets), f.splat(zeros, lanes)), self.table, row * lanes, I64)
            f.store(tap, self.numbers, row, I64)
            self.used.set(row + 1)

    # --- sums

    def _sums(self, pixels: int, first: Value) -> list[list[Value]]:
        """The tile of so many pixels, from the bias on or from where the round before left it."""
        f, shape = self.f, self.shape
        sums = zero_sums(f, pixels, shape.vectors, shape.type, shape.lanes)
        self._begin(sums[0], first)
        self.part_count.set(0)
        self.summed.set(0)
        if not self.a.axes:
            self._add_tap(sums, f.const(I64, 0), f.const(I64, 0))
        else:
            with f.loop(0, self.used.get()) as row:
                self._add_tap(sums, row, f.load(self.numbers, row, I64))
        with f.if_(self.part_count.get() > 0):
            self._add_parts(sums)
        return totals_of(sums)

    def _begin(self, sums: list[list[Variable]], first: Value) -> None:
        f, shape = self.f, self.shape
        starts = [f.load(self.bias_at, one * shape.lanes, shape.type, shape.lanes) for one in range(shape.vectors)]
        for vectors in sums:
            for vector, start in zip(vectors, starts):
                vector.set(start)
        if not self.a.axes:
            return
        with f.if_(first > 0):
            for pixel, vectors in enumerate(sums):
                for number, vector in enumerate(vectors):
                    place = pixel * shape.width + number * shape.lanes
                    vector.set(f.load(self.spilled, place, shape.type, shape.lanes))

    def _add_tap(self, sums: Sums, row: Value, tap: Value) -> None:
        """All channels of one tap."""
        f, shape = self.f, self.shape
        places = [f.load(self.table, row * shape.row + pixel, PTR) for pixel in range(len(sums[0]))]
        panel = f.address(self.filters_at, tap * (self.a.channels * shape.width), shape.type)
        row_bytes = shape.width * shape.type.bytes
        following = f.address(panel, self.a.channels * shape.width, shape.type)
        fetched = to_fetch(f, panel, following, self.a.channels, row_bytes, self.passed)
        with f.loop(0, self.a.channels, PART) as first:
            with f.if_(self.summed.get() >= PART):
                self._end_part(sums)
            count = f.minimum(PART, self.a.channels - first)
            pixels = [f.address(place, first, shape.type) for place in places]
            filters, ahead = f.address(panel, first * shape.width, shape.type), fetched_from(f, fetched, first, row_bytes)
            add_products(f, sums, pixels, filters, count, shape.type, shape.lanes, ahead)
            self.summed.set(self.summed.get() + count)

    def _end_part(self, sums: Sums) -> None:
        """Put what is summed so far to the other parts, and begin the next one."""
        f = self.f
        with f.if_(self.part_count.get() > 0):
            self._add_parts(sums)
        self._store(totals_of(sums), self.parts)
        zero = f.const(self.shape.type.vector(self.shape.lanes), 0)
        for vector in itertools.chain.from_iterable(itertools.chain.from_iterable(sums)):
            vector.set(zero)
        self.part_count.set(self.part_count.get() + 1)
        self.summed.set(0)

    def _add_parts(self, sums: Sums) -> None:
        f, shape = self.f, self.shape
        for pixel, vectors in enumerate(sums[0]):
            for number, vector in enumerate(vectors):
                place = pixel * shape.width + number * shape.lanes
                vector.set(vector.get() + f.load(self.parts, place, shape.type, shape.lanes))


def grain_of(tile: Tile, positions: Dim, depth: Dim) -> Dim:
    """How many tiles are worth handing to another thread."""
    return grain_for(depth * tile.width * (dim.minimum(positions, tile.pixels) + 2))
