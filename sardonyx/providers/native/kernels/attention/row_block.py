"""What a few rows of queries do with a block of keys and values while it is in the nearest cache: `rows` calls it block after block.

The products of queries and keys (`BlockCode.multiply`) become weights (`weigh`), with which values are added up (`add_values`). What
is known of each row so far lies on the stack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import I64
from sardonyx.providers.native.kernels.attention.cache import along
from sardonyx.providers.native.kernels.attention.operands import AttentionCode, Tensor
from sardonyx.providers.native.kernels.attention.weight import weight
from sardonyx.providers.native.program.kernel import KernelFunction

MOST_ROWS = 32
"""Rows that are served at once; more of them look at the keys again."""
LARGE_SIZE = 64
"""Of a head: beyond it blocks of keys are shorter, for keys and values of one are to fit into the nearest cache."""
SEVERAL = 4
"""Rows whose sums are held in registers at once."""
KEYS_AT_ONCE = 4
"""Keys whose products with several rows are computed at once."""
VECTORS_AT_ONCE = 4
"""Vectors of a row that are summed at once where a run tells how many it has."""
Vector = tuple[Value | int, Value | None]
"""Where a vector of a row begins, and how many of its elements there are if it may be fewer than lanes."""


class Rows:
    """The rows of one item: queries of all heads that share a head of keys, or a chunk of them."""

    def __init__(self, attention: AttentionCode, batch: Value, key_head: Value, chunk: Value):
        a, form = attention.a, attention.form
        self.batch, self.key_head = batch, key_head
        self.queries = a.queries
        self.group = a.heads // a.key_heads
        self.first = chunk * MOST_ROWS
        self.count = attention.f.minimum(self.group * a.queries - self.first, MOST_ROWS)
        self.key_count = attention.key_count(batch)
        self.position = attention.first_position(self.key_count) if form.bounded else None
        """Where the first query stands among the keys."""
        self.range = attention.range_of(batch) if form.ranges else None

    def head_and_query(self, row: Value) -> tuple[Value, Value]:
        """Which head and query a row is; those of a head lie next to each other."""
        place = self.first + row
        return self.key_head * self.group + place // self.queries, place % self.queries


class BlockCode:
    """The code for a block, and the memory of a thread."""

    def __init__(self, attention: AttentionCode):
        f, form = attention.f, attention.form
        self.f, self.attention, self.form = f, attention, form
        self.real = form.computed
        self.lanes = f.lanes(self.real)
        self.size, self.value_size = (-(-size // self.lanes) * self.lanes for size in form.room)
        """How far rows of queries and of sums lie apart."""
        self.keys = 64 if max(self.size, self.value_size) <= LARGE_SIZE else 32
        """In a block."""
        self.query = f.stack(self.real, MOST_ROWS * self.size)
        """Times the scale."""
        self.sums = f.stack(self.real, MOST_ROWS * self.value_size)
        """Values times their weights."""
        self.scores = f.stack(self.real, MOST_ROWS * self.keys)
        """Of the block: products, then scores, then weights."""
        self.most, self.totals, self.factors = (f.stack(self.real, MOST_ROWS) for _ in range(3))
        """The largest score so far, the sum of weights, and what the block multiplies earlier sums with."""

    # --- products of queries and keys

    def multiply(self, rows: Rows, tensor: Tensor, keys: Value, count: Value) -> None:
        """Products of all rows with the keys of a block, some rows at once."""
        f = self.f
        together = max(1, self.lanes // KEYS_AT_ONCE)
        several = rows.count - rows.count % together
        with f.loop(0, several, together) as row:
            self._multiply_tile(row, together, tensor, keys, count)
        if together > 1:
            with f.loop(several, rows.count) as row:
                self._multiply_tile(row, 1, tensor, keys, count)

    def _multiply_tile(self, row: Value, rows: int, tensor: Tensor, keys: Value, count: Value) -> None:
        """As many sums of products as there are lanes in a vector: of `rows` rows with a few keys, or of one with many."""
        f, step = self.f, self.lanes // rows
        queries = [f.address(self.query, (row + r) * self.size, self.real) for r in range(rows)]
        with f.loop(0, count, step) as k:
            places = [tensor.row(keys, f.minimum(k + i, count - 1)) for i in range(step)]
            products = lane_sums(f, self._products(queries, places))
            for r in range(rows):
                mine = products if rows == 1 else f.shuffle(products, products, range(r * step, (r + 1) * step))
                f.store(mine, self.scores, (row + r) * self.keys + k, self.real)

    def _products(self, queries: Sequence[Value], keys: Sequence[Value]) -> list[Value]:
        """The inner loop: sums of products of each query and each key, in every lane."""
        f, type = self.f, self.form.key
        zero = f.const(self.real.vector(self.lanes), 0.0)
        sums = [[f.variable(zero) for _ in keys] for _ in queries]

        def multiply(h: Value, lanes: int, remaining: Value | None) -> None:
            factors = [f.load(query, h, self.real, lanes) for query in queries]
            for n, key in enumerate(keys):
                element = f.load(key, h, type, lanes, remaining=remaining)
                for factor, totals in zip(factors, sums):
                    totals[n].set(f.fma(element, factor, totals[n].get()))

        along(f, self.attention.size, self.lanes, multiply)
        return [total.get() for totals in sums for total in totals]

    # --- scores and weights

    def weigh(self, rows: Rows, row: Value, key: Value, count: Value) -> None:
        """The products of a row with the keys from `key` on become weights."""
        f = self.f
        block = f.address(self.scores, row * self.keys, self.real)
        largest = self._score(rows, row, block, key, count)
        before = f.load(self.most, row, self.real)
        after = f.maximum(largest, before)
        f.store(after, self.most, row, self.real)
        base = f.select(after == -math.inf, 0.0, after)
        factor = weight(before - base)
        f.store(factor, self.factors, row, self.real)
        total = f.fma(f.load(self.totals, row, self.real), factor, self._exponentials(block, base, count))
        f.store(total, self.totals, row, self.real)

    def _score(self, rows: Rows, row: Value, block: Value, key: Value, count: Value) -> Value:
        """Products become scores; returns the largest."""
        f = self.f
        head, query = rows.head_and_query(row)
        most = f.variable(f.const(self.real.vector(self.lanes), -math.inf))
        with f.loop(0, count, self.lanes) as k:
            scores = self.attention.capped(f.load(block, k, self.real, self.lanes))
            scores = self._adjusted(rows, scores, head, query, key + k, count - k)
            f.store(scores, block, k, self.real)
            most.set(f.maximum(scores, most.get()))
        return f.reduce("max", most.get())

    def _exponentials(self, block: Value, base: Value, count: Value) -> Value:
        """Scores become weights; returns their sum."""
        f = self.f
        total = f.variable(f.const(self.real.vector(self.lanes), 0.0))
        with f.loop(0, count, self.lanes) as k:
            weights = weight(f.load(block, k, self.real, self.lanes) - base)
            f.store(weights, block, k, self.real)
            total.set(total.get() + weights)
        return f.reduce("add", total.get())

    def _adjusted(self, rows: Rows, scores: Value, head: Value, query: Value, key: Value, remaining: Value) -> Value:
        """Scores of some keys in a row, with masks and bounds; those that there are not any more get -inf."""
        f, attention, lanes = self.f, self.attention, self.lanes
        place = f.iota(I64, lanes) + f.splat(key, lanes)
        for mask, tensor in zip(self.form.masks, attention.masks):
            start = tensor.at(rows.batch, head, query) if mask.per_query else tensor.at(rows.batch, head)
            raw = f.load(start, key, mask.type, lanes, remaining=remaining)
            scores = attention.masked(mask, scores, attention.mask_values(mask, raw))
        if rows.range is not None:
            first, end = rows.range[0], f.convert(rows.range[1], I64)
            outside = place >= end if first is None else (place >= end) | (place < f.convert(first, I64))
            scores = scores + attention.filtered(outside)
        return f.select(self._seen(rows, place, query, key + remaining), scores, -math.inf)

    def _seen(self, rows: Rows, place: Value, query: Value, stop: Value) -> Value:
        """Whether a query sees the keys at some places: those before `stop`, of its batch, and in its window."""
        visible, window = place < stop, self.attention.a.window
        if self.form.lengths is not None:
            visible = visible & (place < rows.key_count)
        if rows.position is not None and window is not None:
            here = rows.position + query
            visible = visible & (place >= here - window.left) & (place <= here + window.right)
        return visible

    # --- values times weights

    def add_values(self, rows: Rows, tensor: Tensor, values: Value, count: Value) -> None:
        """Add values times their weights to the sums of all rows, some rows at once."""
        f = self.f
        several = rows.count - rows.count % SEVERAL
        with f.loop(0, several, SEVERAL) as row:
            self._add_to_rows(row, SEVERAL, tensor, values, count)
        with f.loop(several, rows.count) as row:
            self._add_to_rows(row, 1, tensor, values, count)

    def _add_to_rows(self, row: Value, rows: int, tensor: Tensor, values: Value, count: Value) -> None:
        held = self.f.target.vector_registers // 2 // rows
        for vectors in self._held_vectors(held):
            self._add_tile(row, rows, vectors, tensor, values, count)

    def _held_vectors(self, held: int) -> Iterator[Sequence[Vector]]:
        """The vectors of a row of values, in groups of at most so many; where a run tells how many there are, inside of loops."""
        f, lanes, size = self.f, self.lanes, self.attention.value_size
        if isinstance(size, int):
            for start in range(0, size, held * lanes):
                starts = range(start, min(start + held * lanes, size), lanes)
                yield [(h, f.const(I64, size - h) if size - h < lanes else None) for h in starts]
            return
        step = min(held, VECTORS_AT_ONCE) * lanes
        whole = size - size % step
        with f.loop(0, whole, step) as first:
            yield [(first + h, None) for h in range(0, step, lanes)]
        with f.loop(whole, size, lanes) as h:
            yield [(h, size - h)]

    def _add_tile(self, row: Value, rows: int, vectors: Sequence[Vector], tensor: Tensor, values: Value, count: Value) -> None:
        """A few vectors of the sums, held in registers. If they are too few to keep the CPU busy, keys take turns with several sets."""
        f = self.f
        sets = max(1, 4 // (len(vectors) * rows))
        sums = [[[self._held(row + r, h, n) for h, _ in vectors] for r in range(rows)] for n in range(sets)]
        even = count - count % sets
        with f.loop(0, even, sets) as k:
            for n in range(sets):
                self._add_value(sums[n], row, vectors, k + n, tensor, values)
        if sets > 1:
            with f.loop(even, count) as k:
                self._add_value(sums[0], row, vectors, k, tensor, values)
        for r in range(rows):
            for n, (h, _) in enumerate(vectors):
                total = sums[0][r][n].get()
                for other in sums[1:]:
                    total = total + other[r][n].get()
                f.store(total, self.sums, (row + r) * self.value_size + h, self.real)

    def _held(self, row: Value, h: Value | int, number: int) -> Variable:
        """A vector of the sums so far, times the factor of the row; zero in all sets but the first."""
        f = self.f
        if number:
            return f.variable(f.const(self.real.vector(self.lanes), 0.0))
        sums = f.load(self.sums, row * self.value_size + h, self.real, self.lanes)
        return f.variable(sums * f.load(self.factors, row, self.real))

    def _add_value(
        self,
        sums: Sequence[Sequence[Variable]],
        row: Value,
        vectors: Sequence[Vector],
        k: Value,
        tensor: Tensor,
        values: Value,
    ) -> None:
        """The inner loop: a value times its weight in each row."""
        f, lanes = self.f, self.lanes
        weights = [f.splat(f.load(self.scores, (row + r) * self.keys + k, self.real), lanes) for r in range(len(sums))]
        place = tensor.row(values, k)
        for n, (h, remaining) in enumerate(vectors):
            value = f.load(place, h, tensor.type, lanes, remaining=remaining)
            for factor, held in zip(weights, sums):
                held[n].set(f.fma(factor, value, held[n].get()))


def lane_sums(f: KernelFunction, vectors: Sequence[Value]) -> Value:
    """A vector of the sums of as many vectors as they have lanes: halves of pieces are added, two vectors at a time."""
    sums, lanes = list(vectors), len(vectors)
    piece = lanes
    while len(sums) > 1:
        half = piece // 2
        low = [start + lane for start in range(0, 2 * lanes, piece) for lane in range(half)]
        pairs = [(sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
        sums = [f.shuffle(a, b, low) + f.shuffle(a, b, [lane + half for lane in low]) for a, b in pairs]
        piece = half
    return sums[0]
