"""DeformConv: the pixels under each window's taps, interpolated at points that data moves, then the product of a convolution.

What is interpolated lies as a row of pixels, the taps of one window after those of the last: a convolution as long as its stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import Type
from sardonyx.errors import InferenceError
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.ops.window import output_sizes
from sardonyx.providers.native.kernels.conv.filters import Filters
from sardonyx.providers.native.kernels.conv.form import (
    MAX_SPATIAL,
    Geometry,
    input_view,
    is_kernel_possible,
    kernel_of,
    last_order,
    require_filters,
)
from sardonyx.providers.native.kernels.conv.operators import product_step
from sardonyx.providers.native.kernels.conv.windows import Windows, steps_of, windows_of
from sardonyx.providers.native.kernels.image.stencil import MOST_PIXELS, Axis, ImageAxis, Stencil, Tap, joined_taps
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, may_have_shape, required, shape_of, stored
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides
from sardonyx.startup.records import dataclass

LONGEST_STEP = 1 << 20
"""Of strides, dilations and pads, so that coordinates are whole numbers of float32."""
PIECE_TAPS = 2048
"""How many pixels that are interpolated are worth handing to another thread."""
_LINEAR = Stencil("linear", "zeros", True)


@dataclass(frozen=True)
class Deformed:
    """What shapes the code."""

    type: Type
    """Of pixels that are interpolated."""
    moves: Type
    """Of offsets and masks, as they are stored."""
    axes: int
    masked: bool


def _windows(node: Node) -> Windows:
    image, kernel = dims(required(node.inputs[0]))[2:], kernel_of(node, required(node.inputs[1]))
    output = tuple(output_sizes(image, kernel, *steps_of(node, len(kernel)), operand(node, "pads"), "NOTSET"))
    return windows_of(node, kernel, image, output)


def _claims(node: Node) -> bool:
    """Floats of one type, filters as they may be, numbers that fit."""
    types = {element_of(value) for value in (*node.inputs, *node.outputs) if value is not None}
    X, W = (required(value) for value in node.inputs[:2])
    shape, filters = shape_of(X), shape_of(W)
    type = types.pop()
    if types or type is None or not type.is_float or shape is None or filters is None or len(filters) != len(shape):
        return False
    if 0 in filters or not 3 <= len(shape) <= 2 + MAX_SPATIAL or not is_kernel_possible(node, W):
        return False
    return _numbers_fit(node, shape, filters)


def _numbers_fit(node: Node, shape: Dims, filters: Dims) -> bool:
    group, parts = (operand(node, name) for name in ("group", "offset_group"))
    steps = [*(operand(node, "strides") or ()), *(operand(node, "dilations") or ())]
    if group < 1 or parts < 1 or not may_equal(shape[1], filters[1] * group):
        return False
    if not may_equal(dim.mod(filters[0], group), 0) or not may_equal(dim.mod(filters[1] * group, parts), 0):
        return False
    if (
        not all(0 < step <= LONGEST_STEP for step in steps)
        or max(map(abs, operand(node, "pads") or ()), default=0) > LONGEST_STEP
    ):
        return False
    B = input_named(node, "B")
    try:
        _windows(node)
    except InferenceError:
        return False
    return B is None or may_have_shape(shape_of(B), filters[:1])


@lower("DeformConv", claims=_claims)
def deform_conv(lowerer: Lowerer, node: Node) -> None:
    windows, W, B, group = _windows(node), required(node.inputs[1]), input_named(node, "B"), int(operand(node, "group"))
    count, depth = dims(W)[:2]
    filters = dim.floordiv(count, group)
    require_filters(lowerer, W, B, windows.kernel, group * filters, group * filters)
    view = input_view(lowerer, node, group * depth)
    for size in windows.output:
        lowerer.require(dim.maximum(size, 0), size)
    for size in windows.input:
        lowerer.require(dim.minimum(size, MOST_PIXELS), size)
    columns = _columns(lowerer, node, windows, view)
    batch, pixels, rank = view.shape[0], dim.product(windows.output), len(view.shape)
    geometry = Geometry(
        kernel=(windows.taps,),
        strides=(windows.taps,),
        dilations=(1,),
        begin=(0,),
        end=(0,),
        input=(pixels * windows.taps,),
        output=(pixels,),
        batch=batch,
        groups=group,
        channels=cast(int, depth),
        filters=cast(int, filters),
    )
    sink = lowerer.sink(node, (1, rank - 2, 1), order=last_order(rank))
    product_step(lowerer, geometry, columns, Filters(W, B), sink)


def _columns(lowerer: Lowerer, node: Node, windows: Windows, view: View) -> View:
    """The pixels under all taps, (images, channels, taps of all windows), the channels last in memory."""
    batch, channels, pixels = view.shape[0], view.shape[1], dim.product(windows.output)
    count, parts = pixels * windows.taps, int(operand(node, "offset_group"))
    part = dim.floordiv(channels, parts)
    lowerer.require(part * parts, channels)
    offset, mask = required(input_named(node, "offset")), input_named(node, "mask")
    lowerer.require_shape(dims(offset), (batch, parts * windows.taps * len(windows.kernel), *windows.output))
    if mask is not None:
        lowerer.require_shape(dims(mask), (batch, parts * windows.taps, *windows.output))
    strides = contiguous_strides((batch, count, channels))
    buffer = lowerer.scratch(batch * count * channels * view.type.bytes)
    columns = View(buffer, view.type, (batch, channels, count), (strides[0], 1, strides[1]))
    lowerer.call(
        columns_kernel(lowerer.target, Deformed(view.type, stored(offset), len(windows.kernel), mask is not None)),
        ColumnArguments(
            x=view.place,
            image_step=view.strides[0],
            zeros=lowerer.zeros(part, view.type),
            offset=lowerer.contiguous(offset).place,
            mask=None if mask is None else lowerer.contiguous(mask).place,
            target=buffer,
            pixels=pixels,
            taps=windows.taps,
            parts=parts,
            channels=part,
            axes=[_axis(windows, view, number) for number in range(len(windows.kernel))],
        ),
        batch * pixels,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, windows.taps * channels))),
        flops=batch * count * (channels * 2 ** (1 + len(windows.kernel))),
        traffic=2 * batch * count * channels * view.type.bytes,
    )
    return columns


def _axis(windows: Windows, view: View, number: int) -> MovedAxis:
    return MovedAxis(
        size=windows.input[number],
        step=view.strides[2 + number],
        output=windows.output[number],
        kernel=windows.kernel[number],
        stride=windows.strides[number],
        dilation=windows.dilations[number],
        begin=windows.begin[number],
    )


# --- the kernel -----------------------------------------------------------------------------------------------------


class MovedAxis(ImageAxis):
    """A spatial axis along which windows slide."""

    output: Size
    kernel: Size
    stride: Size
    dilation: Size
    begin: Size


class ColumnArguments(Arguments):
    x: Pointer
    image_step: Size
    zeros: Pointer
    """What is read beyond the border."""
    offset: Pointer
    mask: Pointer | None = when(lambda deformed: deformed.masked)
    target: Pointer
    pixels: Size
    taps: Size
    parts: Size
    """Groups of channels that are moved together."""
    channels: Size
    """Of such a group."""
    axes: Sequence[MovedAxis] = each(lambda deformed: deformed.axes)


@kernel("deformed windows", ColumnArguments)
def columns_kernel(f: KernelFunction, a: ColumnArguments, deformed: Deformed) -> None:
    """Items are windows. A product of whole numbers is one loop: (tap, group of channels)."""
    axes = [Axis(f, axis, _LINEAR, deformed.moves.computed) for axis in a.axes]
    with f.loop(f.begin, f.end) as item:
        image, pixel = item // a.pixels, item % a.pixels
        plane = f.address(a.x, image * a.image_step, deformed.type)
        places = _unraveled(f, pixel, [axis.output for axis in a.axes])
        with f.loop(0, a.taps) as tap, f.loop(0, a.parts) as part:
            number = (image * a.parts + part) * a.taps + tap
            taps = []
            steps = _unraveled(f, tap, [axis.kernel for axis in a.axes])
            for order, (axis, place, step) in enumerate(zip(a.axes, places, steps)):
                start = place * axis.stride - axis.begin + step * axis.dilation
                moved = f.load(a.offset, (number * deformed.axes + order) * a.pixels + pixel, deformed.moves)
                taps.append(axes[order].taps_at(f.convert(start, moved.type) + moved, deformed.type))
            factor = None if a.mask is None else f.load(a.mask, number * a.pixels + pixel, deformed.moves)
            target = f.address(a.target, ((item * a.taps + tap) * a.parts + part) * a.channels, deformed.type)
            source = f.address(plane, part * a.channels, deformed.type)
            _interpolate(f, a, deformed, joined_taps(taps), factor, source, target)


def _unraveled(f: KernelFunction, number: Code, sizes: Sequence[Code]) -> list[Code]:
    """A number of a place as its places along axes."""
    places = []
    for size in reversed(sizes):
        places.append(number % size)
        number = number // size
    return places[::-1]


def _interpolate(
    f: KernelFunction,
    a: ColumnArguments,
    deformed: Deformed,
    taps: Sequence[Tap],
    factor: Code | None,
    source: Code,
    target: Code,
) -> None:
    """All channels of a pixel, weighed as NumPy does it, pixel by pixel."""
    type, lanes, sources = deformed.type, f.lanes(deformed.type), []
    for tap in taps:
        assert tap.missing is not None
        sources.append(f.select(tap.missing, a.zeros, f.address(source, tap.offset, type)))
    with f.loop(0, a.channels, lanes) as channel, f.exact():
        remaining = a.channels - channel
        total = None
        for tap, place in zip(taps, sources):
            assert tap.weight is not None
            weighed = f.load(place, channel, type, lanes, remaining=remaining) * f.splat(tap.weight, lanes)
            total = weighed if total is None else total + weighed
        assert total is not None
        if factor is not None:
            total = total * f.splat(f.convert(factor, type), lanes)
        f.store(total, target, channel, type, remaining=remaining)
