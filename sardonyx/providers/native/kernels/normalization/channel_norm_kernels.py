"""Group and instance normalization of images whose channels lie in a row: vectors run along the channels. `channels` calls it.

Sums of some pixels each come first, per channel and around the first pixel's value, so that little is lost when squares are summed; then
mean and scale of every channel; then all pixels are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.native.kernels.conv.form import last_order
from sardonyx.providers.native.kernels.reduction.domain import epsilon_of, row_grain
from sardonyx.providers.native.kernels.reduction.passes import items, sweep
from sardonyx.providers.native.kernels.shape.walking import runs
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Pointer, Size, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import required
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

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
    X = required(node.inputs[0])
    view = lowerer.view(X)
    rank, (samples, width) = len(view.shape), view.shape[:2]
    pixels, groups, order = dim.product(view.shape[2:]), (1, rank - 2, 1), last_order(rank)
    source = lowerer.source(X, groups, order)
    chunks = dim.ceildiv(pixels, CHUNK)
    sums = lowerer.scratch(samples * chunks * width * (2 * type.bytes))
    factors = lowerer.scratch(samples * width * (3 * type.bytes))
    lowerer.call(
        pixel_sums_kernel(lowerer.target, type, source.chain),
        PixelSumsArguments(chunks=chunks, pixels=pixels, width=width, sums=sums, source=source.arguments),
        samples * chunks,
        row_grain(width * CHUNK),
        flops=dim.product(view.shape) * 4,
        traffic=dim.product(view.shape) * view.type.bytes,
    )
    norm = PixelNorm(type, (parameters[0].type, parameters[1].type), by_group)
    lowerer.call(
        channel_factors_kernel(lowerer.target, norm, source.chain),
        ChannelFactorsArguments(
            groups=count,
            channels=dim.floordiv(width, dim.maximum(1, count)),
            chunks=chunks,
            pixels=pixels,
            epsilon=epsilon_of(node, type),
            sums=sums,
            factors=factors,
            scales=parameters[0].place,
            biases=parameters[1].place,
            source=source.arguments,
        ),
        samples * count,
        row_grain(chunks * 16),
    )
    sink = lowerer.sink(node, groups, order=order)
    lowerer.call(
        scale_pixels_kernel(lowerer.target, type, source.chain, sink.chain),
        ScalePixelsArguments(pixels=pixels, width=width, factors=factors, source=source.arguments, sink=sink.arguments),
        samples * pixels,
        row_grain(width),
        flops=dim.product(view.shape) * 3,
        traffic=dim.product(view.shape) * 2 * view.type.bytes,
    )


class PixelSumsArguments(Arguments):
    chunks: Size
    """How many an image has."""
    pixels: Size
    width: Size
    """Channels of a pixel."""
    sums: Pointer
    """For each chunk the sums of all channels, then the sums of squares."""
    source: Operands = group(lambda source: source.slots)


@kernel("sums of pixels", PixelSumsArguments)
def pixel_sums_kernel(f: KernelFunction, a: PixelSumsArguments, type: Type, source: Chain) -> None:
    """For each channel the sums of differences from the first pixel and of their squares. Items are chunks of pixels."""
    read, lanes = ChainCode(f, source, a.source), f.lanes(type)
    with items(f, [a.chunks]) as (item, (sample, chunk)):
        first, target = read.row([sample, f.const(I64, 0)]), f.address(a.sums, item * a.width * 2, type)
        start = chunk * CHUNK
        stop = f.minimum(start + CHUNK, a.pixels)

        def add_up(copy: int, column: Value, remaining: Value | None) -> None:
            middle = first.lanewise(column, lanes, remaining, type)
            total, squares = (f.variable(f.const(type.vector(lanes), 0)) for _ in range(2))
            with f.loop(start, stop) as pixel:
                x = read.row([sample, pixel]).lanewise(column, lanes, remaining, type) - middle
                total.set(total.get() + x)
                squares.set(f.fma(x, x, squares.get()))
            f.store(total.get(), target, column, type, remaining=remaining)
            f.store(squares.get(), target, a.width + column, type, remaining=remaining)

        sweep(f, 0, a.width, lanes, 1, add_up)


class ChannelFactorsArguments(Arguments):
    groups: Size
    channels: Size
    """Of one group."""
    chunks: Size
    pixels: Size
    epsilon: Number
    sums: Pointer
    """What `pixel_sums_kernel` has made."""
    factors: Pointer
    """For each image the means of all channels, then what they are multiplied with, then what is added."""
    scales: Pointer
    biases: Pointer
    source: Operands = group(lambda source: source.slots)


@kernel("factors of channels", ChannelFactorsArguments)
def channel_factors_kernel(f: KernelFunction, a: ChannelFactorsArguments, norm: PixelNorm, source: Chain) -> None:
    """For each channel the mean of its group, what differences are multiplied with, and what is added. Items are groups."""
    read, type = ChainCode(f, source, a.source), norm.type
    width = a.groups * a.channels
    pixel_share = 1.0 / f.convert(a.pixels, F64)
    channel_share = 1.0 / f.convert(a.channels, F64)
    with items(f, [a.groups]) as (_, (sample, number)):
        begin = number * a.channels
        end = begin + a.channels
        first = read.row([sample, f.const(I64, 0)])

        def statistics(channel: Value) -> tuple[Value, Value]:
            start = sample * a.chunks * width * 2 + channel
            middle = f.convert(first.lanewise(channel, 1, None, type), F64)
            return _channel_statistics(f, a, type, start, width, middle, pixel_share)

        mean, variance = f.variable(0.0, F64), f.variable(0.0, F64)
        with f.loop(begin, end) as channel:
            mean.set(mean.get() + statistics(channel)[0] * channel_share)
        with f.loop(begin, end) as channel:
            middle, spread = statistics(channel)
            apart = middle - mean.get()
            variance.set(variance.get() + (spread + apart * apart) * channel_share)
        inverse = 1.0 / f.sqrt(variance.get() + a.epsilon)
        row = f.address(a.factors, sample * width * 3, type)
        with f.loop(begin, end) as channel:
            place = number if norm.by_group else channel
            scale = f.convert(f.load(a.scales, place, norm.parameters[0]), type)
            bias = f.convert(f.load(a.biases, place, norm.parameters[1]), type)
            f.store(f.convert(mean.get(), type), row, channel, type)
            f.store(f.convert(inverse, type) * scale, row, width + channel, type)
            f.store(bias, row, width * 2 + channel, type)


def _channel_statistics(
    f: KernelFunction, a: ChannelFactorsArguments, type: Type, start: Value, width: Value, middle: Value, share: Value
) -> tuple[Value, Value]:
    """A channel's mean and variance: its sums begin at `start`, and `middle` is the first pixel's value."""
    total, squares = f.variable(0.0, F64), f.variable(0.0, F64)
    with f.loop(0, a.chunks) as chunk:
        place = start + chunk * width * 2
        total.set(total.get() + f.convert(f.load(a.sums, place, type), F64))
        squares.set(squares.get() + f.convert(f.load(a.sums, place + width, type), F64))
    moved = total.get() * share
    spread = squares.get() * share - moved * moved
    # a difference of sums may fall short of 0; a NaN stays one
    return middle + moved, f.select(spread < 0.0, 0.0, spread)


class ScalePixelsArguments(Arguments):
    pixels: Size
    width: Size
    """Channels of a pixel."""
    factors: Pointer
    """What `channel_factors_kernel` has made."""
    source: Operands = group(lambda source: source.slots)
    sink: Operands = group(lambda sink: sink.slots)


@kernel("scale pixels", ScalePixelsArguments)
def scale_pixels_kernel(f: KernelFunction, a: ScalePixelsArguments, type: Type, source: Chain, sink: Chain) -> None:
    """Items are pixels."""
    read, write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
    lanes = f.lanes(type)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        line = f.address(a.factors, outer[0] * a.width * 3, type)
        with f.loop(column, column + count) as pixel:
            row, target = read.row([outer[0], pixel]), write.row([outer[0], pixel])

            def scale(copy: int, channel: Value, remaining: Value | None) -> None:
                mean, factor, bias = (
                    f.load(line, a.width * number + channel, type, lanes, remaining=remaining) for number in range(3)
                )
                x = row.lanewise(channel, lanes, remaining, type)
                target.emit(channel, lanes, remaining, given=[(x - mean) * factor + bias])

            sweep(f, 0, a.width, lanes, 2, scale)

    runs(f, [a.pixels], run)
