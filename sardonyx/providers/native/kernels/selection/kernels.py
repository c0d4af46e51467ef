"""Kernels that choose elements by their rank (ArgMax, ArgMin, Hardmax), and running sums and products."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.providers.native.kernels.reduction.passes import (
    Fold,
    RowArguments,
    StripArguments,
    fold_columns,
    items,
    sweep,
    unroll_of,
)
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel

STRIP = 2048
"""The widest block of columns that is done at a time where rows are combined."""


def bits_of(f: KernelFunction, mask: Value) -> Value:
    """The lanes of a mask as the bits of a number, the first one lowest."""
    if mask.type.lanes == 1:
        return f.emit(I64, f"zext {mask} to i64")
    whole = Type("uint", mask.type.lanes)
    bits = f.emit(whole, f"bitcast {mask} to {whole}")
    return f.emit(I64, f"zext {bits} to i64") if mask.type.lanes < 64 else Value(f, I64, bits.ref)


def lowest_bit(f: KernelFunction, bits: Value) -> Value:
    """The place of the lowest bit that is set; some must be."""
    f.declare("declare i64 @llvm.cttz.i64(i64, i1)")
    return f.emit(I64, f"call i64 @llvm.cttz.i64({bits}, i1 true)")


def highest_bit(f: KernelFunction, bits: Value) -> Value:
    f.declare("declare i64 @llvm.ctlz.i64(i64, i1)")
    return 63 - f.emit(I64, f"call i64 @llvm.ctlz.i64({bits}, i1 true)")


# --- where the extreme is -------------------------------------------------------------------------------------------


def find_extreme(f: KernelFunction, row: ChainRow, columns: Value, how: str, type: Type, last: bool) -> Value:
    """The first column, or the last one, that holds the maximum or minimum of a row; a NaN is both."""
    lanes = f.lanes(type)

    def x(column: Value, remaining: Value | None) -> Value:
        return row.lanewise(column, lanes, remaining, type)

    extreme = f.splat(fold_columns(f, 0, columns, lanes, unroll_of(row.code.chain), Fold(how, type), x), lanes)

    def matches(column: Value, remaining: Value | None) -> Value:
        value = x(column, remaining)
        same = ~(value ^ extreme) if type.kind == "bool" else value == extreme
        if type.is_float:
            same = same | f.is_nan(value)
        return bits_of(f, same if remaining is None else same & f.first_lanes(remaining, lanes))

    return _last_match(f, columns, lanes, matches) if last else _first_match(f, columns, lanes, matches)


def _first_match(f: KernelFunction, columns: Value, lanes: int, matches: Callable[[Value, Value | None], Value]) -> Value:
    whole = (columns // lanes) * lanes
    column, matching = f.variable(0, I64), f.variable(0, I64)
    with f.while_() as body:
        place = column.get()
        body.leave_if(place >= whole)
        bits = matches(place, None)
        matching.set(bits)
        body.leave_if(bits != 0)
        column.set(place + lanes)
    with f.if_(column.get() >= whole):
        matching.set(matches(whole, columns - whole))
    return column.get() + lowest_bit(f, matching.get())


def _last_match(f: KernelFunction, columns: Value, lanes: int, matches: Callable[[Value, Value | None], Value]) -> Value:
    last = f.variable(0, I64)

    def look(copy: int, column: Value, remaining: Value | None) -> None:
        bits = matches(column, remaining)
        with f.if_(bits != 0):
            last.set(column + highest_bit(f, bits))

    sweep(f, 0, columns, lanes, 1, look)
    return last.get()


@kernel("place of extreme", RowArguments)
def arg_rows_kernel(f: KernelFunction, a: RowArguments, source: Chain, sink: Chain, type: Type, how: str, last: bool) -> None:
    """Columns of the extremes of rows. Items are rows."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    with f.loop(f.begin, f.end) as item:
        place = find_extreme(f, read.row([item]), a.columns, how, type, last)
        write.row([]).emit(item, 1, None, given=[place])


@kernel("one at the extreme", RowArguments)
def hardmax_kernel(f: KernelFunction, a: RowArguments, source: Chain, sink: Chain, type: Type) -> None:
    """Rows of 0 with a 1 where the first maximum is. Items are rows."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    lanes = f.lanes(type)
    with f.loop(f.begin, f.end) as item:
        place = find_extreme(f, read.row([item]), a.columns, "max", type, last=False)
        target = write.row([item])

        def mark(copy: int, column: Value, remaining: Value | None) -> None:
            here = (f.iota(I64, lanes) + f.splat(column, lanes)) == f.splat(place, lanes)
            marked = f.select(here, f.const(type.vector(lanes), 1), 0)
            target.emit(column, lanes, remaining, given=[marked])

        sweep(f, 0, a.columns, lanes, 1, mark)


@kernel("row of extreme", StripArguments)
def arg_strips_kernel(
    f: KernelFunction, a: StripArguments, source: Chain, sink: Chain, type: Type, how: str, last: bool
) -> None:
    """Rows of the extremes of columns. Items are strips of columns."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    lanes = f.lanes(type)
    best, places = f.stack(type, STRIP), f.stack(I64, STRIP)
    with items(f, [a.strips]) as (_, (outer, strip)):
        start = strip * a.width
        stop = f.minimum(start + a.width, a.columns)
        values = read.row([outer, f.const(I64, 0)])

        def begin(copy: int, column: Value, remaining: Value | None) -> None:
            f.store(values.lanewise(column, lanes, remaining, type), best, column - start, type)
            f.store(f.const(I64.vector(lanes), 0), places, column - start, I64)

        sweep(f, start, stop, lanes, 1, begin)
        with f.loop(1, a.rows) as row:
            values = read.row([outer, row])

            def compare(copy: int, column: Value, remaining: Value | None) -> None:
                at = column - start
                x, old = values.lanewise(column, lanes, remaining, type), f.load(best, at, type, lanes)
                better = _is_better(f, x, old, how, last)
                f.store(f.select(better, x, old), best, at, type)
                f.store(f.select(better, f.splat(row, lanes), f.load(places, at, I64, lanes)), places, at, I64)

            sweep(f, start, stop, lanes, 1, compare)
        target = write.row([outer])

        def finish(copy: int, column: Value, remaining: Value | None) -> None:
            target.emit(column, lanes, remaining, given=[f.load(places, column - start, I64, lanes)])

        sweep(f, start, stop, lanes, 1, finish)


def _is_better(f: KernelFunction, x: Value, old: Value, how: str, last: bool) -> Value:
    """Whether a later element takes the place of an earlier one. A NaN does, of a number; of another NaN if the last one counts."""
    if x.type.kind == "bool":
        strict = x & ~old if how == "max" else ~x & old
        return strict | ~(x ^ old) if last else strict
    if last:
        better = x >= old if how == "max" else x <= old
        return better | f.is_nan(x) if x.type.is_float else better
    better = x > old if how == "max" else x < old
    return better | (f.is_nan(x) & ~f.is_nan(old)) if x.type.is_float else better


# --- running sums and products --------------------------------------------------------------------------------------


@kernel("running fold along rows", RowArguments)
def scan_rows_kernel(
    f: KernelFunction, a: RowArguments, source: Chain, sink: Chain, type: Type, how: str, exclusive: bool, reverse: bool
) -> None:
    """Sums or products of all elements up to each one, or from it on. Items are rows."""
    columns = a.columns
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    lanes = f.lanes(type)
    fold = Fold(how, type)
    neutral = f.const(type.vector(lanes), fold.neutral)
    whole = (columns // lanes) * lanes
    with f.loop(f.begin, f.end) as item:
        values, target = read.row([item]), write.row([item])
        carry = f.variable(fold.neutral, type)

        def step(column: Value, remaining: Value | None) -> None:
            x = values.counted(column, lanes, remaining, type, fold.neutral)
            x = _mirrored(f, x) if reverse else x
            running = f.binary(how, f.splat(carry.get(), lanes), _prefix(f, x, neutral, how))
            result = _moved(f, running, f.splat(carry.get(), lanes), 1) if exclusive else running
            carry.set(f.extract(running, lanes - 1))
            target.emit(column, lanes, remaining, given=[_mirrored(f, result) if reverse else result])

        if reverse:
            with f.if_(whole < columns):
                step(whole, columns - whole)
            with f.loop(0, whole, lanes) as back:
                step(whole - lanes - back, None)
        else:
            with f.loop(0, whole, lanes) as column:
                step(column, None)
            with f.if_(whole < columns):
                step(whole, columns - whole)


def _mirrored(f: KernelFunction, x: Value) -> Value:
    return f.shuffle(x, x, range(x.type.lanes - 1, -1, -1)) if x.type.lanes > 1 else x


def _moved(f: KernelFunction, x: Value, filling: Value, places: int) -> Value:
    """Lanes moved up, the first ones taken from another vector."""
    lanes = x.type.lanes
    if lanes == 1:
        return filling
    return f.shuffle(x, filling, [lane - places if lane >= places else lanes + lane for lane in range(lanes)])


def _prefix(f: KernelFunction, x: Value, neutral: Value, how: str) -> Value:
    """Each lane joined with all before it, in as many steps as the number of lanes has bits."""
    distance = 1
    while distance < x.type.lanes:
        x = f.binary(how, x, _moved(f, x, neutral, distance))
        distance *= 2
    return x


@kernel("running fold of rows", StripArguments)
def scan_strips_kernel(
    f: KernelFunction, a: StripArguments, source: Chain, sink: Chain, type: Type, how: str, exclusive: bool, reverse: bool
) -> None:
    """The same along the middle axis of three. Items are strips of columns."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    lanes = f.lanes(type)
    totals = f.stack(type, STRIP)
    with items(f, [a.strips]) as (_, (outer, strip)):
        start = strip * a.width
        stop = f.minimum(start + a.width, a.columns)
        neutral = f.const(type.vector(lanes), Fold(how, type).neutral)
        sweep(f, start, stop, lanes, 1, lambda copy, column, left: f.store(neutral, totals, column - start, type))
        with f.loop(0, a.rows) as count:
            row = a.rows - 1 - count if reverse else count
            values, target = read.row([outer, row]), write.row([outer, row])

            def step(copy: int, column: Value, remaining: Value | None) -> None:
                before = f.load(totals, column - start, type, lanes)
                after = f.binary(how, before, values.lanewise(column, lanes, remaining, type))
                f.store(after, totals, column - start, type)
                target.emit(column, lanes, remaining, given=[before if exclusive else after])

            sweep(f, start, stop, lanes, 1, step)
