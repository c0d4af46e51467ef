"""Direct convolutions: sums of products of pixels by filters, in registers. Lowerings of convolutions call it.

A micro-kernel holds a tile of the result, some pixels by some vectors of filters. For every tap and pixel a table on the stack says where
the channels of the pixel under that tap begin, in the image or, where the window hangs over its edge, in a row of zeros. So the innermost
loop, over channels, knows nothing of strides, dilations and pads; the pixels of a tile are any that follow each other, across rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import Product, real
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import BOOL, I32, I64, PTR, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.conv.tiles import (
    Axis,
    EvenTiles,
    Sums,
    add_products,
    fetched_from,
    grain_for,
    is_light,
    sizes_up_to,
    to_fetch,
    totals_of,
    zero_sums,
)
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass, replace

TABLE_TAPS = 128
"""How many taps the table holds; a larger kernel is summed in several rounds."""
PART = 256
"""How many products are summed at a time. Errors of a sum grow with its length: that of its parts, and that of their sum."""


@dataclass(frozen=True)
class Tile:
    """A micro-kernel's shape."""

    type: Type
    pixels: int
    vectors: int
    lanes: int
    axes: int
    """How many spatial axes a window moves along; 0 if every pixel makes one alone, all of them evenly spaced."""
    product: Product | None = None
    """How groups of small integers are multiplied, which `type` then stands for; None for floats."""
    step: int | None = None
    """How far the pixels of a tile lie apart in memory, if all are of one row: then the code knows where they are without a table.

    What lies behind a row is read, and not used, where fewer pixels are left. The products of a window are no more than a part of a sum.
    """

    @property
    def multiply(self) -> Product:
        return self.product or real(self.type)

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.vectors * self.lanes

    @property
    def row(self) -> int:
        """Entries of the table per tap."""
        return 1 << (self.pixels - 1).bit_length()


PIXELS = {
    "avx512vnni": {1: 14, 2: 14, 3: 9, 4: 7},
    "avx512": {1: 14, 2: 14, 3: 9, 4: 7},
    "avx2": {1: 12, 2: 6, 3: 4},
    "neon": {1: 14, 2: 12, 3: 8, 4: 6},
}
"""How many pixels of so many vectors fit into registers."""
FEW_PIXELS = {1: 8, 2: 5, 3: 3}
"""The same for other targets."""
ROW_PIXELS = {"avx512vnni": {1: 28}, "avx512": {1: 28}}
"""The same where no registers hold places: there are so many of one vector."""
MOST_ROW_PIXELS = 28
"""Of all tiles of one row."""
MOST_WASTE = 1.25
"""How many times the pixels of a row its tiles may have together; else tiles go on into the next row."""
SPLITTING_CPUS = ("znver4",)
"""CPUs that compute on a vector in two halves: half as wide ones are as fast, and may fit better."""


def pixels_of(target: Target) -> dict[int, int]:
    return PIXELS.get(target.name, FEW_PIXELS)


def tile_for(target: Target, type: Type, filters: int, axes: int, distance: Dim) -> Tile:
    """The tile that wastes least of its last vectors; few pixels of many filters if pixels lie at an unlucky `distance`."""
    lanes = target.lanes(type)
    counts = pixels_of(target)
    is_unlucky = isinstance(distance, int) and distance * type.bytes % target.caches.distance == 0
    shapes = [(lanes, count) for count in ((4, 2, 3, 1) if 4 in counts and is_unlucky else (2, 3, 1))]
    single = lanes
    if target.cpu in SPLITTING_CPUS:
        single = lanes // 2
        shapes += [(single, count) for count in (3, 2, 1)]

    def cost(shape: tuple[int, int]) -> float:
        """Lanes that are multiplied; where each pixel is read for a single multiplication, reading takes longer than that."""
        width = shape[0] * shape[1]
        return -(-filters // width) * width * (1.6 if width == single else 1.0)

    width, vectors = min(shapes, key=cost)
    return Tile(type, counts[vectors], vectors, width, axes)


def in_rows(target: Target, tile: Tile, step: int, width: Dim) -> Tile:
    """The same tile with pixels of one row, unless that is too narrow."""
    pixels = ROW_PIXELS.get(target.name, {}).get(tile.vectors, tile.pixels)
    if isinstance(width, int):
        counts = range(pixels, pixels - 1 - pixels // 3, -1)
        pixels = min(counts, key=lambda count: -(-width // count) * (count + 1))
        if -(-width // pixels) * pixels > MOST_WASTE * width:
            return tile
    return replace(tile, pixels=pixels, step=step)


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
    group_step: Size
    """From the first channel of a group to that of the next."""
    block: Size
    """How many tiles pass by a panel of filters before the next panel comes."""
    image_step: Size
    pixel_step: Size | None = when(lambda tile: tile.axes == 0)
    axes: Sequence[Axis] = each(lambda tile: tile.axes)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("conv", ConvArguments)
def conv_kernel(f: KernelFunction, a: ConvArguments, tile: Tile, chain: Chain) -> None:
    """Items are tiles of the result: image by image, block by block, in a block panel by panel."""
    code = _Direct(f, a, tile, chain)
    if tile.step is not None:
        _tiles_of_rows(f, a, tile, code)
        return
    order = _Order(f, a, tile)
    with f.loop(f.begin, f.end):
        code.tile(order.spot())
        order.advance()


def _tiles_of_rows(f: KernelFunction, a: ConvArguments, tile: Tile, code: _Direct) -> None:
    """Items are tiles too: image by image, row by row, of each tile all panels."""
    rows, width = (axis.output for axis in a.axes)
    tiles, panels = (width + (tile.pixels - 1)) // tile.pixels, (a.filters + (tile.width - 1)) // tile.width
    zero = f.const(I64, 0)
    with items(f, [f.maximum(1, rows), f.maximum(1, tiles), panels]) as (_, (image, row, number, panel)):
        column = number * tile.pixels
        height = f.minimum(width - column, tile.pixels)
        spot = _Spot(image, zero, panel, panel * tile.width, row * width + column, height, zero, zero, (row, column))
        code.tile(spot)


# --- the order of tiles ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Spot:
    """Which tile of the result is computed: some pixels by a panel of filters."""

    image: Value
    group: Value
    panel: Value
    """Counted over all groups."""
    filter: Value
    """The first one of the panel, counted in its group."""
    start: Value
    """The first pixel."""
    height: Value
    """How many pixels there are."""
    pixels: Value
    """A number that tiles of the same pixels and the same group share."""
    passed: Value
    """How many tiles of its block passed by its panel before."""
    corner: tuple[Value, Value] | None = None
    """The row and the column of the first pixel, where all are of one row."""


class _Order:
    """Which tile comes next. A block of tiles passes by one panel after the other."""

    def __init__(self, f: KernelFunction, a: ConvArguments, tile: Tile):
        self.f = f
        self.a = a
        self.tiles = EvenTiles(f, a.positions, tile.pixels)
        self.width = tile.width
        self.panels = (a.filters + (tile.width - 1)) // tile.width
        """Of a group."""
        panels = self.panels * a.groups
        per_image, per_block = self.tiles.count * panels, a.block * panels
        image, rest = f.begin // per_image, f.begin % per_image
        block, rest = rest // per_block, rest % per_block
        height = self._tiles_in(block)
        self.tile, self.panel = f.variable(rest % height, I64), f.variable(rest // height, I64)
        self.block, self.image = f.variable(block, I64), f.variable(image, I64)

    def _tiles_in(self, block: Value) -> Value:
        return self.f.minimum(self.a.block, self.tiles.count - block * self.a.block)

    def spot(self) -> _Spot:
        image, panel, passed = self.image.get(), self.panel.get(), self.tile.get()
        number = self.block.get() * self.a.block + passed
        group, filter = panel // self.panels, (panel % self.panels) * self.width
        pixels = (image * self.tiles.count + number) * self.a.groups + group
        return _Spot(image, group, panel, filter, self.tiles.start(number), self.tiles.size(number), pixels, passed)

    def advance(self) -> None:
        f = self.f
        self.tile.set(self.tile.get() + 1)
        with f.if_(self.tile.get() >= self._tiles_in(self.block.get())):
            self.tile.set(0)
            self.panel.set(self.panel.get() + 1)
            with f.if_(self.panel.get() >= self.panels * self.a.groups):
                self.panel.set(0)
                self.block.set(self.block.get() + 1)
                with f.if_(self.block.get() * self.a.block >= self.tiles.count):
                    self.block.set(0)
                    self.image.set(self.image.get() + 1)


# --- where the channels of each pixel begin -------------------------------------------------------------------------


class _PixelTable:
    """Of each pixel of a tile and each tap, where the channels of the pixel under that tap begin. It lies on the stack."""

    def __init__(self, f: KernelFunction, a: ConvArguments, tile: Tile):
        self.f = f
        self.a = a
        self.shape = tile
        self.places = f.stack(I64, (TABLE_TAPS if tile.axes else 1) * tile.row)
        self.taps = f.stack(I64, TABLE_TAPS)
        """Which taps the rows of the table are for."""
        self.used = f.variable(0, I64)
        """How many rows there are: a tap that lies outside the image for all pixels has none."""
        self.built = f.variable(-1, I64)
        """For which pixels it is, see `_Spot.pixels`."""

    def pixels(self, row: Value, count: int) -> list[Value]:
        """The places in a row of the table."""
        return [self.f.load(self.places, row * self.shape.row + pixel, PTR) for pixel in range(count)]

    def build(self, image: Value, spot: _Spot, first: Value) -> None:
        """Fill the table for the taps from `first` on."""
        f, lanes = self.f, self.shape.row
        if self.a.pixel_step is not None:
            numbers = f.iota(I64, lanes) + f.splat(spot.start, lanes)
            last = f.splat(spot.start + spot.height - 1, lanes)
            offsets = f.minimum(numbers, last) * f.splat(self.a.pixel_step, lanes)
            f.store(self._addresses(image, offsets), self.places, 0, I64)
            return
        self.used.set(0)
        origins, offsets = self._origins(spot.start, spot.height)
        zero = f.const(I64, 0)
        self._fill(image, origins, offsets, 0, None, zero, zero, first)

    def _addresses(self, image: Value, offsets: Value) -> Value:
        f = self.f
        base = f.emit(I64, f"ptrtoint {image} to i64")
        return offsets * self.shape.multiply.row.bytes + f.splat(base, offsets.type.lanes)

    def _origins(self, start: Value, height: Value) -> tuple[list[Value], Value]:
        """Of each pixel of the tile: where its window begins along each axis, and as an offset into the image."""
        f, axes, lanes = self.f, self.a.axes, self.shape.row
        first: list[Value] = []
        rest = start
        for axis in reversed(axes[1:]):
            first.insert(0, rest % axis.output)
            rest = rest // axis.output
        first.insert(0, rest)
        places = self._coordinates(first, height)
        offsets = f.const(I64.vector(lanes), 0)
        for number, axis in enumerate(axes):
            places[number] = places[number] * f.splat(axis.stride, lanes) - f.splat(axis.begin, lanes)
            offsets = offsets + places[number] * f.splat(axis.step, lanes)
        return [f.convert(place, I32) for place in places], offsets

    def _coordinates(self, first: list[Value], height: Value) -> list[Value]:
        """The coordinates of all pixels of a tile, the last of which stands for those behind it too."""
        f, axes, lanes = self.f, self.a.axes, self.shape.row
        places = [f.variable(f.const(I64.vector(lanes), 0)) for _ in axes]
        with f.if_else(axes[-1].output >= self.shape.pixels) as otherwise:
            # a tile reaches into the next row at most
            step = f.minimum(f.iota(I64, lanes), f.splat(height - 1, lanes))
            for number in reversed(range(len(axes))):
                moved, size = step + f.splat(first[number], lanes), f.splat(axes[number].output, lanes)
                wraps = (moved >= size) if number else f.const(BOOL.vector(lanes), False)
                places[number].set(f.select(wraps, moved - size, moved))
                step = f.convert(wraps, I64)
            otherwise()
            vectors = [f.const(I64.vector(lanes), 0) for _ in axes]
            coordinates = first
            for lane in range(self.shape.pixels):
                vectors = [f.insert(vector, coordinate, lane) for vector, coordinate in zip(vectors, coordinates)]
                coordinates = self._following(coordinates, height > lane + 1)
            for place, vector in zip(places, vectors):
                place.set(vector)
        return [place.get() for place in places]

    def _following(self, coordinates: list[Value], has_more: Value) -> list[Value]:
        """The next pixel's coordinates; the last pixel is its own successor."""
        f, axes = self.f, self.a.axes
        following: list[Value] = []
        step = f.convert(has_more, I64)
        for axis, coordinate in zip(reversed(axes[1:]), reversed(coordinates[1:])):
            moved = coordinate + step
            wraps = moved >= axis.output
            following.insert(0, f.select(wraps, 0, moved))
            step = f.select(wraps, step, 0)
        return [coordinates[0] + step, *following]

    def _fill(
        self,
        image: Value,
        origins: list[Value],
        offsets: Value,
        depth: int,
        mask: Value | None,
        offset: Value,
        tap: Value,
        first: Value,
    ) -> None:
        """Loops over the taps along the axis `depth` and those after it; `offset` and `tap` are where the axes before have come to."""
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
                self._fill(image, origins, offsets, depth + 1, inside, here, number, first)
            else:
                self._enter(image, inside, offsets + f.splat(here, lanes), number, first)

    def _enter(self, image: Value, inside: Value, offsets: Value, tap: Value, first: Value) -> None:
        """One tap's row of the table, if it is among those that have a place now and any pixel has something under it."""
        f, lanes = self.f, self.shape.row
        bits = Type("uint", lanes)
        wanted = (tap >= first) & (tap < first + TABLE_TAPS)
        if self.shape.multiply.row.bits > 8:  # sums of bytes are corrected as if all taps had been there
            wanted = wanted & (f.bitcast(inside, bits) != 0)
        with f.if_(wanted):
            zeros = f.emit(I64, f"ptrtoint {self.a.zeros} to i64")
            row = self.used.get()
            places = f.select(inside, self._addresses(image, offsets), f.splat(zeros, lanes))
            f.store(places, self.places, row * lanes, I64)
            f.store(tap, self.taps, row, I64)
            self.used.set(row + 1)


# --- a tile ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Panel:
    """The filters of a tile."""

    filters: Value
    bias: Value
    column: Value
    """Which channel of the result is the first one."""
    left: Value
    """How many filters of the group there are from there on."""
    passed: Value


class _Direct:
    """The code of a tile: sums of products, then the epilogue."""

    def __init__(self, f: KernelFunction, a: ConvArguments, tile: Tile, chain: Chain):
        self.f = f
        self.a = a
        self.shape = tile
        self.table = _PixelTable(f, a, tile)
        self.epilogue = ChainCode(f, chain, a.sink)
        self.is_light = is_light(f.target, chain, tile.lanes)
        self.sum_type, self.column_type = tile.multiply.sum, tile.multiply.column_group
        self.spilled = f.stack(self.sum_type, tile.pixels * tile.width)
        self.parts = f.stack(self.sum_type, tile.pixels * tile.width)
        """The sum of the parts of long sums, if `part_count` says that there are some."""
        self.part_count, self.summed = f.variable(0, I64), f.variable(0, I64)
        self.taps = f.const(I64, 1)
        for axis in a.axes:
            self.taps = self.taps * axis.kernel

    def tile(self, spot: _Spot) -> None:
        """Compute one tile and hand it on: as many taps at a time as the table holds."""
        f, shape, table = self.f, self.shape, self.table
        image = f.address(self.a.x, spot.image * self.a.image_step + spot.group * self.a.group_step, shape.multiply.row)
        panel = self._panel(spot)
        is_whole = (panel.left >= shape.width) & (spot.height == shape.pixels)
        with f.loop(0, self.taps, TABLE_TAPS) as first:
            if spot.corner is None:
                with f.if_((spot.pixels != table.built.get()) | (self.taps > TABLE_TAPS)):
                    table.build(image, spot, first)
                    table.built.set(spot.pixels)
            self._round(image, spot, panel, first, is_whole & (first + TABLE_TAPS >= self.taps))
        with f.if_(~is_whole if self.is_light else f.const(BOOL, True)):
            self._epilogue_from_stack(spot, panel)

    def _panel(self, spot: _Spot) -> _Panel:
        f, a, shape = self.f, self.a, self.shape
        filters = f.address(a.w, spot.panel * (self.taps * a.channels * shape.width), self.column_type)
        bias = f.address(a.bias, spot.panel * shape.width, self.sum_type)
        return _Panel(filters, bias, spot.filter + spot.group * a.filters, a.filters - spot.filter, spot.passed)

    def _round(self, image: Value, spot: _Spot, panel: _Panel, first: Value, is_final: Value) -> None:
        """The taps that are in the table, by the code for this number of pixels."""
        f, shape = self.f, self.shape
        before = 0
        for pixels in sizes_up_to(shape.pixels) if spot.corner is None else [shape.pixels]:
            with f.if_((spot.height > before) & (spot.height <= pixels)):
                self._prefetch(spot, panel, pixels)
                sums = self._products(image, spot, panel, pixels, first)
                if pixels == shape.pixels and self.is_light:
                    self._epilogue(sums, spot, panel, is_final)
                else:
                    self._store(sums, self.spilled)
            before = pixels

    # --- products

    def _products(self, image: Value, spot: _Spot, panel: _Panel, pixels: int, first: Value) -> list[list[Value]]:
        """The sums of a tile of so many pixels, from the bias on or from where the round before left it."""
        f, shape = self.f, self.shape
        f.empty_registers()  # with what the epilogue needs in some of them, sums would be moved about
        sums = zero_sums(f, pixels, shape.vectors, self.sum_type, shape.lanes)
        self._begin(sums[0], panel, first)
        if spot.corner is not None:
            self._add_rows(sums, image, spot.corner, panel)
            return totals_of(sums)
        self.part_count.set(0)
        self.summed.set(0)
        if not self.a.axes:
            self._add_tap(sums, panel, f.const(I64, 0), f.const(I64, 0))
        else:
            with f.loop(0, self.table.used.get()) as row:
                self._add_tap(sums, panel, row, f.load(self.table.taps, row, I64))
        with f.if_(self.part_count.get() > 0):
            self._add_parts(sums)
        return totals_of(sums)

    def _begin(self, sums: list[list[Variable]], panel: _Panel, first: Value) -> None:
        f, shape = self.f, self.shape
        biases = [f.load(panel.bias, vector * shape.lanes, self.sum_type, shape.lanes) for vector in range(shape.vectors)]
        for registers in sums:
            for register, bias in zip(registers, biases):
                register.set(bias)
        if not self.a.axes:
            return
        with f.if_(first > 0):
            for pixel, registers in enumerate(sums):
                for number, register in enumerate(registers):
                    register.set(self._load(self.spilled, pixel, number))

    def _add_rows(self, sums: Sums, image: Value, corner: tuple[Value, Value], panel: _Panel) -> None:
        """All taps of a tile of one row, each of which is a row of the window; those beside the image are left out."""
        f, shape, axis, depth = self.f, self.shape, self.a.axes[0], self.a.channels
        assert shape.step is not None
        row, column = corner
        top = row * axis.stride - axis.begin
        low, high = axis.range(f, top)
        with f.loop(low, high) as tap:
            begin = (top + tap * axis.dilation) * axis.step + column * shape.step
            places = [f.address(image, begin + pixel * shape.step, shape.type) for pixel in range(len(sums[0]))]
            filters = f.address(panel.filters, tap * (depth * shape.width), shape.type)
            add_products(f, sums, places, filters, depth, shape.multiply, shape.lanes, filters)

    def _add_tap(self, sums: Sums, panel: _Panel, row: Value, tap: Value) -> None:
        """The inner loop: all channels of one tap, whose pixels are in a row of the table."""
        f, shape, channels = self.f, self.shape, self.a.channels
        places = self.table.pixels(row, len(sums[0]))
        filters = f.address(panel.filters, tap * (channels * shape.width), self.column_type)
        row_bytes = shape.width * self.column_type.bytes
        following = f.address(filters, channels * shape.width, self.column_type)
        fetched = to_fetch(f, filters, following, channels, row_bytes, panel.passed)
        if not self.sum_type.is_float:
            add_products(f, sums, places, filters, channels, shape.multiply, shape.lanes, fetched)
            return
        with f.loop(0, channels, PART) as first:
            with f.if_(self.summed.get() >= PART):
                self._end_part(sums)
            count = f.minimum(PART, channels - first)
            pixels = [f.address(place, first, shape.type) for place in places]
            part, ahead = f.address(filters, first * shape.width, shape.type), fetched_from(f, fetched, first, row_bytes)
            add_products(f, sums, pixels, part, count, shape.multiply, shape.lanes, ahead)
            self.summed.set(self.summed.get() + count)

    def _end_part(self, sums: Sums) -> None:
        """Put what is summed so far to the other parts, and begin the next one."""
        f = self.f
        with f.if_(self.part_count.get() > 0):
            self._add_parts(sums)
        self._store(totals_of(sums), self.parts)
        zero = f.const(self.sum_type.vector(self.shape.lanes), 0)
        for register in itertools.chain.from_iterable(itertools.chain.from_iterable(sums)):
            register.set(zero)
        self.part_count.set(self.part_count.get() + 1)
        self.summed.set(0)

    def _add_parts(self, sums: Sums) -> None:
        for pixel, registers in enumerate(sums[0]):
            for number, register in enumerate(registers):
                register.set(register.get() + self._load(self.parts, pixel, number))

    def _load(self, place: Value, pixel: int, vector: int) -> Value:
        """A vector of a tile on the stack."""
        shape = self.shape
        return self.f.load(place, pixel * shape.width + vector * shape.lanes, self.sum_type, shape.lanes)

    def _store(self, sums: Sequence[Sequence[Value]], place: Value) -> None:
        """A tile to the stack."""
        for pixel, vectors in enumerate(sums):
            for number, vector in enumerate(vectors):
                self.f.store(vector, place, pixel * self.shape.width + number * self.shape.lanes, self.sum_type)

    # --- the epilogue

    def _prefetch(self, spot: _Spot, panel: _Panel, pixels: int) -> None:
        """What the epilogue will need."""
        for pixel in range(pixels):
            self.epilogue.row([spot.image, spot.start + pixel]).prefetch(panel.column, self.shape.width)

    def _epilogue(self, sums: Sequence[Sequence[Value]], spot: _Spot, panel: _Panel, is_final: Value) -> None:
        """Register by register. Tiles that are not whole, or not yet summed up, go to the stack."""
        f, lanes = self.f, self.shape.lanes
        with f.if_else(is_final) as otherwise:
            for pixel, vectors in enumerate(sums):
                target = self.epilogue.row([spot.image, spot.start + pixel])
                for number, vector in enumerate(vectors):
                    target.emit(panel.column + number * lanes, lanes, given=[vector])
            otherwise()
            self._store(sums, self.spilled)

    def _epilogue_from_stack(self, spot: _Spot, panel: _Panel) -> None:
        """Pixel by pixel; where filters are missing in the panel, with masks."""
        f, shape = self.f, self.shape
        with f.loop(0, spot.height) as pixel:
            target = self.epilogue.row([spot.image, spot.start + pixel])
            with f.if_else(panel.left >= shape.width) as otherwise:
                # all vectors at once: their instructions alternate, so that none has to wait long for the one before
                vector = f.load(self.spilled, pixel * shape.width, self.sum_type, shape.width)
                target.emit(panel.column, shape.width, given=[vector])
                otherwise()
                with f.loop(0, panel.left, shape.lanes) as first:
                    vector = f.load(self.spilled, pixel * shape.width + first, self.sum_type, shape.lanes)
                    target.emit(panel.column + first, shape.lanes, panel.left - first, given=[vector])


def grain_of(tile: Tile, positions: Dim, depth: Dim) -> Dim:
    """How many tiles are worth handing to another thread."""
    return grain_for(depth * tile.width * (dim.minimum(positions, tile.pixels) + 2))
