"""The kernel of products with few rows whose factors both lie along K: sums of elementwise products. `matmul.py` calls it.

A matrix times a vector, or a query against the keys of a cache: each element of the large factor is read once, and packing it would
cost more than the product.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.linalg.packing import batch_offset
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

MAX_ROWS = 4
COLUMNS = 4
"""How many columns are summed side by side."""
PIECE_ELEMENTS = 1 << 15
"""How many elements of the large factor are worth handing to another thread."""


@dataclass(frozen=True)
class Dots:
    """What shapes the code."""

    left: Type
    right: Type
    rows: int
    batch_axes: int


def dot_grain(columns: int, inner: Dim) -> Dim:
    """How many groups of `columns` columns are worth handing to another thread."""
    return dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, inner * columns)))


class LineArguments(Arguments):
    """A factor whose rows (of A) or columns (of B) lie along K."""

    place: Pointer
    stride: Size
    batch_strides: Sequence[Size] = each(lambda dots: dots.batch_axes)


class DotArguments(Arguments):
    few: LineArguments
    """The factor of few rows."""
    many: LineArguments
    columns: Size
    inner: Size
    batch_sizes: Sequence[Size] = each(lambda dots: dots.batch_axes)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("dots", DotArguments)
def dot_kernel(f: KernelFunction, a: DotArguments, dots: Dots, chain: Chain) -> None:
    """Items are as many columns as a vector has lanes."""
    epilogue = ChainCode(f, chain, a.sink)
    lanes, type = f.lanes(dots.left), dots.left.computed
    results = f.stack(type, dots.rows * lanes)
    groups = f.maximum((a.columns + (lanes - 1)) // lanes, 1)
    with f.loop(f.begin, f.end) as item:
        batch, column = item // groups, (item % groups) * lanes
        few, many = batch_offset(f, batch, a.batch_sizes, [a.few.batch_strides, a.many.batch_strides])
        rows = [f.address(a.few.place, few + a.few.stride * row if row else few, dots.left) for row in range(dots.rows)]
        _multiply(f, a, dots, rows, f.address(a.many.place, many, dots.right), column, results)
        remaining = a.columns - column
        for row in range(dots.rows):
            outer = [batch] if chain.rank == 3 else []
            target = epilogue.row([*outer, f.const(column.type, row)])
            target.emit(column, lanes, remaining, given=[f.load(results, row * lanes, type, lanes)])


def _multiply(
    f: KernelFunction, a: DotArguments, dots: Dots, rows: list[Value], many: Value, column: Value, results: Value
) -> None:
    """The products of all rows with as many columns as a vector has lanes; columns behind the last repeat it."""
    lanes, type = f.lanes(dots.left), dots.left.computed
    together = min(COLUMNS, lanes)
    with f.loop(0, lanes, together) as first:
        last = a.columns - 1
        places = [f.minimum(column + first + number, last) * a.many.stride for number in range(together)]
        columns = [f.address(many, place, dots.right) for place in places]
        for row, sums in enumerate(_dots(f, dots, rows, columns, a.inner)):
            f.store(sums, f.address(results, first + row * lanes, type), 0, type)


def _dots(f: KernelFunction, dots: Dots, left: list[Value], right: list[Value], inner: Value) -> list[Value]:
    """For each row a vector of its products with the columns."""
    lanes = f.lanes(dots.left)
    zero = f.const(dots.left.computed.vector(lanes), 0)
    apart = 2 if dots.rows == 1 else 1
    sums = [[[f.variable(zero) for _ in right] for _ in left] for _ in range(apart)]
    whole = inner - inner % (lanes * apart)
    with f.loop(0, whole, lanes * apart) as k:
        for number in range(apart):
            _add(f, dots, sums[number], left, right, k + number * lanes)
    with f.loop(whole, inner, lanes) as k:
        _add(f, dots, sums[0], left, right, k, inner - k)
    totals = []
    for row in range(len(left)):
        vectors = [sums[0][row][column].get() for column in range(len(right))]
        for other in sums[1:]:
            vectors = [vector + more.get() for vector, more in zip(vectors, other[row])]
        totals.append(_across(f, vectors))
    return totals


def _add(
    f: KernelFunction,
    dots: Dots,
    sums: list[list[Variable]],
    left: Sequence[Value],
    right: Sequence[Value],
    k: Value,
    remaining: Value | None = None,
) -> None:
    lanes = f.lanes(dots.left)
    rows = [f.load(place, k, dots.left, lanes, remaining=remaining) for place in left]
    for column, place in enumerate(right):
        vector = f.load(place, k, dots.right, lanes, remaining=remaining)
        for row, factor in enumerate(rows):
            sums[row][column].set(f.fma(factor, vector, sums[row][column].get()))


def _across(f: KernelFunction, vectors: list[Value]) -> Value:
    """The sums over the lanes of some vectors, as one vector of them."""
    lanes, count = vectors[0].type.lanes, len(vectors)
    while len(vectors) > 1:
        half = len(vectors) // 2
        even = [lane // 2 + (lane % 2) * lanes for lane in range(lanes)]
        odd = [lane + lanes // 2 for lane in even]
        pairs = zip(vectors[:half], vectors[half:])
        vectors = [f.shuffle(left, right, even) + f.shuffle(left, right, odd) for left, right in pairs]
    total = vectors[0]
    while total.type.lanes > count:
        half = total.type.lanes // 2
        total = f.shuffle(total, total, range(half)) + f.shuffle(total, total, range(half, 2 * half))
    return total
