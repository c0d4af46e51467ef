"""Attention of many queries: a block of them against block after block of keys, softmax computed on the way. `attention` calls it.

Lanes are queries. Scores of a block of keys, S = K·Q, its exponentials P and the sums O = Vᵀ·P all lie as rows of queries in a scratch
memory that stays in the nearest cache, so elements of keys and values are read where they lie, each spread over the lanes, and maxima and
sums of rows need no look across lanes. When the maximum of a row grows, its sums so far are scaled down (Milakov & Gimelshein 2018, Online
normalizer calculation for softmax).
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I32, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.attention.form import Attention, Form, Mask, Operands, Tensor, mask_values, transposed, weight
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.views import View
from sardonyx.records import dataclass, replace

LARGEST_SIZE = 512
"""Of a head's vectors: the scratch memory grows with it."""
WIDE_SIZE = 128
"""Up to this size a block has two vectors of queries, beyond it one."""
MASK_ELEMENTS = 16384
PIECE_PRODUCTS = 1 << 20
"""How many products are worth handing to another thread."""


@dataclass(frozen=True)
class Shape:
    """The sizes of blocks and register tiles."""

    lanes: int
    vectors: int
    """Vectors of queries in a block."""
    keys: int
    """Keys in a block."""
    tile: int
    """Keys, and elements of values, whose sums are held in registers at once."""

    @property
    def queries(self) -> int:
        return self.vectors * self.lanes


def shape_of_blocks(target: Target, form: Form) -> Shape:
    lanes = target.lanes(form.computed)
    vectors = 2 if max(form.size, form.value_size) <= WIDE_SIZE else 1
    tile = 8 if target.vector_registers >= 32 else 4
    return Shape(lanes, vectors, max(32, 4 * lanes), tile)


def tile_step(lowerer: Lowerer, attention: Attention, when: Dim = 1) -> None:
    """Add the step; `when` is 1, or 0 for sizes that another step serves."""
    shape = shape_of_blocks(lowerer.target, attention.form)
    attention = _with_mask_blocks(lowerer, attention, shape, when)
    form = attention.form
    blocks = dim.ceildiv(attention.queries, shape.queries)
    products = attention.keys * (form.size + form.value_size)
    rows = dim.product(attention.query.shape[:3])
    lowerer.call(
        tile_kernel(lowerer.target, form),
        [blocks, *attention.arguments()],
        items=attention.query.shape[0] * attention.query.shape[1] * blocks * when,
        grain=dim.maximum(1, dim.floordiv(PIECE_PRODUCTS, dim.maximum(1, products * shape.queries))),
        flops=2 * rows * products,
    )


# --- masks

_mask_blocks: WeakKeyDictionary[Lowerer, dict[tuple[View, Shape, float, Dim], View]] = WeakKeyDictionary()
"""Masks of a program that have been laid out: the layers of a model share one."""


def _with_mask_blocks(lowerer: Lowerer, attention: Attention, shape: Shape, when: Dim) -> Attention:
    """Have masks whose rows are queries lie as scores do."""
    made = _mask_blocks.setdefault(lowerer, {})
    masks, views = [], []
    for mask, view in zip(attention.form.masks, attention.masks):
        if mask.per_query:
            key = (view, shape, attention.filter_value, when)
            if key not in made:
                made[key] = _mask_step(lowerer, attention, mask, view, shape, when)
            mask, view = Mask(attention.form.computed, True, mask.is_final or mask.type.kind == "bool"), made[key]
        masks.append(mask)
        views.append(view)
    return replace(attention, form=replace(attention.form, masks=tuple(masks)), masks=views)


def _mask_step(lowerer: Lowerer, attention: Attention, mask: Mask, view: View, shape: Shape, when: Dim) -> View:
    """A mask as (batch, heads, blocks, numbers), in each block a row of queries for each key; its repetitions once only."""
    batch, heads, queries, keys = view.shape
    blocks, size = dim.ceildiv(queries, shape.queries), dim.ceildiv(keys, shape.lanes) * shape.lanes * shape.queries
    kept = 1 if view.strides[0] == 0 else batch, 1 if view.strides[1] == 0 else heads
    type = attention.form.computed
    buffer = lowerer.scratch(dim.product((*kept, blocks, size)) * type.bytes * when)
    lowerer.call(
        mask_kernel(lowerer.target, mask, type, shape),
        [buffer, view.place, *view.strides[:3], kept[1], blocks, queries, keys, attention.filter_value],
        items=kept[0] * kept[1] * blocks * when,
        grain=dim.maximum(1, dim.floordiv(MASK_ELEMENTS, dim.maximum(1, size))),
    )
    strides = (0 if kept[0] == 1 else kept[1] * blocks * size, 0 if kept[1] == 1 else blocks * size, size, 1)
    return View(buffer, type, (batch, heads, blocks, size), strides)


@kernel("attention mask")
def mask_kernel(f: KernelFunction, mask: Mask, real: Type, shape: Shape) -> None:
    """Items are blocks of queries."""
    target, source = f.pointer(), Tensor(f, mask.type)
    heads, blocks, queries, keys = (f.size() for _ in range(4))
    filter_value = f.number(real)
    lanes = shape.lanes
    padded = ((keys + (lanes - 1)) // lanes) * lanes
    with f.loop(f.begin, f.end) as item:
        first = (item % blocks) * shape.queries
        head = source.at(item // blocks // heads, item // blocks % heads)
        block = f.address(target, item * padded * shape.queries, real)
        with f.loop(0, shape.vectors) as v, f.loop(0, keys, lanes) as k:
            rows = [source.row(head, f.minimum(first + v * lanes + i, queries - 1)) for i in range(lanes)]
            raw = [f.load(row, k, mask.type, lanes, remaining=keys - k) for row in rows]
            for i, column in enumerate(transposed(f, [mask_values(mask, one, real, filter_value) for one in raw])):
                f.store(column, block, (k + i) * shape.queries + v * lanes, real)


# --- the kernel


@kernel("attention")
def tile_kernel(f: KernelFunction, form: Form) -> None:
    """Items are blocks of queries, those of a head next to each other."""
    blocks, operands = f.size(), Operands(f, form)
    shape = shape_of_blocks(f.target, form)
    scratch = _Scratch(f, form, shape)
    with f.loop(f.begin, f.end) as item:
        first = (item % blocks) * shape.queries
        head, batch = (item // blocks) % operands.heads, (item // blocks) // operands.heads
        rows = f.minimum(operands.queries - first, shape.queries)
        with f.if_(rows > (shape.vectors - 1) * shape.lanes):
            _Block(operands, scratch, shape, shape.vectors).emit(batch, head, first, rows)
        if shape.vectors > 1:
            with f.if_(rows <= shape.lanes):
                _Block(operands, scratch, shape, 1).emit(batch, head, first, rows)


class _Scratch:
    """Memory of a thread for one block; every row is as long as a block has queries."""

    def __init__(self, f: KernelFunction, form: Form, shape: Shape):
        def rows(count: int) -> Value:
            return f.stack(form.computed, -(-count // shape.lanes) * shape.lanes * shape.queries)

        self.query, self.scores, self.sums = rows(form.size), rows(shape.keys), rows(form.value_size)


class _Block:
    """Code for one block of queries."""

    def __init__(self, operands: Operands, scratch: _Scratch, shape: Shape, vectors: int):
        self.f = operands.f
        self.operands = operands
        self.form = operands.form
        self.scratch = scratch
        self.shape = shape
        self.vectors = vectors
        self.real: Type = self.form.computed
        self.lanes = shape.lanes

    # --- rows of queries

    def _row(self, memory: Value, index: Value | int) -> Value:
        return self.f.address(memory, self.f.as_value(index, I64) * self.shape.queries, self.real)

    def _load(self, row: Value) -> list[Value]:
        return [self.f.load(row, v * self.lanes, self.real, self.lanes) for v in range(self.vectors)]

    def _store(self, values: list[Value], row: Value) -> None:
        for v, value in enumerate(values):
            self.f.store(value, row, v * self.lanes, self.real)

    def _variables(self, number: float) -> list[Variable]:
        wide = self.real.vector(self.lanes)
        return [self.f.variable(self.f.const(wide, number)) for _ in range(self.vectors)]

    # --- the whole

    def emit(self, batch: Value, head: Value, first: Value, rows: Value) -> None:
        f, operands = self.f, self.operands
        self.batch, self.head, self.first, self.rows = batch, head, first, rows
        group = operands.heads // operands.key_heads
        self.keys = operands.key.at(batch, head // group)
        self.values = operands.value.at(batch, head // group)
        self.mask_starts = [
            tensor.at(batch, head, first // self.shape.queries) if mask.per_query else tensor.at(batch, head)
            for mask, tensor in zip(self.form.masks, operands.masks)
        ]
        self.range = operands.range_of(batch) if self.form.ranges else None
        self.most, self.totals = self._variables(-math.inf), self._variables(0.0)
        self._give_sink()
        self._pack_queries()
        with f.loop(0, self.form.value_size) as h:
            self._store([f.const(self.real.vector(self.lanes), 0.0)] * self.vectors, self._row(self.scratch.sums, h))
        start, stop = self._find_bounds()
        self.stop = stop
        with f.loop(start, stop, self.shape.keys) as key:
            count = f.minimum(stop - key, self.shape.keys)
            before = [one.get() for one in self.most]
            self._score(key, count)
            self._hide(key, count)
            self._sum_values(key, count, self._exponentials(count, before))
        self._finish()

    def _give_sink(self) -> None:
        sink = self.operands.sink
        if sink is None or self.form.sink is None:
            return
        score = self.f.convert(self.f.load(sink, self.head, self.form.sink), self.real)
        for most, total in zip(self.most, self.totals):
            most.set(self.f.splat(score, self.lanes))
            total.set(self.f.const(total.type, 1.0))

    def _query_index(self, index: Value) -> Value:
        """The row of the query at a lane; lanes that are left over repeat the last one, and in the end write the same once more."""
        return self.first + self.f.minimum(index, self.rows - 1)

    def _pack_queries(self) -> None:
        """Queries with lanes and elements exchanged, times the scale."""
        f, tensor, size = self.f, self.operands.query, self.form.size
        head = tensor.at(self.batch, self.head)
        with f.loop(0, self.vectors) as v, f.loop(0, size, self.lanes) as h:
            remaining = size - h if size % self.lanes else None
            rows = [
                f.load(tensor.row(head, self._query_index(v * self.lanes + i)), h, tensor.type, self.lanes, remaining=remaining)
                for i in range(self.lanes)
            ]
            for i, column in enumerate(transposed(f, [row * self.operands.scale for row in rows])):
                f.store(column, self._row(self.scratch.query, h + i), v * self.lanes, self.real)

    def _score(self, key: Value, count: Value) -> None:
        """Scores of the keys from `key` on; those behind the last repeat it."""
        f, tensor = self.f, self.operands.key
        with f.loop(0, count, self.shape.tile) as k:
            places = [f.minimum(key + k + i, self.stop - 1) for i in range(self.shape.tile)]
            rows = [tensor.row(self.keys, place) for place in places]
            sums = [self._variables(0.0) for _ in rows]
            with f.loop(0, self.form.size) as h:
                query = self._load(self._row(self.scratch.query, h))
                for row, accumulators in zip(rows, sums):
                    element = f.splat(f.load(row, h, tensor.type), self.lanes)
                    for one, accumulator in zip(query, accumulators):
                        accumulator.set(f.fma(element, one, accumulator.get()))
            for i, accumulators in enumerate(sums):
                scores = self._masked(places[i], [self.operands.capped(one.get()) for one in accumulators])
                self._store(scores, self._row(self.scratch.scores, k + i))
                if not self.form.bounded:
                    self._note_most(scores)

    def _note_most(self, scores: list[Value]) -> None:
        for score, most in zip(scores, self.most):
            most.set(self.f.maximum(score, most.get()))

    # --- what changes scores

    def _masked(self, key: Value, scores: list[Value]) -> list[Value]:
        """Scores of a key with what masks add."""
        f, operands = self.f, self.operands
        for mask, tensor, start in zip(self.form.masks, operands.masks, self.mask_starts):
            if mask.per_query:
                numbers = self._load(f.address(start, key * self.shape.queries, self.real))
            else:
                numbers = [operands.mask_values(mask, f.load(start, key, tensor.type))] * self.vectors
            scores = [operands.masked(mask, score, number) for score, number in zip(scores, numbers)]
        if self.range is not None:
            low, end = self.range
            assert operands.filter_value is not None
            place = f.convert(key, I32)
            outside = place >= end if low is None else (place >= end) | (place < low)
            number = f.select(outside, operands.filter_value, 0.0)
            scores = [score + number for score in scores]
        return scores

    def _find_bounds(self) -> tuple[Value, Value]:
        """The first key that any query of the block sees, and the one behind the last; for each query too."""
        f, operands = self.f, self.operands
        count = operands.key_count(self.batch)
        if not self.form.bounded:
            return f.const(I64, 0), count
        position = operands.first_position(count)
        assert operands.left is not None and operands.right is not None
        lows, highs = [], []
        for v in range(self.vectors):
            lane = f.iota(I64, self.lanes) + v * self.lanes
            here = f.minimum(lane, self.rows - 1) + f.splat(position + self.first, self.lanes)
            lows.append(f.maximum(here - operands.left, 0))
            highs.append(f.minimum(here + operands.right + 1, f.splat(count, self.lanes)))
        # positions grow with the lanes
        self.least_low, self.largest_low = f.extract(lows[0], 0), f.extract(lows[-1], self.lanes - 1)
        self.least_high, largest_high = f.extract(highs[0], 0), f.extract(highs[-1], self.lanes - 1)
        self.lows, self.highs = ([f.convert(one, I32) for one in ends] for ends in (lows, highs))
        return f.minimum(self.least_low, count), largest_high

    def _hide(self, key: Value, count: Value) -> None:
        """-inf for keys that a query does not see; most blocks have none."""
        if not self.form.bounded:
            return
        f = self.f
        with f.if_((key < self.largest_low) | (key + count > self.least_high)), f.loop(0, count) as k:
            place = f.splat(f.convert(key + k, I32), self.lanes)
            row = self._row(self.scratch.scores, k)
            seen = [(low <= place) & (place < high) for low, high in zip(self.lows, self.highs)]
            self._store([f.select(sees, one, -math.inf) for sees, one in zip(seen, self._load(row))], row)
        with f.loop(0, count) as k:
            self._note_most(self._load(self._row(self.scratch.scores, k)))

    # --- softmax and sums

    def _exponentials(self, count: Value, before: list[Value]) -> list[Value]:
        """Scores become weights; returns what sums of earlier blocks are to be multiplied with. `before` was the most in these."""
        f = self.f
        after = [f.select(one.get() == -math.inf, 0.0, one.get()) for one in self.most]
        factors = [weight(old - new) for old, new in zip(before, after)]
        for total, factor in zip(self.totals, factors):
            total.set(total.get() * factor)
        with f.loop(0, count) as k:
            row = self._row(self.scratch.scores, k)
            weights = [weight(score - most) for score, most in zip(self._load(row), after)]
            self._store(weights, row)
            for total, one in zip(self.totals, weights):
                total.set(total.get() + one)
        return factors

    def _sum_values(self, key: Value, count: Value, factors: list[Value]) -> None:
        size, tile = self.form.value_size, self.shape.tile
        with self.f.loop(0, size - size % tile, tile) as h:
            self._sum_tile(key, count, factors, h, tile)
        if size % tile:
            self._sum_tile(key, count, factors, self.f.const(I64, size - size % tile), size % tile)

    def _sum_tile(self, key: Value, count: Value, factors: list[Value], h: Value, tile: int) -> None:
        """Some elements of the weighed values."""
        f, tensor = self.f, self.operands.value
        places = [self._row(self.scratch.sums, h + i) for i in range(tile)]
        sums = [[f.variable(one * factor) for one, factor in zip(self._load(place), factors)] for place in places]
        column = f.address(tensor.row(self.values, key), h, tensor.type)
        with f.loop(0, count) as k:
            weights = self._load(self._row(self.scratch.scores, k))
            row = tensor.row(column, k)
            for i, accumulators in enumerate(sums):
                element = f.splat(f.load(row, i, tensor.type), self.lanes)
                for weight, accumulator in zip(weights, accumulators):
                    accumulator.set(f.fma(element, weight, accumulator.get()))
        for place, accumulators in zip(places, sums):
            self._store([one.get() for one in accumulators], place)

    def _finish(self) -> None:
        """Divide by the sums of weights, and write rows again."""
        f, tensor, size = self.f, self.operands.output, self.form.value_size
        for vector, variable in enumerate(self.totals):
            total = variable.get()
            is_empty = total == 0.0 if self.form.empty_is_zero else f.splat(self.stop <= 0, self.lanes)
            total = f.select(is_empty, 1.0, total)
            f.store(1.0 / total, self.scratch.query, vector * self.lanes, self.real)
        head = tensor.at(self.batch, self.head)
        with f.loop(0, self.vectors) as v:
            factor = f.load(self.scratch.query, v * self.lanes, self.real, self.lanes)
            with f.loop(0, size, self.lanes) as h:
                remaining = size - h if size % self.lanes else None
                columns = [
                    f.load(self._row(self.scratch.sums, h + i), v * self.lanes, self.real, self.lanes) * factor
                    for i in range(self.lanes)
                ]
                for i, row in enumerate(transposed(f, columns)):
                    place = tensor.row(head, self._query_index(v * self.lanes + i))
                    f.store(row, place, h, tensor.type, remaining=remaining)
