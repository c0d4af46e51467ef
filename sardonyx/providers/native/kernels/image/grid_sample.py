"""GridSample: pixels of an image at points that are data. Vectors run along the channels where these are many, else along the points."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.cpu.image import GRID_MODES
from sardonyx.providers.native.kernels.conv.form import input_view, last_order
from sardonyx.providers.native.kernels.image.elements import element_of_sum
from sardonyx.providers.native.kernels.image.image import Image, image_of
from sardonyx.providers.native.kernels.image.stencil import MOST_PIXELS, Axis, ImageAxis, Stencil, Tap, joined_taps
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, required, shape_of
from sardonyx.providers.native.program.views import Dims, View, regrouped
from sardonyx.startup.records import dataclass

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
MOST_TAPS = 16
"""Of all axes together: what a kernel has the code for."""
MOST_AXES = 3
MOST_LANES = 16
VECTORS = 4
"""So many vectors of channels are combined side by side."""
BLOCK = 64
"""Points that are an item, where vectors run along them."""
PIECE_TAPS = 8192
"""How many pixels that are picked are worth handing to another thread."""
MANY_CHANNELS = 16
"""From so many on images are turned until channels lie in a row: gathering pixels one by one is slower."""
MOST_REACH = (1 << 31) - 1
"""Offsets of pixels in an image have 32 bits."""


@dataclass(frozen=True)
class Sampling:
    """What shapes the code."""

    type: Type
    grid: Type
    axes: int
    stencil: Stencil
    layout: str = "apart"
    """How points lie: "planes" if those of one axis lie in a row, "pairs" if the two entries of a point do, else "apart"."""


def stencil_of(node: Node) -> Stencil | None:
    """None for modes that nobody knows."""
    mode, outside = GRID_MODES.get(operand(node, "mode")), operand(node, "padding_mode")
    if mode is None or outside not in ("zeros", "border", "reflection"):
        return None
    return Stencil(mode, outside, bool(operand(node, "align_corners")))


def claims_grid_sample(node: Node) -> bool:
    """One to three axes; pixels that are weighed are numbers."""
    X, grid = (required(value) for value in node.inputs)
    type, points, stencil = element_of(X), element_of(grid), stencil_of(node)
    shape, places = shape_of(X), shape_of(grid)
    if type is None or points is None or not points.is_float or stencil is None or not shape or not places:
        return False
    axes = len(shape) - 2
    if (
        not 1 <= axes <= MOST_AXES
        or len(places) != len(shape)
        or not may_equal(places[-1], axes)
        or TAPS[stencil.mode] ** axes > MOST_TAPS
    ):
        return False
    return stencil.mode == "nearest" or type.kind != "bits"


@lower("GridSample", claims=claims_grid_sample)
@lower("GridSample", domain="com.microsoft", claims=claims_grid_sample)
def grid_sample(lowerer: Lowerer, node: Node) -> None:
    """Each point of the grid makes a pixel of the result."""
    X, grid = (required(value) for value in node.inputs)
    shape = dims(X)
    lowerer.require(shape[0], dims(grid)[0])
    lowerer.require(len(shape) - 2, dims(grid)[-1])
    for size in shape[2:]:
        lowerer.require(dim.maximum(1, dim.minimum(size, MOST_PIXELS)), size)
    is_wide = isinstance(shape[1], int) and shape[1] >= MANY_CHANNELS
    (_along_channels if is_wide else _along_points)(lowerer, node)


def _along_channels(lowerer: Lowerer, node: Node) -> None:
    view, axes = input_view(lowerer, node), len(dims(node.outputs[0])) - 2
    points, steps = _points(lowerer, node)
    sampling = _sampling(node, view, points)
    sink = lowerer.sink(node, (1, axes, 1), order=last_order(axes + 2))
    pixels = dim.product(points.shape[1:-1])
    lowerer.call(
        sample_channels_kernel(lowerer.target, sampling, sink.chain),
        _arguments(view, points, steps, pixels, sink),
        view.shape[0] * pixels,
        _grain(sampling, view.shape[1]),
        flops=_work(sampling, view, pixels),
        traffic=_traffic(view, points, pixels),
    )


def _along_points(lowerer: Lowerer, node: Node) -> None:
    view, axes = _steps_forward(lowerer, node), len(dims(node.outputs[0])) - 2
    for size, step in zip(view.shape[2:], view.strides[2:]):
        lowerer.require(dim.minimum(size * step, MOST_REACH // axes), size * step)
    points, steps = _points(lowerer, node)
    layout = "planes" if steps[1] == 1 else "pairs" if (axes, *steps[1:]) == (2, 2, 1) else "apart"
    sampling = _sampling(node, view, points, layout)
    sink = lowerer.sink(node, (1, 1, axes))
    pixels = dim.product(points.shape[1:-1])
    lowerer.call(
        sample_points_kernel(lowerer.target, sampling, sink.chain),
        _arguments(view, points, steps, pixels, sink),
        view.shape[0] * dim.ceildiv(pixels, BLOCK),
        _grain(sampling, view.shape[1] * BLOCK),
        flops=_work(sampling, view, pixels),
        traffic=_traffic(view, points, pixels),
    )


def _steps_forward(lowerer: Lowerer, node: Node) -> View:
    """X however it lies, unless an axis runs backward."""
    X = required(node.inputs[0])
    view = lowerer.view(X)
    return view if all(map(dim.is_nonnegative, view.strides)) else lowerer.contiguous(X)


def _sampling(node: Node, view: View, points: View, layout: str = "apart") -> Sampling:
    stencil = stencil_of(node)
    assert stencil is not None
    return Sampling(view.type, points.type, len(view.shape) - 2, stencil, layout)


def _arguments(view: View, points: View, steps: Dims, pixels: Dim, sink: Sink) -> GridSampleArguments:
    return GridSampleArguments(
        image=image_of(view),
        axes=[ImageAxis(size=size, step=step) for size, step in zip(view.shape[2:], view.strides[2:])],
        grid=points.place,
        grid_step=steps[0],
        point_step=steps[1],
        entry_step=steps[2],
        pixels=pixels,
        sink=sink.arguments,
    )


def _points(lowerer: Lowerer, node: Node) -> tuple[View, Dims]:
    """The grid, and its strides along images, points and the entries of a point."""
    grid = required(node.inputs[1])
    view = lowerer.view(grid)
    groups = (1, len(view.shape) - 2, 1)
    steps = regrouped(view.shape, view.strides, groups)
    if steps is None:
        view = lowerer.contiguous(grid)
        steps = regrouped(view.shape, view.strides, groups)
    assert steps is not None
    return view, steps


def _taps(sampling: Sampling) -> int:
    return TAPS[sampling.stencil.mode] ** sampling.axes


def _grain(sampling: Sampling, each: Dim) -> Dim:
    return dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, each * _taps(sampling))))


def _work(sampling: Sampling, view: View, pixels: Dim) -> Dim:
    return view.shape[0] * view.shape[1] * pixels * (2 * _taps(sampling) if sampling.stencil.mode != "nearest" else 0)


def _traffic(view: View, points: View, pixels: Dim) -> Dim:
    return view.shape[0] * (view.shape[1] * pixels * view.type.bytes + pixels * points.shape[-1] * points.type.bytes)


# --- kernels --------------------------------------------------------------------------------------------------------


class GridSampleArguments(Arguments):
    image: Image
    axes: Sequence[ImageAxis] = each(lambda sampling: sampling.axes)
    grid: Pointer
    grid_step: Size
    """From the points of one image to those of the next."""
    point_step: Size
    entry_step: Size
    """Between the entries of a point."""
    pixels: Size
    """Of an image of the result: its points."""
    sink: Operands = group(lambda chain: chain.slots)


class _Sampler:
    """What both kernels have in common."""

    def __init__(self, f: KernelFunction, a: GridSampleArguments, sampling: Sampling, chain: Chain):
        self.f = f
        self.a = a
        self.sampling = sampling
        self.axes = [Axis(f, axis, sampling.stencil, sampling.grid.computed) for axis in a.axes]
        self.epilogue = ChainCode(f, chain, a.sink)

    def taps(self, image: Value, point: Value, lanes: int) -> list[Tap]:
        """The pixels around some points in a row."""
        place = self.f.address(self.a.grid, image * self.a.grid_step, self.sampling.grid)
        entries = reversed(self._entries(place, point, lanes))  # the last entry of a point belongs to the first axis
        if not self._is_cut_off:
            return joined_taps([axis.taps(entry, self.sampling.type.computed) for axis, entry in zip(self.axes, entries)])
        with self.f.exact():
            return joined_taps([axis.taps(entry, self.sampling.grid.computed) for axis, entry in zip(self.axes, entries)])

    @property
    def _is_cut_off(self) -> bool:
        """Whether results are made of sums that lie between integers: then these are NumPy's to the last bit."""
        return self.sampling.stencil.mode != "nearest" and not self.sampling.type.is_float

    def _entries(self, place: Value, point: Value, lanes: int) -> list[Value]:
        f, type, layout = self.f, self.sampling.grid, self.sampling.layout
        if layout == "pairs" and lanes > 1:
            both = [f.load(place, point * 2 + part, type, lanes) for part in (0, lanes)]
            return [f.shuffle(both[0], both[1], range(entry, 2 * lanes, 2)) for entry in (0, 1)]
        entries = []
        for entry in range(self.sampling.axes):
            here = f.address(place, self.a.entry_step * entry, type)
            if layout == "planes":
                entries.append(f.load(here, point, type, lanes))
            else:
                numbers = f.iota(I64, lanes) + f.splat(point, lanes)
                entries.append(f.gather(here, numbers * f.splat(self.a.point_step, lanes), type))
        return entries

    def total(self, pixels: Sequence[Value], taps: Sequence[Tap]) -> Value:
        """What taps add up to, each with the pixels that it meets."""
        if self._is_cut_off:
            return self._cut_off(pixels, taps)
        f, total = self.f, None
        for pixel, tap in zip(pixels, taps):
            if tap.missing is not None:
                pixel = f.select(tap.missing, f.const(pixel.type, 0), pixel)
            if tap.weight is None:
                return pixel
            weight = f.splat(tap.weight, pixel.type.lanes)
            total = weight * pixel if total is None else f.fma(weight, pixel, total)
        assert total is not None
        return total

    def _cut_off(self, pixels: Sequence[Value], taps: Sequence[Tap]) -> Value:
        f, total = self.f, None
        with f.exact():
            for pixel, tap in zip(pixels, taps):
                assert tap.weight is not None
                number = f.convert(pixel, F64)
                number = number if tap.missing is None else f.select(tap.missing, f.const(number.type, 0), number)
                part = number * f.splat(f.convert(tap.weight, F64), pixel.type.lanes)
                total = part if total is None else total + part
        assert total is not None
        return element_of_sum(f, total, self.sampling.type)


@kernel("sample points", GridSampleArguments)
def sample_points_kernel(f: KernelFunction, a: GridSampleArguments, sampling: Sampling, chain: Chain) -> None:
    """Items are blocks of points, whose pixels are the same in all channels."""
    code = _Sampler(f, a, sampling, chain)
    lanes = min(f.lanes(sampling.type.computed), f.lanes(sampling.grid.computed), MOST_LANES)

    def points(image: Value, point: Value, width: int) -> None:
        taps = code.taps(image, point, width)
        with f.loop(0, a.image.channels) as channel:
            plane = f.address(a.image.x, image * a.image.image_step + channel * a.image.channel_step, sampling.type)
            pixels = [f.gather(plane, tap.offset, sampling.type) for tap in taps]
            code.epilogue.row([image, channel]).emit(point, width, given=[code.total(pixels, taps)])

    with items(f, [f.maximum(1, (a.pixels + (BLOCK - 1)) // BLOCK)]) as (_, (image, block)):
        first = block * BLOCK
        stop = f.minimum(first + BLOCK, a.pixels)
        whole = first + ((stop - first) & -lanes)
        for start, end, width in ((first, whole, lanes), (whole, stop, 1)):
            with f.loop(start, end, width) as point:
                points(image, point, width)


@kernel("sample points of channels", GridSampleArguments)
def sample_channels_kernel(f: KernelFunction, a: GridSampleArguments, sampling: Sampling, chain: Chain) -> None:
    """Channels lie in a row. Items are points."""
    code = _Sampler(f, a, sampling, chain)
    type, lanes = sampling.type, f.lanes(sampling.type.computed)
    with items(f, [f.maximum(1, a.pixels)]) as (_, (image, point)):
        taps = code.taps(image, point, 1)
        plane = f.address(a.image.x, image * a.image.image_step, type)
        places = [f.address(plane, tap.offset, type) for tap in taps]
        target = code.epilogue.row([image, point])

        def block(channel: Value, vectors: int, remaining: Value | None) -> None:
            for number in range(vectors):
                here = channel + number * lanes
                pixels = [f.load(place, here, type, lanes, remaining=remaining) for place in places]
                target.emit(here, lanes, remaining, given=[code.total(pixels, taps)])

        many = a.image.channels & -(VECTORS * lanes)
        with f.loop(0, many, VECTORS * lanes) as channel:
            block(channel, VECTORS, None)
        with f.loop(many, a.image.channels, lanes) as channel:
            block(channel, 1, a.image.channels - channel)
