"""The steps of products with weights of few bits, once these are packed. Their lowerings call it."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.providers.native.kernels.linalg.matmul import with_flat_rows
from sardonyx.providers.native.kernels.linalg.tile_kernel import FactorArguments, GemmArguments, Tile, grain_of
from sardonyx.providers.native.kernels.weight_only.packing import Order, Panels
from sardonyx.providers.native.kernels.weight_only.reordering import reordered_rows
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.kernel import DeclaredKernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.values import dims
from sardonyx.providers.native.program.views import View, contiguous_strides

GAP_BYTES = 64


def shared_rows(target: Target) -> int:
    """How many rows share what is decoded of a block."""
    return 64 if target.vector_registers >= 32 else 48


def float_rows(lowerer: Lowerer, A: Value, order: Order | None = None) -> View:
    """The first factor (rows, K) as float32 whose rows have no gaps."""
    shape = dims(A) if len(dims(A)) > 1 else (1, *dims(A))
    view = lowerer.view(A).reshaped(shape) if len(dims(A)) == 1 else lowerer.view(A)
    assert view is not None
    flat = with_flat_rows(view) if view.strides[-1] == 1 and view.type == F32 else None
    if flat is None:
        copied = View(lowerer.scratch(dim.product(shape) * F32.bytes), F32, shape, contiguous_strides(shape))
        lowerer.copy(view, copied)
        flat = with_flat_rows(copied)
    assert flat is not None
    return flat if order is None else reordered_rows(lowerer, flat, order.columns)


def apart(lowerer: Lowerer, rows: View) -> View:
    """Rows that do not compete for the same places of the first-level cache; others are copied, as a tile reads a dozen at a time."""
    count, stride = rows.shape[0], stride_apart(lowerer, rows.strides[0])
    if count == 1 or stride == rows.strides[0]:
        return rows
    copied = View(lowerer.scratch(count * stride * F32.bytes), F32, rows.shape, (stride, 1))
    lowerer.copy(rows, copied)
    return copied


def stride_apart(lowerer: Lowerer, stride: Dim) -> Dim:
    """A stride of floats, or one that is somewhat larger, with which rows do not compete."""
    is_unlucky = isinstance(stride, int) and stride > 0 and stride * F32.bytes % lowerer.target.caches.distance == 0
    return stride + GAP_BYTES // F32.bytes if is_unlucky else stride


def product_step(
    lowerer: Lowerer,
    node: Node,
    kernel: Callable[..., DeclaredKernel],
    rows: View,
    tile: Tile,
    panels: Panels,
    buffer: Buffer,
    bias: Value | None = None,
) -> None:
    """Add the step that multiplies rows by panels."""
    operations = [] if bias is None else [Operation("Add", (None, bias), type=F32)]
    sink = lowerer.sink(node, (len(dims(node.outputs[0])) - 1, 1), operations=operations, given=F32)
    count, stride = rows.shape[0], rows.strides[0]
    inner, columns = panels.weights.K, panels.weights.N
    lowerer.call(
        kernel(lowerer.target, tile, 0, sink.chain, panels.codes, panels.words),
        GemmArguments(
            left=FactorArguments(place=rows.place, tile_stride=stride * tile.rows, stride=stride, batch_strides=()),
            right=FactorArguments(place=buffer, tile_stride=panels.stride, stride=0, batch_strides=()),
            rows=count,
            columns=columns,
            inner=rows.shape[1],
            batch_sizes=(),
            bands=None,
            sink=sink.arguments,
        ),
        dim.ceildiv(count, tile.rows) * panels.count,
        grain_of(tile, count, inner),
        flops=count * inner * columns * 2,
        traffic=count * (inner + columns) * F32.bytes + panels.count * panels.stride * F32.bytes,
    )
