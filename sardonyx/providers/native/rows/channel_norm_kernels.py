"""Group and instance normalization of images whose channels lie in a row: vectors run along the channels. `channels` calls it.

Sums of some pixels each come first, per channel and around the first pixel's value, so that little is lost when squares are summed; then
mean and scale of every channel; then all pixels are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.native.chain import Chain, ChainCode
from sardonyx.providers.native.convolution.form import last_order
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.movement.walking import runs
from sardonyx.providers.native.program import Argument
from sardonyx.providers.native.rows.domain import epsilon_of, row_grain
from sardonyx.providers.native.rows.passes import items, sweep
from sardonyx.providers.native.values import present
from sardonyx.providers.native.views import View
from sardonyx.records import dataclass

CHUNK = 128
"""Pixels whose values are summed in one go."""


@dataclass(frozen=True)
class PixelNorm:
    """What shapes the code."""

    type: Type
    parameters: tuple[Type, Type]
    """Of scale and bias in memory."""
    by_group: bool
    """Whether these belong to the groups, not to the channels."""


def normalize_pixels(lowerer: Lowerer, node: Node, count: Dim, by_group: bool, parameters: Sequence[View], type: Type) -> None:
    """Add the steps that normalize `count` groups of channels of each image."""
    X = present(node.inputs[0])
    view = lowerer.view(X)
    rank, (samples, width) = len(view.shape), view.shape[:2]
    pixels, groups, order = dim.product(view.shape[2:]), (1, rank - 2, 1), last_order(rank)
    source = lowerer.source(X, groups, order)
    chunks = dim.ceildiv(pixels, CHUNK)
    sums = lowerer.scratch(samples * chunks * width * (2 * type.bytes))
    factors = lowerer.scratch(samples * width * (3 * type.bytes))
    lowerer.call(
        pixel_sums_kernel(lowerer.target, type, source.chain),
        [chunks, pixels, width, sums, *source.arguments],
        samples * chunks,
        row_grain(width * CHUNK),
        flops=dim.product(view.shape) * 4,
        traffic=dim.product(view.shape) * view.type.bytes,
    )
    norm = PixelNorm(type, (parameters[0].type, parameters[1].type), by_group)
    numbers: list[Argument] = [count, dim.floordiv(width, dim.maximum(1, count)), chunks, pixels, epsilon_of(node, type)]
    lowerer.call(
        channel_factors_kernel(lowerer.target, norm, source.chain),
        [*numbers, sums, factors, *(one.place for one in parameters), *source.arguments],
        samples * count,
        row_grain(chunks * 16),
    )
    sink = lowerer.sink(node, groups, order=order)
    lowerer.call(
        scale_pixels_kernel(lowerer.target, type, source.chain, sink.chain),
        [pixels, width, factors, *source.arguments, *sink.arguments],
        samples * pixels,
        row_grain(width),
        flops=dim.product(view.shape) * 3,
        traffic=dim.product(view.shape) * 2 * view.type.bytes,
    )


@kernel("sums of pixels")
def pixel_sums_kernel(f: KernelFunction, type: Type, source: Chain) -> None:
    """For each channel the sums of differences from the first pixel and of their squares. Items are chunks of pixels."""
    chunks, pixels, width, sums = f.size(), f.size(), f.size(), f.pointer()
    read, lanes = ChainCode(f, source), f.lanes(type)
    with items(f, [chunks]) as (item, (sample, chunk)):
        first, target = read.row([sample, f.const(I64, 0)]), f.address(sums, item * width * 2, type)
        start = chunk * CHUNK
        stop = f.minimum(start + CHUNK, pixels)

        def each(copy: int, column: Value, remaining: Value | None) -> None:
            middle = first.lanewise(column, lanes, remaining, type)
            total, squares = (f.variable(f.const(type.vector(lanes), 0)) for _ in range(2))
            with f.loop(start, stop) as pixel:
                x = read.row([sample, pixel]).lanewise(column, lanes, remaining, type) - middle
                total.set(total.get() + x)
                squares.set(f.fma(x, x, squares.get()))
            f.store(total.get(), target, column, type, remaining=remaining)
            f.store(squares.get(), target, width + column, type, remaining=remaining)

        sweep(f, 0, width, lanes, 1, each)


@kernel("factors of channels")
def channel_factors_kernel(f: KernelFunction, norm: PixelNorm, source: Chain) -> None:
    """For each channel the mean of its group, what differences are multiplied with, and what is added. Items are groups."""
    groups, channels, chunks, pixels, epsilon = f.size(), f.size(), f.size(), f.size(), f.number(F64)
    sums, factors, scales, biases = (f.pointer() for _ in range(4))
    read, type = ChainCode(f, source), norm.type
    width = groups * channels
    share = 1.0 / f.convert(pixels, F64)
    every = 1.0 / f.convert(channels, F64)
    with items(f, [groups]) as (_, (sample, group)):
        begin = group * channels
        first = read.row([sample, f.const(I64, 0)])

        def channel_sums(channel: Value) -> tuple[Value, Value]:
            """A channel's mean and variance."""
            total, squares = f.variable(0.0, F64), f.variable(0.0, F64)
            with f.loop(0, chunks) as chunk:
                place = (sample * chunks + chunk) * width * 2 + channel
                total.set(total.get() + f.convert(f.load(sums, place, type), F64))
                squares.set(squares.get() + f.convert(f.load(sums, place + width, type), F64))
            moved = total.get() * share
            spread = squares.get() * share - moved * moved
            middle = f.convert(first.lanewise(channel, 1, None, type), F64)
            # a difference of sums may fall short of 0; a NaN stays one
            return middle + moved, f.select(spread < 0.0, 0.0, spread)

        mean = f.variable(0.0, F64)
        with f.loop(begin, begin + channels) as channel:
            mean.set(mean.get() + channel_sums(channel)[0] * every)
        variance = f.variable(0.0, F64)
        with f.loop(begin, begin + channels) as channel:
            middle, spread = channel_sums(channel)
            apart = middle - mean.get()
            variance.set(variance.get() + (spread + apart * apart) * every)
        inverse = 1.0 / f.sqrt(variance.get() + epsilon)
        row = f.address(factors, sample * width * 3, type)
        with f.loop(begin, begin + channels) as channel:
            place = group if norm.by_group else channel
            scale, bias = (
                f.convert(f.load(one, place, stored), type) for one, stored in zip((scales, biases), norm.parameters)
            )
            f.store(f.convert(mean.get(), type), row, channel, type)
            f.store(f.convert(inverse, type) * scale, row, width + channel, type)
            f.store(bias, row, width * 2 + channel, type)


@kernel("scale pixels")
def scale_pixels_kernel(f: KernelFunction, type: Type, source: Chain, sink: Chain) -> None:
    """Items are pixels."""
    pixels, width, factors = f.size(), f.size(), f.pointer()
    read, write = ChainCode(f, source), ChainCode(f, sink)
    lanes = f.lanes(type)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        line = f.address(factors, outer[0] * width * 3, type)
        with f.loop(column, column + count) as pixel:
            row, target = read.row([outer[0], pixel]), write.row([outer[0], pixel])

            def each(copy: int, channel: Value, remaining: Value | None) -> None:
                mean, factor, bias = (
                    f.load(line, width * number + channel, type, lanes, remaining=remaining) for number in range(3)
                )
                x = row.lanewise(channel, lanes, remaining, type)
                target.emit(channel, lanes, remaining, given=[(x - mean) * factor + bias])

            sweep(f, 0, width, lanes, 2, each)

    runs(f, [pixels], run)
