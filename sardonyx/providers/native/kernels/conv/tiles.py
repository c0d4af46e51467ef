"""Pieces that all kernels of convolutions are made of: even tiles of an axis, totals, aligned memory for what is packed."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import Product
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I8, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.arguments import Arguments, Size
from sardonyx.providers.native.program.chain import LINE, Chain, chain_weight
from sardonyx.providers.native.program.kernel import KernelFunction

CHAINS_OF_ADDITIONS = 8
"""How many sums must be under way for the units to be always busy."""
FEW_REGISTERS = 16
"""With more sums than this a step of the innermost loop takes long enough not to be unrolled."""
MOST_LINES = 2
"""Of the caches, that are fetched for each row of a panel."""
LIGHT = 32
"""Instructions per vector of an epilogue that is repeated for each register."""
PIECE_WORK = 1 << 19
"""Multiplications that are worth handing to another thread."""


class WindowAxis(Arguments):
    """A spatial axis along which a window moves."""

    output: Size
    input: Size
    kernel: Size
    stride: Size
    dilation: Size
    begin: Size
    """Pixels of padding before the axis."""


class Axis(WindowAxis):
    """A spatial axis of a convolution."""

    step: Size
    """From pixel to pixel in memory."""

    def range(self, f: KernelFunction, first: Value) -> tuple[Value, Value]:
        """Which taps lie inside the image, for a window that begins at `first`."""
        low = f.maximum(0, (self.dilation - 1 - first) // self.dilation)
        high = f.minimum(self.kernel, (self.input - first + self.dilation - 1) // self.dilation)
        return low, high


class EvenTiles:
    """An axis of a size known at run time, cut as evenly as can be into tiles of at most `limit`."""

    def __init__(self, f: KernelFunction, total: Value, limit: Value | int):
        self.f = f
        self.count = (total + (limit - 1)) // limit
        divisor = f.maximum(self.count, 1)
        self._base = total // divisor
        self._extra = total % divisor

    def start(self, tile: Value) -> Value:
        return tile * self._base + self.f.minimum(tile, self._extra)

    def size(self, tile: Value) -> Value:
        return self._base + self.f.convert(tile < self._extra, I64)


def sizes_up_to(limit: int) -> list[int]:
    """For which numbers of rows a kernel of register tiles has code; a tile of another number takes the next larger one."""
    return sorted({1, *range(4 if limit > 6 else 2, limit, 4 if limit > 9 else 2), limit})


Sums = list[list[list[Variable]]]
"""Registers of a tile, rows of vectors. Few of them would wait for their own results, so there may be several sets."""


def zero_sums(f: KernelFunction, rows: int, vectors: int, type: Type, lanes: int) -> Sums:
    zero = f.const(type.vector(lanes), 0)
    sets = max(1, CHAINS_OF_ADDITIONS // (rows * vectors))
    return [[[f.variable(zero) for _ in range(vectors)] for _ in range(rows)] for _ in range(sets)]


def totals_of(sums: Sums) -> list[list[Value]]:
    """The tile, its sets added."""
    first = sums[0]
    return [
        [_total([registers[row][column].get() for registers in sums]) for column in range(len(first[row]))]
        for row in range(len(first))
    ]


def _total(values: list[Value]) -> Value:
    while len(values) > 1:
        values = [left + right for left, right in zip(values[::2], values[1::2])] + values[len(values) & ~1 :]
    return values[0]


def add_products(
    f: KernelFunction,
    sums: Sums,
    rows: Sequence[Value],
    panel: Value,
    depth: Value,
    product: Product,
    lanes: int,
    fetched: Value | None = None,
) -> None:
    """Add the product of rows, each a pointer to `depth` elements or groups, and a panel of as many rows of vectors.

    `fetched` is what is fetched meanwhile, see `to_fetch`; else it is what lies behind the panel.
    """
    vectors, type = len(sums[0][0]), product.column_group
    lines = _lines_of(vectors * lanes * type.bytes)
    fetched = f.address(panel, depth * (vectors * lanes), type) if fetched is None else fetched
    unroll = len(sums) if len(rows) * vectors > FEW_REGISTERS else max(len(sums), 2)
    whole = depth - depth % unroll if unroll > 1 else depth

    def add(registers: list[list[Variable]], k: Value) -> None:
        """The innermost step: one element of each row by one row of the panel."""
        columns = [
            f.load(panel, k * (vectors * lanes) + vector * lanes, type, lanes, align=lanes * type.bytes)
            for vector in range(vectors)
        ]
        for line in range(lines):
            f.prefetch(fetched, (k * lines + line) * (LINE // type.bytes), type, near=False)
        columns = [product.widened(f, column) for column in columns]
        for place, row in zip(rows, registers):
            factor = f.splat(f.load(place, k, product.row_group, align=product.row.bytes), lanes)
            for register, column in zip(row, columns):
                register.set(product.add(f, factor, column, register.get()))

    with f.loop(0, whole, unroll) as k:
        for number in range(unroll):
            add(sums[number % len(sums)], k + number)
    if unroll > 1:
        with f.loop(whole, depth) as k:
            add(sums[0], k)


def to_fetch(f: KernelFunction, panel: Value, following: Value, depth: Value, row_bytes: int, passed: Value) -> Value:
    """What to fetch while tiles pass by a panel, this one after `passed` others: each a part of the panel that comes next.

    That may be far away. When all parts are under way it is the panel itself, which is near and costs nothing.
    """
    part_bytes = LINE * _lines_of(row_bytes)
    parts = -(-row_bytes // part_bytes)
    part = f.address(following, passed * depth * part_bytes, I8)
    return f.select(passed < parts, part, panel)


def fetched_from(f: KernelFunction, fetched: Value, row: Value, row_bytes: int) -> Value:
    """The same for a product that begins at a later row of the panel."""
    return f.address(fetched, row * (LINE * _lines_of(row_bytes)), I8)


def _lines_of(row_bytes: int) -> int:
    return min(-(-row_bytes // LINE), MOST_LINES)


def is_light(target: Target, chain: Chain, lanes: int) -> bool:
    """Whether an epilogue is short enough to be repeated for each register of a tile. Else it is a loop over a tile on the stack."""
    return chain_weight(target, chain, lanes) <= LIGHT


def grain_for(work: Dim) -> Dim:
    """How many items of so many multiplications are worth handing to another thread."""
    return dim.maximum(1, dim.floordiv(PIECE_WORK, dim.maximum(1, work)))
