"""DynamicQuantizeLinear: the range of a tensor, from it a scale and a zero point, then one loop over the elements."""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, U8
from sardonyx.ir import Node, dim
from sardonyx.ir import Value as GraphValue
from sardonyx.providers.native.kernels.reduction.passes import sweep
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import required
from sardonyx.providers.native.program.views import View, dense_order
from sardonyx.providers.scalars.elementwise import greatest, least
from sardonyx.providers.scalars.quantize import saturated

PIECE = 8192
"""Elements whose range is one item."""
UNROLL = 4
"""How many vectors are compared at a time: each comparison waits for the one before."""
LEVELS = 255.0


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(lowerer: Lowerer, node: Node) -> None:
    source = required(node.inputs[0])
    x = dense_view(lowerer, source)
    scale, zero_point = (lowerer.output(value) for value in node.outputs[1:3])
    parameters_steps(lowerer, x, scale, zero_point)
    lowerer.delay(node.outputs[0], source, [Operation("QuantizeLinear", (None, scale, zero_point), type=U8)])


def dense_view(lowerer: Lowerer, value: GraphValue) -> View:
    """A value without gaps, its axes in any order."""
    view = lowerer.view(value)
    return view if dense_order(view) is not None else lowerer.contiguous(value)


def parameters_steps(lowerer: Lowerer, x: View, scale: View, zero_point: View) -> None:
    """Add the steps that find the scale and the zero point of a tensor without gaps."""
    count = dim.product(x.shape)
    pieces = dim.ceildiv(count, PIECE)
    lanes = lowerer.target.lanes(F32)
    ranges = lowerer.scratch(dim.maximum(pieces, 1) * (2 * lanes * F32.bytes))
    lowerer.call(
        range_kernel(lowerer.target),
        RangeArguments(x=x.place, ranges=ranges, count=count),
        pieces,
        4,
        flops=count * 2,
        traffic=count * F32.bytes,
    )
    lowerer.call(
        parameters_kernel(lowerer.target),
        ParameterArguments(ranges=ranges, scale=scale.place, zero_point=zero_point.place, pieces=pieces),
        1,
    )


class RangeArguments(Arguments):
    x: Pointer
    ranges: Pointer
    """For each piece a vector of least and one of greatest numbers."""
    count: Size


@kernel("range", RangeArguments)
def range_kernel(f: KernelFunction, a: RangeArguments) -> None:
    """Items are pieces. The range has 0 in it; where there is a NaN its ends are NaN."""
    lanes = f.lanes(F32)
    with f.loop(f.begin, f.end) as piece:
        ranges = [_Range(f, lanes) for _ in range(UNROLL)]

        def take(copy: int, place: Value, remaining: Value | None) -> None:
            numbers = f.load(a.x, place, F32, lanes, remaining=remaining)
            ranges[copy].add(numbers, numbers)

        sweep(f, piece * PIECE, f.minimum((piece + 1) * PIECE, a.count), lanes, UNROLL, take)
        for other in ranges[1:]:
            ranges[0].add(other.low.get(), other.high.get())
        f.store(ranges[0].low.get(), a.ranges, piece * (2 * lanes), F32)
        f.store(ranges[0].high.get(), a.ranges, piece * (2 * lanes) + lanes, F32)


class _Range:
    """The least and the greatest numbers of some lanes, and 0."""

    def __init__(self, f: KernelFunction, lanes: int):
        self.low, self.high = (f.variable(f.const(F32.vector(lanes), 0.0)) for _ in range(2))

    def add(self, low: Value, high: Value) -> None:
        self.low.set(least(low, self.low.get()))
        self.high.set(greatest(high, self.high.get()))


class ParameterArguments(Arguments):
    ranges: Pointer
    scale: Pointer
    zero_point: Pointer
    pieces: Size


@kernel("scale of a range", ParameterArguments)
def parameters_kernel(f: KernelFunction, a: ParameterArguments) -> None:
    lanes = f.lanes(F32)
    with f.loop(f.begin, f.end):
        vectors, all_lanes = _Range(f, lanes), _Range(f, 1)
        with f.loop(0, a.pieces) as piece:
            place = piece * (2 * lanes)
            vectors.add(f.load(a.ranges, place, F32, lanes), f.load(a.ranges, place + lanes, F32, lanes))
        lows, highs = vectors.low.get(), vectors.high.get()
        for lane in range(lanes):
            all_lanes.add(f.extract(lows, lane), f.extract(highs, lane))
        scale, zero_point = parameters_of(f, all_lanes.low.get(), all_lanes.high.get())
        f.store(scale, a.scale, 0, F32)
        f.store(zero_point, a.zero_point, 0, U8)


def parameters_of(f: KernelFunction, low: Value, high: Value) -> tuple[Value, Value]:
    """The scale and the zero point of a range."""
    with f.exact():
        scale = f.select(high > low, (high - low) / LEVELS, 1.0)
        return scale, saturated(-low / scale, None, U8)
