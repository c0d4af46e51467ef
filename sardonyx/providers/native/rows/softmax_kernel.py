"""Kernels of Softmax and LogSoftmax: along rows, or down the columns of matrices where the axis is not the last one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import LOG2_E, exp, log, polynomial
from sardonyx.compiler.types import F16, I64, U32, Type
from sardonyx.providers.native.arguments import Pointer, Size, each, when
from sardonyx.providers.native.chain import Chain, ChainCode, ChainRow, Load
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.rows.passes import (
    Fold,
    RowArguments,
    Stage,
    StripArguments,
    fold_columns,
    is_direct,
    is_plain_store,
    items,
    joined,
    sweep,
    unroll_of,
)
from sardonyx.providers.native.streaming import in_streams

IN_REGISTERS = (1, 2, 4)
"""Numbers of vectors up to which a row is held in registers from beginning to end."""
STRIP = 2048
"""The widest block of columns that is done at a time where rows are combined."""

_EXP2 = (0.00132647271, 0.00967151264, 0.0555073374, 0.240222421, 0.693146978, 1.0)
"""2^r for r from -½ to ½, within 1.4 ulp; 1 at 0 exactly."""
_EXP2_UP = (0.00021702255, 0.00124396884, 0.00967884064, 0.0554833412, 0.24022983, 0.693147004, 1.0)
"""2^r for r from 0 to 1."""
_SHIFTER = 1.5 * 2.0**23
"""Added to a small number, it leaves the nearest integer in the low bits of the sum."""


def weight_of(x: Value) -> Value:
    """e^x for x that are not positive, in fewer instructions than `exp`; 0 below the range of normal numbers.

    The error grows with |x|, as that of x itself does, which was a difference of two floats: half an ulp of x.
    """
    f = x.f
    if x.type.bits != 32:
        return exp(x)
    t = x * LOG2_E
    if f.target is not None and f.target.name == "avx512" and x.type.lanes == 16:
        # both instructions take the floor of t themselves, and are right for -inf
        above = _with_rounding(t, "reduce.ps", "i32 9, <16 x float> zeroinitializer")
        return _with_rounding(polynomial(above, _EXP2_UP), "scalef.ps", f"{t}, <16 x float> zeroinitializer")
    t = f.maximum(-127.0, t)
    with f.exact():
        shifted = t + _SHIFTER
        rest = t - (shifted - _SHIFTER)
    words = U32.vector(x.type.lanes)
    power = (f.bitcast(shifted, words) << 23) + (127 << 23)
    return polynomial(rest, _EXP2) * f.bitcast(power, x.type)


def _with_rounding(x: Value, name: str, operands: str) -> Value:
    """An instruction of AVX-512 that takes a mask and a rounding mode: all lanes, the usual mode."""
    types = ", ".join(one.strip().rsplit(" ", 1)[0] for one in operands.split(","))
    x.f.declare(f"declare {x.type} @llvm.x86.avx512.mask.{name}.512({x.type}, {types}, i16, i32)")
    return x.f.emit(x.type, f"call {x.type} @llvm.x86.avx512.mask.{name}.512({x}, {operands}, i16 -1, i32 4)")


class SoftmaxArguments(RowArguments):
    outer: Sequence[Size] = each(lambda source: source.rank - 2)
    """The sizes of all axes of rows but the first."""
    stage: Pointer | None = when(lambda sink, type: not is_plain_store(sink, type))
    """Where values between passes are kept: see `Stage`."""


@kernel("softmax", SoftmaxArguments)
def softmax_kernel(
    f: KernelFunction, a: SoftmaxArguments, source: Chain, sink: Chain, type: Type, logarithm: bool, halves: bool = False
) -> None:
    """Rows of exp(x - max) / sum, or of its logarithm. Items are rows. With `halves` every step is rounded to float16."""
    stage, columns = Stage(f, type, a.stage), a.columns
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    with items(f, a.outer) as (index, place):
        given, target = read.row(place), write.row(place)
        kept = stage.row(target, index, columns)
        with contextlib.ExitStack() as branches:
            for vectors in IN_REGISTERS if _fits_masks(f, source, sink) else ():
                otherwise = branches.enter_context(f.if_else(columns <= vectors * f.lanes(type)))
                _in_registers(f, given, target, columns, vectors, type, logarithm, halves)
                otherwise()
            _in_passes(f, given, target, kept, columns, type, logarithm, halves)
    if sink.streams:
        f.fence()


def _fits_masks(f: KernelFunction, source: Chain, sink: Chain) -> bool:
    """Whether short rows can be vectors of which only some lanes are read and written, at no cost."""
    strides = [item.strides[-1] for item in source.items if isinstance(item, Load)]
    strides += [item.strides[-1] for item in sink.items if isinstance(item, Load)]
    return f.target.name == "avx512" and "n" not in strides and all(one.strides[-1] == "1" for one in sink.stores)


def _in_registers(
    f: KernelFunction,
    given: ChainRow,
    target: ChainRow,
    columns: Value,
    vectors: int,
    type: Type,
    logarithm: bool,
    halves: bool,
) -> None:
    """A row of so few vectors, without loops."""
    lanes = f.lanes(type)
    columns_of = [f.const(I64, n * lanes) for n in range(vectors)]
    left = [columns - start for start in columns_of]
    masks = [f.first_lanes(one, lanes) for one in left]
    x = [given.counted(start, lanes, rest, type, -math.inf) for start, rest in zip(columns_of, left)]
    largest = f.splat(f.reduce("max", joined(x, lambda a, b: f.maximum(b, a))), lanes)
    half = F16 if halves else type
    below = [f.rounded(one - largest, half) for one in x]
    weights = [f.select(mask, f.rounded(weight_of(one), half), 0.0) for mask, one in zip(masks, below)]
    total = f.rounded(f.reduce("add", joined(weights, lambda a, b: a + b)), half)
    factor = f.splat(total if halves else log(total) if logarithm else 1.0 / total, lanes)
    for start, rest, under, weight in zip(columns_of, left, below, weights):
        value = weight / factor if halves else under - factor if logarithm else weight * factor
        with f.if_(rest > 0):  # a store of no lane at all is slow
            target.emit(start, lanes, rest, given=[value])


def _in_passes(
    f: KernelFunction, given: ChainRow, target: ChainRow, kept: Value, columns: Value, type: Type, logarithm: bool, halves: bool
) -> None:
    """A row of any length: the maximum, the weights and their sum, the result. `kept` is where weights stand in between."""
    lanes, source = f.lanes(type), given.code.chain
    half = F16 if halves else type
    direct = is_direct(source)

    def x(column: Value, remaining: Value | None) -> Value:
        if direct:
            return given.lanewise(column, lanes, remaining, type)
        return f.load(kept, column, type, lanes, remaining=remaining)

    def first(column: Value, remaining: Value | None) -> Value:
        value = given.lanewise(column, lanes, remaining, type)
        if not direct:
            f.store(value, kept, column, type, remaining=remaining)
        return value

    highest = fold_columns(f, 0, columns, lanes, unroll_of(source), Fold("max", type, lenient=True), first)
    largest = f.splat(highest, lanes)

    def weight(column: Value, remaining: Value | None) -> Value:
        if remaining is None and target.code.chain.streams:
            given.prefetch_next(column)
        value = f.rounded(weight_of(f.rounded(x(column, remaining) - largest, half)), half)
        if not logarithm:
            f.store(value, kept, column, type, remaining=remaining)
        return value

    total = f.rounded(f.convert(fold_columns(f, 0, columns, lanes, 2, Fold("add", type), weight), type), half)
    factor = f.splat(total if halves else log(total) if logarithm else 1.0 / total, lanes)

    def finish(copy: int, column: Value, remaining: Value | None) -> None:
        if logarithm:
            value = x(column, remaining) - largest - factor
        else:
            weights = f.load(kept, column, type, lanes, remaining=remaining)
            value = weights / factor if halves else weights * factor
        target.emit(column, lanes, remaining, given=[value])

    in_streams(f, target, 0, lambda: sweep(f, 0, columns, lanes, unroll_of(target.code.chain), finish))


@kernel("softmax down columns", StripArguments)
def softmax_down_kernel(f: KernelFunction, a: StripArguments, source: Chain, sink: Chain, type: Type, logarithm: bool) -> None:
    """The same along the middle axis of three. Items are strips of columns; their maxima and sums stand on the stack."""
    rows = a.rows
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    lanes = f.lanes(type)
    largest, total = f.stack(type, STRIP), f.stack(type, STRIP)
    with items(f, [a.strips]) as (_, (outer, strip)):
        start = strip * a.width
        stop = f.minimum(start + a.width, a.columns)

        def each(body: object) -> None:
            assert callable(body)
            sweep(f, start, stop, lanes, 1, lambda copy, column, remaining: body(column, column - start, remaining))

        def begin(column: Value, at: Value, remaining: Value | None) -> None:
            f.store(f.const(type.vector(lanes), -math.inf), largest, at, type)
            f.store(f.const(type.vector(lanes), 0.0), total, at, type)

        each(begin)
        with f.loop(0, rows) as row:
            given = read.row([outer, row])

            def compare(column: Value, at: Value, remaining: Value | None) -> None:
                value = given.lanewise(column, lanes, remaining, type)
                f.store(f.maximum(value, f.load(largest, at, type, lanes)), largest, at, type)

            each(compare)
        with f.loop(0, rows) as row:
            given = read.row([outer, row])

            def add(column: Value, at: Value, remaining: Value | None) -> None:
                value = weight_of(given.lanewise(column, lanes, remaining, type) - f.load(largest, at, type, lanes))
                f.store(f.load(total, at, type, lanes) + value, total, at, type)

            each(add)

        def invert(column: Value, at: Value, remaining: Value | None) -> None:
            value = f.load(total, at, type, lanes)
            f.store(log(value) if logarithm else 1.0 / value, total, at, type)

        each(invert)
        with f.loop(0, rows) as row:
            given, target = read.row([outer, row]), write.row([outer, row])

            def finish(column: Value, at: Value, remaining: Value | None) -> None:
                below = given.lanewise(column, lanes, remaining, type) - f.load(largest, at, type, lanes)
                scale = f.load(total, at, type, lanes)
                value = below - scale if logarithm else weight_of(below) * scale
                target.emit(column, lanes, remaining, given=[value])

            each(finish)
