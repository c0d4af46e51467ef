"""Lowerings of convolutions of 8-bit integers. Images lie with the channels last, as those of floats do.

Direct sums are those of floats with groups of channels for channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.products import Product
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32, I8, I16, I32
from sardonyx.ir import Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.direct import Tile, pixels_of
from sardonyx.providers.native.kernels.conv.form import (
    Geometry,
    even_step,
    factors_of,
    geometry_of,
    sizes_fit,
)
from sardonyx.providers.native.kernels.conv.operators import conv_step, has_short_rows, with_taps_as_channels
from sardonyx.providers.native.kernels.conv.rows import padded_rows
from sardonyx.providers.native.kernels.quantize.depthwise import depthwise_steps
from sardonyx.providers.native.kernels.quantize.images import (
    Integers,
    channels_last,
    first_sums,
    has_byte_filters,
    less_zero,
    padding_bytes,
    sink_of,
    store_parts,
)
from sardonyx.providers.native.kernels.quantize.operands import product_for, row_operations
from sardonyx.providers.native.kernels.quantize.operators import (
    BYTES,
    CONTRIB,
    input_of,
    is_one,
    is_one_or_each,
    ratio_of,
    requantization,
    single,
)
from sardonyx.providers.native.kernels.quantize.window_sums import window_sums
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.providers.native.program.views import Dims, View, dense_order, dense_strides
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.providers.scalars.quantize import uncentered
from sardonyx.startup.records import replace

FILTERS = PackedFormat("integer-filters")
READING = 1.25
"""How much longer a multiplication takes that has a pixel read for itself alone: 1.2 to 1.3 times as long, on AVX2 as with VNNI."""


def _operands(node: Node) -> Integers | None:
    """What a node convolves; None if something is missing."""
    if node.op_type == "ConvInteger":
        x, w, x_zero, w_zero = (*node.inputs, None, None)[:4]
        return None if x is None or w is None else Integers(x, w, x_zero, w_zero)
    x, w = factors_of(node)
    return None if x is None or w is None else Integers(x, w, input_of(node, 2), input_of(node, 5), input_of(node, 8))


def _claims_integers(node: Node) -> bool:
    """8-bit images and constant filters, with zero points of their types."""
    found = _operands(node)
    if found is None or element_of(found.x) not in BYTES or element_of(found.w) not in BYTES or operand(node, "channels_last"):
        return False
    if not sizes_fit(node, found.x, found.w, found.bias) or not all(one.is_constant for one in found.filter_sources):
        return False
    filters = (shape_of(found.w) or ())[0]
    if found.bias is not None and shape_of(found.bias) != (filters,):
        return False
    points = ((found.x, found.x_zero), (found.w, found.w_zero))
    typed = all(zero is None or element_of(zero) == element_of(one) for one, zero in points)
    return typed and is_one(found.x_zero) and is_one_or_each(found.w_zero, filters)


def _claims_quantized(node: Node) -> bool:
    x_scale, w_scale, y_scale, y_zero = (input_of(node, number) for number in (1, 4, 6, 7))
    scales = [x_scale, w_scale, y_scale]
    if not _claims_integers(node) or any(one is None or element_of(one) != F32 for one in scales):
        return False
    filters = (shape_of(required(node.inputs[3])) or ())[0]
    bias = input_of(node, 8)
    is_typed = element_of(node.outputs[0]) in BYTES and (bias is None or element_of(bias) == I32)
    return is_typed and is_one(x_scale) and is_one(y_scale) and is_one(y_zero) and is_one_or_each(w_scale, filters)


@lower("ConvInteger", claims=_claims_integers, packs=True)
def conv_integer(lowerer: Lowerer, node: Node) -> None:
    found = _operands(node)
    assert found is not None
    convolution_steps(lowerer, node, found, ())


@lower("QLinearConv", claims=_claims_quantized, packs=True)
@lower("QLinearConv", domain=CONTRIB, claims=_claims_quantized, packs=True)
def q_linear_conv(lowerer: Lowerer, node: Node) -> None:
    found = _operands(node)
    assert found is not None
    x_scale, w_scale, y_scale = (required(node.inputs[number]) for number in (1, 4, 6))
    behind = len(dims(found.x)) - 2
    ratio = ratio_of(lowerer, [x_scale, w_scale], y_scale, axes_behind=behind)
    convolution_steps(lowerer, node, found, [requantization(ratio, single(lowerer, input_of(node, 7)), node)])


def convolution_steps(lowerer: Lowerer, node: Node, found: Integers, operations: Sequence[Operation]) -> None:
    """Add the steps of a convolution of whole numbers less their zero points, and operations on its sums of 32 bits."""
    geometry = geometry_of(node)
    for size in geometry.output:
        lowerer.require(dim.maximum(size, 0), size)
    lowerer.require(dims(found.x)[1], geometry.all_channels)
    if not depthwise_steps(lowerer, node, geometry, found, operations):
        _direct_steps(lowerer, node, geometry, found, operations)


# --- direct sums


def _direct_steps(lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]) -> None:
    is_centered = has_byte_filters(found) or geometry.groups > 1 or product_for(lowerer.target, I8).row == I16
    product = product_for(lowerer.target, I8 if has_byte_filters(found) or not is_centered else I16)
    is_folded = has_short_rows(geometry)
    if is_folded:
        view, geometry = _folded_image(lowerer, found, geometry, product)
    else:
        view = _image(lowerer, found, geometry, product)
    groups = -(-geometry.channels // product.depth)
    flat = even_step(view) if geometry.is_pointwise and not is_folded else None
    tile = integer_tile_for(lowerer.target, product, geometry.filters, 0 if flat is not None else len(geometry.kernel))
    panels = _panels(lowerer, geometry, found, tile, is_folded, is_centered)
    bias, first = _bias(lowerer, geometry, found, tile)
    padding = _padding(lowerer, found, product, groups)
    if not is_centered:
        first = [*first, _less_windows(lowerer, geometry, found, view, padding)]
    sink = sink_of(lowerer, node, [*first, *operations], I32)
    counted = replace(geometry, channels=groups)
    conv_step(lowerer, counted, view, flat, tile, (panels, bias, padding), groups * product.depth, sink)


def _less_windows(lowerer: Lowerer, geometry: Geometry, found: Integers, view: View, padding: Buffer) -> Operation:
    """Sums less what the zero point that filters keep adds to them."""
    sums = window_sums(lowerer, geometry, view, padding)
    zero = 0 if found.w_zero is None else _each_filter(lowerer, found.w_zero, len(geometry.kernel))
    return Operation(uncentered, (None, zero, sums), (("offset", -found.filter_offset),), type=I32)


def _each_filter(lowerer: Lowerer, zero: Value, behind: int) -> View:
    """One zero point, or one for each filter, beside images."""
    view = lowerer.view(zero)
    is_one = all(size == 1 for size in view.shape)
    return replace(view, shape=(), strides=()) if is_one else view.with_axes_behind(behind)


def integer_tile_for(target: Target, product: Product, filters: int, axes: int) -> Tile:
    """The tile that wastes least of its last vectors; three of them only where there are many registers."""
    lanes, counts = target.lanes(I32), pixels_of(target)

    def cost(vectors: int) -> float:
        """Vectors that are multiplied; for a single one each pixel is read anew."""
        return -(-filters // (vectors * lanes)) * vectors * (READING if vectors == 1 else 1.0)

    vectors = min((2, 3, 1) if 4 in counts else (2, 1), key=cost)
    return Tile(product.row_group, counts[vectors], vectors, lanes, axes, product)


def _image(lowerer: Lowerer, found: Integers, geometry: Geometry, product: Product) -> View:
    """X as (N, C, …) with whole groups of channels for each group of filters, all of a pixel in a row."""
    known = lowerer.known_view(found.x)
    depth, channels = product.depth, geometry.channels
    if known is not None and known.type == product.row and _is_ready(known, channels, depth):
        return known
    shape, width = dims(found.x), -(-channels // depth) * depth
    whole = (shape[0], geometry.groups * width, *shape[2:])
    target = channels_last(lowerer, product.row, whole)
    zero = single(lowerer, found.x_zero)
    operations = row_operations(product, found.x, zero)
    if geometry.groups == 1 or width == channels:
        lowerer.store_through(found.x, operations, replace(target, shape=shape))
        return target
    parts = target.split(1, width)
    parts = replace(parts, shape=(*parts.shape[:2], channels, *parts.shape[3:]))
    view = lowerer.narrowed(lowerer.view(found.x), 1, geometry.all_channels)
    store_parts(lowerer, view.split(1, channels), operations, parts)
    return target


def _folded_image(lowerer: Lowerer, found: Integers, geometry: Geometry, product: Product) -> tuple[View, Geometry]:
    """X with padding beside its rows, and the geometry in which the taps of a row are channels."""
    operations = row_operations(product, found.x, single(lowerer, found.x_zero))
    image = lowerer.known_view(found.x)
    if image is None or operations:
        image = View(
            lowerer.scratch(dim.product(dims(found.x)) * product.row.bytes), product.row, *_as_before(lowerer, found.x)
        )
        lowerer.store_through(found.x, operations, image)
    folded = with_taps_as_channels(geometry)
    # where the numbers of a window are no whole groups, the last group of it has some that are not its own, by filters of 0
    slack = product.depth - 1
    fill = None if product.row == I16 else _padding(lowerer, found, product, 1)
    return padded_rows(lowerer, image, product.row, geometry.begin[-1], folded.input[-1], slack, fill), folded


def _as_before(lowerer: Lowerer, value: Value) -> tuple[Dims, Dims]:
    """The sizes of a value, and strides without gaps in the order in which it lies, if it does."""
    known = lowerer.known_view(value)
    order = None if known is None else dense_order(known)
    return dims(value), dense_strides(dims(value), order or range(len(dims(value))))


def _is_ready(view: View, channels: int, depth: int) -> bool:
    """Whether pixels can be read where they are."""
    numbers = (channels, view.offset, view.strides[0], *view.strides[2:])
    return view.strides[1] == 1 and all(isinstance(number, int) and number % depth == 0 for number in numbers)


def _panels(lowerer: Lowerer, geometry: Geometry, found: Integers, tile: Tile, is_folded: bool, is_centered: bool) -> Buffer:
    """Filters in panels: (groups, panels, taps, groups of channels, width, depth). Taps of a row may count as channels."""
    product = tile.multiply
    dtype = np.dtype(f"i{product.column.bytes}")
    depth, width = product.depth, tile.width
    groups, panels = -(-geometry.channels // depth), -(-geometry.filters // width)
    shape = (geometry.groups, panels, geometry.taps, groups, width, depth)
    memory = lowerer.weights

    def pack(w: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        numbers = less_zero(w, zero) if is_centered else w.astype(np.int16) - found.filter_offset
        ordered = np.moveaxis(numbers, -1, 1) if is_folded else numbers
        filters = ordered.reshape(geometry.groups, geometry.filters, geometry.channels, geometry.taps)
        missing = [(0, 0), (0, 0), (0, panels * width - geometry.filters), (0, groups * depth - geometry.channels)]
        taps_first = filters.transpose(0, 3, 1, 2)
        whole = np.ascontiguousarray(np.pad(taps_first, missing) if any(map(any, missing)) else taps_first, dtype)
        packed = memory.empty(shape, dtype)
        split = whole.reshape(geometry.groups, geometry.taps, panels, width, groups, depth)
        _whole_groups(packed)[...] = _whole_groups(split).transpose(0, 2, 1, 4, 3)
        return [packed]

    parameters = (geometry.groups, width, depth, str(product.column), is_folded, is_centered)
    (buffer,) = lowerer.packed(found.filter_sources, FILTERS, parameters, [int(np.prod(shape)) * dtype.itemsize], pack)
    return buffer


def _whole_groups(elements: np.ndarray) -> np.ndarray:
    """The elements of the last axis as one number: NumPy moves such ones ten times as fast."""
    return elements.view(f"i{elements.shape[-1] * elements.itemsize}")[..., 0]


def _bias(lowerer: Lowerer, geometry: Geometry, found: Integers, tile: Tile) -> tuple[Buffer, list[Operation]]:
    """What the sums of panels begin with, and what is still to be done with them."""
    first, later = first_sums(lowerer, geometry, found, is_centered=tile.multiply.row == I16)
    width, panels = tile.width, -(-geometry.filters // tile.width)
    packed = np.zeros((geometry.groups, panels * width), np.int32)
    packed[:, : geometry.filters] = first.reshape(geometry.groups, geometry.filters)
    return lowerer.table(packed), later


def _padding(lowerer: Lowerer, found: Integers, product: Product, groups: int) -> Buffer:
    """A pixel of the padding: less its zero point it is 0."""
    count = groups * product.depth
    if product.row == I16:
        return lowerer.table(np.zeros(count, np.int16))
    return padding_bytes(lowerer, found, count, found.offset)
