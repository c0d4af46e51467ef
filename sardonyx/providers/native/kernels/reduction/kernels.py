"""Kernels of reductions. The axes of the operand are runs that are kept or reduced.

If the last run is reduced, each result is the fold of some rows; if it is kept, rows are folded into a strip of results.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import exp, log
from sardonyx.compiler.types import I64, Type
from sardonyx.providers.native.kernels.reduction.passes import Fold, fold_columns, items, joined, sweep, unroll_of
from sardonyx.providers.native.program.arguments import Arguments, Operands, Size, each, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.scalars.quantize import limits
from sardonyx.startup.records import dataclass

STRIP = 1024
"""The widest strip of results that rows are folded into."""
CHUNK = 32768
"""Into pieces of how many columns a long row is cut, so that threads can share it."""
CHUNK_ROWS = 256
"""The same for rows that are folded into a strip."""

Element = Callable[[Value], Value]


@dataclass(frozen=True)
class Reduction:
    """What shapes the code of a reduction."""

    op: str
    """The op's name without "Reduce"."""
    how: str
    """How elements become one: add, mul, max or min."""
    type: Type
    """In which they are computed."""
    runs: str
    """K for axes kept, R for axes reduced, from the outermost inwards."""
    source: Chain
    sink: Chain
    takes_parts: bool = False
    """Whether what is folded are parts of results already."""
    makes_parts: bool = False
    """Whether the innermost reduced axis is cut into chunks, and another step folds what they give."""

    @property
    def fold(self) -> Fold:
        return Fold(self.how, self.type)

    @property
    def in_order(self) -> bool:
        """Whether elements are taken one after the other: a part of a product may be infinite where another is 0, and the whole is 0."""
        return self.how == "mul" and self.type.is_float

    @property
    def result_type(self) -> Type:
        """What the sink is given."""
        return self.sink.items[0].type.computed

    def element(self, f: KernelFunction, x: Value) -> Value:
        """What is folded instead of an element."""
        if self.takes_parts:
            return x
        if self.op == "L1":
            return f.abs(x)
        return x * x if self.op in ("L2", "SumSquare") else x

    def finished(self, f: KernelFunction, total: Value, count: Value) -> Value:
        """The result, from what `count` elements were folded to."""
        if self.makes_parts:
            return total
        if self.op == "Mean" and total.type.is_float:
            total = total / f.splat(f.convert(count, total.type.scalar), total.type.lanes)
        elif self.op == "Mean":
            total = total // f.splat(f.convert(f.maximum(count, 1), total.type.scalar), total.type.lanes)
        elif self.op == "L2":
            total = f.sqrt(total)
        elif self.op == "LogSum":
            total = log(total)
        if total.type.is_float and self.result_type.is_integer:
            return _whole(f, total, self.result_type)
        return f.convert(total, self.result_type)


class ReduceRowsArguments(Arguments):
    sizes: Sequence[Size] = each(lambda reduction: reduction.runs)
    count: Size
    """How many elements become one result."""
    chunks: Size | None = when(lambda reduction: reduction.makes_parts)
    source: Operands = group(lambda reduction: reduction.source.slots)
    sink: Operands = group(lambda reduction: reduction.sink.slots)


class ReduceStripsArguments(ReduceRowsArguments):
    strips: Size
    width: Size
    """How many results a strip has."""


def _whole(f: KernelFunction, x: Value, type: Type) -> Value:
    """x as an integer. What the type cannot hold becomes its greatest or least number, and NaN the least."""
    least, greatest = limits(type)
    fits = (x > float(least)) & (x < float(greatest))
    ends = [f.const(type.vector(x.type.lanes), end) for end in (greatest, least)]
    return f.select(fits, f.convert(f.select(fits, x, 0.0), type), f.select(x >= float(greatest), *ends))


def _finite(f: KernelFunction, x: Value) -> Value:
    """x, or 0 in place of infinities and NaN."""
    return f.select(f.abs(x) < float("inf"), x, 0.0)


def _join(f: KernelFunction, fold: Fold, total: Value, part: Value) -> Value:
    """A result and a further part of it; NaN wins."""
    joined = fold.join(f, total, part)
    return f.select(f.is_nan(part), part, joined) if fold.watches_nan else joined


def _kept(runs: str, values: Sequence[Value]) -> list[Value]:
    return [value for kind, value in zip(runs, values) if kind == "K"]


@contextlib.contextmanager
def _reduced(f: KernelFunction, runs: str, sizes: Sequence[Value], kept: Sequence[Value]) -> Iterator[list[Value]]:
    """Coordinates along `runs`: those of kept axes as given, all combinations of reduced ones."""
    rest = iter(kept)
    with contextlib.ExitStack() as stack:
        yield [next(rest) if kind == "K" else stack.enter_context(f.loop(0, size)) for kind, size in zip(runs, sizes)]


# --- the last axis is reduced ---------------------------------------------------------------------------------------


@kernel("reduce rows", ReduceRowsArguments)
def reduce_rows_kernel(f: KernelFunction, a: ReduceRowsArguments, reduction: Reduction) -> None:
    """Items are results, or chunks of the row of one."""
    lengths = [*_kept(reduction.runs, a.sizes), *([] if a.chunks is None else [a.chunks])]
    read, write = ChainCode(f, reduction.source, a.source), ChainCode(f, reduction.sink, a.sink)
    with items(f, lengths[1:]) as (_, place):
        start: Value | int = 0
        stop = a.sizes[-1]
        if reduction.makes_parts:
            start = place[-1] * CHUNK
            stop = f.minimum(start + CHUNK, stop)
        total = _fold_rows(f, reduction, read, a.sizes, place, start, stop)
        write.row(place[:-1]).emit(place[-1], 1, None, given=[reduction.finished(f, total, a.count)])


def _fold_rows(
    f: KernelFunction,
    reduction: Reduction,
    read: ChainCode,
    sizes: Sequence[Value],
    place: Sequence[Value],
    start: Value | int,
    stop: Value,
) -> Value:
    """All elements of an item as one."""
    if reduction.in_order:
        return _fold_in_order(f, reduction, read, sizes, place)
    type, outer = reduction.type, reduction.runs[:-1]
    lanes, unroll = f.lanes(type), unroll_of(reduction.source)

    def part(coordinates: Sequence[Value], fold: Fold, element: Element) -> Value:
        row = read.row(coordinates)

        def values(column: Value, remaining: Value | None) -> Value:
            return element(row.lanewise(column, lanes, remaining, type))

        return fold_columns(f, start, stop, lanes, unroll, fold, values)

    def folded(fold: Fold, element: Element) -> Value:
        if "R" not in outer:
            return part(place[: len(outer)], fold, element)
        total = f.variable(fold.neutral, fold.total_type)
        with _reduced(f, outer, sizes, place) as coordinates:
            total.set(_join(f, fold, total.get(), part(coordinates, fold, element)))
        return total.get()

    if reduction.op != "LogSumExp":
        return folded(reduction.fold, lambda x: reduction.element(f, x))
    largest = _finite(f, folded(Fold("max", type, lenient=True), lambda x: x))
    total = folded(Fold("add", type), lambda x: exp(x - f.splat(largest, lanes)))
    return log(total) + f.convert(largest, total.type)


def _fold_in_order(
    f: KernelFunction, reduction: Reduction, read: ChainCode, sizes: Sequence[Value], place: Sequence[Value]
) -> Value:
    """The same, element after element through all rows."""
    total = f.variable(reduction.fold.neutral, reduction.fold.total_type)
    with _reduced(f, reduction.runs[:-1], sizes, place) as coordinates:
        row = read.row(coordinates)
        with f.loop(0, sizes[-1]) as column:
            element = row.lanewise(column, 1, None, reduction.type)
            total.set(reduction.fold.join(f, total.get(), reduction.element(f, element)))
    return total.get()


# --- the last axis is kept ------------------------------------------------------------------------------------------


@kernel("reduce into strips", ReduceStripsArguments)
def reduce_strips_kernel(f: KernelFunction, a: ReduceStripsArguments, reduction: Reduction) -> None:
    """Items are strips of results side by side, or what a chunk of rows gives for them."""
    lengths = [*_kept(reduction.runs[:-1], a.sizes), *([] if a.chunks is None else [a.chunks]), a.strips]
    read, write = ChainCode(f, reduction.source, a.source), ChainCode(f, reduction.sink, a.sink)
    strip = _Strip(f, reduction, read, a.sizes)
    with items(f, lengths[1:]) as (_, place):
        strip.start = place[-1] * a.width
        strip.stop = f.minimum(strip.start + a.width, a.sizes[-1])
        strip.fold(place[:-1])
        target = write.row(place[:-1])

        def finish(column: Value, at: Value, remaining: Value | None) -> None:
            total = reduction.finished(f, strip.total(at), a.count)
            target.emit(column, strip.lanes, remaining, given=[total])

        strip.each(finish)


class _Strip:
    """Results side by side, on the stack while rows are folded into them."""

    def __init__(self, f: KernelFunction, reduction: Reduction, read: ChainCode, sizes: Sequence[Value]):
        self.f = f
        self.reduction = reduction
        self.read = read
        self.sizes = sizes
        self.lanes = f.lanes(reduction.type)
        self.totals = f.stack(reduction.type, STRIP)
        self.largest = f.stack(reduction.type, STRIP) if reduction.op == "LogSumExp" else None
        self.start = self.stop = f.begin

    def each(self, body: Callable[[Value, Value, Value | None], None]) -> None:
        """Do something for each vector: its column, its place in the strip, how many columns are left."""
        sweep(
            self.f,
            self.start,
            self.stop,
            self.lanes,
            1,
            lambda copy, column, remaining: body(column, column - self.start, remaining),
        )

    def _load(self, place: Value, at: Value) -> Value:
        return self.f.load(place, at, self.reduction.type, self.lanes)

    def total(self, at: Value) -> Value:
        """What was folded for the columns at a place."""
        if self.largest is None:
            return self._load(self.totals, at)
        return log(self._load(self.totals, at)) + self._load(self.largest, at)

    def fold(self, place: Sequence[Value]) -> None:
        f, reduction = self.f, self.reduction
        if self.largest is None:
            self._fold(place, self.totals, reduction.fold, lambda x, at: reduction.element(f, x))
            return
        largest = self.largest
        self._fold(place, largest, Fold("max", reduction.type, lenient=True), lambda x, at: x)
        self.each(lambda column, at, remaining: f.store(_finite(f, self._load(largest, at)), largest, at, reduction.type))
        self._fold(place, self.totals, Fold("add", reduction.type), lambda x, at: exp(x - self._load(largest, at)))

    def _fold(self, place: Sequence[Value], totals: Value, fold: Fold, element: Callable[[Value, Value], Value]) -> None:
        """Fold rows into `totals`: several at a time, then single ones."""
        f, runs, type = self.f, self.reduction.runs, self.reduction.type
        neutral = f.const(type.computed.vector(self.lanes), fold.neutral)
        self.each(lambda column, at, remaining: f.store(neutral, totals, at, type))

        def take(rows: Sequence[ChainRow]) -> None:
            def body(column: Value, at: Value, remaining: Value | None) -> None:
                parts = [element(row.lanewise(column, self.lanes, remaining, type), at) for row in rows]
                total = joined([self._load(totals, at), joined(parts, fold.join_in(f))], fold.join_in(f))
                if fold.watches_nan:
                    # pairs are asked at once; the total of a column that had a NaN stays one
                    pairs = [f.unordered(left, right) for left, right in zip(parts[::2], parts[1::2] or parts)]
                    total = f.select(joined(pairs, lambda a, b: a | b), math.nan, total)
                f.store(total, totals, at, type)

            self.each(body)

        if "R" not in runs:
            take([self.read.row(place)])
            return
        many = 1 if self.reduction.in_order else {4: 8, 2: 2, 1: 1}[unroll_of(self.reduction.source)]
        inner = runs.rindex("R")
        with _reduced(f, runs[:inner], self.sizes, place) as outer:
            rest = list(place)[runs[:inner].count("K") : runs.count("K") - 1]
            first, last = self._rows(place, self.sizes[inner])
            whole = first + ((last - first) // many) * many
            with f.loop(first, whole, many) as row:
                take([self.read.row([*outer, row + n, *rest]) for n in range(many)])
            if many > 1:
                with f.loop(whole, last) as row:
                    take([self.read.row([*outer, row, *rest])])

    def _rows(self, place: Sequence[Value], all_rows: Value) -> tuple[Value, Value]:
        """The rows to fold: all, or those of a chunk."""
        f = self.f
        if not self.reduction.makes_parts:
            return f.const(I64, 0), all_rows
        first = place[-1] * CHUNK_ROWS
        return first, f.minimum(first + CHUNK_ROWS, all_rows)
