"""Kernels of normalizations with parameters for each channel: batch, instance and group normalization."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, Type
from sardonyx.providers.native.kernels.reduction.passes import Fold, RowArguments, fold_columns, items, sweep, unroll_of
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass


class AffineArguments(RowArguments):
    outer: Sequence[Size] = each(lambda source: source.rank - 2)
    """The sizes of all axes of rows but the first."""
    factor: Operands = group(lambda factor: factor.slots)
    shift: Operands = group(lambda shift: shift.slots)


@kernel("scale and shift", AffineArguments)
def affine_kernel(
    f: KernelFunction, a: AffineArguments, type: Type, source: Chain, factor: Chain, shift: Chain, sink: Chain
) -> None:
    """x·factor + shift. Items are rows."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    factors, shifts = ChainCode(f, factor, a.factor), ChainCode(f, shift, a.shift)
    lanes = f.lanes(type)
    with items(f, a.outer) as (_, place):
        rows, target = [code.row(place) for code in (read, factors, shifts)], write.row(place)

        def scale(copy: int, column: Value, remaining: Value | None) -> None:
            x, factor_here, shift_here = (row.lanewise(column, lanes, remaining, type) for row in rows)
            with f.exact():
                scaled = x * factor_here + shift_here
            target.emit(column, lanes, remaining, given=[scaled])

        sweep(f, 0, a.columns, lanes, unroll_of(source, sink, most=2), scale)


class BatchFactorsArguments(Arguments):
    epsilon: Number
    scale: Pointer
    B: Pointer
    mean: Pointer
    variance: Pointer
    factors: Pointer
    shifts: Pointer


@kernel("factors of batch normalization", BatchFactorsArguments)
def batch_factors_kernel(f: KernelFunction, a: BatchFactorsArguments, type: Type, types: tuple[Type, ...]) -> None:
    """Factor and shift of each channel, from scale, B, mean and variance, which lie in memory as `types`. Items are channels."""
    epsilon = f.convert(a.epsilon, type)
    parameters = list(zip((a.scale, a.B, a.mean, a.variance), types))
    with f.loop(f.begin, f.end) as channel:
        scale, bias, mean, variance = (f.convert(f.load(place, channel, stored), type) for place, stored in parameters)
        with f.exact():
            factor = scale / f.sqrt(variance + epsilon)
            f.store(factor, a.factors, channel, type)
            f.store(bias - mean * factor, a.shifts, channel, type)


@dataclass(frozen=True)
class GroupNorm:
    """What shapes the code of a group normalization."""

    type: Type
    source: Chain
    sink: Chain
    parameters: tuple[Type, Type]
    """Of scale and bias in memory."""
    by_group: bool = False
    """Whether these belong to the groups, not to the channels."""


class GroupNormArguments(Arguments):
    groups: Size
    channels: Size
    """Of one group."""
    columns: Size
    """Pixels of a channel."""
    epsilon: Number
    scales: Pointer
    biases: Pointer
    source: Operands = group(lambda norm: norm.source.slots)
    sink: Operands = group(lambda norm: norm.sink.slots)


@kernel("normalize groups", GroupNormArguments)
def group_norm_kernel(f: KernelFunction, a: GroupNormArguments, norm: GroupNorm) -> None:
    """Mean 0 and variance 1 over the pixels of some channels together. Items are groups."""
    columns = a.columns
    read, write = ChainCode(f, norm.source, a.source), ChainCode(f, norm.sink, a.sink)
    type, lanes = norm.type, f.lanes(norm.type)
    unroll = unroll_of(norm.source)
    share = 1.0 / f.convert(a.channels * columns, F64)
    with items(f, [a.groups]) as (_, (sample, number)):
        first = number * a.channels
        last = first + a.channels

        def total(middle: Value | None) -> Value:
            """The sum of all elements, or of squared differences."""
            elements = f.variable(0.0, F64)
            with f.loop(first, last) as channel:
                row = read.row([sample, channel])

                def values(column: Value, remaining: Value | None) -> Value:
                    x = row.lanewise(column, lanes, remaining, type)
                    return x if middle is None else (x - middle) * (x - middle)

                elements.set(elements.get() + fold_columns(f, 0, columns, lanes, unroll, Fold("add", type), values))
            return elements.get()

        middle = f.splat(f.convert(total(None) * share, type), lanes)
        inverse = f.convert(1.0 / f.sqrt(total(middle) * share + a.epsilon), type)
        with f.loop(first, last) as channel:
            row, target = read.row([sample, channel]), write.row([sample, channel])
            place = number if norm.by_group else channel
            factor = f.splat(inverse * f.load(a.scales, place, norm.parameters[0]), lanes)
            bias = f.splat(f.load(a.biases, place, norm.parameters[1]), lanes)

            def finish(copy: int, column: Value, remaining: Value | None) -> None:
                x = row.lanewise(column, lanes, remaining, type)
                target.emit(column, lanes, remaining, given=[(x - middle) * factor + bias])

            sweep(f, 0, columns, lanes, unroll_of(norm.source, norm.sink, most=2), finish)
