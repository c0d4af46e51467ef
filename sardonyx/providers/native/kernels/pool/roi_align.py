"""RoiAlign: regions of images, averaged or their maxima taken in bins. Vectors run along the channels, which are last in memory.

Samples along both axes are independent, so each axis of a region has a table of pixels and weights, and a bin is what the entries of both
make together. In an average, samples that meet the same pixel are one entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import BOOL, F64, I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.form import input_view, last_order
from sardonyx.providers.native.kernels.image.image import Image, image_of
from sardonyx.providers.native.kernels.image.stencil import ImageAxis
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, required, shape_of
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

VECTORS = 4
"""So many vectors of channels are combined side by side."""
MOST_BINS = 256
"""Along an axis."""
MOST_ENTRIES = 4096
"""Of a region's table along an axis. Regions with more samples are left to NumPy."""
USUAL_TAPS = 9
PIECE_TAPS = 8192
"""How many pixels are worth handing to another thread."""


@dataclass(frozen=True)
class Regions:
    """What shapes the code."""

    type: Type
    """Of pixels."""
    corners: Type
    """Of the corners of regions, as they are stored."""
    mode: str
    """avg or max."""
    shifted: bool
    """Whether whole coordinates are the centres of pixels."""
    samples: int
    """Along each axis of a bin; 0 for as many as there are pixels."""


def claims_roi_align(node: Node) -> bool:
    X, rois, batch_indices = (required(value) for value in node.inputs)
    types = {element_of(value) for value in (X, rois, *node.outputs)}
    type = element_of(X)
    if len(types) != 1 or type is None or not type.is_float or element_of(batch_indices) != I64:
        return False
    shape, corners, indices = (shape_of(value) or () for value in (X, rois, batch_indices))
    if len(shape) != 4 or len(corners) != 2 or not may_equal(corners[1], 4) or len(indices) != 1:
        return False
    bins = [int(operand(node, name)) for name in ("output_height", "output_width")]
    return all(1 <= count <= MOST_BINS for count in bins) and operand(node, "mode") in ("avg", "max")


@lower("RoiAlign", claims=claims_roi_align)
def roi_align(lowerer: Lowerer, node: Node) -> None:
    """For each region an image of bins."""
    rois, batch_indices = (lowerer.contiguous(required(value)) for value in node.inputs[1:])
    lowerer.require_shape(rois.shape, (batch_indices.shape[0], 4))
    for size in dims(required(node.inputs[0]))[2:]:
        lowerer.require(dim.maximum(size, 1), size)
    view = input_view(lowerer, node)
    regions = Regions(
        view.type,
        rois.type,
        operand(node, "mode"),
        operand(node, "coordinate_transformation_mode") == "half_pixel",
        max(0, int(operand(node, "sampling_ratio"))),
    )
    height, width = (int(operand(node, name)) for name in ("output_height", "output_width"))
    sink = lowerer.sink(node, (1, 1, 1, 1), order=last_order(4))
    channels = view.shape[1]
    taps = USUAL_TAPS if regions.samples == 0 else 4 * regions.samples**2
    total = rois.shape[0] * height * width * channels
    lowerer.call(
        roi_align_kernel(lowerer.target, regions, sink.chain),
        RoiAlignArguments(
            image=image_of(view),
            images=view.shape[0],
            axes=region_axes(view, (height, width)),
            rois=rois.place,
            batch_indices=batch_indices.place,
            scale=float(operand(node, "spatial_scale")),
            status=lowerer.status(),
            sink=sink.arguments,
        ),
        rois.shape[0] * height,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, channels * width * taps))),
        flops=total * 2 * taps,
        traffic=total * view.type.bytes,
    )


# --- the kernel -----------------------------------------------------------------------------------------------------


class RegionAxis(ImageAxis):
    bins: Size
    """Of a region."""


def region_axes(view: View, bins: Sequence[Dim]) -> list[RegionAxis]:
    """Height and width of images whose regions have so many bins."""
    return [RegionAxis(size=size, step=step, bins=count) for size, step, count in zip(view.shape[2:], view.strides[2:], bins)]


class RoiAlignArguments(Arguments):
    image: Image
    images: Size
    axes: Sequence[RegionAxis] = each(lambda: 2)
    rois: Pointer
    batch_indices: Pointer
    scale: Number
    status: Pointer
    sink: Operands = group(lambda chain: chain.slots)


class _Table:
    """Pixels and weights of the bins along one axis, on the stack."""

    def __init__(self, f: KernelFunction, regions: Regions, entries: int, bins: int):
        self.f = f
        self.regions = regions
        self.type = regions.corners.computed
        self.offsets, self.weights = f.stack(I64, entries), f.stack(self.type, entries)
        self.starts = f.stack(I64, bins + 1)
        self.entries = entries

    def fill(self, axis: _Side, first_bin: Value, bins: Value, bad: Variable) -> None:
        """Find the entries of some bins. A region with more samples than there is room for is `bad`."""
        f = self.f
        fits = axis.samples * f.convert(bins, self.type) * 2.0 <= float(self.entries)
        fits = fits & (axis.first - axis.first == 0.0) & (axis.step - axis.step == 0.0)  # both are finite
        bad.set(bad.get() | ~fits)  # also what is not a number
        count = f.variable(0, I64)
        with f.if_(fits):
            samples = f.convert(f.maximum(axis.samples, 0.0), I64)
            with f.loop(0, bins) as number:
                f.store(count.get(), self.starts, number, I64)
                with f.loop(0, samples) as sample:
                    self._sample(axis, first_bin + number, sample, samples, f.load(self.starts, number, I64), count)
        f.store(count.get(), self.starts, bins, I64)

    def entries_of(self, number: Value) -> tuple[Value, Value]:
        """The first entry of a bin and the one behind its last."""
        return self.f.load(self.starts, number, I64), self.f.load(self.starts, number + 1, I64)

    def _sample(self, axis: _Side, bin: Value, sample: Value, samples: Value, start: Value, count: Variable) -> None:
        f = self.f
        with f.exact():
            tick = (f.convert(sample, F64) + 0.5) / f.convert(samples, F64) + f.convert(bin, F64)
            point = f.convert(f.convert(axis.first, F64) + tick * f.convert(axis.step, F64), self.type)
        inside = (point >= -1.0) & (point <= f.convert(axis.size, self.type))
        last = axis.size - 1
        point = f.minimum(f.maximum(point, 0.0), f.convert(last, self.type))
        below = f.floor(point)
        fraction = point - below
        low = f.convert(below, I64)
        for pixel, weight in ((low, 1.0 - fraction), (f.minimum(low + 1, last), fraction)):
            self._put(pixel * axis.pixel_step, f.select(inside, weight, 0.0), start, count)

    def _put(self, offset: Value, weight: Value, start: Value, count: Variable) -> None:
        """Add an entry, or its weight to one of the last two if that is of the same pixel."""
        f, here = self.f, count.get()
        place = f.variable(here)
        if self.regions.mode == "avg":
            for back in (1, 2):
                before = f.maximum(here - back, 0)
                same = (here - back >= start) & (f.load(self.offsets, before, I64) == offset)
                place.set(f.select(same, before, place.get()))
        is_new = place.get() == here
        old = f.load(self.weights, place.get(), self.type)
        f.store(offset, self.offsets, place.get(), I64)
        f.store(f.select(is_new, weight, old + weight), self.weights, place.get(), self.type)
        count.set(f.select(is_new, here + 1, here))


@dataclass(frozen=True)
class _Side:
    """A region along one axis."""

    first: Value
    step: Value
    """The size of a bin."""
    samples: Value
    """In each bin, as a float that may be anything."""
    size: Value
    pixel_step: Value


class _Kernel:
    def __init__(self, f: KernelFunction, a: RoiAlignArguments, regions: Regions):
        self.f = f
        self.a = a
        self.regions = regions
        self.scale = f.convert(a.scale, regions.corners.computed)

    def side(self, region: Value, number: int) -> _Side:
        """A region along the rows' axis (0) or the columns' (1)."""
        f, type, axis = self.f, self.regions.corners.computed, self.a.axes[number]
        places = (1 - number, 3 - number)  # corners come as x1, y1, x2, y2
        with f.exact():
            first, last = (
                f.load(self.a.rois, region * 4 + place, self.regions.corners) * self.scale
                - (0.5 if self.regions.shifted else 0.0)
                for place in places
            )
            length = last - first
        if not self.regions.shifted:
            length = f.select(length > 1.0, length, f.select(f.is_nan(length), length, 1.0))
        step = length / f.convert(axis.bins, type)
        samples = f.const(type, self.regions.samples) if self.regions.samples else f.ceil(step)
        return _Side(first, step, samples, axis.size, axis.step)

    def bin(self, plane: Value, y: _Table, x: _Table, number: Value, target: ChainRow, divisor: Value) -> None:
        """All channels of a bin of a row."""
        f = self.f
        rows, columns = y.entries_of(f.const(I64, 0)), x.entries_of(number)
        lanes = f.lanes(self.regions.type)

        def block(channel: Value, vectors: int, remaining: Value | None) -> None:
            start = 0.0 if self.regions.mode == "avg" else -math.inf
            totals = [f.variable(start, self.regions.type.vector(lanes)) for _ in range(vectors)]
            with f.loop(*rows) as row:
                line = f.address(plane, f.load(y.offsets, row, I64) + channel, self.regions.type)
                row_weight = f.load(y.weights, row, y.type)
                with f.loop(*columns) as column:
                    place = f.address(line, f.load(x.offsets, column, I64), self.regions.type)
                    weight = f.splat(row_weight * f.load(x.weights, column, x.type), lanes)
                    for number, total in enumerate(totals):
                        pixels = f.load(place, number * lanes, self.regions.type, lanes, remaining=remaining)
                        self._take(total, pixels, weight)
            nothing = (rows[0] >= rows[1]) | (columns[0] >= columns[1])
            for number, total in enumerate(totals):
                result = total.get() / f.splat(divisor, lanes) if self.regions.mode == "avg" else total.get()
                result = f.select(nothing, f.const(result.type, 0.0), result)
                target.emit(channel + number * lanes, lanes, remaining, given=[result])

        many = self.a.image.channels & -(VECTORS * lanes)
        with f.loop(0, many, VECTORS * lanes) as channel:
            block(channel, VECTORS, None)
        with f.loop(many, self.a.image.channels, lanes) as channel:
            block(channel, 1, self.a.image.channels - channel)

    def _take(self, total: Variable, pixels: Value, weight: Value) -> None:
        f = self.f
        if self.regions.mode == "avg":
            total.set(f.fma(weight, pixels, total.get()))
            return
        corner = weight * pixels
        larger = f.maximum(corner, total.get())
        total.set(f.select(f.is_nan(corner), corner, larger))


@kernel("align regions", RoiAlignArguments)
def roi_align_kernel(f: KernelFunction, a: RoiAlignArguments, regions: Regions, chain: Chain) -> None:
    """Items are rows of bins."""
    code, epilogue = _Kernel(f, a, regions), ChainCode(f, chain, a.sink)
    row_bins, column_bins = (axis.bins for axis in a.axes)
    rows, columns = _Table(f, regions, MOST_ENTRIES // 4, 1), _Table(f, regions, MOST_ENTRIES, MOST_BINS)
    bad = f.variable(False, BOOL)
    with items(f, [row_bins]) as (_, (region, row)):
        y, x = code.side(region, 0), code.side(region, 1)
        rows.fill(y, row, f.const(I64, 1), bad)
        columns.fill(x, f.const(I64, 0), column_bins, bad)
        image = f.load(a.batch_indices, region, I64)
        outside = (image < 0) | (image >= a.images)
        bad.set(bad.get() | outside)
        plane = f.address(a.image.x, f.select(outside, 0, image) * a.image.image_step, regions.type)
        with f.if_(~bad.get()):
            divisor = f.convert(f.maximum(y.samples, 1.0) * f.maximum(x.samples, 1.0), regions.type)
            with f.loop(0, column_bins) as column:
                code.bin(plane, rows, columns, column, epilogue.row([region, row, column]), divisor)
    with f.if_(bad.get()):
        f.store(1, a.status, 0, I64)
