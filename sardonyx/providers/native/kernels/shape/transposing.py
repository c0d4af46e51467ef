"""Loops over a domain in which some operand's elements lie in a row along another axis than the innermost: square tiles of it are
loaded along that axis and transposed in registers. Copies and elementwise chains come here before they take the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.builder import Value
from sardonyx.compiler.squares import transposed
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.elementwise import chain_lanes
from sardonyx.providers.native.program.arguments import Arguments, Operands, Size, each, group
from sardonyx.providers.native.program.chain import (
    Apply,
    Chain,
    ChainCode,
    ChainRow,
    Item,
    Load,
    Store,
    pattern,
    stride_arguments,
)
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.streaming import streamed
from sardonyx.providers.native.program.views import Dims, View

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder

MAX_WIDTH = 16
"""Tiles have at most so many rows and columns: more do not fit into registers."""
BLOCK_ROWS, BLOCK_COLUMNS = 2, 32
"""How many tiles one below and beside the other are an item. Items follow each other down the rows, along which operands are read:
what a tile leaves of a cache line is used while it is near, and pages are read through."""
TILES_AHEAD = 2
SHORT = 4
"""Chains of so many operations take the rows of a tile right out of registers; longer ones, through memory, in a loop."""


def transposed_step(
    lowerer: ProgramBuilder,
    domain: Dims,
    items: Sequence[Item],
    views: Sequence[View],
    results: Sequence[tuple[int, View]],
    strides: Sequence[Dims],
) -> bool:
    """Add the step that computes a chain over a domain by tiles; False if no operand of it is transposed.

    `strides` are those of the loads' views, then of the results'.
    """
    axis = _transposed_axis(domain, strides[: len(views)])
    if axis is None:
        return False
    order = [*(other for other in range(len(domain) - 1) if other != axis), axis, len(domain) - 1]
    strides = [tuple(steps[axis] for axis in order) for steps in strides]
    *outer, rows, columns = (domain[axis] for axis in order)
    chain, arguments = _placed(len(domain), items, views, results, strides)
    chain = streamed(lowerer, chain, [view for _, view in results])
    loads = [number for number, item in enumerate(items) if isinstance(item, Load)]
    tiled = tuple(
        number
        for number, steps in zip(loads, strides)
        if not _is_even(steps[-1]) and isinstance(steps[-2], int) and steps[-2] == 1
    )
    width = _width(lowerer, chain, rows, columns)
    if width < 4:
        return False
    moved = sum(operand.type.bytes for operand in (*chain.items, *chain.stores) if isinstance(operand, (Load, Store)))
    traffic = dim.product(domain) * moved
    lowerer.call(
        tiles_kernel(lowerer.target, chain, tiled, width, isinstance(traffic, int) and traffic >= lowerer.budgets.far),
        TilesArguments(outer=outer[1:], rows=rows, columns=columns, operands=arguments),
        dim.product(outer) * dim.ceildiv(rows, BLOCK_ROWS * width) * dim.ceildiv(columns, BLOCK_COLUMNS * width),
        traffic=traffic,
    )
    return True


def _is_even(stride: Dim) -> bool:
    """Whether a row is read without gaps, or is one element."""
    return isinstance(stride, int) and stride in (0, 1)


def _transposed_axis(domain: Dims, strides: Sequence[Dims]) -> int | None:
    """The axis along which the elements of an operand lie in a row, if that is not the innermost one."""
    for steps in strides:
        if _is_even(steps[-1]):
            continue
        axes = [axis for axis, step in enumerate(steps[:-1]) if isinstance(step, int) and step == 1]
        if axes:
            return max(axes, key=lambda axis: _supposed(domain[axis]))
    return None


def _supposed(size: Dim) -> int:
    """A size as a number; a symbolic one is taken for large."""
    return size if isinstance(size, int) else 1 << 62


def _width(lowerer: ProgramBuilder, chain: Chain, rows: Dim, columns: Dim) -> int:
    """How many rows and columns a tile has: no more than fit into registers, or than there are."""
    width = min(MAX_WIDTH, chain_lanes(KernelFunction(lowerer.target), chain))
    if lowerer.target.vector_registers < 32:
        width = min(width, 8)
    for size in (rows, columns):
        while isinstance(size, int) and size < width:
            width //= 2
    return width


def _placed(
    rank: int, items: Sequence[Item], views: Sequence[View], results: Sequence[tuple[int, View]], strides: Sequence[Dims]
) -> tuple[Chain, list[Argument]]:
    """The chain with its operands' strides, and the arguments that it asks for."""
    rest = iter(strides)
    placed = tuple(Load(item.type, pattern(next(rest))) if isinstance(item, Load) else item for item in items)
    stores = tuple(Store(item, view.type, pattern(next(rest))) for item, view in results)
    arguments: list[Argument] = []
    for view, steps in zip((*views, *(view for _, view in results)), strides):
        arguments += stride_arguments(view, steps)
    return Chain(rank, placed, stores), arguments


class TilesArguments(Arguments):
    outer: Sequence[Size] = each(lambda chain: chain.rank - 3)
    """The sizes of all outer axes but the first."""
    rows: Size
    columns: Size
    operands: Operands = group(lambda chain: chain.slots)


@kernel("tiles", TilesArguments)
def tiles_kernel(
    f: KernelFunction, a: TilesArguments, chain: Chain, tiled: tuple[int, ...], width: int, far: bool = False
) -> None:
    """A chain over a domain whose last two axes are cut into tiles. Items are blocks of them; with `far` they are fetched ahead."""
    rows, columns = a.rows, a.columns
    code = ChainCode(f, chain, a.operands)
    tiles = _Tiles(f, code, tiled, width, far)
    high, wide = BLOCK_ROWS * width, BLOCK_COLUMNS * width
    down, across = (rows + (high - 1)) // high, (columns + (wide - 1)) // wide
    with f.loop(f.begin, f.end) as item:
        outer = _outer_coordinates(f, item // (down * across), a.outer, chain.rank - 2)
        first_row, first_column = (item % down) * high, ((item // down) % across) * wide
        last_row, last_column = f.minimum(first_row + high, rows), f.minimum(first_column + wide, columns)

        def block() -> None:
            with f.loop(first_row, last_row, width) as i:
                row = f.minimum(i, rows - width)
                with f.loop(first_column, last_column, width) as j:
                    tiles.emit(outer, row, f.minimum(j, columns - width))

        with f.if_else((rows >= width) & (columns >= width)) as otherwise:
            tiles.in_streams(outer, columns, block)
            otherwise()
            with f.loop(first_row, last_row) as i:
                line = code.row([*outer, i])
                with f.loop(first_column, last_column) as j:
                    line.emit(j, 1)
    if chain.streams:
        f.fence()


def _outer_coordinates(f: KernelFunction, number: Value, sizes: Sequence[Value], count: int) -> list[Value]:
    """The coordinates of the outer axes; `sizes` are those of all but the first."""
    coordinates: list[Value] = []
    for size in reversed(sizes):
        coordinates.append(number % size)
        number = number // size
    return [*([number] if count else []), *reversed(coordinates)]


class _Tiles:
    """The tiles of a chain being emitted."""

    def __init__(self, f: KernelFunction, code: ChainCode, tiled: Sequence[int], width: int, far: bool):
        self.f = f
        self.code = code
        self.tiled = tiled
        self.width = width
        self.far = far
        self.streaming = False
        chain = code.chain
        self.is_copy = (
            len(chain.items) == len(chain.stores) == 1
            and code.stores[0].type == _bits(code.loads[0].type)
            and code.stores[0].kinds[-1] == "1"
        )
        plain = all(code.loads[n].type == code.loads[n].type.computed and code.loads[n].type.kind != "bool" for n in tiled)
        self.is_short = self.is_copy or (plain and sum(isinstance(item, Apply) for item in chain.items) <= SHORT)
        self._memory = {} if self.is_short else {n: f.stack(code.loads[n].type, width * width) for n in tiled}

    def in_streams(self, outer: Sequence[Value], columns: Value, body: Callable[[], None]) -> None:
        """Emit a loop of tiles: twice if results stream, as rows may not be aligned."""
        f = self.f
        if not self.code.chain.streams:
            body()
            return
        places = f.const(I64, 0)
        for store, operand in zip(self.code.chain.stores, self.code.stores):
            if store.streams:
                first, second = (operand.at([*outer, f.const(I64, row)]) for row in (0, 1))
                places = places | f.as_number(first) | f.as_number(second)
        with f.if_else(((places & (f.target.caches.line - 1)) == 0) & (columns % self.width == 0)) as otherwise:
            self.streaming = True
            body()
            self.streaming = False
            otherwise()
            body()

    def emit(self, outer: Sequence[Value], row: Value, column: Value) -> None:
        """One tile: operands that lie along its columns are transposed, then it is computed row by row."""
        f, width = self.f, self.width
        if self.far:
            self._fetch_ahead(outer, row, column)
        lines = {n: self._transposed(n, [*outer, row], column) for n in self.tiled}
        if self.is_short:
            for number in range(width):
                self._line([*outer, row + number], column, {n: tile[number] for n, tile in lines.items()})
            return
        for n, tile in self._memory.items():
            type = _bits(self.code.loads[n].type)
            for number, line in enumerate(lines[n]):
                f.store(line, tile, number * width, type, align=width * type.bytes)
        with f.loop(0, width) as index:
            types = {n: self.code.loads[n].type for n in self.tiled}
            operands = {n: f.load(tile, index * width, types[n], width) for n, tile in self._memory.items()}
            self._line([*outer, row + index], column, operands)

    def _line(self, outer: Sequence[Value], column: Value, operands: dict[int, Value]) -> None:
        """A row of a tile."""
        f, code = self.f, self.code
        if self.is_copy:
            store = code.chain.stores[0]
            place = f.address(code.stores[0].at(outer), column, store.type)
            f.store(operands[0], place, 0, store.type, streams=self.streaming)
            return
        row = _TileRow(code, outer, operands)
        row.streaming = self.streaming
        row.emit(column, self.width)

    def _transposed(self, n: int, outer: Sequence[Value], column: Value) -> list[Value]:
        """The rows of a tile whose columns lie in a row each."""
        f, operand, width = self.f, self.code.loads[n], self.width
        stride = operand.strides[-1]
        assert stride is not None
        place = operand.at(outer)
        type = _bits(operand.type)
        rows = transposed(f, [f.load(place, (column + index) * stride, type, width) for index in range(width)])
        return rows if self.is_copy or not self.is_short else [f.bitcast(row, operand.type.vector(width)) for row in rows]

    def _fetch_ahead(self, outer: Sequence[Value], row: Value, column: Value) -> None:
        """Begin to fetch what a tile further along the row reads."""
        f = self.f
        column = column + TILES_AHEAD * self.width
        for n, operand in self.code.loads.items():
            stride = operand.strides[-1]
            if n in self.tiled and stride is not None:
                place = operand.at([*outer, row])
                for index in range(self.width):
                    f.prefetch(place, (column + index) * stride, operand.type)
            elif operand.kinds[-2:] == ("n", "1"):
                for index in range(self.width):
                    f.prefetch(operand.at([*outer, row + index]), column, operand.type)


def _bits(type: Type) -> Type:
    return Type("uint", 8 * type.bytes)


class _TileRow(ChainRow):
    """A row of a tile: transposed operands are there already."""

    def __init__(self, code: ChainCode, outer: Sequence[Value], operands: dict[int, Value]):
        super().__init__(code, outer)
        self._operands = operands

    def load(self, n: int, column: Value, lanes: int, remaining: Value | None) -> Value:
        return self._operands[n] if n in self._operands else super().load(n, column, lanes, remaining)
