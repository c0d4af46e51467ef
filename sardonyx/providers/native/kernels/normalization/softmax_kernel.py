"""Kernels of Softmax and LogSoftmax: along rows, or down the columns of matrices where the axis is not the last one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import LOG2_E, exp, log, polynomial
from sardonyx.compiler.types import F16, I64, U32, Type
from sardonyx.providers.native.kernels.reduction.passes import (
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
from sardonyx.providers.native.program.arguments import Pointer, Size, each, when
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow, Load
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.streaming import in_streams
from sardonyx.startup.records import dataclass

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
    if f.target is not None and f.target.has_avx512 and x.type.lanes == 16:
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
    types = ", ".join(operand.strip().rsplit(" ", 1)[0] for operand in operands.split(","))
    x.f.declare(f"declare {x.type} @llvm.x86.avx512.mask.{name}.512({x.type}, {types}, i16, i32)")
    return x.f.emit(x.type, f"call {x.type} @llvm.x86.avx512.mask.{name}.512({x}, {operands}, i16 -1, i32 4)")


class SoftmaxArguments(RowArguments):
    outer: Sequence[Size] = each(lambda source: source.rank - 2)
    """The sizes of all axes of rows but the first."""
    stage: Pointer | None = when(lambda sink, type: not is_plain_store(sink, type))
    """Where values between passes are kept: see `Stage`."""


@dataclass(frozen=True)
class _Form:
    """What a row becomes."""

    type: Type
    logarithm: bool
    halves: bool

    @property
    def step(self) -> Type:
        """To which every step is rounded."""
        return F16 if self.halves else self.type


@kernel("softmax", SoftmaxArguments)
def softmax_kernel(
    f: KernelFunction, a: SoftmaxArguments, source: Chain, sink: Chain, type: Type, logarithm: bool, halves: bool = False
) -> None:
    """Rows of exp(x - max) / sum, or of its logarithm. Items are rows. With `halves` every step is rounded to float16."""
    stage, form = Stage(f, type, a.stage), _Form(type, logarithm, halves)
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    with items(f, a.outer) as (index, place):
        target = write.row(place)
        row = _Row(f, read.row(place), target, stage.row(target, index, a.columns), a.columns, form)
        with contextlib.ExitStack() as branches:
            for vectors in IN_REGISTERS if _fits_masks(f, source, sink) else ():
                otherwise = branches.enter_context(f.if_else(a.columns <= vectors * f.lanes(type)))
                row.in_registers(vectors)
                otherwise()
            row.in_passes()
    if sink.streams:
        f.fence()


def _fits_masks(f: KernelFunction, source: Chain, sink: Chain) -> bool:
    """Whether short rows can be vectors of which only some lanes are read and written, at no cost."""
    strides = [item.strides[-1] for item in source.items if isinstance(item, Load)]
    strides += [item.strides[-1] for item in sink.items if isinstance(item, Load)]
    return f.target.has_avx512 and "n" not in strides and all(store.strides[-1] == "1" for store in sink.stores)


class _Row:
    """One row: where it is read and written, and where its values stand between passes."""

    def __init__(self, f: KernelFunction, source: ChainRow, target: ChainRow, kept: Value, columns: Value, form: _Form):
        self.f = f
        self.source = source
        self.target = target
        self.kept = kept
        self.columns = columns
        self.form = form
        self.type = form.type
        self.lanes = f.lanes(form.type)
        self.is_direct = is_direct(source.code.chain)

    def in_registers(self, vectors: int) -> None:
        """So few vectors, without loops."""
        f, lanes, step = self.f, self.lanes, self.form.step
        starts = [f.const(I64, n * lanes) for n in range(vectors)]
        left = [self.columns - start for start in starts]
        masks = [f.first_lanes(rest, lanes) for rest in left]
        x = [self.source.counted(start, lanes, rest, self.type, -math.inf) for start, rest in zip(starts, left)]
        largest = f.splat(f.reduce("max", joined(x, lambda a, b: f.maximum(b, a))), lanes)
        below = [f.rounded(vector - largest, step) for vector in x]
        weights = [f.select(mask, f.rounded(weight_of(under), step), 0.0) for mask, under in zip(masks, below)]
        factor = self._factor(f.rounded(f.reduce("add", joined(weights, lambda a, b: a + b)), step))
        for start, rest, under, weight in zip(starts, left, below, weights):
            value = under - factor if self.form.logarithm else self._share(weight, factor)
            with f.if_(rest > 0):  # a store of no lane at all is slow
                self.target.emit(start, lanes, rest, given=[value])

    def in_passes(self) -> None:
        """Any length: the maximum, the weights and their sum, the result."""
        f, lanes, type, chain = self.f, self.lanes, self.type, self.source.code.chain
        maximum = Fold("max", type, lenient=True)
        largest = f.splat(fold_columns(f, 0, self.columns, lanes, unroll_of(chain), maximum, self._first), lanes)

        def weight(column: Value, remaining: Value | None) -> Value:
            return self._weight(column, remaining, largest)

        total = fold_columns(f, 0, self.columns, lanes, 2, Fold("add", type), weight)
        factor = self._factor(f.rounded(f.convert(total, type), self.form.step))

        def finish(copy: int, column: Value, remaining: Value | None) -> None:
            if self.form.logarithm:
                value = self._again(column, remaining) - largest - factor
            else:
                value = self._share(f.load(self.kept, column, type, lanes, remaining=remaining), factor)
            self.target.emit(column, lanes, remaining, given=[value])

        unroll = unroll_of(self.target.code.chain)
        in_streams(f, self.target, 0, lambda: sweep(f, 0, self.columns, lanes, unroll, finish))

    def _first(self, column: Value, remaining: Value | None) -> Value:
        """Elements, kept for later passes if they cost something."""
        value = self.source.lanewise(column, self.lanes, remaining, self.type)
        if not self.is_direct:
            self.f.store(value, self.kept, column, self.type, remaining=remaining)
        return value

    def _again(self, column: Value, remaining: Value | None) -> Value:
        if self.is_direct:
            return self.source.lanewise(column, self.lanes, remaining, self.type)
        return self.f.load(self.kept, column, self.type, self.lanes, remaining=remaining)

    def _weight(self, column: Value, remaining: Value | None, largest: Value) -> Value:
        """Weights, kept for the result unless that is a logarithm."""
        f, step = self.f, self.form.step
        if remaining is None and self.target.code.chain.streams:
            self.source.prefetch_next(column)
        value = f.rounded(weight_of(f.rounded(self._again(column, remaining) - largest, step)), step)
        if not self.form.logarithm:
            f.store(value, self.kept, column, self.type, remaining=remaining)
        return value

    def _factor(self, total: Value) -> Value:
        """What weights are divided by or multiplied with, or what is subtracted from logarithms."""
        form = self.form
        return self.f.splat(total if form.halves else log(total) if form.logarithm else 1.0 / total, self.lanes)

    def _share(self, weight: Value, factor: Value) -> Value:
        return weight / factor if self.form.halves else weight * factor


@kernel("softmax down columns", StripArguments)
def softmax_down_kernel(f: KernelFunction, a: StripArguments, source: Chain, sink: Chain, type: Type, logarithm: bool) -> None:
    """The same along the middle axis of three. Items are strips of columns."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    strip = _Strip(f, type, logarithm)
    with items(f, [a.strips]) as (_, (outer, number)):
        strip.start = number * a.width
        strip.stop = f.minimum(strip.start + a.width, a.columns)
        strip.clear()
        with f.loop(0, a.rows) as row:
            strip.compare(read.row([outer, row]))
        with f.loop(0, a.rows) as row:
            strip.add(read.row([outer, row]))
        strip.invert()
        with f.loop(0, a.rows) as row:
            strip.write(read.row([outer, row]), write.row([outer, row]))


class _Strip:
    """Columns side by side. Their maxima and the sums of their weights stand on the stack while rows go by."""

    def __init__(self, f: KernelFunction, type: Type, logarithm: bool):
        self.f = f
        self.type = type
        self.logarithm = logarithm
        self.lanes = f.lanes(type)
        self.maxima, self.totals = f.stack(type, STRIP), f.stack(type, STRIP)
        self.start = self.stop = f.begin

    def _each(self, body: Callable[[Value, Value, Value | None], None]) -> None:
        """Do something for each vector: its column, its place in the strip, how many columns are left."""
        start = self.start
        sweep(self.f, start, self.stop, self.lanes, 1, lambda copy, column, rest: body(column, column - start, rest))

    def _load(self, memory: Value, at: Value) -> Value:
        return self.f.load(memory, at, self.type, self.lanes)

    def clear(self) -> None:
        f, vector = self.f, self.type.vector(self.lanes)

        def clear(column: Value, at: Value, remaining: Value | None) -> None:
            f.store(f.const(vector, -math.inf), self.maxima, at, self.type)
            f.store(f.const(vector, 0.0), self.totals, at, self.type)

        self._each(clear)

    def compare(self, row: ChainRow) -> None:
        """The first pass: maxima."""
        f = self.f

        def compare(column: Value, at: Value, remaining: Value | None) -> None:
            value = row.lanewise(column, self.lanes, remaining, self.type)
            f.store(f.maximum(value, self._load(self.maxima, at)), self.maxima, at, self.type)

        self._each(compare)

    def add(self, row: ChainRow) -> None:
        """The second pass: sums of weights."""
        f = self.f

        def add(column: Value, at: Value, remaining: Value | None) -> None:
            weight = weight_of(row.lanewise(column, self.lanes, remaining, self.type) - self._load(self.maxima, at))
            f.store(self._load(self.totals, at) + weight, self.totals, at, self.type)

        self._each(add)

    def invert(self) -> None:
        """Make sums what weights are multiplied with, or what is subtracted from logarithms."""

        def invert(column: Value, at: Value, remaining: Value | None) -> None:
            total = self._load(self.totals, at)
            self.f.store(log(total) if self.logarithm else 1.0 / total, self.totals, at, self.type)

        self._each(invert)

    def write(self, row: ChainRow, target: ChainRow) -> None:
        """The last pass: results."""

        def write(column: Value, at: Value, remaining: Value | None) -> None:
            below = row.lanewise(column, self.lanes, remaining, self.type) - self._load(self.maxima, at)
            scale = self._load(self.totals, at)
            value = below - scale if self.logarithm else weight_of(below) * scale
            target.emit(column, self.lanes, remaining, given=[value])

        self._each(write)
