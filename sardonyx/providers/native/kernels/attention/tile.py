"""Attention of many queries: a block of them against block after block of keys, softmax computed on the way. `steps` calls it.

Lanes are queries. Scores of a block of keys, S = K·Q, its exponentials P and the sums O = Vᵀ·P all lie as rows of queries in a scratch
memory that stays in the nearest cache, so elements of keys and values are read where they lie, each spread over the lanes, and maxima and
sums of rows need no look across lanes. When the maximum of a row grows, its sums so far are scaled down (Milakov & Gimelshein 2018, Online
normalizer calculation for softmax).

From the outside in: `tile_step` adds the step, `tile_kernel` takes items, `_Block.emit` goes through the keys block by block. For each of
them `_score` multiplies queries and keys (inner loop `_products`), `_exponentials` makes weights, `_sum_values` adds up values (register
tile `_sum_tile`). `_finish` is the epilogue; the arguments are `TileArguments`.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.squares import transposed
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I32, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.attention.form import Attention, Form, Mask
from sardonyx.providers.native.kernels.attention.operands import (
    AttentionArguments,
    AttentionCode,
    Tensor,
    TensorArguments,
    attention_arguments,
    mask_values,
    tensor_arguments,
)
from sardonyx.providers.native.kernels.attention.weight import weight
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass, replace

WIDE_SIZE = 128
"""Up to this size a block has two vectors of queries, beyond it one."""
MASK_ELEMENTS = 16384
PIECE_PRODUCTS = 1 << 20
"""How many products are worth handing to another thread."""


@dataclass(frozen=True)
class BlockShape:
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


def shape_of_blocks(target: Target, form: Form) -> BlockShape:
    lanes = target.lanes(form.computed)
    vectors = 2 if max(form.size or 0, form.value_size or 0) <= WIDE_SIZE else 1
    tile = 8 if target.vector_registers >= 32 else 4
    return BlockShape(lanes, vectors, max(32, 4 * lanes), tile)


def tile_step(lowerer: Lowerer, attention: Attention, when: Dim = 1) -> None:
    """Add the step; `when` is 1, or 0 for sizes that another step serves."""
    shape = shape_of_blocks(lowerer.target, attention.form)
    attention = _with_mask_blocks(lowerer, attention, shape, when)
    form = attention.form
    blocks = dim.ceildiv(attention.queries, shape.queries)
    products = attention.keys * attention.sizes
    rows = dim.product(attention.query.shape[:3])
    lowerer.call(
        tile_kernel(lowerer.target, form),
        TileArguments(attention=attention_arguments(attention), blocks=blocks),
        items=attention.query.shape[0] * attention.query.shape[1] * blocks * when,
        grain=dim.maximum(1, dim.floordiv(PIECE_PRODUCTS, dim.maximum(1, products * shape.queries))),
        flops=2 * rows * products,
    )


# --- masks

_mask_blocks: WeakKeyDictionary[Lowerer, dict[tuple[View, BlockShape, float, Dim], View]] = WeakKeyDictionary()
"""Masks of a program that have been laid out: the layers of a model share one."""


def _with_mask_blocks(lowerer: Lowerer, attention: Attention, shape: BlockShape, when: Dim) -> Attention:
    """Have masks whose rows are queries lie as scores do."""
    laid_out = _mask_blocks.setdefault(lowerer, {})
    masks, views = [], []
    for mask, view in zip(attention.form.masks, attention.masks):
        if mask.per_query:
            key = (view, shape, attention.filter_value, when)
            if key not in laid_out:
                laid_out[key] = _mask_step(lowerer, attention, mask, view, shape, when)
            mask, view = Mask(attention.form.computed, True, mask.is_final or mask.type.kind == "bool"), laid_out[key]
        masks.append(mask)
        views.append(view)
    return replace(attention, form=replace(attention.form, masks=tuple(masks)), masks=views)


def _mask_step(lowerer: Lowerer, attention: Attention, mask: Mask, view: View, shape: BlockShape, when: Dim) -> View:
    """A mask as (batch, heads, blocks, numbers), in each block a row of queries for each key; its repetitions once only."""
    batch, heads, queries, keys = view.shape
    blocks, size = dim.ceildiv(queries, shape.queries), dim.ceildiv(keys, shape.lanes) * shape.lanes * shape.queries
    kept = 1 if view.strides[0] == 0 else batch, 1 if view.strides[1] == 0 else heads
    type = attention.form.computed
    buffer = lowerer.scratch(dim.product((*kept, blocks, size)) * type.bytes * when)
    lowerer.call(
        mask_kernel(lowerer.target, mask, type, shape),
        MaskArguments(
            target=buffer,
            source=tensor_arguments(view),
            heads=kept[1],
            blocks=blocks,
            queries=queries,
            keys=keys,
            filter_value=attention.filter_value,
        ),
        items=kept[0] * kept[1] * blocks * when,
        grain=dim.maximum(1, dim.floordiv(MASK_ELEMENTS, dim.maximum(1, size))),
    )
    strides = (0 if kept[0] == 1 else kept[1] * blocks * size, 0 if kept[1] == 1 else blocks * size, size, 1)
    return View(buffer, type, (batch, heads, blocks, size), strides)


class MaskArguments(Arguments):
    target: Pointer
    source: TensorArguments
    heads: Size
    """Of the mask: 1 if all share it."""
    blocks: Size
    """Of queries, in a head."""
    queries: Size
    keys: Size
    filter_value: Number


@kernel("attention mask", MaskArguments)
def mask_kernel(f: KernelFunction, a: MaskArguments, mask: Mask, real: Type, shape: BlockShape) -> None:
    """Items are blocks of queries."""
    source, lanes = Tensor(f, a.source, mask.type), shape.lanes
    filter_value = f.convert(a.filter_value, real)
    padded = ((a.keys + (lanes - 1)) // lanes) * lanes
    with f.loop(f.begin, f.end) as item:
        first = (item % a.blocks) * shape.queries
        head = source.at(item // a.blocks // a.heads, item // a.blocks % a.heads)
        block = f.address(a.target, item * padded * shape.queries, real)
        with f.loop(0, shape.vectors) as v, f.loop(0, a.keys, lanes) as k:
            rows = [source.row(head, f.minimum(first + v * lanes + i, a.queries - 1)) for i in range(lanes)]
            raw = [f.load(row, k, mask.type, lanes, remaining=a.keys - k) for row in rows]
            for i, column in enumerate(transposed(f, [mask_values(mask, row, real, filter_value) for row in raw])):
                f.store(column, block, (k + i) * shape.queries + v * lanes, real)


# --- the kernel


class TileArguments(Arguments):
    attention: AttentionArguments
    blocks: Size
    """Of queries, in a head."""


@kernel("attention", TileArguments)
def tile_kernel(f: KernelFunction, a: TileArguments, form: Form) -> None:
    """Items are blocks of queries, those of a head next to each other."""
    attention, heads = AttentionCode(f, a.attention, form), a.attention.heads
    shape = shape_of_blocks(f.target, form)
    scratch = _Scratch(f, form, shape)
    with f.loop(f.begin, f.end) as item:
        first = (item % a.blocks) * shape.queries
        head, batch = (item // a.blocks) % heads, (item // a.blocks) // heads
        place = _Place(batch, head, first, f.minimum(a.attention.queries - first, shape.queries))
        with f.if_(place.rows > (shape.vectors - 1) * shape.lanes):
            _Block(attention, scratch, shape, shape.vectors, place).emit()
        if shape.vectors > 1:
            with f.if_(place.rows <= shape.lanes):
                _Block(attention, scratch, shape, 1, place).emit()


class _Scratch:
    """Memory of a thread for one block; every row is as long as a block has queries."""

    def __init__(self, f: KernelFunction, form: Form, shape: BlockShape):
        def rows(count: int) -> Value:
            return f.stack(form.computed, -(-count // shape.lanes) * shape.lanes * shape.queries)

        size, value_size = form.room
        self.query, self.scores, self.sums = rows(size), rows(shape.keys), rows(value_size)


@dataclass
class _Place:
    """Which block of queries comes."""

    batch: Value
    head: Value
    first: Value
    """Its first query."""
    rows: Value
    """How many queries there are, at most as many as a block has."""


class _Block:
    """Code for one block of queries: `_products` and `_sum_tile` are its inner loops, `_finish` the epilogue."""

    def __init__(self, attention: AttentionCode, scratch: _Scratch, shape: BlockShape, vectors: int, place: _Place):
        self.f, self.a, self.attention, self.form = attention.f, attention.a, attention, attention.form
        self.scratch, self.shape, self.vectors = scratch, shape, vectors
        self.real: Type = self.form.computed
        self.lanes = shape.lanes
        batch, head, first = self.batch, self.head, self.first = place.batch, place.head, place.first
        self.rows = place.rows
        key_head = head // (self.a.heads // self.a.key_heads)
        self.keys = attention.key.at(batch, key_head)
        self.values = attention.value.at(batch, key_head)
        self.mask_starts = [
            tensor.at(batch, head, first // shape.queries) if mask.per_query else tensor.at(batch, head)
            for mask, tensor in zip(self.form.masks, attention.masks)
        ]
        self.range = attention.range_of(batch) if self.form.ranges else None
        self.most, self.totals = self._variables(-math.inf), self._variables(0.0)
        """The largest score of each query so far, and the sum of the weights."""

    def emit(self) -> None:
        """Block after block of keys: scores, their weights, and the values times these."""
        f = self.f
        self._begin()
        start, stop = self._find_bounds()
        self.stop = stop
        with f.loop(start, stop, self.shape.keys) as key:
            count = f.minimum(stop - key, self.shape.keys)
            before = [most.get() for most in self.most]
            self._score(key, count)
            self._hide(key, count)
            self._sum_values(key, count, self._exponentials(count, before))
        self._finish()

    def _begin(self) -> None:
        """Queries as the tiles read them; nothing seen yet but the attention sink."""
        f = self.f
        self._give_sink()
        self._pack_queries()
        with f.loop(0, self.attention.value_size) as h:
            self._store([f.const(self.real.vector(self.lanes), 0.0)] * self.vectors, self._row(self.scratch.sums, h))

    def _give_sink(self) -> None:
        score = self.attention.sink_score(self.head)
        if score is None:
            return
        for most, total in zip(self.most, self.totals):
            most.set(self.f.splat(score, self.lanes))
            total.set(self.f.const(total.type, 1.0))

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

    def _query_index(self, index: Value) -> Value:
        """The row of the query at a lane; lanes that are left over repeat the last one, and in the end write the same once more."""
        return self.first + self.f.minimum(index, self.rows - 1)

    def _pack_queries(self) -> None:
        """Queries with lanes and elements exchanged, times the scale."""
        f, tensor, size = self.f, self.attention.query, self.attention.size
        head = tensor.at(self.batch, self.head)
        with f.loop(0, self.vectors) as v, f.loop(0, size, self.lanes) as h:
            remaining = self._remaining(size, h)
            rows = [
                f.load(tensor.row(head, self._query_index(v * self.lanes + i)), h, tensor.type, self.lanes, remaining=remaining)
                for i in range(self.lanes)
            ]
            for i, column in enumerate(transposed(f, [row * self.attention.scale for row in rows])):
                f.store(column, self._row(self.scratch.query, h + i), v * self.lanes, self.real)

    def _remaining(self, size: Value | int, h: Value) -> Value | None:
        """How many elements of a vector there are from `h` on, where that may be fewer than lanes."""
        return None if isinstance(size, int) and size % self.lanes == 0 else size - h

    # --- scores

    def _score(self, key: Value, count: Value) -> None:
        """Scores of the keys from `key` on, tile by tile; those behind the last repeat it."""
        f = self.f
        with f.loop(0, count, self.shape.tile) as k:
            places = [f.minimum(key + k + i, self.stop - 1) for i in range(self.shape.tile)]
            for i, products in enumerate(self._products(places)):
                scores = self._masked(places[i], [self.attention.capped(product) for product in products])
                self._store(scores, self._row(self.scratch.scores, k + i))
                if not self.form.bounded:
                    self._note_most(scores)

    def _products(self, places: list[Value]) -> list[list[Value]]:
        """The inner loop: a few keys times all queries of the block, in registers."""
        f, tensor = self.f, self.attention.key
        rows = [tensor.row(self.keys, place) for place in places]
        sums = [self._variables(0.0) for _ in rows]
        with f.loop(0, self.attention.size) as h:
            query = self._load(self._row(self.scratch.query, h))
            for row, accumulators in zip(rows, sums):
                element = f.splat(f.load(row, h, tensor.type), self.lanes)
                for vector, accumulator in zip(query, accumulators):
                    accumulator.set(f.fma(element, vector, accumulator.get()))
        return [[accumulator.get() for accumulator in accumulators] for accumulators in sums]

    def _note_most(self, scores: list[Value]) -> None:
        for score, most in zip(scores, self.most):
            most.set(self.f.maximum(score, most.get()))

    # --- what changes scores

    def _masked(self, key: Value, scores: list[Value]) -> list[Value]:
        """Scores of a key with what masks and ranges add."""
        f, attention = self.f, self.attention
        for mask, tensor, start in zip(self.form.masks, attention.masks, self.mask_starts):
            if mask.per_query:
                numbers = self._load(f.address(start, key * self.shape.queries, self.real))
            else:
                numbers = [attention.mask_values(mask, f.load(start, key, tensor.type))] * self.vectors
            scores = [attention.masked(mask, score, number) for score, number in zip(scores, numbers)]
        if self.range is not None:
            first, end = self.range
            place = f.convert(key, I32)
            number = attention.filtered(place >= end if first is None else (place >= end) | (place < first))
            scores = [score + number for score in scores]
        return scores

    def _find_bounds(self) -> tuple[Value, Value]:
        """The first key that any query of the block sees, and the one behind the last; for each query too."""
        f, attention, window = self.f, self.attention, self.a.window
        count = attention.key_count(self.batch)
        if window is None:
            return f.const(I64, 0), count
        position = attention.first_position(count)
        lows, highs = [], []
        for v in range(self.vectors):
            lane = f.iota(I64, self.lanes) + v * self.lanes
            here = f.minimum(lane, self.rows - 1) + f.splat(position + self.first, self.lanes)
            lows.append(f.maximum(here - window.left, 0))
            highs.append(f.minimum(here + window.right + 1, f.splat(count, self.lanes)))
        # positions grow with the lanes
        self.least_low, self.largest_low = f.extract(lows[0], 0), f.extract(lows[-1], self.lanes - 1)
        self.least_high, largest_high = f.extract(highs[0], 0), f.extract(highs[-1], self.lanes - 1)
        self.lows, self.highs = ([f.convert(end, I32) for end in ends] for ends in (lows, highs))
        return f.minimum(self.least_low, count), largest_high

    def _hide(self, key: Value, count: Value) -> None:
        """-inf for keys that a query does not see; most blocks have none."""
        if not self.form.bounded:
            return
        f = self.f
        with f.if_((key < self.largest_low) | (key + count > self.least_high)), f.loop(0, count) as k:
            place = f.splat(f.convert(key + k, I32), self.lanes)
            row = self._row(self.scratch.scores, k)
            visible = [(low <= place) & (place < high) for low, high in zip(self.lows, self.highs)]
            self._store([f.select(sees, score, -math.inf) for sees, score in zip(visible, self._load(row))], row)
        with f.loop(0, count) as k:
            self._note_most(self._load(self._row(self.scratch.scores, k)))

    # --- softmax and sums

    def _exponentials(self, count: Value, before: list[Value]) -> list[Value]:
        """Scores become weights; returns what sums of earlier blocks are to be multiplied with. `before` was the most in these."""
        f = self.f
        after = [f.select(most.get() == -math.inf, 0.0, most.get()) for most in self.most]
        factors = [weight(old - new) for old, new in zip(before, after)]
        for total, factor in zip(self.totals, factors):
            total.set(total.get() * factor)
        with f.loop(0, count) as k:
            row = self._row(self.scratch.scores, k)
            weights = [weight(score - most) for score, most in zip(self._load(row), after)]
            self._store(weights, row)
            for total, row_weights in zip(self.totals, weights):
                total.set(total.get() + row_weights)
        return factors

    def _sum_values(self, key: Value, count: Value, factors: list[Value]) -> None:
        size, tile = self.attention.value_size, self.shape.tile
        whole = size - size % tile
        with self.f.loop(0, whole, tile) as h:
            self._sum_tile(key, count, factors, h, tile)
        if not isinstance(size, int):
            with self.f.loop(whole, size) as h:
                self._sum_tile(key, count, factors, h, 1)
        elif size % tile:
            self._sum_tile(key, count, factors, self.f.as_value(whole, I64), size % tile)

    def _sum_tile(self, key: Value, count: Value, factors: list[Value], h: Value, tile: int) -> None:
        """The inner loop: a few elements of the weighed values of all queries, in registers."""
        f, tensor = self.f, self.attention.value
        places = [self._row(self.scratch.sums, h + i) for i in range(tile)]
        sums = [[f.variable(vector * factor) for vector, factor in zip(self._load(place), factors)] for place in places]
        column = f.address(tensor.row(self.values, key), h, tensor.type)
        with f.loop(0, count) as k:
            weights = self._load(self._row(self.scratch.scores, k))
            row = tensor.row(column, k)
            for i, accumulators in enumerate(sums):
                element = f.splat(f.load(row, i, tensor.type), self.lanes)
                for vector, accumulator in zip(weights, accumulators):
                    accumulator.set(f.fma(element, vector, accumulator.get()))
        for place, accumulators in zip(places, sums):
            self._store([accumulator.get() for accumulator in accumulators], place)

    def _finish(self) -> None:
        """The epilogue: divide by the sums of weights, and write rows again."""
        f, tensor, size = self.f, self.attention.output, self.attention.value_size
        self._store_factors()
        head = tensor.at(self.batch, self.head)
        with f.loop(0, self.vectors) as v:
            factor = f.load(self.scratch.query, v * self.lanes, self.real, self.lanes)
            with f.loop(0, size, self.lanes) as h:
                remaining = self._remaining(size, h)
                columns = [
                    f.load(self._row(self.scratch.sums, h + i), v * self.lanes, self.real, self.lanes) * factor
                    for i in range(self.lanes)
                ]
                for i, row in enumerate(transposed(f, columns)):
                    place = tensor.row(head, self._query_index(v * self.lanes + i))
                    f.store(row, place, h, tensor.type, remaining=remaining)

    def _store_factors(self) -> None:
        """What sums are multiplied with, into the memory of the queries, which are not needed any more."""
        f = self.f
        for vector, variable in enumerate(self.totals):
            total = variable.get()
            is_empty = total == 0.0 if self.form.empty_is_zero else f.splat(self.stop <= 0, self.lanes)
            f.store(1.0 / f.select(is_empty, 1.0, total), self.scratch.query, vector * self.lanes, self.real)
