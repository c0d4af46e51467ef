"""The code of Winograd's convolution: transform a block of tiles, multiply at every point, transform back. `winograd.py` calls it.

All of it is one step, so that a block stays in the cache of the thread that works on it. Items are blocks of tiles by chunks of filters.
A tile covers several pixels along the axes that are transformed, one along the others. Its window is cut into sections, which are summed
over as if they were more channels.

From the outside in: `winograd_kernel` takes items, `_Winograd.item` does one in three parts. `_Input` transforms tiles of the image,
`_Products` multiplies them with the filters at every point, `_Output` transforms the sums back. In each part `_transform_vector`, or
`_multiply_rows` with its register tile, is the inner step. `_Output._epilogue` is the epilogue; the arguments are `WinogradArguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import real
from sardonyx.compiler.types import F32, I64, PTR
from sardonyx.providers.native.kernels.conv.tiles import (
    EvenTiles,
    Sums,
    add_products,
    fetched_from,
    is_light,
    sizes_up_to,
    to_fetch,
    totals_of,
    zero_sums,
)
from sardonyx.providers.native.kernels.conv.transforms import Transform
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, ScratchSlotArguments, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass, replace

PART = 64
"""How many products are added up in one part. The inverse transform enlarges rounding errors; shorter parts make up for it."""

Pixels = Sequence["Value | Pixels"]
"""Of a tile, along the axes that are transformed: one or two."""
Emit = Callable[[Value, Value], None]
"""Hands on a pixel of the result, given its position and its value."""


@dataclass(frozen=True)
class WinogradForm:
    """What shapes the code."""

    transforms: tuple[Transform | None, ...]
    """The transform of each spatial axis; one or two axes have one."""
    rows: int
    """Rows of the register tile: tiles of the image that are multiplied with a panel of filters at once."""
    vectors: int
    """Vectors of filters in a panel."""
    lanes: int
    masked: bool
    """Whether the last vector of channels is not whole."""

    @property
    def used(self) -> list[Transform]:
        return [transform for transform in self.transforms if transform is not None]

    @property
    def points(self) -> int:
        """How many points there are, at which input and filters are multiplied."""
        return math.prod(transform.width for transform in self.used)

    @property
    def pixels(self) -> int:
        """Pixels of the result in a tile."""
        return math.prod(transform.size for transform in self.used)


class WinogradAxis(Arguments):
    """A spatial axis."""

    input: Size
    output: Size
    begin: Size
    """Pixels of padding before the image."""
    step: Size
    """From pixel to pixel of the input in memory."""
    tiles: Size
    stride: Size
    dilation: Size
    """How far the results of one tile lie apart. Those between them belong to other tiles."""
    phases: Size
    """How many tiles are interleaved."""
    spread: Size
    """How far the inputs of a tile lie apart."""
    sections: Size
    offsets: Size
    """How many sections begin at neighbouring taps."""
    jump: Size
    """From a group of such sections to the next group."""


class Blocks(Arguments):
    """How the work is cut, and how far rows lie apart in scratch memory."""

    tiles: Size
    """The most tiles of a block."""
    panels: Size
    """Panels of filters in a chunk."""
    kept: Size
    """Panels whose sums are kept at a time."""
    together: Size
    """Sections whose transformed input is kept at a time."""
    v_pitch: Size
    """From row to row of the transformed input."""
    m_pitch: Size
    """From row to row of the sums."""


class WinogradArguments(Arguments):
    """Channels, filters and panels are those of one group."""

    x: Pointer
    u: Pointer
    """Transformed filters: for each point, panels."""
    bias: Pointer
    zeros: Pointer
    """A pixel of the padding."""
    v: Pointer
    """Scratch memory for transformed input: for each point, a row for each tile of a block."""
    m: Pointer
    """The same for sums of products."""
    scratch_slots: ScratchSlotArguments
    groups: Size
    channels: Size
    filters: Size
    panels: Size
    blocks: Blocks
    image_step: Size
    short_depth: Size
    """How many products a sum has at those points where the first transformed axis is at infinity."""
    axes: Sequence[WinogradAxis] = each(lambda form: len(form.transforms))
    sink: Operands = group(lambda chain: chain.slots)


@kernel("winograd", WinogradArguments)
def winograd_kernel(f: KernelFunction, a: WinogradArguments, form: WinogradForm, chain: Chain) -> None:
    """Items are blocks of tiles by chunks of filters."""
    code = _Winograd(f, a, form, chain)
    with f.loop(f.begin, f.end) as item:
        code.item(item)


@dataclass(frozen=True)
class _Block:
    """Some tiles of an image, and some panels of filters."""

    image: Value
    group: Value
    start: Value
    count: Value
    panel: Value
    panels: Value


class _Winograd:
    """The order of the work: transform the input, multiply, transform the sums."""

    def __init__(self, f: KernelFunction, a: WinogradArguments, form: WinogradForm, chain: Chain):
        self.f = f
        self.a = a
        common = _Common(f, a, form)
        self.input, self.products, self.output = _Input(common), _Products(common), _Output(common, chain)
        self.sections = common.sections
        tiles = f.const(I64, 1)
        for axis in a.axes:
            tiles = tiles * axis.tiles
        self.tiles = EvenTiles(f, tiles, a.blocks.tiles)
        self.chunks = (a.panels + (a.blocks.panels - 1)) // a.blocks.panels

    def item(self, item: Value) -> None:
        """A block of tiles, by a chunk of filters."""
        f, a, sections = self.f, self.a, self.sections
        chunk, rest = item % self.chunks, item // self.chunks
        number, rest = rest % self.tiles.count, rest // self.tiles.count
        group, image = rest % a.groups, rest // a.groups
        start, count = self.tiles.start(number), self.tiles.size(number)
        first = chunk * a.blocks.panels
        stop = f.minimum(first + a.blocks.panels, a.panels)
        with f.loop(0, sections, a.blocks.together) as section:
            later = f.minimum(section + a.blocks.together, sections)
            self.input.transform(_Block(image, group, start, count, first, stop - first), section, later)
            with f.loop(first, stop, a.blocks.kept) as panel:
                block = _Block(image, group, start, count, panel, f.minimum(a.blocks.kept, stop - panel))
                self.products.multiply(block, section, later)
                with f.if_(later >= sections):
                    self.output.transform(block)


class _Common:
    """What the three parts of the work share."""

    def __init__(self, f: KernelFunction, a: WinogradArguments, form: WinogradForm):
        self.f = f
        self.a = a
        self.form = form
        slot = f.scratch_slot(a.scratch_slots)
        self.v = f.address(a.v, slot * (a.blocks.tiles * a.blocks.v_pitch * form.points), F32)
        self.m = f.address(a.m, slot * (a.blocks.tiles * a.blocks.m_pitch * form.points), F32)
        self.sections = f.const(I64, 1)
        for axis in a.axes:
            self.sections = self.sections * axis.sections

    def v_offset(self, point: Value | int) -> Value:
        """Where the transformed input at a point begins."""
        return (self.a.blocks.tiles * self.a.blocks.v_pitch) * point

    def m_offset(self, point: Value | int) -> Value:
        """Where the sums at a point begin."""
        return (self.a.blocks.tiles * self.a.blocks.m_pitch) * point

    def corner(self, block: _Block, tile: Value) -> list[Value]:
        """The first output pixel of a tile."""
        corner: list[Value] = []
        rest = block.start + tile
        for axis, transform in zip(reversed(self.a.axes), reversed(self.form.transforms)):
            number, rest = rest % axis.tiles, rest // axis.tiles
            if transform is not None:
                number = number % axis.phases + (number // axis.phases) * (axis.dilation * transform.size)
            corner.insert(0, number)
        return corner


# --- the transform of the input ----------------------------------------------------------------------------------------------------------


class _Input:
    """The transform of the input: of each section of a tile's window, vectors of channels at all points."""

    def __init__(self, common: _Common):
        self.f, self.a, self.form, self.common = common.f, common.a, common.form, common
        self.table = self.f.stack(I64, common.form.points)
        """Where the pixels of a section lie."""

    def transform(self, block: _Block, first: Value, last: Value) -> None:
        """Some sections of all tiles of a block."""
        f, a = self.f, self.a
        image = f.address(a.x, block.image * a.image_step + block.group * a.channels, F32)
        with f.loop(0, block.count) as tile:
            corner = self.common.corner(block, tile)
            row = f.address(self.common.v, tile * a.blocks.v_pitch, F32)
            with f.loop(first, last) as section:
                self._find_pixels(image, corner, section)
                # what the last vector has too much is overwritten by the next section
                with f.loop(0, a.channels, self.form.lanes) as channel:
                    place = (section - first) * a.channels + channel
                    self._transform_vector(f.address(row, place, F32), channel)

    def _find_pixels(self, image: Value, corner: list[Value], section: Value) -> None:
        """Where the pixels of a section lie: in the image, or among zeros."""
        f = self.f
        places: list[tuple[Value, Value | None]] = [(image, None)]
        for axis, transform, origin in zip(self.a.axes, self.form.transforms, self._origins(corner, section)):
            coordinates = [origin + axis.spread * number for number in range(1 if transform is None else transform.width)]
            inside = [(coordinate >= 0) & (coordinate < axis.input) for coordinate in coordinates]
            offsets = [coordinate * axis.step for coordinate in coordinates]
            places = [
                (f.address(place, offset, F32), is_in if before is None else before & is_in)
                for place, before in places
                for offset, is_in in zip(offsets, inside)
            ]
        for number, (place, is_inside) in enumerate(places):
            place = f.emit(PTR, f"select {is_inside}, {place}, {self.a.zeros}")
            f.line(f"store {place}, {f.address(self.table, number, I64)}, align 8")

    def _origins(self, corner: list[Value], section: Value) -> list[Value]:
        """The first input pixel of a section of a tile's window."""
        origins: list[Value] = []
        for axis, first in zip(reversed(self.a.axes), reversed(corner)):
            number, section = section % axis.sections, section // axis.sections
            offset = number % axis.offsets + (number // axis.offsets) * axis.jump
            origins.insert(0, first * axis.stride - axis.begin + offset)
        return origins

    def _transform_vector(self, target: Value, channel: Value) -> None:
        """The inner step: transform a vector of channels of a section. `target` is its place at the first point."""
        f = self.f
        remaining = self.a.channels - channel if self.form.masked else None

        def pixel(number: int) -> Value:
            return f.load(f.load(self.table, number, PTR), channel, F32, self.form.lanes, remaining=remaining)

        *outer, inner = self.form.used
        if outer:
            heights = [
                outer[0].forward(f, [pixel(i * inner.width + j) for i in range(outer[0].width)]) for j in range(inner.width)
            ]
            lines = [[column[i] for column in heights] for i in range(outer[0].width)]
        else:
            lines = [[pixel(j) for j in range(inner.width)]]
        for i, line in enumerate(lines):
            for j, value in enumerate(inner.forward(f, line)):
                f.store(value, target, self.common.v_offset(i * inner.width + j), F32)


# --- products -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """A panel of filters by rows of transformed input, at one point."""

    rows: Value
    sums: Value
    filters: Value
    following: Value
    """The panel that comes next."""
    depth: Value
    has_begun: Value
    """Whether there are sums of earlier sections, to which this product is added."""


class _Products:
    """A matrix product at every point: rows are tiles, columns are filters, sums go over the channels of all sections."""

    def __init__(self, common: _Common):
        self.f, self.a, self.form, self.common = common.f, common.a, common.form, common
        self.width = common.form.vectors * common.form.lanes
        self.depth = common.sections * common.a.channels

    def multiply(self, block: _Block, first_section: Value, last_section: Value) -> None:
        """Multiply at all points, for some sections."""
        f, a, form = self.f, self.a, self.form
        groups = EvenTiles(f, block.count, form.rows)
        panel_size = self.depth * self.width
        at_infinity = form.points - form.points // form.used[0].width
        with f.loop(0, form.points) as point:
            # at infinity a section is its last tap, and those without one come last
            depth = f.select(point >= at_infinity, a.short_depth, self.depth)
            done = first_section * a.channels
            depth = f.maximum(0, f.minimum(depth, last_section * a.channels) - done)
            rows = f.address(self.common.v, self.common.v_offset(point), F32)
            sums = f.address(self.common.m, self.common.m_offset(point), F32)
            first = (block.group * form.points + point) * a.panels + block.panel
            with f.loop(0, block.panels) as panel:
                filters = f.address(a.u, (first + panel) * panel_size + done * self.width, F32)
                # behind the last one comes the first one at the next point
                ahead = f.select(panel + 1 < block.panels, 1, a.panels + 1 - block.panels)
                following = f.address(filters, ahead * panel_size, F32)
                columns = f.address(sums, panel * self.width, F32)
                self._multiply_panel(_Product(rows, columns, filters, following, depth, first_section > 0), groups)

    def _multiply_panel(self, product: _Product, groups: EvenTiles) -> None:
        """All tiles, a group at a time. There is code for several sizes of groups; the smallest that suffices is taken."""
        f, blocks = self.f, self.a.blocks
        with f.loop(0, groups.count) as group:
            start, height = groups.start(group), groups.size(group)
            rows = f.address(product.rows, start * blocks.v_pitch, F32)
            sums = f.address(product.sums, start * blocks.m_pitch, F32)
            fetched = to_fetch(f, product.filters, product.following, product.depth, self.width * F32.bytes, group)
            before = 0
            for count in sizes_up_to(self.form.rows):
                with f.if_((height > before) & (height <= count)):
                    self._multiply_rows(replace(product, rows=rows, sums=sums), height, count, fetched)
                before = count

    def _multiply_rows(self, tile: _Product, height: Value, count: int, fetched: Value) -> None:
        """A register tile of `count` rows, part by part. If there are fewer rows, the last one is computed several times."""
        f, a, form = self.f, self.a, self.form
        numbers = [f.minimum(height - 1, row) for row in range(count)]
        rows = [f.address(tile.rows, number * a.blocks.v_pitch, F32) for number in numbers]
        targets = [f.address(tile.sums, number * a.blocks.m_pitch, F32) for number in numbers]
        with f.loop(0, f.maximum(tile.depth, 1), PART) as first:
            part = [f.address(row, first, F32) for row in rows]
            filters = f.address(tile.filters, first * self.width, F32)
            sums = zero_sums(f, count, form.vectors, F32, form.lanes)
            ahead = fetched_from(f, fetched, first, self.width * F32.bytes)
            add_products(f, sums, part, filters, f.minimum(PART, tile.depth - first), real(F32), form.lanes, ahead)
            with f.if_(tile.has_begun | (first > 0)):
                self._add_stored(sums, targets)
            for target, vectors in zip(targets, totals_of(sums)):
                for number, vector in enumerate(vectors):
                    f.store(vector, target, number * form.lanes, F32)

    def _add_stored(self, sums: Sums, targets: Sequence[Value]) -> None:
        """Add the sum of the parts before. All sums are read before any is written, for two rows may have the same place."""
        f, lanes = self.f, self.form.lanes
        for target, registers in zip(targets, sums[0]):
            for number, register in enumerate(registers):
                register.set(register.get() + f.load(target, number * lanes, F32, lanes))


# --- the inverse transform --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """The results of a tile along an axis."""

    step: Value
    """From one result to the next, in pixels of the output."""
    left: Value
    """How many pixels of the axis there are from the first result on."""
    spread: Value
    """Every so many of these pixels belong to the tile."""


class _Output:
    """The inverse transform from sums to pixels, and the epilogue."""

    def __init__(self, common: _Common, chain: Chain):
        self.f, self.a, self.form, self.common = common.f, common.a, common.form, common
        self.epilogue = ChainCode(self.f, chain, common.a.sink)
        self.is_light = is_light(self.f.target, chain, common.form.lanes)
        self.spilled = self.f.stack(F32, common.form.pixels * common.form.lanes)

    def transform(self, block: _Block) -> None:
        """All tiles and panels of a block."""
        f, a, lanes = self.f, self.a, self.form.lanes
        width = self.form.vectors * lanes
        first = block.panel * width
        stop = f.minimum(block.panels * width, a.filters - first)
        biases = f.address(a.bias, block.group * (a.panels * width), F32)
        with f.loop(0, block.count) as tile:
            corner = self.common.corner(block, tile)
            with f.loop(0, stop, lanes) as channel:
                bias = f.load(biases, first + channel, F32, lanes)
                sums = f.address(self.common.m, tile * a.blocks.m_pitch + channel, F32)
                pixels = self._transform_vector(sums, bias)
                self._epilogue(pixels, block, corner, first + channel)

    def _transform_vector(self, sums: Value, bias: Value) -> Pixels:
        """The inner step: the pixels of a tile for some filters, with the bias. `sums` is their place at the first point."""
        f, lanes = self.f, self.form.lanes

        def product(number: int) -> Value:
            return f.load(sums, self.common.m_offset(number), F32, lanes)

        *outer, inner = self.form.used
        if not outer:
            return [pixel + bias for pixel in inner.backward(f, [product(j) for j in range(inner.width)])]
        columns = [
            outer[0].backward(f, [product(i * inner.width + j) for i in range(outer[0].width)]) for j in range(inner.width)
        ]
        lines = [inner.backward(f, [column[i] for column in columns]) for i in range(outer[0].size)]
        return [[pixel + bias for pixel in line] for line in lines]

    def _epilogue(self, pixels: Pixels, block: _Block, corner: list[Value], channel: Value) -> None:
        """Apply the epilogue to each pixel in a register; or to the stack, in a loop, where it is heavy."""
        position, runs = self._runs(corner)
        column, remaining = channel + block.group * self.a.filters, self.a.filters - channel

        def emit(place: Value, pixel: Value) -> None:
            self.epilogue.row([block.image, place]).emit(column, self.form.lanes, remaining, given=[pixel])

        if self.is_light:
            self._emit_each(pixels, runs, position, emit)
        else:
            self._emit_from_stack(pixels, runs, position, emit)

    def _emit_each(self, part: Pixels | Value, runs: Sequence[_Run], position: Value, emit: Emit) -> None:
        """Emit the pixels that lie inside the image."""
        if isinstance(part, Value):
            emit(position, part)
            return
        run, *inner_runs = runs
        for number, inner in enumerate(part):
            with self.f.if_(run.left > run.spread * number):
                self._emit_each(inner, inner_runs, position + run.step * number, emit)

    def _emit_from_stack(self, pixels: Pixels, runs: Sequence[_Run], position: Value, emit: Emit) -> None:
        f, lanes = self.f, self.form.lanes
        for place, pixel in enumerate(_flat(pixels)):
            f.store(pixel, self.spilled, place * lanes, F32)
        with ExitStack() as loops:
            index = f.const(I64, 0)
            for run, transform in zip(runs, self.form.used):
                count = (run.left + (run.spread - 1)) // run.spread
                number = loops.enter_context(f.loop(0, f.minimum(count, transform.size)))
                index, position = index * transform.size + number, position + run.step * number
            emit(position, f.load(self.spilled, index * lanes, F32, lanes))

    def _runs(self, corner: list[Value]) -> tuple[Value, list[_Run]]:
        """Where a tile's results begin, and how they go on along the transformed axes."""
        position = self.f.const(I64, 0)
        runs: list[_Run] = []
        for axis, transform, first in zip(self.a.axes, self.form.transforms, corner):
            position = position * axis.output + first
            runs = [replace(run, step=run.step * axis.output) for run in runs]
            if transform is not None:
                runs.append(_Run(axis.dilation, axis.output - first, axis.dilation))
        return position, runs


def _flat(pixels: Pixels) -> list[Value]:
    return [pixel for part in pixels for pixel in ([part] if isinstance(part, Value) else _flat(part))]
