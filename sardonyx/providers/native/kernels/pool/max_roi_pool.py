"""MaxRoiPool: the largest pixel of each bin of a region. Vectors run along the channels, which are last in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import BOOL, F32, I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.form import input_view, last_order
from sardonyx.providers.native.kernels.image.image import Image, image_of
from sardonyx.providers.native.kernels.pool.roi_align import MOST_BINS, PIECE_TAPS, USUAL_TAPS, RegionAxis, region_axes
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, required, shape_of

FARTHEST = 2.0**22
"""How far a region may reach: its bins are computed in float32. Others are left to NumPy."""


def _claims(node: Node) -> bool:
    X, rois = (required(value) for value in node.inputs)
    types = {element_of(value) for value in (X, rois, *node.outputs)}
    type, shape, regions = element_of(X), shape_of(X), shape_of(rois)
    if len(types) != 1 or type is None or not type.is_float or shape is None or len(shape) != 4:
        return False
    bins = operand(node, "pooled_shape")
    return regions is not None and len(regions) == 2 and len(bins) == 2 and all(1 <= count <= MOST_BINS for count in bins)


@lower("MaxRoiPool", claims=_claims)
def max_roi_pool(lowerer: Lowerer, node: Node) -> None:
    view, rois = input_view(lowerer, node), lowerer.contiguous(required(node.inputs[1]))
    lowerer.require(rois.shape[1], 5)
    sink = lowerer.sink(node, (1, 1, 1, 1), order=last_order(4))
    height, width = operand(node, "pooled_shape")
    total = rois.shape[0] * height * width * view.shape[1]
    lowerer.call(
        max_roi_pool_kernel(lowerer.target, view.type, rois.type, sink.chain),
        MaxRoiPoolArguments(
            image=image_of(view),
            images=view.shape[0],
            axes=region_axes(view, (height, width)),
            rois=rois.place,
            scale=float(operand(node, "spatial_scale")),
            status=lowerer.status(),
            sink=sink.arguments,
        ),
        rois.shape[0] * height,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, view.shape[1] * width * USUAL_TAPS))),
        flops=total * USUAL_TAPS,
        traffic=total * view.type.bytes,
    )


class MaxRoiPoolArguments(Arguments):
    image: Image
    images: Size
    axes: Sequence[RegionAxis] = each(lambda: 2)
    rois: Pointer
    scale: Number
    status: Pointer
    sink: Operands = group(lambda chain: chain.slots)


@kernel("max of regions", MaxRoiPoolArguments)
def max_roi_pool_kernel(f: KernelFunction, a: MaxRoiPoolArguments, type: Type, corners: Type, chain: Chain) -> None:
    """Items are rows of bins."""
    epilogue, bad = ChainCode(f, chain, a.sink), f.variable(False, BOOL)
    with items(f, [a.axes[0].bins]) as (_, (region, row)):
        line = f.address(a.rois, region * 5, corners)
        image = f.load(line, 0, corners)
        # as a whole number: toward zero, so that what is above -1 is the first image
        is_there = (image > -1.0) & (image < f.convert(a.images, image.type))
        rows, columns = (_Side(f, a, corners, line, number) for number in (0, 1))
        fits = is_there & rows.fits & columns.fits
        bad.set(bad.get() | ~fits)
        with f.if_(fits):
            plane = f.address(a.image.x, f.convert(image, I64) * a.image.image_step, type)
            begin, end = rows.bin(row)
            with f.loop(0, a.axes[1].bins) as column:
                _pool(f, a, type, plane, (begin, end), columns.bin(column), epilogue.row([region, row, column]))
    with f.if_(bad.get()):
        f.store(1, a.status, 0, I64)


class _Side:
    """A region along the rows' axis (0) or the columns' (1)."""

    def __init__(self, f: KernelFunction, a: MaxRoiPoolArguments, corners: Type, line: Value, number: int):
        self.f = f
        self.axis = a.axes[number]
        scale = f.convert(a.scale, corners.computed)
        with f.exact():  # half away from zero, as in C's round
            first, last = (
                f.copysign(f.floor(f.abs(corner) * scale + 0.5), corner)
                for corner in (f.load(line, place, corners) for place in (2 - number, 4 - number))
            )
        self.fits = (f.abs(first) < FARTHEST) & (f.abs(last) < FARTHEST)
        self.first, behind = (f.convert(f.select(self.fits, corner, 0.0), I64) for corner in (first, last))
        self.width = f.convert(f.maximum(behind - self.first + 1, 1), F32) / f.convert(self.axis.bins, F32)

    def bin(self, number: Value) -> tuple[Value, Value]:
        """The first pixel of a bin, and the one behind its last."""
        f, place = self.f, self.f.convert(number, F32)
        begin = f.convert(f.floor(place * self.width), I64) + self.first
        end = f.convert(f.ceil((place + 1.0) * self.width), I64) + self.first
        begin, end = (f.maximum(f.minimum(edge, self.axis.size), 0) for edge in (begin, end))
        return begin, end


def _pool(
    f: KernelFunction,
    a: MaxRoiPoolArguments,
    type: Type,
    plane: Value,
    rows: tuple[Value, Value],
    columns: tuple[Value, Value],
    target: ChainRow,
) -> None:
    """All channels of a bin. What has no pixels, or none above -inf, is 0."""
    lanes = f.lanes(type)
    with f.loop(0, a.image.channels, lanes) as channel:
        largest, remaining = f.variable(-math.inf, type.vector(lanes)), a.image.channels - channel
        with f.loop(*rows) as row, f.loop(*columns) as column:
            place = row * a.axes[0].step + column * a.axes[1].step + channel
            _take(f, largest, f.load(plane, place, type, lanes, remaining=remaining))
        found = largest.get()
        target.emit(channel, lanes, remaining, given=[f.select(found == -math.inf, f.const(found.type, 0.0), found)])


def _take(f: KernelFunction, largest: Variable, pixels: Value) -> None:
    """The larger one, or the one that is not a number."""
    before = largest.get()
    largest.set(f.select(f.is_nan(before), before, f.select(pixels <= before, before, pixels)))
