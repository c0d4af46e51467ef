"""Lowerings of convolutions of 8-bit integers. Images lie with the channels last, as those of floats do.

Direct sums are those of floats with groups of channels for channels. Depthwise ones are summed as floats, which hold every sum of so few
products exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.products import Product
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32, I8, I16, I32, U8, Type
from sardonyx.ir import Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv import depthwise, depthwise_bytes
from sardonyx.providers.native.kernels.conv.direct import Tile, pixels_of
from sardonyx.providers.native.kernels.conv.form import Geometry, even_step, factors_of, geometry_of, last_order, sizes_fit
from sardonyx.providers.native.kernels.conv.operators import conv_step, has_short_rows, with_taps_as_channels
from sardonyx.providers.native.kernels.conv.rows import padded_rows
from sardonyx.providers.native.kernels.quantize.operands import fits_bytes, product_for, row_operations, zero_array
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
from sardonyx.providers.native.program.chain import Apply, Item, Load
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of, stored
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides, dense_order, dense_strides
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.providers.scalars.quantize import added, center, flip, uncentered
from sardonyx.providers.scalars.table import name_of
from sardonyx.startup.records import dataclass, replace

FILTERS = PackedFormat("integer-filters")
DEPTHWISE = PackedFormat("integer-depthwise")
DEPTHWISE_BYTES = PackedFormat("integer-depthwise-bytes")
EXACT_PRODUCTS = 258
"""Products of 8-bit numbers less zero points, 255 · 255 at most, of which float32 holds every sum."""


@dataclass(frozen=True)
class Integers:
    """The operands of a convolution of whole numbers."""

    x: Value
    w: Value
    x_zero: Value | None
    w_zero: Value | None
    bias: Value | None = None

    @property
    def filter_sources(self) -> list[Value]:
        return [self.w] if self.w_zero is None else [self.w, self.w_zero]

    @property
    def offset(self) -> int:
        """What bytes of the image have too much."""
        return 0 if stored(self.x) == U8 else 128

    def filters(self) -> np.ndarray:
        """Less their zero points, in 16 bits."""
        return less_zero(*(required_array(value) for value in self.filter_sources))


def required_array(value: Value) -> np.ndarray:
    assert value.constant is not None
    return value.constant.numpy()


def less_zero(w: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray:
    """Filters less one zero point, or one for each filter."""
    wide = w.astype(np.int16)
    if zero is None:
        return wide
    return wide - (zero.reshape(()) if zero.size == 1 else zero.reshape(-1, *(1,) * (w.ndim - 1))).astype(np.int16)


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
    if depthwise_bytes.takes(geometry) and _multiplies_bytes(lowerer.target, found):
        _depthwise_byte_steps(lowerer, node, geometry, found, operations)
    elif (
        depthwise.has_small_groups(geometry, lowerer.target.lanes(F32)) and geometry.taps * geometry.channels <= EXACT_PRODUCTS
    ):
        _depthwise_steps(lowerer, node, geometry, found, operations)
    else:
        _direct_steps(lowerer, node, geometry, found, operations)


def _sink(lowerer: Lowerer, node: Node, operations: Sequence[Operation], given: Type) -> Sink:
    rank = len(dims(node.outputs[0]))
    return lowerer.sink(node, (1, rank - 2, 1), operations=operations, order=last_order(rank), given=given)


# --- small groups


def _depthwise_steps(
    lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]
) -> None:
    """The kernel of floats, whose sums are whole; a bias of 32 bits is added to them as whole numbers."""
    view, zero_point = _depthwise_image(lowerer, found)
    inputs, channels = geometry.channels, geometry.groups * geometry.filters

    def pack(w: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        ordered = aligned_empty((geometry.taps, inputs, channels), np.float32)
        ordered[...] = less_zero(w, zero).reshape(channels, inputs, geometry.taps).transpose(2, 1, 0)
        return [ordered, np.zeros(channels, np.float32)]

    sizes = [geometry.taps * inputs * channels * 4, channels * 4]
    w, none = lowerer.packed(found.filter_sources, DEPTHWISE, (inputs, channels), sizes, pack)
    bias = 0 if found.bias is None else lowerer.view(found.bias).with_axes_behind(len(geometry.kernel))
    sums = Operation(added, (None, bias), type=I32)
    sink = _sink(lowerer, node, [sums, *operations], F32)
    depthwise.real_step(lowerer, geometry, view, w, none, sink, zero_point)


def _depthwise_byte_steps(
    lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]
) -> None:
    """The kernel of bytes, which begins with what zero points and the bias add to sums."""
    view = _bytes_image(lowerer, found)
    rows = depthwise_bytes.rows_of(geometry, view.type)
    channels = geometry.groups
    groups = -(-rows.height // depthwise_bytes.GROUP)

    def pack(w: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        return [depthwise_bytes.grouped_filters(less_zero(w, zero))]

    sizes = [groups * rows.taps * channels * depthwise_bytes.GROUP]
    (w,) = lowerer.packed(found.filter_sources, DEPTHWISE_BYTES, (channels,), sizes, pack)
    first, later = _first_sums(lowerer, geometry, found, is_centered=False)
    zeros = _padding_bytes(lowerer, found, channels, 0)
    sink = _sink(lowerer, node, [*later, *operations], I32)
    kernel = depthwise_bytes.depthwise_bytes_kernel(lowerer.target, rows, sink.chain)
    depthwise.packed_step(lowerer, kernel, geometry, view, (w, lowerer.table(first), zeros), sink)


def _bytes_image(lowerer: Lowerer, found: Integers) -> View:
    """X with the channels last."""
    known = lowerer.known_view(found.x)
    if known is not None and known.strides[1] == 1:
        return known
    view = _channels_last(lowerer, stored(found.x), dims(found.x))
    lowerer.store_through(found.x, [], view)
    return view


def _depthwise_image(lowerer: Lowerer, found: Integers) -> tuple[View, int]:
    """X as bytes with its zero point, or as floats less one that is computed; channels last."""
    if found.x_zero is not None and found.x_zero.constant is None:
        view = _channels_last(lowerer, F32, dims(found.x))
        lowerer.store_through(found.x, [Operation(center, (None, single(lowerer, found.x_zero)), type=F32)], view)
        return view, 0
    zero_point = 0 if found.x_zero is None else int(required_array(found.x_zero).reshape(()))
    return _bytes_image(lowerer, found), zero_point


def _channels_last(lowerer: Lowerer, type: Type, shape: Dims) -> View:
    """Memory for an image (N, C, …) whose channels lie last."""
    batch, channels, *spatial = shape
    buffer = lowerer.scratch(dim.product(shape) * type.bytes)
    first, *steps, _ = contiguous_strides((batch, *spatial, channels))
    return View(buffer, type, shape, (first, 1, *steps))


# --- direct sums


def _direct_steps(lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]) -> None:
    column = I8 if _has_byte_filters(found) else I16
    product = product_for(lowerer.target, column)
    is_folded = has_short_rows(geometry)
    if is_folded:
        view, geometry = _folded_image(lowerer, found, geometry, product)
    else:
        view = _image(lowerer, found, geometry, product)
    groups = -(-geometry.channels // product.depth)
    flat = even_step(view) if geometry.is_pointwise and not is_folded else None
    tile = _tile_for(lowerer.target, product, geometry.filters, 0 if flat is not None else len(geometry.kernel))
    panels = _panels(lowerer, geometry, found, tile, is_folded)
    bias, first = _bias(lowerer, geometry, found, tile)
    constants = (panels, bias, _padding(lowerer, found, product, groups))
    sink = _sink(lowerer, node, [*first, *operations], I32)
    counted = replace(geometry, channels=groups)
    conv_step(lowerer, counted, view, flat, tile, constants, groups * product.depth, sink)


def _multiplies_bytes(target: Target, found: Integers) -> bool:
    """Whether the CPU does, and filters are such."""
    return product_for(target, I8).row == U8 and _has_byte_filters(found)


def _has_byte_filters(found: Integers) -> bool:
    return fits_bytes(required_array(found.w), zero_array(found.w_zero), less_zero)


def _tile_for(target: Target, product: Product, filters: int, axes: int) -> Tile:
    """Two vectors of filters, or one where two would leave much of the last panel empty."""
    lanes, counts = target.lanes(I32), pixels_of(target)
    vectors = min((2, 1), key=lambda count: -(-filters // (count * lanes)) * count)
    return Tile(product.row_group, counts[vectors], vectors, lanes, axes, product)


def _image(lowerer: Lowerer, found: Integers, geometry: Geometry, product: Product) -> View:
    """X as (N, C, …) with whole groups of channels for each group of filters, all of a pixel in a row."""
    known = lowerer.known_view(found.x)
    depth, channels = product.depth, geometry.channels
    if known is not None and known.type == product.row and _is_ready(known, channels, depth):
        return known
    shape, width = dims(found.x), -(-channels // depth) * depth
    whole = (shape[0], geometry.groups * width, *shape[2:])
    target = _channels_last(lowerer, product.row, whole)
    zero = single(lowerer, found.x_zero)
    operations = row_operations(product, found.x, zero)
    if geometry.groups == 1 or width == channels:
        lowerer.store_through(found.x, operations, replace(target, shape=shape))
        return target
    parts = target.split(1, width)
    parts = replace(parts, shape=(*parts.shape[:2], channels, *parts.shape[3:]))
    _store_parts(lowerer, lowerer.view(found.x).split(1, channels), operations, parts)
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


def _store_parts(lowerer: Lowerer, source: View, operations: Sequence[Operation], target: View) -> None:
    """Elements with at most one operation applied, between views whose channels are split into groups."""
    items: list[Item] = [Load(source.type, ())]
    views = [source]
    for operation in operations:
        zero = operation.operands[1] if len(operation.operands) > 1 else None
        entry = center if operation.op is center else flip
        inputs = (0, -1) if entry is center else (0,)
        if isinstance(zero, View):
            items.append(Load(zero.type, ()))
            views.append(zero)
            inputs = (0, 1)
        items.append(Apply(name_of(entry), inputs, target.type))
    lowerer.combine(items, views, target)


def _panels(lowerer: Lowerer, geometry: Geometry, found: Integers, tile: Tile, is_folded: bool) -> Buffer:
    """Filters in panels: (groups, panels, taps, groups of channels, width, depth). Taps of a row may count as channels."""
    product = tile.multiply
    dtype = np.dtype(f"i{product.column.bytes}")
    depth, width = product.depth, tile.width
    groups, panels = -(-geometry.channels // depth), -(-geometry.filters // width)
    shape = (geometry.groups, panels, geometry.taps, groups, width, depth)

    def pack(w: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        centered = less_zero(w, zero)
        ordered = np.moveaxis(centered, -1, 1) if is_folded else centered
        filters = ordered.reshape(geometry.groups, geometry.filters, geometry.channels, geometry.taps)
        whole = np.zeros((geometry.groups, panels * width, groups * depth, geometry.taps), dtype)
        whole[:, : geometry.filters, : geometry.channels] = filters
        packed = aligned_empty(shape, dtype)
        packed[...] = whole.reshape(geometry.groups, panels, width, groups, depth, geometry.taps).transpose(0, 1, 5, 3, 2, 4)
        return [packed]

    parameters = (geometry.groups, width, depth, str(product.column), is_folded)
    (buffer,) = lowerer.packed(found.filter_sources, FILTERS, parameters, [int(np.prod(shape)) * dtype.itemsize], pack)
    return buffer


def _bias(lowerer: Lowerer, geometry: Geometry, found: Integers, tile: Tile) -> tuple[Buffer, list[Operation]]:
    """What the sums of panels begin with, and what is still to be done with them."""
    first, later = _first_sums(lowerer, geometry, found, is_centered=tile.multiply.row == I16)
    width, panels = tile.width, -(-geometry.filters // tile.width)
    packed = np.zeros((geometry.groups, panels * width), np.int32)
    packed[:, : geometry.filters] = first.reshape(geometry.groups, geometry.filters)
    return lowerer.table(packed), later


def _first_sums(lowerer: Lowerer, geometry: Geometry, found: Integers, is_centered: bool) -> tuple[np.ndarray, list[Operation]]:
    """What the sum of each filter begins with, and what is left for later: a bias or a zero point that is known in runs only.

    With `is_centered` pixels are less their zero point already.
    """
    count = geometry.groups * geometry.filters
    first = np.zeros(count, np.int64)
    later: list[Operation] = []
    behind = len(geometry.kernel)
    if found.bias is not None and found.bias.constant is not None:
        first += required_array(found.bias).astype(np.int64)
    elif found.bias is not None:
        later.append(Operation(added, (None, lowerer.view(found.bias).with_axes_behind(behind)), type=I32))
    if not is_centered:
        sums = found.filters().reshape(count, -1).sum(axis=1, dtype=np.int64)
        if found.x_zero is None or found.x_zero.constant is not None:
            zero = 0 if found.x_zero is None else int(required_array(found.x_zero).reshape(()))
            first -= (zero + found.offset) * sums
        else:
            table = lowerer.table(sums.astype(np.int32))
            view = View(table, I32, (count,), (1,)).with_axes_behind(behind)
            zero_view = single(lowerer, found.x_zero)
            later.append(Operation(uncentered, (None, zero_view, view), (("offset", found.offset),), type=I32))
    return first.astype(np.int32), later


def _padding(lowerer: Lowerer, found: Integers, product: Product, groups: int) -> Buffer:
    """A pixel of the padding: less its zero point it is 0."""
    count = groups * product.depth
    if product.row == I16:
        return lowerer.table(np.zeros(count, np.int16))
    return _padding_bytes(lowerer, found, count, found.offset)


def _padding_bytes(lowerer: Lowerer, found: Integers, count: int, offset: int) -> Buffer:
    """The zero point so many times, as a byte that has `offset` more."""
    if found.x_zero is None or found.x_zero.constant is not None:
        zero = 0 if found.x_zero is None else int(required_array(found.x_zero).reshape(()))
        return lowerer.table(np.full(count, (zero + offset) % 256, np.uint8))
    view = single(lowerer, found.x_zero)
    assert view is not None
    target = View(lowerer.scratch(count), U8 if offset else view.type, (count,), (1,))
    _store_parts(lowerer, view, [Operation(flip, (None,), type=U8)] if offset else [], target)
    return target.buffer
