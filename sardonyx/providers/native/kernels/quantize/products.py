"""Matrix products of 8-bit integers: both factors as groups, one step of the product's kernel, and what follows it in the sink."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.products import Product
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I32, U8
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.providers.native.kernels.linalg.matmul import (
    Factor,
    batch_steps,
    gemm_step,
    inner_size,
    packed_factor,
    with_flat_rows,
)
from sardonyx.providers.native.kernels.linalg.packing import Packed
from sardonyx.providers.native.kernels.linalg.tile_kernel import Tile, tile_rows
from sardonyx.providers.native.kernels.quantize.operands import (
    Columns,
    computed_columns,
    constant_columns,
    in_groups,
    one_or_each,
    packed_rows,
    width_of,
)
from sardonyx.providers.native.kernels.quantize.sums import row_sums
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import dims, stored
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.providers.scalars.quantize import uncentered
from sardonyx.startup.records import dataclass, replace


@dataclass(frozen=True)
class Operand:
    """A factor of a product of whole numbers."""

    value: Value
    zero_point: Value | None
    transposed: bool = False

    @property
    def axes(self) -> list[int]:
        """The order of axes that makes it (batch…, rows, columns)."""
        rank = len(dims(self.value))
        return [*range(rank - 2), rank - 1, rank - 2] if self.transposed else list(range(rank))

    @property
    def shape(self) -> Dims:
        return tuple(dims(self.value)[axis] for axis in self.axes)

    @property
    def is_constant(self) -> bool:
        return self.value.is_constant and (self.zero_point is None or self.zero_point.is_constant)


def integer_product(lowerer: Lowerer, node: Node, A: Operand, B: Operand, operations: Sequence[Operation]) -> None:
    """Add the steps of a product of whole numbers less their zero points, and operations on its sums of 32 bits."""
    columns = columns_of(lowerer, B)
    zero_point = zero_of_rows(lowerer, A)
    rows = packed_rows(lowerer, columns.product, A.value, A.axes, zero_point)
    corrections = corrections_of(lowerer, columns, rows, zero_point, 0 if stored(A.value) == U8 else 128, len(B.shape) > 1)
    product_step(lowerer, node, rows, columns, A.shape, B.shape, [*corrections, *operations])


def columns_of(lowerer: Lowerer, B: Operand) -> Columns:
    """The second factor in panels, packed before runs if it is constant."""
    shape = B.shape if len(B.shape) > 1 else (*B.shape, 1)
    width = width_of(lowerer.target, shape[-1])
    if B.is_constant and lowerer.can_pack(B.value, B.zero_point):
        axes = B.axes

        def arrange(array: np.ndarray) -> np.ndarray:
            return array[:, None] if array.ndim == 1 else array.transpose(axes)

        return constant_columns(lowerer, B.value, B.zero_point, B.transposed, arrange, width)
    zero_point = None if B.zero_point is None else _spread(lowerer.view(B.zero_point), rows=False, rank=len(B.shape))
    return computed_columns(lowerer, B.value, B.axes, zero_point, width)


def zero_of_rows(lowerer: Lowerer, A: Operand) -> View | None:
    """A zero point in a shape that broadcasts with the operand as it is stored."""
    if A.zero_point is None:
        return None
    return _spread(lowerer.view(A.zero_point), rows=True, rank=len(A.shape))


def _spread(view: View, rows: bool, rank: int) -> View:
    """One number for all, or for each row or column."""
    view = one_or_each(view)
    return view.with_axes_behind(1) if rows and len(view.shape) == 1 and rank > 1 else view


def corrections_of(
    lowerer: Lowerer, columns: Columns, rows: View, zero_point: View | None, offset: int, has_columns: bool = True
) -> list[Operation]:
    """What sums of bytes still lack; `offset` is what rows have too much. Without `has_columns` results have no axis for them."""
    operations = []
    if not columns.is_centered:
        sums = row_sums(lowerer, rows)
        sums = sums.with_axes_behind(1) if has_columns else sums
        zero = 0 if columns.zero is None else columns.zero
        operations.append(Operation(uncentered, (None, zero, sums), (("offset", -columns.offset),), type=I32))
    if columns.sums is not None and (zero_point is not None or offset):
        zero = 0 if zero_point is None else zero_point
        operations.append(Operation(uncentered, (None, zero, columns.sums), (("offset", offset),), type=I32))
    return operations


def product_step(
    lowerer: Lowerer,
    node: Node,
    rows: View,
    columns: Columns,
    a_shape: Dims,
    b_shape: Dims,
    operations: Sequence[Operation],
) -> None:
    """Add the step of a product whose factors are groups; the shapes are those of the factors as they were."""
    groups = _groups(node, a_shape, b_shape)
    b_shape = b_shape if len(b_shape) > 1 else (*b_shape, 1)
    batch = dims(node.outputs[0])[: groups[0]]
    _require_batches(lowerer, batch, (a_shape, b_shape))
    inner = inner_size(lowerer, a_shape[-1], b_shape[-2])
    a = in_groups(rows, columns.product)
    a = a if len(a.shape) > 1 else replace(a, shape=(1, *a.shape), strides=(0, *a.strides))
    flat = with_flat_rows(a) if all(size == 1 for size in b_shape[:-2]) else None
    if flat is not None:
        a, batch, groups = flat, (), (groups[0] + groups[1], groups[2])
    tile = tile_of(lowerer.target, columns.product, b_shape[-1])
    left = Factor(a.place, tile.left, "k", a.strides[-2] * tile.rows, a.strides[-2], batch_steps(a, batch))
    packed = Packed(columns.buffer, tile.right, columns.panel_stride, columns.batch_stride)
    right = packed_factor(b_shape, packed, batch, tile.width)
    sink = lowerer.sink(node, groups, operations=operations, given=I32)
    extents = (a.shape[-2], dim.ceildiv(inner, columns.product.depth), b_shape[-1])
    gemm_step(lowerer, tile, left, right, batch, extents, sink)


def tile_of(target: Target, product: Product, columns: Dim) -> Tile:
    """The register tile of a product with so many columns."""
    lanes, width = target.lanes(I32), width_of(target, columns)
    height = tile_rows(target, width // lanes)
    return Tile(product.row_group, product.column_group, height, width // lanes, lanes, "k", True, product)


def _require_batches(lowerer: Lowerer, batch: Dims, shapes: Sequence[Dims]) -> None:
    """Have NumPy compute where batches do not broadcast."""
    for shape in shapes:
        for size, wanted in zip(reversed(shape[:-2]), reversed(batch)):
            lowerer.require_fit(size, wanted)


def _groups(node: Node, a_shape: Dims, b_shape: Dims) -> tuple[int, ...]:
    """How many axes of the output are batch, rows and columns."""
    rank, rows, columns = len(dims(node.outputs[0])), int(len(a_shape) > 1), int(len(b_shape) > 1)
    return rank - rows - columns, rows, columns
