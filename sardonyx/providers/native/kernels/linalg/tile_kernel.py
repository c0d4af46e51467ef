"""The kernel of matrix products: register tiles with what follows them. `matmul.py` prepares its operands and calls it.

A micro-kernel holds a tile of the result in registers, up to `rows` by `vectors`, and runs once through all of K: per k it reads a
vector row of B's panel and broadcasts one element of A per row. Items are tiles; the panels of a block stay in the second-level cache
while the rows of A pass by.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import Product, real
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I8, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.linalg.packing import batch_offset
from sardonyx.providers.native.program import budgets
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode, chain_weight
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

PIECE_WORK = 1 << 18
"""Multiplications that are worth handing to another thread."""
CHAINS_OF_ADDITIONS = 8
"""How many sums must be under way for the units to be always busy."""
UNROLL = 4
PART = 512
"""How many products are summed at a time: errors of a sum grow with its length."""
MAX_SINGLE_VECTORS = 9
SHORTEST_VECTOR = 16
"""Bytes of the smallest vectors that CPUs have."""
ROWS_PER_POINTER = 3
BAND_WORDS = 3
LIGHT = 16
"""Up to how many instructions per vector what follows is repeated for each register of a tile; beyond, it is a loop."""


@dataclass(frozen=True)
class Tile:
    """A micro-kernel's shape and how it reads its operands."""

    left: Type
    """How A is stored."""
    right: Type
    """How B is stored."""
    rows: int
    vectors: int
    lanes: int
    along: str
    """Which axis of A lies without gaps: "k" or "rows"."""
    packed_right: bool
    """Whether B is packed in panels; else its columns lie without gaps."""
    product: Product | None = None
    """How groups of small integers are multiplied, which `left` and `right` then stand for; None for floats."""
    is_narrow: bool = False
    """Whether all columns there are fill a part of one vector, and a register can be spared for its mask."""
    is_banded: bool = False
    """Whether rows come in bands, each of which has a matrix of its own; a table says which."""

    @property
    def multiply(self) -> Product:
        return self.product or real(self.right)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def heights(self) -> list[int]:
        """Numbers of rows that there is code for: a rest is made up of them."""
        smaller = [1 << bit for bit in reversed(range(self.rows.bit_length())) if 1 << bit < self.rows]
        return [self.rows, *smaller]


def tile_vectors(target: Target, type: Type, columns: Dim) -> int:
    """One vector to a row where two would leave much of the last panel empty."""
    if not isinstance(columns, int):
        return 2
    count = -(-columns // target.lanes(type))
    return 1 if count % 2 and count <= MAX_SINGLE_VECTORS else 2


def tile_lanes(target: Target, type: Type, columns: Dim) -> int:
    """Lanes of a vector: of few columns no more than can hold them."""
    lanes = target.lanes(type)
    while isinstance(columns, int) and columns <= lanes // 2 and lanes * type.computed.bytes > SHORTEST_VECTOR:
        lanes //= 2
    return lanes


def is_narrow(target: Target, lanes: int, columns: Dim) -> bool:
    """Whether all columns fill a part of one vector, which can be masked in registers."""
    return isinstance(columns, int) and columns < lanes and target.vector_registers >= 32


def tile_rows(target: Target, vectors: int) -> int:
    """How many rows leave registers for a row of B and an element of A."""
    if target.vector_registers >= 32:
        return 14
    if target.fma:
        return 6 if vectors == 2 else 12
    return 4 if vectors == 2 else 8


def grain_of(tile: Tile, rows: Dim, inner: Dim) -> Dim:
    """How many tiles are worth handing to another thread. A tile of few rows takes as long as reading its panel."""
    work = inner * tile.width * (dim.minimum(rows, tile.rows) + 6)
    return dim.maximum(1, dim.floordiv(PIECE_WORK, dim.maximum(1, work)))


class FactorArguments(Arguments):
    place: Pointer
    tile_stride: Size
    """From a tile of A's rows, or a packed panel of B's columns, to the next."""
    stride: Size
    """From row to row where elements of one k after the other lie side by side, else from k to k."""
    batch_strides: Sequence[Size] = each(lambda batch_axes: batch_axes)


class BandsArguments(Arguments):
    """Which rows belong together: up to a tile of them, multiplied by the matrix of one entry of the batch."""

    table: Pointer
    """For each band its entry of the batch, its first row, and how many rows it has: `BAND_WORDS` of int64."""
    count: Size
    """Of bands; some may have no rows."""


class GemmArguments(Arguments):
    left: FactorArguments
    right: FactorArguments
    rows: Size
    columns: Size
    inner: Size
    batch_sizes: Sequence[Size] = each(lambda batch_axes: batch_axes)
    bands: BandsArguments | None = when(lambda tile: tile.is_banded)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("gemm", GemmArguments)
def gemm_kernel(f: KernelFunction, a: GemmArguments, tile: Tile, batch_axes: int, chain: Chain) -> None:
    """Items are tiles of the result: batch by batch, block by block, in a block row of tiles by row of tiles.

    Where rows come in bands, each is a tile, and all batches are one.
    """
    TiledProduct(f, a, tile, chain).emit()


@dataclass(frozen=True)
class _Rows:
    """The rows of a tile, and where A has them."""

    batch: Value
    start: Value
    height: Value
    offset: Value


@dataclass
class _Place:
    """Which tile comes next; `panel` is counted within its block."""

    panel: Variable
    tile: Variable
    block: Variable
    batch: Variable


class TiledProduct:
    """The code of a product: `_tile` is a register tile, `sums` its inner loop, `_hand_on` and `_finish` the epilogue.

    Products with other panels have their own `sums`.
    """

    def __init__(self, f: KernelFunction, a: GemmArguments, tile: Tile, chain: Chain):
        self.f = f
        self.a = a
        self.shape = tile
        self.sum_type = tile.multiply.sum
        self.epilogue = ChainCode(f, chain, a.sink)
        self.is_light = chain_weight(f.target, chain, tile.lanes) <= LIGHT
        self.spilled = f.stack(self.sum_type, (tile.rows + 1) * tile.width)
        self.parts = f.stack(self.sum_type, tile.rows * tile.width)
        """The sum of the parts of long sums that are done."""
        self.tiles = (a.rows + (tile.rows - 1)) // tile.rows if a.bands is None else a.bands.count
        self.panels = (a.columns + (tile.width - 1)) // tile.width
        self._make_blocks()

    def _make_blocks(self) -> None:
        """How many panels stay in the cache: blocks are as even as can be."""
        f = self.f
        panel_bytes = f.maximum(self.panel_elements(), 1) * self.shape.right.bytes
        limit = f.maximum(f.const(I64, budgets.of(f.target.caches).matrix_block) // panel_bytes, 1)
        count = f.maximum(self.panels, 1)
        blocks = (count + (limit - 1)) // limit
        self.block = (count + (blocks - 1)) // blocks

    def panel_elements(self) -> Value:
        return self.a.inner * self.shape.width

    def heights(self) -> Sequence[int]:
        """Numbers of rows that `sums` is asked for, the largest first."""
        return self.shape.heights

    def _panels_in(self, block: Value) -> Value:
        return self.f.minimum(self.block, self.panels - block * self.block)

    def emit(self) -> None:
        """All items of a call."""
        place = self._first()
        with self.f.loop(self.f.begin, self.f.end):
            self._tile(place)
            self._advance(place)

    def _first(self) -> _Place:
        """The tile that is the item `begin`."""
        f = self.f
        per_batch = f.maximum(self.tiles * self.panels, 1)
        batch, rest = f.begin // per_batch, f.begin % per_batch
        per_block = f.maximum(self.block * self.tiles, 1)
        block, rest = rest // per_block, rest % per_block
        panels = f.maximum(self._panels_in(block), 1)
        return _Place(*(f.variable(number) for number in (rest % panels, rest // panels, block, batch)))

    def _advance(self, place: _Place) -> None:
        f = self.f
        place.panel.set(place.panel.get() + 1)
        with f.if_(place.panel.get() >= self._panels_in(place.block.get())):
            place.panel.set(0)
            place.tile.set(place.tile.get() + 1)
            with f.if_(place.tile.get() >= self.tiles):
                place.tile.set(0)
                place.block.set(place.block.get() + 1)
                with f.if_(place.block.get() * self.block >= self.panels):
                    place.block.set(0)
                    place.batch.set(place.batch.get() + 1)

    def _tile(self, place: _Place) -> None:
        """Compute one tile, with its epilogue; at the last rows it is made up of smaller ones."""
        f, a, shape = self.f, self.a, self.shape
        tile = self._rows(place)
        start, height = tile.start, tile.height
        panel = place.block.get() * self.block + place.panel.get()
        column = panel * shape.width
        left, right = self._operands(tile, panel, column)
        outer = [tile.batch] if self.epilogue.chain.rank == 3 else []
        is_whole = a.columns - column >= shape.width
        row_step = a.left.stride if shape.along == "k" else 1
        done = f.variable(0, I64)
        for rows in self.heights():
            with f.while_() as more:
                row = done.get()
                more.leave_if(height - row < rows)
                sums = self.sums(rows, f.address(left, row * row_step, shape.left), right)
                self._hand_on(sums, row, outer, start, column, is_whole)
                done.set(row + rows)
        self._finish(outer, start, height, column, is_whole)

    def _rows(self, place: _Place) -> _Rows:
        """Which rows come next."""
        f, a, number = self.f, self.a, place.tile.get()
        if a.bands is None:
            start = number * self.shape.rows
            height = f.minimum(a.rows - start, self.shape.rows)
            return _Rows(place.batch.get(), start, height, number * a.left.tile_stride)
        batch, start, height = (f.load(a.bands.table, number * BAND_WORDS + word, I64) for word in range(BAND_WORDS))
        return _Rows(batch, start, height, start * a.left.stride)

    def _operands(self, tile: _Rows, panel: Value, column: Value) -> tuple[Value, Value]:
        """Where a tile of A and a panel of B begin."""
        f, a, shape = self.f, self.a, self.shape
        left, right = batch_offset(f, tile.batch, a.batch_sizes, [a.left.batch_strides, a.right.batch_strides])
        return (
            f.address(a.left.place, left + tile.offset, shape.left),
            f.address(a.right.place, right + self._panel_offset(panel, column), shape.right),
        )

    def _panel_offset(self, panel: Value, column: Value) -> Value:
        """Where a panel begins. One that is not packed and would reach beyond the last column begins further left."""
        if self.shape.packed_right:
            return panel * self.a.right.tile_stride
        return self.f.minimum(column, self.a.columns - self.shape.width)

    # --- the epilogue

    def _hand_on(
        self, sums: Sequence[Sequence[Value]], first: Value, outer: list[Value], start: Value, column: Value, is_whole: Value
    ) -> None:
        """The epilogue of sums in registers. Where it is long, or the tile reaches beyond the last column, they go to the stack."""
        f = self.f
        if not self.is_light:
            self._spill(sums, first)
            return
        if self.shape.is_narrow:
            self._emit(sums, first, outer, start, column, self.a.columns)
            return
        with f.if_else(is_whole) as otherwise:
            self._emit(sums, first, outer, start, column)
            otherwise()
            self._spill(sums, first)

    def _emit(
        self,
        sums: Sequence[Sequence[Value]],
        first: Value,
        outer: list[Value],
        start: Value,
        column: Value,
        remaining: Value | None = None,
    ) -> None:
        lanes = self.shape.lanes
        for row, vectors in enumerate(sums):
            target = self.epilogue.row([*outer, start + first + row])
            for number, vector in enumerate(vectors):
                target.emit(column + number * lanes, lanes, remaining, given=[vector])

    def _spill(self, sums: Sequence[Sequence[Value]], first: Value) -> None:
        place = self.f.address(self.spilled, first * self.shape.width, self.sum_type)
        for row, vectors in enumerate(sums):
            for number, vector in enumerate(vectors):
                self.f.store(vector, place, row * self.shape.width + number * self.shape.lanes, self.sum_type)

    def _finish(self, outer: list[Value], start: Value, height: Value, column: Value, is_whole: Value) -> None:
        """The epilogue of sums on the stack."""
        f = self.f
        if self.is_light:
            if self.shape.is_narrow:
                return
            with f.if_(~is_whole):
                self._finish_rows(outer, start, height, column, masked=True)
            return
        with f.if_else(is_whole) as otherwise:
            self._finish_rows(outer, start, height, column, masked=False)
            otherwise()
            self._finish_rows(outer, start, height, column, masked=True)

    def _finish_rows(self, outer: list[Value], start: Value, height: Value, column: Value, masked: bool) -> None:
        f, shape = self.f, self.shape
        stop = f.minimum(self.a.columns - column, shape.width)
        skipped = f.const(I64, 0) if shape.packed_right else shape.width - stop
        with f.loop(0, height) as row:
            target = self.epilogue.row([*outer, start + row])
            with f.loop(0, stop, shape.lanes) as first:
                vector = f.load(self.spilled, row * shape.width + skipped + first, self.sum_type, shape.lanes)
                target.emit(column + first, shape.lanes, stop - first if masked else None, given=[vector])

    # --- the inner loop

    def sums(self, rows: int, left: Value, right: Value) -> list[list[Value]]:
        """The tile of so many rows. Few of them would wait for their own sums, so several k are summed apart."""
        f, shape, inner = self.f, self.shape, self.a.inner
        apart = max(1, CHAINS_OF_ADDITIONS // (rows * shape.vectors))
        unroll = max(apart, 2 if rows * shape.vectors >= CHAINS_OF_ADDITIONS else UNROLL)
        zero = f.const(self.sum_type.vector(shape.lanes), 0)
        sums = [[[f.variable(zero) for _ in range(shape.vectors)] for _ in range(rows)] for _ in range(apart)]
        walk = _Walk(self, rows, left, right)
        whole = inner - inner % unroll

        def steps(first: Value | int, stop: Value) -> None:
            with f.loop(first, stop, unroll):
                walk.step([sums[number % apart] for number in range(unroll)])

        if self.sum_type.is_float:
            with f.loop(0, whole, PART) as first:
                with f.if_(first > 0):
                    self._end_part(sums, first)
                steps(first, f.minimum(first + PART, whole))
        else:
            steps(0, whole)
        with f.loop(whole, inner):
            walk.step(sums[:1])
        if self.sum_type.is_float:
            with f.if_(whole > PART):
                self._add_parts(sums[0])
        return _totals(sums)

    def _end_part(self, sums: Sequence[list[list[Variable]]], first: Value) -> None:
        """Put what is summed so far to the other parts, and begin the one from `first` on."""
        f, shape = self.f, self.shape
        with f.if_(first > PART):
            self._add_parts(sums[0])
        for row, vectors in enumerate(_totals(sums)):
            for number, vector in enumerate(vectors):
                f.store(vector, self.parts, row * shape.width + number * shape.lanes, self.sum_type)
        zero = f.const(self.sum_type.vector(shape.lanes), 0)
        for register in (register for tile in sums for registers in tile for register in registers):
            register.set(zero)

    def _add_parts(self, tile: list[list[Variable]]) -> None:
        f, shape = self.f, self.shape
        for row, vectors in enumerate(tile):
            for number, vector in enumerate(vectors):
                part = f.load(self.parts, row * shape.width + number * shape.lanes, self.sum_type, shape.lanes)
                vector.set(vector.get() + part)


class _Walk:
    """Pointers into both operands that go along K.

    Each row of A would take a register for its address, more than there are: three rows share one, the others lie one and two strides
    from it. LLVM must not see that the pointers are related, or it computes one from the other.
    """

    def __init__(self, product: TiledProduct, rows: int, left: Value, right: Value):
        self.f = f = product.f
        self.a = a = product.a
        self.shape = shape = product.shape
        self.right = f.variable(right)
        self.row_bytes = a.left.stride * shape.left.bytes
        starts = range(0, rows, ROWS_PER_POINTER) if shape.along == "k" else [0]
        self.left = [f.variable(f.address(left, a.left.stride * row if row else 0, shape.left)) for row in starts]

    def step(self, sums: Sequence[list[list[Variable]]]) -> None:
        """As many k as there are tiles of sums: an element of A times a vector of B for each register."""
        f, a, shape = self.f, self.a, self.shape
        pointers = [f.opaque(pointer.get()) for pointer in self.left]
        right = f.opaque(self.right.get())
        right_step = shape.width if shape.packed_right else a.right.stride
        for k, tile in enumerate(sums):
            columns = self._columns(f.address(right, right_step * k if k else 0, shape.right))
            for row, vectors in enumerate(tile):
                factor = f.splat(self._element(pointers, row, k), shape.lanes)
                for vector, column in zip(vectors, columns):
                    vector.set(shape.multiply.add(f, factor, column, vector.get()))
        ahead = len(sums) if shape.along == "k" else a.left.stride * len(sums)
        for pointer, variable in zip(pointers, self.left):
            variable.set(f.address(pointer, ahead, shape.left))
        self.right.set(f.address(right, right_step * len(sums), shape.right))

    def _columns(self, place: Value) -> list[Value]:
        f, shape = self.f, self.shape
        align = shape.lanes * shape.right.bytes if shape.packed_right else 0
        starts = [number * shape.lanes for number in range(shape.vectors)]
        loaded = [f.load(place, start, shape.right, shape.lanes, align=align) for start in starts]
        return [shape.multiply.widened(f, one) for one in loaded]

    def _element(self, pointers: Sequence[Value], row: int, k: int) -> Value:
        f, shape = self.f, self.shape
        if shape.along == "rows":
            return f.load(f.address(pointers[0], self.a.left.stride * k if k else 0, shape.left), row, shape.left)
        group, number = divmod(row, ROWS_PER_POINTER)
        place = f.address(pointers[group], self.row_bytes * number, I8) if number else pointers[group]
        return f.load(place, k, shape.left, align=shape.multiply.row.bytes)


def _totals(sums: Sequence[list[list[Variable]]]) -> list[list[Value]]:
    """The tile, its sets of sums added."""
    rows, vectors = len(sums[0]), len(sums[0][0])
    return [[_total([tile[row][n].get() for tile in sums]) for n in range(vectors)] for row in range(rows)]


def _total(values: list[Value]) -> Value:
    while len(values) > 1:
        values = [left + right for left, right in zip(values[::2], values[1::2])] + values[len(values) & ~1 :]
    return values[0]
