"""Kernels of normalizations with parameters for each channel: batch, instance and group normalization."""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, Type
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.rows.passes import Fold, fold_columns, items, sweep, unroll_of
from sardonyx.records import dataclass


@kernel("scale and shift")
def affine_kernel(f: KernelFunction, type: Type, source: Chain, factor: Chain, shift: Chain, sink: Chain) -> None:
    """x·factor + shift. Items are rows."""
    columns = f.size()
    outer = [f.size() for _ in range(source.rank - 2)]
    codes = [ChainCode(f, one) for one in (source, factor, shift, sink)]
    lanes = f.lanes(type)
    with items(f, outer) as (_, place):
        x, a, b, target = (code.row(place) for code in codes)

        def each(copy: int, column: Value, remaining: Value | None) -> None:
            value, scale, rest = (one.lanewise(column, lanes, remaining, type) for one in (x, a, b))
            with f.exact():
                value = value * scale + rest
            target.emit(column, lanes, remaining, given=[value])

        sweep(f, 0, columns, lanes, unroll_of(source, sink, most=2), each)


@kernel("factors of batch normalization")
def batch_factors_kernel(f: KernelFunction, type: Type, types: tuple[Type, ...]) -> None:
    """Factor and shift of each channel, from scale, B, mean and variance. Items are channels."""
    epsilon = f.number(type)
    scale, bias, mean, variance = (f.pointer() for _ in types)
    factors, shifts = f.pointer(), f.pointer()
    with f.loop(f.begin, f.end) as channel:
        a, b, m, v = (
            f.convert(f.load(one, channel, stored), type) for one, stored in zip((scale, bias, mean, variance), types)
        )
        with f.exact():
            factor = a / f.sqrt(v + epsilon)
            f.store(factor, factors, channel, type)
            f.store(b - m * factor, shifts, channel, type)


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


@kernel("normalize groups")
def group_norm_kernel(f: KernelFunction, norm: GroupNorm) -> None:
    """Mean 0 and variance 1 over the pixels of some channels together. Items are groups."""
    groups, channels, columns, epsilon = f.size(), f.size(), f.size(), f.number(F64)
    scales, biases = f.pointer(), f.pointer()
    read, write = ChainCode(f, norm.source), ChainCode(f, norm.sink)
    type, lanes = norm.type, f.lanes(norm.type)
    unroll = unroll_of(norm.source)
    share = 1.0 / f.convert(channels * columns, F64)
    with items(f, [groups]) as (_, (sample, group)):
        first = group * channels
        last = first + channels

        def total(middle: Value | None) -> Value:
            """The sum of all elements, or of squared differences."""
            found = f.variable(0.0, F64)
            with f.loop(first, last) as channel:
                row = read.row([sample, channel])

                def values(column: Value, remaining: Value | None) -> Value:
                    x = row.lanewise(column, lanes, remaining, type)
                    return x if middle is None else (x - middle) * (x - middle)

                found.set(found.get() + fold_columns(f, 0, columns, lanes, unroll, Fold("add", type), values))
            return found.get()

        middle = f.splat(f.convert(total(None) * share, type), lanes)
        inverse = f.convert(1.0 / f.sqrt(total(middle) * share + epsilon), type)
        with f.loop(first, last) as channel:
            row, target = read.row([sample, channel]), write.row([sample, channel])
            place = group if norm.by_group else channel
            factor = f.splat(inverse * f.load(scales, place, norm.parameters[0]), lanes)
            bias = f.splat(f.load(biases, place, norm.parameters[1]), lanes)

            def finish(copy: int, column: Value, remaining: Value | None) -> None:
                x = row.lanewise(column, lanes, remaining, type)
                target.emit(column, lanes, remaining, given=[(x - middle) * factor + bias])

            sweep(f, 0, columns, lanes, unroll_of(norm.source, norm.sink, most=2), finish)
