"""CropAndResize of com.microsoft: regions of images, each at one size. Vectors run along the channels, which are last in memory."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import BOOL, I32, I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.form import input_view, last_order
from sardonyx.providers.native.kernels.image.image import Image, image_of
from sardonyx.providers.native.kernels.image.stencil import MOST_PIXELS, ImageAxis
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.shape.views import content
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.startup.records import dataclass

PIECE_TAPS = 8192
"""How many pixels are worth handing to another thread."""


@dataclass(frozen=True)
class Crop:
    """What shapes the code."""

    type: Type
    """Of pixels."""
    corners: Type
    """Of the corners of regions, as they are stored."""
    is_nearest: bool


def _claims(node: Node) -> bool:
    X, rois, batch_indices, _ = (required(value) for value in node.inputs)
    type, ranks = element_of(X), [len(shape_of(value) or ()) for value in (X, rois, batch_indices)]
    is_float = type is not None and type.is_float and element_of(rois) == type
    return is_float and ranks == [4, 2, 1] and content(node, "crop_size") is not None


@lower("CropAndResize", domain="com.microsoft", claims=_claims)
def crop_and_resize(lowerer: Lowerer, node: Node) -> None:
    for size in dims(required(node.inputs[0]))[2:]:
        lowerer.require(dim.maximum(1, dim.minimum(size, MOST_PIXELS)), size)
    view, rois, indices = input_view(lowerer, node), *(lowerer.contiguous(required(value)) for value in node.inputs[1:3])
    lowerer.require(rois.shape[0], indices.shape[0])
    lowerer.require(rois.shape[1], 4)
    *_, height, width = dims(node.outputs[0])
    for size in (height, width):
        lowerer.require(dim.maximum(size, 0), size)
    crop = Crop(view.type, rois.type, operand(node, "mode") == "nearest")
    sink = lowerer.sink(node, (1, 1, 1, 1), order=last_order(4))
    total, taps = rois.shape[0] * height * width * view.shape[1], 1 if crop.is_nearest else 4
    lowerer.call(
        crop_kernel(lowerer.target, crop, sink.chain),
        CropArguments(
            image=image_of(view),
            images=view.shape[0],
            axes=[
                CropAxis(size=size, step=step, count=count)
                for size, step, count in zip(view.shape[2:], view.strides[2:], (height, width))
            ],
            rois=rois.place,
            batch_indices=indices.place,
            outside=float(operand(node, "extrapolation_value")),
            status=lowerer.status(),
            sink=sink.arguments,
        ),
        rois.shape[0] * height,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, view.shape[1] * width * taps))),
        flops=total * 2 * taps,
        traffic=total * (taps + 1) * view.type.bytes,
    )


class CropAxis(ImageAxis):
    count: Size
    """Pixels of a crop."""


class CropArguments(Arguments):
    image: Image
    images: Size
    axes: Sequence[CropAxis] = each(lambda: 2)
    rois: Pointer
    batch_indices: Pointer
    outside: Number
    status: Pointer
    sink: Operands = group(lambda chain: chain.slots)


@kernel("crop and resize", CropArguments)
def crop_kernel(f: KernelFunction, a: CropArguments, crop: Crop, chain: Chain) -> None:
    """Items are rows of crops."""
    epilogue, bad = ChainCode(f, chain, a.sink), f.variable(False, BOOL)
    with items(f, [a.axes[0].count]) as (_, (region, row)):
        image = f.convert(f.load(a.batch_indices, region, I32), I64)
        is_there = (image >= 0) & (image < a.images)
        bad.set(bad.get() | ~is_there)
        plane = f.address(a.image.x, f.select(is_there, image, 0) * a.image.image_step, crop.type)
        line = f.address(a.rois, region * 4, crop.corners)
        y = _Place(f, a.axes[0], crop, line, 0, row)
        with f.loop(0, a.axes[1].count) as column:
            x = _Place(f, a.axes[1], crop, line, 1, column)
            bad.set(bad.get() | ~(y.is_number & x.is_number))
            _channels(f, a, crop, plane, y, x, epilogue.row([region, row, column]))
    with f.if_(bad.get()):
        f.store(1, a.status, 0, I64)


class _Place:
    """Where a pixel of a crop stands along one axis: between two pixels of the image."""

    def __init__(self, f: KernelFunction, axis: CropAxis, crop: Crop, line: Value, number: int, place: Value):
        first, last = (f.load(line, corner, crop.corners) for corner in (number, number + 2))
        type = first.type
        edge = f.convert(axis.size - 1, type)
        with f.exact():
            step = (last - first) * edge / f.convert(f.maximum(axis.count - 1, 1), type)
            spread, alone = first * edge + f.convert(place, type) * step, (first + last) * edge / 2.0
            position = f.select(axis.count == 1, alone, spread)
        self.is_number = ~f.is_nan(position)
        self.is_inside = (position >= 0.0) & (position <= edge)
        position = f.select(self.is_inside, position, 0.0)
        below = f.floor(position + 0.5 if crop.is_nearest else position)
        self.before = f.convert(below, I64) * axis.step
        self.after = f.convert(f.ceil(position), I64) * axis.step
        self.weight = f.convert(position - below, crop.type)


def _channels(f: KernelFunction, a: CropArguments, crop: Crop, plane: Value, y: _Place, x: _Place, target: ChainRow) -> None:
    """All channels of a pixel, in the order of NumPy: along rows, then between them."""
    lanes, is_inside = f.lanes(crop.type), y.is_inside & x.is_inside
    outside = f.const(crop.type.vector(lanes), 0.0) + f.convert(a.outside, crop.type)
    with f.loop(0, a.image.channels, lanes) as channel, f.exact():
        remaining = a.image.channels - channel

        def pixels(offset: Value) -> Value:
            return f.load(plane, offset + channel, crop.type, lanes, remaining=remaining)

        def line(row: Value) -> Value:
            before = pixels(row + x.before)
            return before + (pixels(row + x.after) - before) * f.splat(x.weight, lanes)

        if crop.is_nearest:
            found = pixels(y.before + x.before)
        else:
            above, below = line(y.before), line(y.after)
            found = above + (below - above) * f.splat(y.weight, lanes)
        target.emit(channel, lanes, remaining, given=[f.select(is_inside, found, outside)])
