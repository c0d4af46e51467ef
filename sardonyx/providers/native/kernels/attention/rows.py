"""Attention of a few queries, as in a decoder that makes one token after the other: keys and values stream by once. `steps` calls it.

Lanes are elements of keys and values. All queries that share keys are served while a block of these is in the nearest cache
(`row_block`), and where the cache of keys and values is to be written anew with the new ones behind, that happens on the way. Where there
are few heads for the threads, the keys are split among them, and a second kernel joins the parts (`join`).

From the outside in: `rows_step` adds the steps, `rows_kernel` takes items, `_Part.emit` goes through the keys of one, `_segment` takes them
block by block. The inner loops are in `row_block`: `BlockCode.multiply`, `weigh` and `add_values`. `_Part._end` is the epilogue; the
arguments are `RowsArguments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import BOOL, I64, U16, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.attention.cache import along, clear_row
from sardonyx.providers.native.kernels.attention.form import Attention, Form
from sardonyx.providers.native.kernels.attention.join import HEADER, JoinArguments, divisor, join_kernel
from sardonyx.providers.native.kernels.attention.operands import (
    AttentionArguments,
    AttentionCode,
    Tensor,
    TensorArguments,
    attention_arguments,
    tensor_arguments,
)
from sardonyx.providers.native.kernels.attention.row_block import MOST_ROWS, BlockCode, Rows
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import THREADS
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.startup.records import dataclass

SPLIT_KEYS = 128
"""How many keys are worth a part of their own."""
ITEMS_PER_THREAD = 6
"""How many items each thread beside the first should find, if there are enough keys to split: threads are not equally quick."""
PIECE_ELEMENTS = 1 << 15
"""How many elements of keys and values are worth handing to another thread."""


@dataclass(frozen=True)
class Caches:
    """What shapes the code beside the form of the attention."""

    past: bool
    present_key: bool
    present_value: bool

    @property
    def has_present(self) -> bool:
        return self.present_key or self.present_value


def most_queries(attention: Attention) -> Dim:
    """Up to how many queries this kernel is faster than that of `tile`."""
    heads, key_heads = attention.query.shape[1], attention.key.shape[1]
    return dim.maximum(1, dim.minimum(8, dim.floordiv(MOST_ROWS * key_heads, dim.maximum(1, heads))))


def rows_step(lowerer: Lowerer, attention: Attention, when: Dim = 1) -> None:
    """Add the steps; `when` is 1, or 0 for sizes that another step serves."""
    form, keys = attention.form, attention.keys
    batch, heads, queries, _ = attention.query.shape
    key_heads = attention.key.shape[1]
    chunks = dim.ceildiv(dim.floordiv(heads, dim.maximum(1, key_heads)) * queries, MOST_ROWS)
    whole = batch * key_heads * chunks
    wanted = ITEMS_PER_THREAD * (THREADS - 1)
    parts = dim.maximum(1, dim.minimum(dim.floordiv(keys, SPLIT_KEYS), dim.floordiv(wanted, dim.maximum(1, whole))))
    total = batch * heads * queries
    is_split = dim.minimum(1, parts - 1) * when
    size, value_size = attention.query.shape[3], attention.value.shape[3]
    partial = lowerer.scratch(total * parts * (value_size + HEADER) * form.computed.bytes * is_split)
    key, value = attention.present
    lowerer.call(
        rows_kernel(lowerer.target, form, Caches(attention.past is not None, key is not None, value is not None)),
        RowsArguments(
            attention=attention_arguments(attention),
            chunks=chunks,
            parts=parts,
            partial=partial,
            added=attention.key.shape[2],
            before=0 if attention.past is None else attention.past[0].shape[2],
            past=_past_arguments(attention),
            present=_present_arguments(lowerer, attention),
        ),
        items=whole * parts * when,
        grain=dim.maximum(1, dim.floordiv(PIECE_ELEMENTS * parts, dim.maximum(1, keys * attention.sizes))),
        flops=2 * total * keys * attention.sizes,
        traffic=batch * key_heads * keys * (size * form.key.bytes + value_size * form.value.bytes),
    )
    if parts != 1:
        _join_step(lowerer, attention, partial, parts, total * is_split)


def _past_arguments(attention: Attention) -> PastArguments | None:
    if attention.past is None:
        return None
    key, value = attention.past
    return PastArguments(key=tensor_arguments(key), value=tensor_arguments(value))


def _present_arguments(lowerer: Lowerer, attention: Attention) -> PresentArguments | None:
    key, value = attention.present
    rows = [view.shape[2] for view in attention.present if view is not None]
    if not rows:
        return None
    return PresentArguments(
        key=None if key is None else tensor_arguments(key),
        value=None if value is None else tensor_arguments(value),
        rows=rows[0],
        streams=dim.minimum(1, dim.floordiv(lowerer.bytes_touched, lowerer.budgets.between_runs)),
    )


def _join_step(lowerer: Lowerer, attention: Attention, partial: Buffer, parts: Dim, rows: Dim) -> None:
    """Add the step that joins the parts of so many rows."""
    form = attention.form
    lowerer.call(
        join_kernel(lowerer.target, form.computed, form.output, form.value_size, form.empty_is_zero),
        JoinArguments(
            partial=partial,
            output=tensor_arguments(attention.output),
            heads=attention.query.shape[1],
            queries=attention.queries,
            parts=parts,
            keys=attention.keys,
            size=attention.value.shape[3] if form.value_size is None else None,
        ),
        items=rows,
        grain=dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, parts * attention.value.shape[3]))),
    )


# --- the kernel


class PastArguments(Arguments):
    key: TensorArguments
    value: TensorArguments


class PresentArguments(Arguments):
    """The caches that are to be written anew."""

    key: TensorArguments | None = when(lambda caches: caches.present_key)
    value: TensorArguments | None = when(lambda caches: caches.present_value)
    rows: Size
    """How many rows the caches have room for."""
    streams: Size
    """1 if they are written past the CPU's caches, else 0."""


class RowsArguments(Arguments):
    attention: AttentionArguments
    chunks: Size
    """Of at most `MOST_ROWS` rows that share a head of keys."""
    parts: Size
    """Among which keys are split."""
    partial: Pointer
    """What `join` reads, if there are several of them."""
    added: Size
    """New keys."""
    before: Size
    """Rows of the past, at most."""
    past: PastArguments | None = when(lambda caches: caches.past)
    present: PresentArguments | None = when(lambda caches: caches.has_present)


@kernel("attention of few rows", RowsArguments)
def rows_kernel(f: KernelFunction, a: RowsArguments, form: Form, caches: Caches) -> None:
    """Items are parts of the keys of a head, for some of the rows that share them."""
    attention = AttentionCode(f, a.attention, form)
    block = BlockCode(attention)
    with f.loop(f.begin, f.end) as item:
        part, rest = item % a.parts, item // a.parts
        chunk, rest = rest % a.chunks, rest // a.chunks
        rows = Rows(attention, rest // a.attention.key_heads, rest % a.attention.key_heads, chunk)
        _Part(attention, block, a, rows, part).emit(chunk == 0)


class _Part:
    """Code for one item."""

    def __init__(self, attention: AttentionCode, block: BlockCode, a: RowsArguments, rows: Rows, part: Value):
        f, form = attention.f, attention.form
        self.f, self.form, self.attention, self.block, self.a = f, form, attention, block, a
        self.rows, self.part = rows, part
        self.real, self.lanes = block.real, block.lanes
        self.past = None if a.past is None else (Tensor(f, a.past.key, form.key), Tensor(f, a.past.value, form.value))
        self.present = self._present_tensors()
        self.old = self._rows_before()

    def _present_tensors(self) -> list[Tensor | None]:
        """The new caches of keys and values."""
        if self.a.present is None:
            return [None, None]
        caches = (self.a.present.key, self.form.key), (self.a.present.value, self.form.value)
        return [None if tensor is None else Tensor(self.f, tensor, type) for tensor, type in caches]

    def _rows_before(self) -> Value:
        """How many rows of the past there are."""
        f, a, lengths = self.f, self.a, self.a.attention.lengths
        if not self.form.ragged or lengths is None:
            return a.before
        return f.minimum(f.maximum((self.rows.key_count - a.added) * lengths.from_length, 0), a.before)

    def emit(self, copies: Value) -> None:
        """Keys of the past, then new ones. `copies` says whether they are also to be written to the new caches."""
        f, a, size = self.f, self.a, self.block.keys
        self._begin()
        # parts are of whole blocks
        length = ((a.attention.keys + (a.parts * size - 1)) // (a.parts * size)) * size
        start, stop = self.part * length, f.minimum((self.part + 1) * length, self.old + a.added)
        apart = [copies & is_apart for is_apart in self._are_apart()]
        if self.past is not None:
            self._segment(self.past, f.const(I64, 0), start, f.minimum(stop, self.old), apart)
        new = self.attention.key, self.attention.value
        self._segment(new, self.old, f.maximum(start, self.old), stop, [copies, copies])
        is_last = self.part == a.parts - 1
        self._clear_rest([is_last & is_apart for is_apart in apart])
        self._end()
        if a.present is not None:
            with f.if_(a.present.streams != 0):
                f.fence()

    def _are_apart(self) -> list[Value]:
        """Whether the new cache of keys, and that of values, is not in the memory of the old one: there new rows come behind old ones."""
        past: Sequence[Tensor | None] = self.past or (None, None)
        return [
            old.is_apart(new) if self.form.ragged and old is not None and new is not None else self.f.const(BOOL, True)
            for old, new in zip(past, self.present)
        ]

    # --- keys and values

    def _segment(self, tensors: Sequence[Tensor], origin: Value, start: Value, stop: Value, copies: Sequence[Value]) -> None:
        """Keys from `start` to `stop`, block by block; they lie in a tensor whose first row is that of key `origin`.

        `copies` says of keys and of values whether they are to be written to the new cache.
        """
        f, rows, block = self.f, self.rows, self.block
        keys, values = tensors
        key_head, value_head = (tensor.at(rows.batch, rows.key_head) for tensor in tensors)
        with f.loop(start, stop, block.keys) as key:
            count = f.minimum(stop - key, block.keys)
            key_rows = keys.row(key_head, key - origin)
            value_rows = values.row(value_head, key - origin)
            block.multiply(rows, keys, key_rows, count)
            with f.loop(0, rows.count) as row:
                block.weigh(rows, row, key, count)
            with f.if_(copies[0]):
                self._keep(keys, key_rows, self.present[0], key, count, self.attention.size)
            block.add_values(rows, values, value_rows, count)
            with f.if_(copies[1]):
                self._keep(values, value_rows, self.present[1], key, count, self.attention.value_size)

    def _keep(self, source: Tensor, rows: Value, target: Tensor | None, key: Value, count: Value, size: Value | int) -> None:
        """Copy rows, which are in the nearest cache now, to their places in the new one."""
        if target is None or self.a.present is None:
            return
        f, into = self.f, target.at(self.rows.batch, self.rows.key_head, key)
        if not isinstance(size, int) or size % self.lanes:
            self._copy_rows(source, rows, target, into, count, size)
            return
        steps = f.as_number(into) | (target.a.row_stride * source.type.bytes)
        is_aligned = steps % (self.lanes * source.type.bytes) == 0
        with f.if_else(is_aligned & (self.a.present.streams != 0)) as otherwise:
            self._copy_rows(source, rows, target, into, count, size, streams=True)
            otherwise()
            self._copy_rows(source, rows, target, into, count, size)

    def _copy_rows(
        self, source: Tensor, rows: Value, target: Tensor, into: Value, count: Value, size: Value | int, streams: bool = False
    ) -> None:
        f, type = self.f, U16 if source.type.is_narrow_float else source.type
        with f.loop(0, count) as k:
            row, place = source.row(rows, k), target.row(into, k)

            def move(h: Value, lanes: int, remaining: Value | None) -> None:
                f.store(f.load(row, h, type, lanes, remaining=remaining), place, h, type, remaining=remaining, streams=streams)

            along(f, size, self.lanes, move)

    def _clear_rest(self, conditions: Sequence[Value]) -> None:
        """Zeros behind the last row of a cache that has room for more."""
        f, rows = self.f, self.rows
        if self.a.present is None or not self.form.ragged:
            return
        sizes = self.attention.size, self.attention.value_size
        for target, size, condition in zip(self.present, sizes, conditions):
            if target is not None:
                with f.if_(condition), f.loop(self.old + self.a.added, self.a.present.rows) as k:
                    clear_row(f, target, target.at(rows.batch, rows.key_head, k), size, self.lanes)

    # --- rows of queries

    def _begin(self) -> None:
        """Queries times the scale; nothing seen yet but, in the first part, the attention sink."""
        f, block, tensor = self.f, self.block, self.attention.query
        with f.loop(0, self.rows.count) as row:
            head, query = self.rows.head_and_query(row)
            place = tensor.at(self.rows.batch, head, query)
            into = f.address(block.query, row * block.size, self.real)

            def pack(h: Value, lanes: int, remaining: Value | None) -> None:
                f.store(f.load(place, h, tensor.type, lanes, remaining=remaining) * self.attention.scale, into, h, self.real)

            along(f, self.attention.size, self.lanes, pack)
            with f.loop(0, self.attention.value_size, self.lanes) as h:
                f.store(f.const(self.real.vector(self.lanes), 0.0), block.sums, row * block.value_size + h, self.real)
            most, total = self._first_most_and_total(head)
            f.store(most, block.most, row, self.real)
            f.store(total, block.totals, row, self.real)

    def _first_most_and_total(self, head: Value) -> tuple[Value, Value]:
        """The largest score before any key, and the sum of weights."""
        f = self.f
        most, total = f.const(self.real, -math.inf), f.const(self.real, 0.0)
        score = self.attention.sink_score(head)
        if score is None:
            return most, total
        is_first = self.part == 0
        return f.select(is_first, score, most), f.select(is_first, 1.0, total)

    def _end(self) -> None:
        """The epilogue: write results, or what this part has of them."""
        f, block, tensor, attention = self.f, self.block, self.attention.output, self.a.attention
        with f.loop(0, self.rows.count) as row:
            head, query = self.rows.head_and_query(row)
            sums = f.address(block.sums, row * block.value_size, self.real)
            most, total = f.load(block.most, row, self.real), f.load(block.totals, row, self.real)
            with f.if_else(self.a.parts == 1) as otherwise:
                factor = 1.0 / divisor(total, attention.keys, self.form.empty_is_zero)
                self._scaled_copy(sums, factor, tensor.at(self.rows.batch, head, query), tensor.type)
                otherwise()
                index = ((self.rows.batch * attention.heads + head) * attention.queries + query) * self.a.parts + self.part
                place = f.address(self.a.partial, index * (self.attention.value_size + HEADER), self.real)
                f.store(most, place, 0, self.real)
                f.store(total, place, 1, self.real)
                self._scaled_copy(sums, f.const(self.real, 1.0), f.address(place, HEADER, self.real), self.real)

    def _scaled_copy(self, source: Value, factor: Value, target: Value, type: Type) -> None:
        f = self.f

        def move(h: Value, lanes: int, remaining: Value | None) -> None:
            f.store(f.load(source, h, self.real, lanes, remaining=remaining) * factor, target, h, type, remaining=remaining)

        along(f, self.attention.value_size, self.lanes, move)
