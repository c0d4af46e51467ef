"""The kernel of products with few rows whose factors both lie along K: sums of elementwise products. `matmul.py` calls it.

A matrix times a vector, or a query against the keys of a cache: each element of the large factor is read once, and packing it would
cost more than the product.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.matrix.packing import batch_offset
from sardonyx.records import dataclass

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


@kernel("dots")
def dot_kernel(f: KernelFunction, dots: Dots, chain: Chain) -> None:
    """Items are as many columns as a vector has lanes."""
    a, b = f.pointer(), f.pointer()
    columns, inner, a_step, b_step = (f.size() for _ in range(4))
    sizes, a_steps, b_steps = ([f.size() for _ in range(dots.batch_axes)] for _ in range(3))
    code = ChainCode(f, chain)
    lanes = f.lanes(dots.left)
    together = min(COLUMNS, lanes)
    type = dots.left.computed
    results = f.stack(type, dots.rows * lanes)
    groups = f.maximum((columns + (lanes - 1)) // lanes, 1)
    with f.loop(f.begin, f.end) as item:
        batch, column = item // groups, (item % groups) * lanes
        a_offset, b_offset = batch_offset(f, batch, sizes, [a_steps, b_steps])
        left = [f.address(a, a_offset + a_step * row if row else a_offset, dots.left) for row in range(dots.rows)]
        large = f.address(b, b_offset, dots.right)
        with f.loop(0, lanes, together) as first:
            last = columns - 1
            places = [f.minimum(column + first + number, last) * b_step for number in range(together)]
            right = [f.address(large, place, dots.right) for place in places]
            for row, sums in enumerate(_dots(f, dots, left, right, inner)):
                f.store(sums, f.address(results, first + row * lanes, type), 0, type)
        remaining = columns - column
        for row in range(dots.rows):
            outer = [batch] if chain.rank == 3 else []
            target = code.row([*outer, f.const(column.type, row)])
            target.emit(column, lanes, remaining, given=[f.load(results, row * lanes, type, lanes)])


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
    found = []
    for row in range(len(left)):
        vectors = [sums[0][row][column].get() for column in range(len(right))]
        for other in sums[1:]:
            vectors = [vector + more.get() for vector, more in zip(vectors, other[row])]
        found.append(_across(f, vectors))
    return found


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
        vectors = [f.shuffle(one, other, even) + f.shuffle(one, other, odd) for one, other in pairs]
    found = vectors[0]
    while found.type.lanes > count:
        half = found.type.lanes // 2
        found = f.shuffle(found, found, range(half)) + f.shuffle(found, found, range(half, 2 * half))
    return found
