"""Convolutions of many groups by filters whose sizes a run tells: vectors run along the channels, which lie last.

Lowerings of convolutions call it. Mostly each group has one channel and one filter, so that channels lie as results do; else each channel
of a group is gathered for all its filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import dim
from sardonyx.providers.native.kernels.conv.choice import Candidate, Convolution
from sardonyx.providers.native.kernels.conv.depthwise import packed_in_runs
from sardonyx.providers.native.kernels.conv.form import axes_of
from sardonyx.providers.native.kernels.conv.tiles import Axis, grain_for
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

MANY = 8
"""So many groups have few channels each."""


@dataclass(frozen=True)
class Groups:
    """What shapes the code."""

    type: Type
    axes: int


def candidates(convolution: Convolution) -> Iterator[Candidate]:
    """Itself, if there are many groups."""
    if convolution.geometry.groups >= MANY:
        yield Candidate("grouped", 0, lambda sink: _step(convolution, sink))


def _step(convolution: Convolution, sink: Sink) -> None:
    lowerer, geometry, view = convolution.lowerer, convolution.geometry, convolution.view
    w, bias = packed_in_runs(lowerer, geometry, view.type, convolution.filters.W, convolution.filters.B)
    channels, depth = geometry.groups * geometry.filters, geometry.channels * geometry.taps
    lowerer.call(
        grouped_kernel(lowerer.target, Groups(view.type, len(geometry.kernel)), sink.chain),
        GroupedArguments(
            x=view.place,
            w=w,
            bias=bias,
            channels=channels,
            inputs=geometry.channels,
            filters=dim.maximum(1, geometry.filters),
            positions=geometry.positions,
            image_step=view.strides[0],
            axes=axes_of(geometry, view),
            sink=sink.arguments,
        ),
        geometry.batch * geometry.positions,
        grain_for(channels * (depth + 4)),
        flops=geometry.flops,
        traffic=geometry.batch
        * (dim.product(geometry.input) * geometry.all_channels + geometry.positions * channels)
        * view.type.bytes,
    )


class GroupedArguments(Arguments):
    x: Pointer
    w: Pointer
    """Filters by taps, then by the channels of a group."""
    bias: Pointer
    channels: Size
    """Of the result."""
    inputs: Size
    """Channels of a group."""
    filters: Size
    """Of a group."""
    positions: Size
    image_step: Size
    axes: Sequence[Axis] = each(lambda groups: groups.axes)
    sink: Operands = group(lambda chain: chain.slots)


@kernel("grouped windows", GroupedArguments)
def grouped_kernel(f: KernelFunction, a: GroupedArguments, groups: Groups, chain: Chain) -> None:
    """Items are pixels of the result."""
    epilogue, lanes = ChainCode(f, chain, a.sink), f.lanes(groups.type)
    is_plain = (a.inputs == 1) & (a.filters == 1)
    with items(f, [a.positions]) as (_, (image, position)):
        places = _places(f, a.axes, position)
        row, plane = epilogue.row([image, position]), f.address(a.x, image * a.image_step, groups.type)
        with f.loop(0, a.channels, lanes) as channel:
            remaining = a.channels - channel
            total = f.variable(f.load(a.bias, channel, groups.type, lanes, remaining=remaining))
            first = f.variable(f.const(I64.vector(lanes), 0))
            with f.if_(~is_plain):
                numbers = f.iota(I64, lanes) + f.splat(channel, lanes)
                first.set(numbers // f.splat(a.filters, lanes) * f.splat(a.inputs, lanes))

            def add(offset: Value, tap: Value, channel: Value = channel, remaining: Value = remaining) -> None:
                weights = f.address(a.w, tap * a.inputs * a.channels + channel, groups.type)
                pixel = f.address(plane, offset, groups.type)
                with f.if_else(is_plain) as otherwise:
                    x = f.load(pixel, channel, groups.type, lanes, remaining=remaining)
                    total.set(f.fma(x, f.load(weights, 0, groups.type, lanes, remaining=remaining), total.get()))
                    otherwise()
                    with f.loop(0, a.inputs) as number:
                        mask = f.first_lanes(remaining, lanes)
                        x = f.gather(pixel, first.get() + f.splat(number, lanes), groups.type, mask=mask)
                        w = f.load(weights, number * a.channels, groups.type, lanes, remaining=remaining)
                        total.set(f.fma(x, w, total.get()))

            _each_tap(f, a.axes, places, f.const(I64, 0), f.const(I64, 0), add)
            row.emit(channel, lanes, remaining, given=[total.get()])


def _places(f: KernelFunction, axes: Sequence[Axis], position: Value) -> list[Value]:
    """Where the window of a pixel begins along each axis."""
    places: list[Value] = []
    for axis in reversed(axes):
        size = f.maximum(axis.output, 1)
        places.insert(0, position % size * axis.stride - axis.begin)
        position = position // size
    return places


def _each_tap(
    f: KernelFunction,
    axes: Sequence[Axis],
    places: Sequence[Value],
    offset: Value,
    tap: Value,
    do: Callable[[Value, Value], None],
) -> None:
    """`do(offset, tap)` for each tap that lies inside the image: where the pixel under it begins, and its number."""
    if not axes:
        do(offset, tap)
        return
    axis, place = axes[0], places[0]
    low, high = axis.range(f, place)
    with f.loop(low, high) as number:
        here = offset + (place + number * axis.dilation) * axis.step
        _each_tap(f, axes[1:], places[1:], here, tap * axis.kernel + number, do)
