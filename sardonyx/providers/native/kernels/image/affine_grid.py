"""AffineGrid: where an affine map takes the pixels of an image, whose sides reach from -1 to 1. GridSample reads such points."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.shape.views import content
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, fixed, may_equal, required, shape_of

PIECE_POINTS = 8192
"""How many points are worth handing to another thread."""


def claims_affine_grid(node: Node) -> bool:
    """Images of two or three axes, of sizes that don't depend on data."""
    theta, type = shape_of(required(node.inputs[0])), element_of(required(node.inputs[0]))
    sizes, shape = content(node, "size"), shape_of(node.outputs[0])
    if type is None or not type.is_float or sizes is None or theta is None or shape is None or len(sizes) not in (4, 5):
        return False
    axes = len(sizes) - 2
    is_affine = len(theta) == 3 and may_equal(theta[1], axes) and may_equal(theta[2], axes + 1)
    return is_affine and shape == (sizes[0], *sizes[2:], axes)


@lower("AffineGrid", claims=claims_affine_grid)
def affine_grid(lowerer: Lowerer, node: Node) -> None:
    """For each image, and each of its pixels, a point."""
    theta, target = lowerer.contiguous(required(node.inputs[0])), lowerer.output(node.outputs[0])
    axes = fixed(target.shape[-1], "the number of axes")
    lowerer.require_shape(theta.shape, (target.shape[0], axes, axes + 1))
    for size in target.shape[:-1]:
        lowerer.require(dim.maximum(size, 0), size)
    *outer, width, _ = target.shape
    lowerer.call(
        affine_grid_kernel(lowerer.target, theta.type, axes, bool(operand(node, "align_corners"))),
        AffineGridArguments(theta=theta.place, target=target.place, sizes=target.shape[1:-1]),
        dim.product(outer),
        dim.maximum(1, dim.floordiv(PIECE_POINTS, dim.maximum(1, width))),
        flops=dim.product(target.shape) * 2 * axes,
        traffic=dim.product(target.shape) * target.type.bytes,
    )


class AffineGridArguments(Arguments):
    theta: Pointer
    target: Pointer
    sizes: Sequence[Size] = each(lambda axes: axes)


@kernel("affine grid", AffineGridArguments)
def affine_grid_kernel(f: KernelFunction, a: AffineGridArguments, type: Type, axes: int, aligned: bool) -> None:
    """Items are rows of points."""
    lanes, size = f.lanes(F64), a.sizes[-1]
    with items(f, a.sizes[:-1]) as (row, (image, *places)):
        outer = [_tick(f, place, size, aligned, type) for place, size in zip(places, a.sizes)]
        theta = f.address(a.theta, image * (axes * (axes + 1)), type)
        maps = [_map(f, f.address(theta, entry * (axes + 1), type), outer, axes, type) for entry in range(axes)]
        line = f.address(a.target, row * size * axes, type)
        whole = size & -lanes
        for first, stop, width in ((f.const(I64, 0), whole, lanes), (whole, size, 1)):
            with f.loop(first, stop, width) as column:
                tick = _tick(f, column, size, aligned, type, width)
                entries = [f.fma(f.splat(factor, width), tick, f.splat(start, width)) for factor, start in maps]
                _store_points(f, entries, line, column, type)


def _map(f: KernelFunction, theta: Value, outer: Sequence[Value], axes: int, type: Type) -> tuple[Value, Value]:
    """An entry of the points of a row, as a factor of their last coordinate and what is added."""
    factors = [f.load(theta, number, type) for number in range(axes + 1)]
    start = factors[-1]
    for factor, tick in zip(reversed(factors[1:-1]), outer):  # the first entry of a point belongs to the last axis
        start = f.fma(factor, tick, start)
    return factors[0], start


def _tick(f: KernelFunction, place: Value, size: Value, aligned: bool, type: Type, lanes: int = 1) -> Value:
    """The centres of some pixels in a row, where the image reaches from -1 to 1; `aligned` ones begin and end there."""
    number = f.convert(f.iota(I64, lanes) + f.splat(place, lanes), F64)
    if aligned:
        steps = f.convert(size - 1, F64)
        tick = number * f.splat(2.0 / f.maximum(steps, 1.0), lanes) - 1.0
        # one pixel alone stands in the middle, and the last one at the end
        tick = f.select(f.splat(size == 1, lanes), 0.0, f.select(number == f.splat(steps, lanes), 1.0, tick))
    else:
        tick = (number * 2.0 + 1.0) / f.splat(f.convert(size, F64), lanes) - 1.0
    return f.convert(tick, type.computed)


def _store_points(f: KernelFunction, entries: Sequence[Value], line: Value, column: Value, type: Type) -> None:
    """Write points entry by entry."""
    lanes, axes = entries[0].type.lanes, len(entries)
    if axes == 2 and lanes > 1:
        order = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
        f.store(f.shuffle(entries[0], entries[1], order), line, column * 2, type)
        return
    for number, entry in enumerate(entries):
        for lane in range(lanes):
            f.store(f.extract(entry, lane), line, (column + lane) * axes + number, type)
