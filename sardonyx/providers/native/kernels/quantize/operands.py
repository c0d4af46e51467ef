"""Factors of products of 8-bit integers as kernels read them: rows of groups, panels of groups. Lowerings of quantized products call it.

A group is what `compiler/products.py` multiplies at once. Rows of words hold numbers less their zero point, so no sum has to be corrected.
Rows of bytes hold numbers as they are, or 128 more where these have a sign; kernels' sums then lack the zero point times the sum of each
column, which is known when a constant is packed. Columns are less their zero point if 8 bits hold that. Else columns of words are so in 16
bits, and columns of bytes keep it: sums then lack it times the sum of each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from sardonyx.compiler.products import Product, integers
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I8, I16, I32, U8, Type
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.kernels.linalg.packing import packed_view
from sardonyx.providers.native.kernels.linalg.tile_kernel import tile_vectors
from sardonyx.providers.native.kernels.quantize.interleaving import interleaved_panels
from sardonyx.providers.native.kernels.quantize.sums import row_sums
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.values import dims, stored
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides
from sardonyx.providers.native.program.weights import WeightMemory
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.providers.scalars.quantize import center, flip
from sardonyx.startup.records import dataclass, replace

PANELS = PackedFormat("integer-panels")
SUMS = PackedFormat("integer-sums")


def product_for(target: Target, column: Type) -> Product:
    """What multiplies rows of 8-bit numbers by columns of a type."""
    return integers(target, column)


# --- rows


def row_operations(product: Product, value: Value, zero_point: View | None) -> list[Operation]:
    """What makes elements of rows out of 8-bit numbers."""
    if product.row == I16:
        return [Operation(center, (None, 0 if zero_point is None else zero_point), type=I16)]
    return [] if stored(value) == U8 else [Operation(flip, (None,), type=U8)]


def packed_rows(lowerer: Lowerer, product: Product, value: Value, axes: Sequence[int], zero_point: View | None) -> View:
    """A value, with its axes in this order, as rows of whole groups; strides and sizes are counted in elements.

    Rows do not compete for the same places of the first-level cache. What fills the last group up is any number: columns have 0 there.
    """
    shape = tuple(dims(value)[axis] for axis in axes)
    view = lowerer.known_view(value)
    if view is not None and _is_ready(product, view.transposed(axes)):
        return view.transposed(axes)
    rows = _empty_rows(lowerer, product, shape)
    back = rows.transposed([list(axes).index(axis) for axis in range(len(axes))])
    lowerer.store_through(value, row_operations(product, value, zero_point), back)
    return rows


def quantized_rows(lowerer: Lowerer, product: Product, value: Value, scale: View, zero_point: View) -> View:
    """Reals as rows of whole groups, quantized on the way."""
    rows = _empty_rows(lowerer, product, dims(value))
    operations = [Operation("QuantizeLinear", (None, scale, zero_point), type=U8)]
    if product.row == I16:
        operations.append(Operation(center, (None, zero_point), type=I16))
    lowerer.store_through(value, operations, rows)
    return rows


def _empty_rows(lowerer: Lowerer, product: Product, shape: Dims) -> View:
    width = _row_width(lowerer.target, product, shape[-1])
    buffer = lowerer.scratch(dim.product(shape[:-1]) * width * product.row.bytes)
    return View(buffer, product.row, shape, contiguous_strides((*shape[:-1], width)))


def _row_width(target: Target, product: Product, size: Dim) -> Dim:
    groups = dim.ceildiv(size, product.depth)
    is_unlucky = isinstance(groups, int) and groups > 0 and groups * 4 % target.caches.distance == 0
    return (groups + (16 if is_unlucky else 0)) * product.depth


def _is_ready(product: Product, view: View) -> bool:
    """Whether rows can be read where they are."""
    numbers = (view.shape[-1], *view.strides[:-1], view.offset)
    aligned = all(isinstance(number, int) and number % product.depth == 0 for number in numbers)
    return view.type == product.row and view.strides[-1] == 1 and aligned


# --- columns


@dataclass(frozen=True)
class Columns:
    """The second factor of a product in panels."""

    buffer: Buffer
    product: Product
    panel_stride: Dim
    """In groups."""
    batch_stride: Dim
    sums: View | None = None
    """Of each column, the sum of its elements less their zero point: where rows hold bytes."""
    zero: View | None = None
    """The zero point that is still in the elements, one or one for each column, and what was subtracted instead of it."""
    offset: int = 0

    @property
    def is_centered(self) -> bool:
        return self.zero is None and self.offset == 0


def width_of(target: Target, columns: Dim) -> int:
    """How many columns a panel has."""
    return tile_vectors(target, I32, columns) * target.lanes(I32)


def constant_columns(
    lowerer: Lowerer,
    value: Value,
    zero_point: Value | None,
    arrangement: Hashable,
    arrange: Callable[[np.ndarray], np.ndarray],
    width: int,
) -> Columns:
    """A constant in panels; `arrange` makes the factor (…, K, N) of its array, and gives zero points the same axes."""
    assert value.constant is not None
    factor = arrange(value.constant.peek())
    is_centered = fits_bytes(factor, zero_array(zero_point), numbers_less_zero)
    column = I8 if is_centered or product_for(lowerer.target, I8).row == U8 else I16
    product = product_for(lowerer.target, column)
    is_centered = is_centered or column == I16
    offset = 128 if stored(value) == U8 and not is_centered else 0
    *batch, inner, count = factor.shape
    groups, panels = -(-inner // product.depth), -(-count // width)
    size = math.prod(batch) * panels * groups * width * product.depth * column.bytes
    sources = [value] if zero_point is None else [value, zero_point]
    memory = lowerer.weights

    def pack(array: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        numbers = numbers_less_zero(arrange(array), zero) if is_centered else arrange(array).astype(np.int16) - offset
        return [pack_groups(memory, numbers, product, width)]

    parameters = (arrangement, width, product.depth, str(column), is_centered)
    (buffer,) = lowerer.packed(sources, PANELS, parameters, [size], pack)
    sums = _column_sums(lowerer, sources, arrangement, arrange, factor.shape) if product.row == U8 else None
    zero = None if is_centered or zero_point is None else one_or_each(lowerer.view(zero_point))
    return Columns(buffer, product, groups * width, panels * groups * width, sums, zero, offset)


def one_or_each(view: View) -> View:
    """A zero point that broadcasts with rows of columns."""
    return replace(view, shape=(), strides=()) if all(size == 1 for size in view.shape) else view


def zero_array(zero_point: Value | None) -> np.ndarray | None:
    return None if zero_point is None or zero_point.constant is None else zero_point.constant.numpy()


def fits_bytes(array: np.ndarray, zero: np.ndarray | None, less_zero: Callable[..., np.ndarray]) -> bool:
    """Whether numbers less their zero points have 8 bits and a sign."""
    if array.dtype == np.int8 and (zero is None or not zero.any()):
        return True
    if array.dtype == np.uint8 and zero is not None and bool((zero == 128).all()):
        return True
    found = less_zero(array, zero)
    return bool(found.min(initial=0) >= -128 and found.max(initial=0) <= 127)


def numbers_less_zero(array: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """Numbers of 8 bits less zero points that broadcast, in 16; those less nothing are the same array."""
    if zero is None or not zero.any():
        return array
    return array.astype(np.int16) - (zero.reshape(()) if zero.size == 1 else zero).astype(np.int16)


def pack_groups(memory: WeightMemory, factor: np.ndarray, product: Product, width: int) -> np.ndarray:
    """(…, K, N) as (…, panels, groups, width, depth); what is missing is 0."""
    *batch, inner, columns = factor.shape
    depth, groups, panels = product.depth, -(-inner // product.depth), -(-columns // width)
    dtype = np.dtype(f"i{product.column.bytes}")
    whole = np.zeros((*batch, groups * depth, panels * width), dtype)
    whole[..., :inner, :columns] = factor
    packed = memory.empty((*batch, panels, groups, width, depth), dtype)
    split = whole.reshape(*batch, groups, depth, panels, width)
    for number in range(depth):
        packed[..., number] = np.moveaxis(split[..., number, :, :], -2, -3)
    return packed


def _column_sums(
    lowerer: Lowerer,
    sources: Sequence[Value],
    arrangement: Hashable,
    arrange: Callable[[np.ndarray], np.ndarray],
    shape: Sequence[int],
) -> View:
    """Of each column the sum, as a row (…, 1, N) of 32 bits."""
    *batch, _, count = shape

    def pack(array: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        total = numbers_less_zero(arrange(array), zero).sum(axis=-2, dtype=np.int32)
        return [total]

    (buffer,) = lowerer.packed(sources, SUMS, (arrangement,), [math.prod(batch) * count * 4], pack)
    sizes: Dims = (*batch, 1, count)
    return View(buffer, I32, sizes, contiguous_strides(sizes))


def computed_columns(lowerer: Lowerer, value: Value, axes: Sequence[int], zero_point: View | None, width: int) -> Columns:
    """A value, with its axes in this order (…, K, N), in panels that are packed in each run."""
    product = product_for(lowerer.target, I8)
    if product.row == U8 and len(axes) > 1 and (zero_point is None or not zero_point.shape):
        return _computed_bytes(lowerer, value, axes, zero_point, product, width)
    return _computed_words(lowerer, value, axes, zero_point, width)


def _computed_words(lowerer: Lowerer, value: Value, axes: Sequence[int], zero_point: View | None, width: int) -> Columns:
    """Words less their zero points."""
    product = product_for(lowerer.target, I16)
    shape = tuple(dims(value)[axis] for axis in axes)
    flat = View(lowerer.scratch(dim.product(shape) * I16.bytes), I16, shape, contiguous_strides(shape))
    back = flat.transposed([list(axes).index(axis) for axis in range(len(axes))])
    lowerer.store_through(value, row_operations(product, value, zero_point), back)
    matrix = flat if len(shape) > 1 else flat.with_axes_behind(1)
    panels = interleaved_panels(lowerer, matrix, product, width)
    return Columns(panels.buffer, product, panels.panel, panels.panel * dim.ceildiv(matrix.shape[-1], width))


def _computed_bytes(
    lowerer: Lowerer, value: Value, axes: Sequence[int], zero_point: View | None, product: Product, width: int
) -> Columns:
    """Bytes with a sign, in which their zero point stays."""
    offset = 128 if stored(value) == U8 else 0
    operations = [Operation(flip, (None,), type=I8)] if offset else []
    turned = [*axes[:-2], axes[-1], axes[-2]]
    known = lowerer.known_view(value)
    if known is not None and _has_whole_groups(known.transposed(turned), product.depth):
        rows = _stored_bytes(lowerer, value, turned, operations)
        packed = packed_view(lowerer, _as_groups(rows, product.depth), I32, width, width)
        sums = row_sums(lowerer, rows, zero_point, offset)
        sums = replace(sums, shape=(*sums.shape[:-1], 1, sums.shape[-1]), strides=(*sums.strides[:-1], 0, 1))
        return Columns(packed.buffer, product, packed.tile_stride, packed.batch_stride, sums, zero_point, offset)
    flat = _stored_bytes(lowerer, value, axes, operations)
    panels = interleaved_panels(lowerer, flat, product, width, zero_point, offset)
    stride = panels.panel * dim.ceildiv(flat.shape[-1], width)
    return Columns(panels.buffer, product, panels.panel, stride, panels.sums, zero_point, offset)


def _has_whole_groups(view: View, depth: int) -> bool:
    """Whether the last axis lies in a row, in whole groups."""
    numbers = (view.shape[-1], *view.strides[:-1], view.offset)
    return view.strides[-1] == 1 and all(isinstance(number, int) and number % depth == 0 for number in numbers)


def _stored_bytes(lowerer: Lowerer, value: Value, axes: Sequence[int], operations: Sequence[Operation]) -> View:
    """A value with its axes in this order, without gaps, as bytes with a sign."""
    shape = tuple(dims(value)[axis] for axis in axes)
    known = lowerer.known_view(value)
    if known is not None and not operations and known.transposed(axes).is_contiguous:
        return known.transposed(axes)
    flat = View(lowerer.scratch(dim.product(shape)), I8, shape, contiguous_strides(shape))
    lowerer.store_through(value, operations, flat.transposed([list(axes).index(axis) for axis in range(len(axes))]))
    return flat


def _as_groups(view: View, depth: int) -> View:
    """Rows with strides and sizes counted in groups, as numbers of 32 bits."""
    strides = tuple(dim.floordiv(stride, depth) for stride in view.strides[:-1])
    shape = (*view.shape[:-1], dim.ceildiv(view.shape[-1], depth))
    return replace(view, type=I32, shape=shape, strides=(*strides, 1), offset=dim.floordiv(view.offset, depth))


def in_groups(view: View, product: Product) -> View:
    """Rows with strides and sizes counted in groups."""
    return replace(_as_groups(view, product.depth), type=product.row_group)
