"""Attention of a few queries, as in a decoder that makes one token after the other: keys and values stream by once. `attention` calls it.

Lanes are elements of keys and values. All queries that share keys are served while a block of these is in the nearest cache, and where the
cache of keys and values is to be written anew with the new ones behind, that happens on the way. Where there are few heads for the threads,
the keys are split among them, and a second kernel joins the parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import BOOL, I64, U16, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.attention.cache import along
from sardonyx.providers.native.attention.form import Attention, Form, Operands, Tensor, weight
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.program import Argument
from sardonyx.providers.native.sizes import THREADS
from sardonyx.providers.native.values import fixed
from sardonyx.records import dataclass

MOST_ROWS = 32
"""Rows that are served at once; more of them look at the keys again."""
LARGE_SIZE = 64
"""Of a head: beyond it blocks of keys are shorter, for keys and values of one are to fit into the nearest cache."""
SEVERAL = 4
"""Rows whose sums are held in registers at once."""
KEYS_AT_ONCE = 4
"""Keys whose products with several rows are computed at once."""
SPLIT_KEYS = 128
"""How many keys are worth a part of their own."""
ITEMS_PER_THREAD = 6
"""So many there are to be for every thread beside the first, if there are keys enough to split: threads are not equally quick."""
CACHED_BYTES = 48 << 20
"""What a run touches may stay in the last cache until the next one up to here. Beyond, new caches are written to memory at once: else each
line of them is first read from there."""
PIECE_ELEMENTS = 1 << 15
"""How many elements of keys and values are worth handing to another thread."""


@dataclass(frozen=True)
class Caches:
    """What shapes the code beside the form of the attention."""

    past: bool
    present_key: bool
    present_value: bool


def most_queries(attention: Attention) -> int:
    """Up to how many queries this is the quicker way."""
    heads, key_heads = (fixed(view.shape[1], "the number of heads") for view in (attention.query, attention.key))
    return max(1, min(8, MOST_ROWS * key_heads // heads))


def rows_step(lowerer: Lowerer, attention: Attention, when: Dim = 1) -> None:
    """Add the steps; `when` is 1, or 0 for sizes that another step serves."""
    form = attention.form
    batch, heads, queries, _ = attention.query.shape
    key_heads = attention.key.shape[1]
    rows = dim.floordiv(heads, key_heads) * queries
    chunks = dim.ceildiv(rows, MOST_ROWS)
    whole = batch * key_heads * chunks
    wanted = ITEMS_PER_THREAD * (THREADS - 1)
    parts = dim.maximum(1, dim.minimum(dim.floordiv(attention.keys, SPLIT_KEYS), dim.floordiv(wanted, dim.maximum(1, whole))))
    caches = Caches(attention.past is not None, attention.present[0] is not None, attention.present[1] is not None)
    total = batch * heads * queries
    is_split = dim.minimum(1, parts - 1) * when
    partial = lowerer.scratch(total * parts * (form.value_size + 2) * form.computed.bytes * is_split)
    streams = dim.minimum(1, dim.floordiv(lowerer.bytes_touched, CACHED_BYTES))
    arguments: list[Argument] = [*attention.arguments(), chunks, parts, partial, *_cache_arguments(attention, streams)]
    lowerer.call(
        rows_kernel(lowerer.target, form, caches),
        arguments,
        items=whole * parts * when,
        grain=dim.maximum(
            1, dim.floordiv(PIECE_ELEMENTS * parts, dim.maximum(1, attention.keys * (form.size + form.value_size)))
        ),
        flops=2 * total * attention.keys * (form.size + form.value_size),
        traffic=batch * key_heads * attention.keys * (form.size * form.key.bytes + form.value_size * form.value.bytes),
    )
    if parts != 1:
        output = attention.output
        lowerer.call(
            join_kernel(lowerer.target, form.computed, form.output, form.value_size, form.empty_is_zero),
            [partial, output.place, *output.strides[:3], heads, queries, parts, attention.keys],
            items=total * is_split,
            grain=dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, parts * form.value_size)),
        )


def _cache_arguments(attention: Attention, streams: Dim) -> list[Argument]:
    found: list[Argument] = [attention.key.shape[2], 0 if attention.past is None else attention.past[0].shape[2]]
    for view in (*(attention.past or ()), *attention.present):
        if view is not None:
            found += [view.place, *view.strides[:3]]
    wanted = [view for view in attention.present if view is not None]
    if wanted:
        found += [wanted[0].shape[2], streams]
    return found


@kernel("attention of few rows")
def rows_kernel(f: KernelFunction, form: Form, caches: Caches) -> None:
    """Items are parts of the keys of a head, for some of the rows that share them."""
    operands = Operands(f, form)
    chunks, parts, partial = f.size(), f.size(), f.pointer()
    rows = _Rows(operands, caches, parts, partial)
    with f.loop(f.begin, f.end) as item:
        part, rest = item % parts, item // parts
        chunk, rest = rest % chunks, rest // chunks
        rows.emit(rest // operands.key_heads, rest % operands.key_heads, chunk, part)


class _Rows:
    """Code for one item."""

    def __init__(self, operands: Operands, caches: Caches, parts: Value, partial: Value):
        f, form = operands.f, operands.form
        self.f, self.form, self.operands, self.caches = f, form, operands, caches
        self.parts, self.partial = parts, partial
        self.real: Type = form.computed
        self.lanes = f.lanes(self.real)
        self.added, self.before = f.size(), f.size()
        tensors = [form.key, form.value] if caches.past else []
        self.past = [Tensor(f, type) for type in tensors]
        self.present_key = Tensor(f, form.key) if caches.present_key else None
        self.present_value = Tensor(f, form.value) if caches.present_value else None
        has_present = caches.present_key or caches.present_value
        self.present_rows, self.streams = (f.size() if has_present else None for _ in range(2))
        self.size, self.value_size = (-(-size // self.lanes) * self.lanes for size in (form.size, form.value_size))
        self.block = 64 if max(self.size, self.value_size) <= LARGE_SIZE else 32
        self.query = f.stack(self.real, MOST_ROWS * self.size)
        self.sums = f.stack(self.real, MOST_ROWS * self.value_size)
        self.scores = f.stack(self.real, MOST_ROWS * self.block)
        self.most, self.totals, self.factors = (f.stack(self.real, MOST_ROWS) for _ in range(3))

    def emit(self, batch: Value, key_head: Value, chunk: Value, part: Value) -> None:
        f, operands = self.f, self.operands
        self.batch, self.key_head, self.part = batch, key_head, part
        self.group = operands.heads // operands.key_heads
        self.first = chunk * MOST_ROWS
        self.count = f.minimum(self.group * operands.queries - self.first, MOST_ROWS)
        self.key_count = operands.key_count(batch)
        self.old = self._rows_before()
        self.position = operands.first_position(self.key_count) if self.form.bounded else None
        self.range = operands.range_of(batch) if self.form.ranges else None
        self._begin()
        # parts are of whole blocks
        length = ((operands.keys + (self.parts * self.block - 1)) // (self.parts * self.block)) * self.block
        start, stop = part * length, f.minimum((part + 1) * length, self.old + self.added)
        copies = chunk == 0
        apart = [copies & one for one in self._are_apart()]
        self._segment(self.past, self._zero(), start, f.minimum(stop, self.old), apart) if self.past else None
        self._segment([operands.key, operands.value], self.old, f.maximum(start, self.old), stop, [copies, copies])
        is_last = part == self.parts - 1
        self._clear_rest([is_last & one for one in apart])
        self._end()
        if self.streams is not None:
            with f.if_(self.streams != 0):
                f.fence()

    def _zero(self) -> Value:
        return self.f.const(I64, 0)

    def _are_apart(self) -> list[Value]:
        """Whether the new cache of keys, and that of values, is not in the memory of the old one: there new rows come behind old ones."""
        found = []
        for past, present in zip(self.past or (None, None), (self.present_key, self.present_value)):
            can_share = self.form.ragged and past is not None and present is not None
            found.append(past.is_apart(present) if can_share else self.f.const(BOOL, True))  # type: ignore[union-attr, arg-type]
        return found

    def _rows_before(self) -> Value:
        """How many rows of the past there are."""
        operands, f = self.operands, self.f
        if not self.form.ragged or operands.from_length is None:
            return self.before
        return f.minimum(f.maximum((self.key_count - self.added) * operands.from_length, 0), self.before)

    # --- rows of queries

    def _head_and_query(self, row: Value) -> tuple[Value, Value]:
        """Which head and query a row is; those of a head lie next to each other."""
        place, queries = self.first + row, self.operands.queries
        return self.key_head * self.group + place // queries, place % queries

    def _begin(self) -> None:
        """Queries times the scale; nothing seen yet."""
        f, tensor, form = self.f, self.operands.query, self.form
        with f.loop(0, self.count) as row:
            head, query = self._head_and_query(row)
            place = tensor.at(self.batch, head, query)
            into = f.address(self.query, row * self.size, self.real)

            def pack(h: Value, lanes: int, remaining: Value | None) -> None:
                f.store(f.load(place, h, tensor.type, lanes, remaining=remaining) * self.operands.scale, into, h, self.real)

            along(f, form.size, self.lanes, pack)
            with f.loop(0, self.value_size, self.lanes) as h:
                f.store(f.const(self.real.vector(self.lanes), 0.0), self.sums, row * self.value_size + h, self.real)
            most, total = f.const(self.real, -math.inf), f.const(self.real, 0.0)
            if self.operands.sink is not None and form.sink is not None:
                score = f.convert(f.load(self.operands.sink, head, form.sink), self.real)
                is_first = self.part == 0
                most, total = f.select(is_first, score, most), f.select(is_first, 1.0, total)
            f.store(most, self.most, row, self.real)
            f.store(total, self.totals, row, self.real)

    def _end(self) -> None:
        """Write results, or what this part has of them."""
        f, tensor, operands = self.f, self.operands.output, self.operands
        with f.loop(0, self.count) as row:
            head, query = self._head_and_query(row)
            sums = f.address(self.sums, row * self.value_size, self.real)
            most, total = f.load(self.most, row, self.real), f.load(self.totals, row, self.real)
            with f.if_else(self.parts == 1) as otherwise:
                factor = 1.0 / divisor(total, operands.keys, self.form.empty_is_zero)
                _scaled_copy(f, self.form.value_size, self.real, sums, factor, tensor.at(self.batch, head, query), tensor.type)
                otherwise()
                index = ((self.batch * operands.heads + head) * operands.queries + query) * self.parts + self.part
                place = f.address(self.partial, index * (self.form.value_size + 2), self.real)
                f.store(most, place, 0, self.real)
                f.store(total, place, 1, self.real)
                into = f.address(place, 2, self.real)
                _scaled_copy(f, self.form.value_size, self.real, sums, f.const(self.real, 1.0), into, self.real)

    # --- keys and values

    def _segment(self, tensors: Sequence[Tensor], origin: Value, start: Value, stop: Value, copies: Sequence[Value]) -> None:
        """Keys from `start` to `stop`, which lie in a tensor whose first row is that of key `origin`.

        `copies` says of keys and of values whether they are to be written to the new cache.
        """
        f = self.f
        keys, values = (tensor.at(self.batch, self.key_head) for tensor in tensors)
        with f.loop(start, stop, self.block) as key:
            count = f.minimum(stop - key, self.block)
            key_rows = tensors[0].row(keys, key - origin)
            value_rows = tensors[1].row(values, key - origin)
            self._multiply(count, tensors[0], key_rows)
            with f.loop(0, self.count) as row:
                self._weights(row, key, count)
            with f.if_(copies[0]):
                self._keep(tensors[0], key_rows, self.present_key, key, count, self.form.size)
            self._weigh(count, tensors[1], value_rows)
            with f.if_(copies[1]):
                self._keep(tensors[1], value_rows, self.present_value, key, count, self.form.value_size)

    def _keep(self, source: Tensor, rows: Value, target: Tensor | None, key: Value, count: Value, size: int) -> None:
        """Copy rows, which are in the nearest cache now, to their places in the new one."""
        if target is None or self.streams is None:
            return
        f, into = self.f, target.at(self.batch, self.key_head, key)
        if size % self.lanes:
            self._copy_rows(source, rows, target, into, count, size)
            return
        steps = f.as_number(into) | (target.strides[2] * source.type.bytes)
        is_aligned = steps % (self.lanes * source.type.bytes) == 0
        with f.if_else(is_aligned & (self.streams != 0)) as otherwise:
            self._copy_rows(source, rows, target, into, count, size, streams=True)
            otherwise()
            self._copy_rows(source, rows, target, into, count, size)

    def _copy_rows(
        self, source: Tensor, rows: Value, target: Tensor, into: Value, count: Value, size: int, streams: bool = False
    ) -> None:
        f, type = self.f, U16 if source.type.is_narrow_float else source.type
        with f.loop(0, count) as k:
            row, place = source.row(rows, k), target.row(into, k)

            def move(h: Value, lanes: int, remaining: Value | None) -> None:
                f.store(f.load(row, h, type, lanes, remaining=remaining), place, h, type, remaining=remaining, streams=streams)

            along(f, size, self.lanes, move)

    def _clear_rest(self, conditions: Sequence[Value]) -> None:
        """Zeros behind the last row of a cache that has room for more."""
        f = self.f
        if self.present_rows is None or not self.form.ragged:
            return
        sizes = self.form.size, self.form.value_size
        for target, size, condition in zip((self.present_key, self.present_value), sizes, conditions):
            if target is not None:
                with f.if_(condition), f.loop(self.old + self.added, self.present_rows) as k:
                    _clear_row(f, target, target.at(self.batch, self.key_head, k), size, self.lanes)

    def _multiply(self, count: Value, tensor: Tensor, keys: Value) -> None:
        """Products of all rows with the keys of a block, some rows at once."""
        f = self.f
        rows = max(1, self.lanes // KEYS_AT_ONCE)
        several = self.count - self.count % rows
        with f.loop(0, several, rows) as row:
            self._multiply_rows(row, rows, count, tensor, keys)
        if rows > 1:
            with f.loop(several, self.count) as row:
                self._multiply_rows(row, 1, count, tensor, keys)

    def _multiply_rows(self, row: Value, rows: int, count: Value, tensor: Tensor, keys: Value) -> None:
        """As many sums of products as there are lanes in a vector: of `rows` rows with a few keys, or of one with many."""
        f, step = self.f, self.lanes // rows
        queries = [f.address(self.query, (row + r) * self.size, self.real) for r in range(rows)]
        with f.loop(0, count, step) as k:
            places = [tensor.row(keys, f.minimum(k + i, count - 1)) for i in range(step)]
            products = lane_sums(f, self._products(queries, places))
            for r in range(rows):
                mine = products if rows == 1 else f.shuffle(products, products, range(r * step, (r + 1) * step))
                f.store(mine, self.scores, (row + r) * self.block + k, self.real)

    def _products(self, queries: Sequence[Value], keys: Sequence[Value]) -> list[Value]:
        """Sums of products of each query and each key in every lane."""
        f, type = self.f, self.form.key
        wide = self.real.vector(self.lanes)
        sums = [[f.variable(f.const(wide, 0.0)) for _ in keys] for _ in queries]

        def multiply(h: Value, lanes: int, remaining: Value | None) -> None:
            ours = [f.load(query, h, self.real, lanes) for query in queries]
            for n, key in enumerate(keys):
                element = f.load(key, h, type, lanes, remaining=remaining)
                for one, totals in zip(ours, sums):
                    totals[n].set(f.fma(element, one, totals[n].get()))

        along(f, self.form.size, self.lanes, multiply)
        return [one.get() for totals in sums for one in totals]

    def _weights(self, row: Value, key: Value, count: Value) -> None:
        """The products of a row become weights."""
        f, wide = self.f, self.real.vector(self.lanes)
        head, index = self._head_and_query(row)
        block = f.address(self.scores, row * self.block, self.real)
        most = f.variable(f.const(wide, -math.inf))
        with f.loop(0, count, self.lanes) as k:
            scores = self.operands.capped(f.load(block, k, self.real, self.lanes))
            scores = self._adjusted(scores, head, index, key + k, count - k)
            f.store(scores, block, k, self.real)
            most.set(f.maximum(scores, most.get()))
        before, largest = f.load(self.most, row, self.real), f.reduce("max", most.get())
        after = f.maximum(largest, before)
        f.store(after, self.most, row, self.real)
        base = f.select(after == -math.inf, 0.0, after)
        factor = weight(before - base)
        f.store(factor, self.factors, row, self.real)
        total = f.variable(f.const(wide, 0.0))
        with f.loop(0, count, self.lanes) as k:
            weights = weight(f.load(block, k, self.real, self.lanes) - base)
            f.store(weights, block, k, self.real)
            total.set(total.get() + weights)
        whole = f.fma(f.load(self.totals, row, self.real), factor, f.reduce("add", total.get()))
        f.store(whole, self.totals, row, self.real)

    def _adjusted(self, scores: Value, head: Value, query: Value, key: Value, remaining: Value) -> Value:
        """Scores of some keys in a row, with masks and bounds; those that there are not any more get -inf."""
        f, operands, lanes = self.f, self.operands, self.lanes
        place = f.iota(I64, lanes) + f.splat(key, lanes)
        for mask, tensor in zip(self.form.masks, operands.masks):
            start = tensor.at(self.batch, head, query) if mask.per_query else tensor.at(self.batch, head)
            raw = f.load(start, key, mask.type, lanes, remaining=remaining)
            scores = operands.masked(mask, scores, operands.mask_values(mask, raw))
        if self.range is not None:
            first, end = self.range[0], f.convert(self.range[1], I64)
            assert operands.filter_value is not None
            outside = place >= end if first is None else (place >= end) | (place < f.convert(first, I64))
            scores = scores + f.select(outside, operands.filter_value, 0.0)
        seen = place < key + remaining
        if self.form.lengths is not None:
            seen = seen & (place < self.key_count)
        if self.position is not None:
            here = self.position + query
            assert operands.left is not None and operands.right is not None
            seen = seen & (place >= here - operands.left) & (place <= here + operands.right)
        return f.select(seen, scores, -math.inf)

    def _weigh(self, count: Value, tensor: Tensor, values: Value) -> None:
        """Add values times their weights to the sums of all rows, some rows at once."""
        f = self.f
        several = self.count - self.count % SEVERAL
        with f.loop(0, several, SEVERAL) as row:
            self._weigh_rows(row, SEVERAL, count, tensor, values)
        with f.loop(several, self.count) as row:
            self._weigh_rows(row, 1, count, tensor, values)

    def _weigh_rows(self, row: Value, rows: int, count: Value, tensor: Tensor, values: Value) -> None:
        f = self.f
        vectors, held = self.value_size // self.lanes, f.target.vector_registers // 2 // rows
        for first in range(0, vectors, held):
            self._weigh_vectors(row, rows, range(first, min(first + held, vectors)), count, tensor, values)

    def _weigh_vectors(self, row: Value, rows: int, vectors: range, count: Value, tensor: Tensor, values: Value) -> None:
        """A few vectors of the sums, held in registers. If they are too few to keep the CPU busy, keys take turns with several sets."""
        f, lanes = self.f, self.lanes
        ways = max(1, 4 // (len(vectors) * rows))
        sums = [[[self._held(row + r, one, way) for one in vectors] for r in range(rows)] for way in range(ways)]
        even = count - count % ways
        with f.loop(0, even, ways) as k:
            for way in range(ways):
                self._weigh_key(sums[way], row, vectors, k + way, tensor, values)
        if ways > 1:
            with f.loop(even, count) as k:
                self._weigh_key(sums[0], row, vectors, k, tensor, values)
        for r in range(rows):
            for n, one in enumerate(vectors):
                whole = sums[0][r][n].get()
                for way in range(1, ways):
                    whole = whole + sums[way][r][n].get()
                f.store(whole, self.sums, (row + r) * self.value_size + one * lanes, self.real)

    def _held(self, row: Value, vector: int, way: int) -> Variable:
        """A vector of the sums so far, times the factor of the row."""
        f = self.f
        if way:
            return f.variable(f.const(self.real.vector(self.lanes), 0.0))
        sums = f.load(self.sums, row * self.value_size + vector * self.lanes, self.real, self.lanes)
        return f.variable(sums * f.load(self.factors, row, self.real))

    def _weigh_key(
        self, sums: Sequence[Sequence[Variable]], row: Value, vectors: range, k: Value, tensor: Tensor, values: Value
    ) -> None:
        f, lanes = self.f, self.lanes
        weights = [f.splat(f.load(self.scores, (row + r) * self.block + k, self.real), lanes) for r in range(len(sums))]
        place = tensor.row(values, k)
        for n, vector in enumerate(vectors):
            left = self.form.value_size - vector * lanes
            remaining = f.const(I64, left) if left < lanes else None
            value = f.load(place, vector * lanes, tensor.type, lanes, remaining=remaining)
            for one, held in zip(weights, sums):
                held[n].set(f.fma(one, value, held[n].get()))


def lane_sums(f: KernelFunction, vectors: Sequence[Value]) -> Value:
    """A vector of the sums of as many vectors as they have lanes: halves of pieces are added, two vectors at a time."""
    found, lanes = list(vectors), len(vectors)
    piece = lanes
    while len(found) > 1:
        half = piece // 2
        low = [start + lane for start in range(0, 2 * lanes, piece) for lane in range(half)]
        pairs = [(found[i], found[i + 1]) for i in range(0, len(found), 2)]
        found = [f.shuffle(a, b, low) + f.shuffle(a, b, [lane + half for lane in low]) for a, b in pairs]
        piece = half
    return found[0]


def divisor(total: Value, keys: Value, empty_is_zero: bool) -> Value:
    """What sums are divided by; where nothing was seen 1, if then 0 is wanted."""
    f = total.f
    return f.select(total == 0.0 if empty_is_zero else keys == 0, 1.0, total)


def _clear_row(f: KernelFunction, tensor: Tensor, place: Value, size: int, lanes: int) -> None:
    def zero(h: Value, lanes: int, remaining: Value | None) -> None:
        f.store(f.const(tensor.type.computed.vector(lanes), 0), place, h, tensor.type, remaining=remaining)

    along(f, size, lanes, zero)


def _scaled_copy(f: KernelFunction, size: int, real: Type, source: Value, factor: Value, target: Value, type: Type) -> None:
    def move(h: Value, lanes: int, remaining: Value | None) -> None:
        f.store(f.load(source, h, real, lanes, remaining=remaining) * factor, target, h, type, remaining=remaining)

    along(f, size, f.lanes(real), move)


@kernel("attention, parts joined")
def join_kernel(f: KernelFunction, real: Type, output: Type, size: int, empty_is_zero: bool) -> None:
    """Items are rows of all heads."""
    partial, tensor = f.pointer(), Tensor(f, output)
    heads, queries, parts, keys = (f.size() for _ in range(4))
    lanes = f.lanes(real)
    with f.loop(f.begin, f.end) as item:
        query, head, batch = item % queries, item // queries % heads, item // queries // heads
        row = f.address(partial, item * parts * (size + 2), real)
        most = f.variable(f.const(real, -math.inf))
        with f.loop(0, parts) as part:
            most.set(f.maximum(f.load(row, part * (size + 2), real), most.get()))
        base = f.select(most.get() == -math.inf, 0.0, most.get())
        total = f.variable(f.const(real, 0.0))
        with f.loop(0, parts) as part:
            place = f.address(row, part * (size + 2), real)
            factor = weight(f.load(place, 0, real) - base)
            f.store(factor, place, 0, real)
            total.set(f.fma(f.load(place, 1, real), factor, total.get()))
        divided = 1.0 / divisor(total.get(), keys, empty_is_zero)
        into = tensor.at(batch, head, query)

        def join(h: Value, lanes: int, remaining: Value | None) -> None:
            whole = f.variable(f.const(real.vector(lanes), 0.0))
            with f.loop(0, parts) as part:
                place = f.address(row, part * (size + 2), real)
                values = f.load(f.address(place, 2, real), h, real, lanes, remaining=remaining)
                whole.set(f.fma(f.splat(f.load(place, 0, real), lanes), values, whole.get()))
            f.store(whole.get() * divided, into, h, output, remaining=remaining)

        along(f, size, lanes, join)
