"""Products inside a recurrence: a few rows times a packed panel of weights, in registers. `loop` emits them into its loop over time,
`operators` packs the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import Product, real
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.startup.records import dataclass

INDEPENDENT_SUMS = 8
"""How many sums must be under way to hide how long one addition takes."""


@overload
def padded_size(hidden: int, lanes: int) -> int: ...
@overload
def padded_size(hidden: Dim, lanes: int) -> Dim: ...
def padded_size(hidden: Dim, lanes: int) -> Dim:
    """`hidden`, rounded up to whole vectors."""
    return dim.ceildiv(hidden, lanes) * lanes


def packed(weights: np.ndarray, gates: int, lanes: int) -> np.ndarray:
    """Weights [gates · hidden, depth] as panels [hidden / lanes, depth, gates, lanes]: units beyond `hidden` are zero.

    One panel yields all gates of `lanes` units, read from its beginning to its end.
    """
    hidden, depth = weights.shape[0] // gates, weights.shape[1]
    panels = -(-hidden // lanes)
    padded = np.zeros((gates, panels * lanes, depth), weights.dtype)
    padded[:, :hidden] = weights.reshape(gates, hidden, depth)
    return padded.reshape(gates, panels, lanes, depth).transpose(1, 3, 0, 2)


def packed_units(vectors: np.ndarray, lanes: int) -> np.ndarray:
    """[…, gates, hidden] as […, hidden / lanes, gates, lanes], zero beyond `hidden`: the order of a panel's results."""
    *outer, gates, hidden = vectors.shape
    panels = -(-hidden // lanes)
    padded = np.zeros((*outer, gates, panels * lanes), vectors.dtype)
    padded[..., :hidden] = vectors
    return padded.reshape(*outer, gates, panels, lanes).swapaxes(-3, -2)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a cache line, so that no vector crosses one."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def tile_rows(f: KernelFunction, type: Type, vectors: int) -> list[int]:
    """Numbers of rows for which there is a tile, the largest first: sums, weights and a factor must fit into the registers."""
    registers = f.target.vector_registers
    return [rows for rows in (8, 4, 2, 1) if rows == 1 or rows * vectors + min(rows, vectors) + 1 <= registers]


def in_tiles(f: KernelFunction, rows: Value, sizes: Sequence[int], emit: Callable[[Value, int], None]) -> None:
    """Emit a tile for each number of rows in `sizes`, and go through `rows` with them."""
    start = f.variable(0, I64)
    for size in sizes:
        with f.while_() as body:
            body.leave_if(start.get() + size > rows)
            emit(start.get(), size)
            start.set(start.get() + size)


@dataclass(frozen=True)
class Factors:
    """Rows of `depth` elements, and a panel of `vectors` vectors of columns that they are multiplied with."""

    rows: Sequence[Value]
    """Pointers to their first elements."""
    type: Type
    """Of those in memory."""
    panel: Value
    depth: Value
    """Elements, or groups of whole numbers."""
    vectors: int
    product: Product | None = None
    """How groups of whole numbers are multiplied; None for floats."""


class _Sums:
    """The products of some rows with a panel, accumulated in registers."""

    def __init__(self, f: KernelFunction, factors: Factors, parts: int = 1):
        self.f = f
        self.factors = factors
        self.product = factors.product or real(factors.type.computed)
        self.type = self.product.sum
        self.lanes = f.lanes(self.type)
        zero = f.const(self.type.vector(self.lanes), 0)
        self.totals = [[[f.variable(zero) for _ in range(factors.vectors)] for _ in factors.rows] for _ in range(parts)]

    def add(self, k: Value, part: int = 0) -> None:
        """Add the products at depth `k`. There may be several parts, to have more sums under way at once."""
        weights = self.weights(k)
        for row in range(len(self.factors.rows)):
            self.add_row(row, k, weights, part)

    def weights(self, k: Value) -> list[Value]:
        """The vectors of the panel at depth `k`."""
        f, type = self.f, self.product.column_group
        place = f.address(self.factors.panel, k * (self.factors.vectors * self.lanes), type)
        align = self.lanes * type.bytes
        loaded = [f.load(place, n * self.lanes, type, self.lanes, align=align) for n in range(self.factors.vectors)]
        return [self.product.widened(f, vector) for vector in loaded]

    def add_row(self, row: int, k: Value, weights: Sequence[Value], part: int = 0) -> None:
        f = self.f
        factor = f.splat(f.load(self.factors.rows[row], k, self.factors.type), self.lanes)
        for weight, total in zip(weights, self.totals[part][row]):
            total.set(self.product.add(f, factor, weight, total.get()))

    def values(self) -> list[list[Value]]:
        """For each row its vectors."""
        return [
            [_total([part[row][n].get() for part in self.totals]) for n in range(self.factors.vectors)]
            for row in range(len(self.factors.rows))
        ]


def _total(terms: list[Value]) -> Value:
    """The sum, by halves."""
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])]
    return terms[0]


def product_tile(f: KernelFunction, factors: Factors) -> list[list[Value]]:
    """For each row the vectors of its products with the columns."""
    parts = 1
    while parts * len(factors.rows) * factors.vectors < INDEPENDENT_SUMS:
        parts *= 2
    sums = _Sums(f, factors, parts)
    unroll = max(parts, 2)
    whole = (factors.depth // unroll) * unroll
    with f.loop(0, whole, unroll) as k:
        for shift in range(unroll):
            sums.add(k + shift, shift % parts)
    with f.loop(whole, factors.depth) as k:
        sums.add(k)
    return sums.values()


def double_tile(f: KernelFunction, near: Factors, far: Factors, ratio: int) -> tuple[list[list[Value]], list[list[Value]]]:
    """Two products in one loop: `near` of a single row, which waits for its panel to come from memory, and `far` of several.

    `near` goes `ratio` times as deep in each round. While the weights of the one stream in, the arithmetic units work on the other.
    """
    single, several, count = _Sums(f, near), _Sums(f, far), len(far.rows)
    both = f.minimum(near.depth // ratio, far.depth)
    with f.loop(0, both) as k:
        weights = several.weights(k)
        for shift in range(ratio):
            single.add(k * ratio + shift)
            for row in range(shift * count // ratio, (shift + 1) * count // ratio):
                several.add_row(row, k, weights)
    with f.loop(both * ratio, near.depth) as k:
        single.add(k)
    with f.loop(both, far.depth) as k:
        several.add(k)
    return single.values(), several.values()
