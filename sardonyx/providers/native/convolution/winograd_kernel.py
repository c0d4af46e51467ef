"""The code of Winograd's convolution: transform a block of tiles, multiply at every point, transform back. `winograd.py` calls it.

All of it is one step, so that a block stays in the cache of the thread that works on it. Items are blocks of tiles by chunks of filters.
A tile covers several pixels along the axes that are transformed, one along the others. Its window is cut into sections, which are summed
over as if they were more channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, I64, PTR
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.convolution.tiles import (
    EvenTiles,
    Sums,
    add_products,
    chain_weight,
    fetched_from,
    sizes_up_to,
    to_fetch,
    totals_of,
    zero_sums,
)
from sardonyx.providers.native.convolution.transforms import Transform
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.records import dataclass, replace

LIGHT = 32
"""Up to how many instructions per vector what follows is repeated for each pixel of a tile; beyond, it is a loop."""
PART = 64
"""How many products are summed at a time: shorter parts than a direct sum's make up for errors that the way back enlarges."""

Pixels = Sequence["Value | Pixels"]
"""Of a tile, along the axes that are transformed: one or two."""


@dataclass(frozen=True)
class WinogradForm:
    """What shapes the code."""

    transforms: tuple[Transform | None, ...]
    """Of the spatial axes; one or two have a transform."""
    rows: int
    """Tiles by which panels of filters are multiplied at once."""
    vectors: int
    lanes: int
    masked: bool
    """Whether the last vector of channels is not whole."""

    @property
    def used(self) -> list[Transform]:
        return [one for one in self.transforms if one is not None]

    @property
    def points(self) -> int:
        """At which input and filters are multiplied."""
        return math.prod(one.width for one in self.used)

    @property
    def pixels(self) -> int:
        """Of a tile."""
        return math.prod(one.size for one in self.used)


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
    """From pixel to pixel in memory."""
    tiles: Value
    stride: Value
    dilation: Value
    """Results of one tile lie so far apart, those between them are other tiles'."""
    phases: Value
    """How many tiles lie between each other."""
    spread: Value
    """How far inputs of a tile lie apart."""
    sections: Value
    offsets: Value
    """How many sections begin beside each other."""
    jump: Value
    """From such sections to the next ones."""


AXIS_NUMBERS = len(_Axis.__match_args__)


@dataclass(frozen=True)
class _Block:
    """Some tiles of an image, and some panels of filters."""

    image: Value
    group: Value
    start: Value
    count: Value
    panel: Value
    panels: Value


@dataclass(frozen=True)
class _Run:
    """The results of a tile along an axis."""

    step: Value
    """From one to the next."""
    left: Value
    """How many pixels there are from the first on,"""
    spread: Value
    """of which every so many belong to the tile."""


class _Winograd:
    """The code, with its arguments."""

    def __init__(self, f: KernelFunction, form: WinogradForm, chain: Chain):
        self.f = f
        self.form = form
        self.x, self.u, self.bias, self.zeros, self.v, self.m = (f.pointer() for _ in range(6))
        self.groups, self.channels, self.filters, self.panels, self.chunk, self.limit = (f.size() for _ in range(6))
        self.kept, self.together, self.v_pitch, self.m_pitch, self.image_step, self.short = (f.size() for _ in range(6))
        room = f.room()
        self.axes = [_Axis(*(f.size() for _ in range(AXIS_NUMBERS))) for _ in form.transforms]
        self.code = ChainCode(f, chain)
        self.is_light = chain_weight(f.target, chain, form.lanes) <= LIGHT
        self.table = f.stack(I64, form.points)
        self.spilled = f.stack(F32, form.pixels * form.lanes)
        self.v = f.address(self.v, room * (self.limit * self.v_pitch * form.points), F32)
        self.m = f.address(self.m, room * (self.limit * self.m_pitch * form.points), F32)
        tiles = sections = f.const(I64, 1)
        for axis in self.axes:
            tiles, sections = tiles * axis.tiles, sections * axis.sections
        self.sections = sections
        self.depth = sections * self.channels
        self.tiles = EvenTiles(f, tiles, self.limit)
        self.chunks = (self.panels + (self.chunk - 1)) // self.chunk

    def block_of(self, item: Value) -> None:
        f = self.f
        chunk, rest = item % self.chunks, item // self.chunks
        number, rest = rest % self.tiles.count, rest // self.tiles.count
        group, image = rest % self.groups, rest // self.groups
        start, count = self.tiles.start(number), self.tiles.size(number)
        first = chunk * self.chunk
        stop = f.minimum(first + self.chunk, self.panels)
        with f.loop(0, self.sections, self.together) as section:
            later = f.minimum(section + self.together, self.sections)
            self._transform_input(_Block(image, group, start, count, first, stop - first), section, later)
            with f.loop(first, stop, self.kept) as panel:
                block = _Block(image, group, start, count, panel, f.minimum(self.kept, stop - panel))
                self._multiply(block, section, later)
                with f.if_(later >= self.sections):
                    self._transform_sums(block)

    def _corner(self, block: _Block, tile: Value) -> list[Value]:
        """The first output pixel of a tile."""
        found: list[Value] = []
        rest = block.start + tile
        for axis, transform in zip(reversed(self.axes), reversed(self.form.transforms)):
            number, rest = rest % axis.tiles, rest // axis.tiles
            if transform is not None:
                number = number % axis.phases + (number // axis.phases) * (axis.dilation * transform.size)
            found.insert(0, number)
        return found

    # --- there

    def _transform_input(self, block: _Block, first: Value, last: Value) -> None:
        """Some sections of all tiles of a block."""
        f, lanes = self.f, self.form.lanes
        image = f.address(self.x, block.image * self.image_step + block.group * self.channels, F32)
        with f.loop(0, block.count) as tile:
            corner = self._corner(block, tile)
            target = f.address(self.v, tile * self.v_pitch, F32)
            with f.loop(first, last) as section:
                self._find_pixels(image, corner, section)
                # what the last vector has too much is overwritten by the next section
                with f.loop(0, self.channels, lanes) as channel:
                    remaining = self.channels - channel if self.form.masked else None
                    place = (section - first) * self.channels + channel
                    self._transform_tile(f.address(target, place, F32), channel, remaining)

    def _origins(self, corner: list[Value], section: Value) -> list[Value]:
        """The first input pixel of a section of a tile's window."""
        found: list[Value] = []
        for axis, first in zip(reversed(self.axes), reversed(corner)):
            number, section = section % axis.sections, section // axis.sections
            offset = number % axis.offsets + (number // axis.offsets) * axis.jump
            found.insert(0, first * axis.stride - axis.begin + offset)
        return found

    def _find_pixels(self, image: Value, corner: list[Value], section: Value) -> None:
        """Where the pixels of a section lie: in the image, or among zeros."""
        f = self.f
        places: list[tuple[Value, Value | None]] = [(image, None)]
        for axis, transform, origin in zip(self.axes, self.form.transforms, self._origins(corner, section)):
            coordinates = [origin + axis.spread * one for one in range(1 if transform is None else transform.width)]
            inside = [(one >= 0) & (one < axis.input) for one in coordinates]
            offsets = [one * axis.step for one in coordinates]
            places = [
                (f.address(place, offset, F32), is_in if before is None else before & is_in)
                for place, before in places
                for offset, is_in in zip(offsets, inside)
            ]
        for number, (place, is_inside) in enumerate(places):
            place = f.emit(PTR, f"select {is_inside}, {place}, {self.zeros}")
            f.line(f"store {place}, {f.address(self.table, number, I64)}, align 8")

    def _transform_tile(self, target: Value, channel: Value, remaining: Value | None) -> None:
        f = self.f

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
                f.store(value, target, (self.limit * self.v_pitch) * (i * inner.width + j), F32)

    # --- products

    def _multiply(self, block: _Block, first_section: Value, last_section: Value) -> None:
        """At every point, a product of as many rows as there are tiles, added to those of the sections before."""
        f, form = self.f, self.form
        groups = EvenTiles(f, block.count, form.rows)
        width = form.vectors * form.lanes
        panel_size = self.depth * width
        last = form.points - form.points // form.used[0].width
        with f.loop(0, form.points) as point:
            # at infinity a section is its last tap, and those without one come last
            depth = f.select(point >= last, self.short, self.depth)
            done = first_section * self.channels
            depth = f.maximum(0, f.minimum(depth, last_section * self.channels) - done)
            rows = f.address(self.v, point * (self.limit * self.v_pitch), F32)
            sums = f.address(self.m, point * (self.limit * self.m_pitch), F32)
            first = (block.group * form.points + point) * self.panels + block.panel
            with f.loop(0, block.panels) as panel:
                filters = f.address(self.u, (first + panel) * panel_size + done * width, F32)
                # behind the last one comes the first one at the next point
                ahead = f.select(panel + 1 < block.panels, 1, self.panels + 1 - block.panels)
                following = f.address(filters, ahead * panel_size, F32)
                columns = f.address(sums, panel * width, F32)
                with f.loop(0, groups.count) as group:
                    start, height = groups.start(group), groups.size(group)
                    self._multiply_rows(
                        f.address(rows, start * self.v_pitch, F32),
                        f.address(columns, start * self.m_pitch, F32),
                        filters,
                        depth,
                        height,
                        first_section > 0,
                        to_fetch(f, filters, following, depth, width * F32.bytes, group),
                    )

    def _multiply_rows(
        self,
        source: Value,
        target: Value,
        filters: Value,
        depth: Value,
        height: Value,
        has_begun: Value,
        fetched: Value,
    ) -> None:
        """A panel by some tiles; if there is code for more of them only, the last one is taken several times."""
        f, form = self.f, self.form
        width = form.vectors * form.lanes
        before = 0
        for count in sizes_up_to(form.rows):
            with f.if_((height > before) & (height <= count)):
                numbers = [f.minimum(height - 1, row) for row in range(count)]
                rows = [f.address(source, number * self.v_pitch, F32) for number in numbers]
                places = [f.address(target, number * self.m_pitch, F32) for number in numbers]
                with f.loop(0, f.maximum(depth, 1), PART) as first:
                    part = [f.address(row, first, F32) for row in rows]
                    panel = f.address(filters, first * width, F32)
                    sums = zero_sums(f, count, form.vectors, F32, form.lanes)
                    ahead = fetched_from(f, fetched, first, width * F32.bytes)
                    add_products(f, sums, part, panel, f.minimum(PART, depth - first), F32, form.lanes, ahead)
                    with f.if_(has_begun | (first > 0)):
                        self._add_stored(sums, places)
                    for place, vectors in zip(places, totals_of(sums)):
                        for one, vector in enumerate(vectors):
                            f.store(vector, place, one * form.lanes, F32)
            before = count

    def _add_stored(self, sums: Sums, places: Sequence[Value]) -> None:
        """To a part the sum of those before. All are read before any is written, for places may be the same."""
        f, lanes = self.f, self.form.lanes
        for place, registers in zip(places, sums[0]):
            for one, register in enumerate(registers):
                register.set(register.get() + f.load(place, one * lanes, F32, lanes))

    # --- and back

    def _transform_sums(self, block: _Block) -> None:
        f, lanes = self.f, self.form.lanes
        width = self.form.vectors * lanes
        first = block.panel * width
        stop = f.minimum(block.panels * width, self.filters - first)
        bias = f.address(self.bias, block.group * (self.panels * width), F32)
        with f.loop(0, block.count) as tile:
            corner = self._corner(block, tile)
            with f.loop(0, stop, lanes) as channel:
                source = f.address(self.m, tile * self.m_pitch + channel, F32)
                pixels = self._transform_back(source, f.load(bias, first + channel, F32, lanes))
                self._hand_on(pixels, block, corner, first + channel)

    def _transform_back(self, source: Value, bias: Value) -> Pixels:
        """The pixels of a tile, with the bias."""
        f, lanes = self.f, self.form.lanes

        def product(number: int) -> Value:
            return f.load(source, (self.limit * self.m_pitch) * number, F32, lanes)

        *outer, inner = self.form.used
        if not outer:
            return [pixel + bias for pixel in inner.backward(f, [product(j) for j in range(inner.width)])]
        columns = [
            outer[0].backward(f, [product(i * inner.width + j) for i in range(outer[0].width)]) for j in range(inner.width)
        ]
        lines = [inner.backward(f, [column[i] for column in columns]) for i in range(outer[0].size)]
        return [[pixel + bias for pixel in line] for line in lines]

    def _hand_on(self, pixels: Pixels, block: _Block, corner: list[Value], channel: Value) -> None:
        """Through what follows: pixel by pixel, or from the stack where that is a loop."""
        f, lanes = self.f, self.form.lanes
        position, runs = self._runs(corner)
        column, remaining = channel + block.group * self.filters, self.filters - channel

        def emit(place: Value, pixel: Value) -> None:
            self.code.row([block.image, place]).emit(column, lanes, remaining, given=[pixel])

        def emit_each(part: Pixels | Value, later: list[_Run], place: Value) -> None:
            if isinstance(part, Value):
                emit(place, part)
                return
            run, *rest = later
            for number, inner in enumerate(part):
                with f.if_(run.left > run.spread * number):
                    emit_each(inner, rest, place + run.step * number)

        if self.is_light:
            emit_each(pixels, runs, position)
            return
        for index, pixel in enumerate(_flat(pixels)):
            f.store(pixel, self.spilled, index * lanes, F32)
        with ExitStack() as loops:
            spilled = f.const(I64, 0)
            for run, transform in zip(runs, self.form.used):
                count = (run.left + (run.spread - 1)) // run.spread
                one = loops.enter_context(f.loop(0, f.minimum(count, transform.size)))
                spilled, position = spilled * transform.size + one, position + run.step * one
            emit(position, f.load(self.spilled, spilled * lanes, F32, lanes))

    def _runs(self, corner: list[Value]) -> tuple[Value, list[_Run]]:
        """Where a tile's results begin, and how they go on along the transformed axes."""
        position = self.f.const(I64, 0)
        runs: list[_Run] = []
        for axis, transform, first in zip(self.axes, self.form.transforms, corner):
            position = position * axis.output + first
            runs = [replace(run, step=run.step * axis.output) for run in runs]
            if transform is not None:
                runs.append(_Run(axis.dilation, axis.output - first, axis.dilation))
        return position, runs


def _flat(pixels: Pixels) -> list[Value]:
    return [one for part in pixels for one in ([part] if isinstance(part, Value) else _flat(part))]
