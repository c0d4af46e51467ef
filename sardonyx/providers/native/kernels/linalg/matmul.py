"""Lowerings of matrix products: MatMul, Gemm and their fused forms. Each becomes one step, and packing steps for what is not constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, TensorType, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.linalg.dot_kernel import (
    MAX_ROWS,
    DotArguments,
    Dots,
    LineArguments,
    dot_grain,
    dot_kernel,
)
from sardonyx.providers.native.kernels.linalg.equality import check_equal
from sardonyx.providers.native.kernels.linalg.packing import Packed, packed_view, packed_weights
from sardonyx.providers.native.kernels.linalg.tile_kernel import (
    FactorArguments,
    GemmArguments,
    Tile,
    gemm_kernel,
    grain_of,
    is_narrow,
    tile_lanes,
    tile_rows,
    tile_vectors,
)
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, fixed, may_equal, shape_of, stored
from sardonyx.providers.native.program.views import Dims, View, broadcast_stride, collapse
from sardonyx.providers.scalars.table import newest_scalar
from sardonyx.startup.records import dataclass

CONTRIB = "com.microsoft"
ACTIVATIONS = frozenset(
    {"Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Celu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"}
    | {"Softplus", "Softsign"}
)
"""What may be fused into a product by name."""
SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}
WORTH_PACKING = 64
"""From how many columns on it pays to pack A rather than to read it with such collisions."""


# --- operands as (batch…, rows, columns)


def _axes(rank: int, transposed: bool, batched: bool) -> list[int]:
    """The order of axes that makes a factor (batch…, rows, columns); with `batched` its rows stood before the batch axes."""
    axes = [*range(1, rank - 1), 0, rank - 1] if batched else list(range(rank))
    return [*axes[:-2], axes[-1], axes[-2]] if transposed else axes


def _arranged_shape(node: Node, number: int) -> Dims:
    """The shape of a factor as (batch…, rows, columns)."""
    shape = shape_of(node.inputs[number])  # type: ignore[arg-type]
    assert shape is not None
    if len(shape) == 1:
        return (1, *shape) if number == 0 else (*shape, 1)
    return tuple(shape[axis] for axis in _axes(len(shape), *_arrangement(node, number)))


def _arrangement(node: Node, number: int) -> tuple[bool, bool]:
    which = "AB"[number]
    return bool(operand(node, f"trans{which}")), bool(operand(node, f"transBatch{which}"))


def _arranged(view: View, node: Node, number: int) -> View:
    if len(view.shape) == 1:
        reshaped = view.reshaped(_arranged_shape(node, number))
        assert reshaped is not None
        return reshaped
    return view.transposed(_axes(len(view.shape), *_arrangement(node, number)))


def claims_product(node: Node) -> bool:
    """Numbers whose inner sizes may be equal, and whose batches may broadcast."""
    if len(node.inputs) < 2 or any(value is None for value in node.inputs[:2]):
        return False
    types = {element_of(value) for value in (*node.inputs, *node.outputs) if value is not None}
    if len(types) != 1 or not _is_number(types.pop()) or any(not shape_of(value) for value in node.inputs[:2] if value):
        return False
    a, b = _arranged_shape(node, 0), _arranged_shape(node, 1)
    pairs = zip(reversed(a[:-2]), reversed(b[:-2]))
    return may_equal(a[-1], b[-2]) and all(may_equal(left, right) or 1 in (left, right) for left, right in pairs)


def _is_number(type: Type | None) -> bool:
    return type is not None and type.is_number


def _claims_gemm(node: Node) -> bool:
    """Factors of integers must be whole."""
    factors = [float(operand(node, name)) for name in ("alpha", "beta")]
    if not stored(node.outputs[0]).is_float and not all(map(float.is_integer, factors)):
        return False
    if not claims_product(node) or any(len(shape_of(value) or ()) != 2 for value in node.inputs[:2] if value):
        return False
    C = node.inputs[2] if len(node.inputs) > 2 else None
    return C is None or _broadcasts(shape_of(C) or (), shape_of(node.outputs[0]) or ())


def _broadcasts(shape: Dims, target: Dims) -> bool:
    pairs = zip(reversed(shape), reversed(target))
    return len(shape) <= len(target) and all(size == 1 or may_equal(size, other) for size, other in pairs)


# --- the ops


@lower("MatMul", claims=claims_product)
def matmul(lowerer: Lowerer, node: Node) -> None:
    product_steps(lowerer, node, ())


@lower("FusedMatMul", "TransposeMatMul", domain=CONTRIB, claims=claims_product)
def fused_matmul(lowerer: Lowerer, node: Node) -> None:
    product_steps(lowerer, node, _scaled(node))


@lower("Gemm", claims=_claims_gemm)
def gemm(lowerer: Lowerer, node: Node) -> None:
    product_steps(lowerer, node, _gemm_operations(lowerer, node))


def _activation(node: Node) -> Operation | None:
    """The activation that is fused into a node; None if there is none."""
    name = operand(node, "activation")
    if not name:
        return None
    attributes = {letter: operand(node, f"activation_{letter}") for letter in ("alpha", "beta", "gamma")}
    known = newest_scalar(name).parameters
    parameters = dict(SELU) if name == "Selu" else {}
    parameters |= {letter: float(number) for letter, number in attributes.items() if number is not None and letter in known}
    return Operation(name, (None,), tuple(sorted(parameters.items())))


def _claims_activation(node: Node) -> bool:
    """Whether the activation is a function of one element that takes these numbers and this type."""
    name = operand(node, "activation")
    if not name:
        return True
    if name not in ACTIVATIONS:
        return False
    dtype = node.outputs[0].type.dtype if isinstance(node.outputs[0].type, TensorType) else None
    types = newest_scalar(name).types
    return types is None or dtype in types


@lower("FusedGemm", domain=CONTRIB, claims=lambda node: _claims_gemm(node) and _claims_activation(node))
def fused_gemm(lowerer: Lowerer, node: Node) -> None:
    product_steps(lowerer, node, [*_gemm_operations(lowerer, node), *filter(None, [_activation(node)])])


@lower("FusedMatMulActivation", domain=CONTRIB, claims=lambda node: claims_product(node) and _claims_activation(node))
def fused_matmul_activation(lowerer: Lowerer, node: Node) -> None:
    product_steps(lowerer, node, [*_scaled(node), *filter(None, [_activation(node)])])


def _claims_fast_gelu(node: Node) -> bool:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return claims_product(node) and (bias is None or _broadcasts(shape_of(bias) or (), (shape_of(node.outputs[0]) or ())[-1:]))


@lower("GemmFastGelu", domain=CONTRIB, claims=_claims_fast_gelu)
def gemm_fast_gelu(lowerer: Lowerer, node: Node) -> None:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    product_steps(lowerer, node, [Operation("FastGelu", (None,) if bias is None else (None, bias), domain=CONTRIB)])


def _scaled(node: Node) -> list[Operation]:
    alpha = float(operand(node, "alpha"))
    return [] if alpha == 1 else [Operation("Mul", (None, _factor(node, alpha)))]


def _factor(node: Node, number: float) -> float:
    return number if stored(node.outputs[0]).is_float else int(number)


def _gemm_operations(lowerer: Lowerer, node: Node) -> list[Operation]:
    """alpha · product + beta · C, in this order: beta · C is rounded as the spec has it."""
    beta = float(operand(node, "beta"))
    C = node.inputs[2] if len(node.inputs) > 2 else None
    if C is None:
        return _scaled(node)
    for size, wanted in zip(reversed(dims(C)), reversed(dims(node.outputs[0]))):
        lowerer.require_fit(size, wanted)
    if beta == 0:
        return _scaled(node)
    return [*_scaled(node), Operation("Add", (None, C if beta == 1 else Operation("Mul", (C, _factor(node, beta)))))]


# --- steps


@dataclass(frozen=True)
class Factor:
    """An operand as the kernel reads it. `tile` and `step` are how far apart tiles (panels) and rows lie, or k where that is outside."""

    place: Argument
    type: Type
    along: str
    tile: Dim
    step: Dim
    batch: Dims
    """Strides along the axes of the batch."""

    def arguments(self, batch_strides: Dims) -> FactorArguments:
        """With the strides along those axes of the batch that are left once even ones are taken together."""
        return FactorArguments(place=self.place, tile_stride=self.tile, stride=self.step, batch_strides=batch_strides)


def product_steps(lowerer: Lowerer, node: Node, operations: Sequence[Operation]) -> None:
    """Add the steps of a product, with scalar operations that belong to the node itself."""
    A, B = node.inputs[:2]
    assert A is not None and B is not None
    _require_batches(lowerer, node)
    if _dot_steps(lowerer, node, A, B, operations):
        return
    a, b_shape = _arranged(lowerer.view(A), node, 0), _arranged_shape(node, 1)
    flat = with_flat_rows(a) if all(size == 1 for size in b_shape[:-2]) else None
    a = flat or a
    batch = () if flat else (shape_of(node.outputs[0]) or ())[: max(len(a.shape), len(b_shape)) - 2]

    def right(width: int, is_once: bool) -> Factor:
        return _right_factor(lowerer, node, B, batch, width, is_once=is_once)

    tiled_product(lowerer, node, a, b_shape, batch, right, _groups(node, flat is not None), operations)


def _require_batches(lowerer: Lowerer, node: Node) -> None:
    """Have NumPy compute where batches do not broadcast."""
    shapes = [_arranged_shape(node, 0)[:-2], _arranged_shape(node, 1)[:-2]]
    result = dims(node.outputs[0])[: max(map(len, shapes))]
    for shape in shapes:
        for size, wanted in zip(reversed(shape), reversed(result)):
            lowerer.require_fit(size, wanted)


def tiled_product(
    lowerer: Lowerer,
    node: Node,
    a: View,
    b_shape: Dims,
    batch: Dims,
    right_factor: Callable[[int, bool], Factor],
    groups: Sequence[int],
    operations: Sequence[Operation] = (),
    order: Sequence[int] | None = None,
) -> None:
    """Add the step of a product of `a` (batch…, rows, k) with what `right_factor` gives for a width of panels.

    `groups` and `order` say which axes of the node's output are batch, rows and columns, as `Lowerer.sink` asks for them.
    """
    rows, inner, columns = a.shape[-2], inner_size(lowerer, a.shape[-1], b_shape[-2]), b_shape[-1]
    lanes, vectors = tile_lanes(lowerer.target, a.type, columns), tile_vectors(lowerer.target, a.type, columns)
    height = tile_rows(lowerer.target, vectors)
    left = _left_factor(lowerer, a, batch, columns, height)
    right = right_factor(vectors * lanes, isinstance(rows, int) and rows <= height)
    narrow = is_narrow(lowerer.target, lanes, columns)
    tile = Tile(left.type, right.type, height, vectors, lanes, left.along, right.along == "panels", is_narrow=narrow)
    sink = lowerer.sink(node, groups, operations=operations, order=order)
    gemm_step(lowerer, tile, left, right, batch, (rows, inner, columns), sink)


def gemm_step(
    lowerer: Lowerer, tile: Tile, left: Factor, right: Factor, batch: Dims, extents: tuple[Dim, Dim, Dim], sink: Sink
) -> None:
    """Add the step of a product of factors as the kernel reads them, of so many rows, k and columns."""
    rows, inner, columns = extents
    sizes, steps = collapse(batch, [left.batch, right.batch])
    total, depth = dim.product(batch), tile.multiply.depth
    lowerer.call(
        gemm_kernel(lowerer.target, tile, len(sizes), sink.chain),
        GemmArguments(
            left=left.arguments(steps[0]),
            right=right.arguments(steps[1]),
            rows=rows,
            columns=columns,
            inner=inner,
            batch_sizes=sizes,
            bands=None,
            sink=sink.arguments,
        ),
        total * dim.ceildiv(rows, tile.rows) * dim.ceildiv(columns, tile.width),
        grain_of(tile, rows, inner),
        flops=total * rows * inner * columns * (2 * depth),
        traffic=total
        * (rows * inner * left.type.bytes + inner * columns * right.type.bytes + rows * columns * tile.left.bytes),
    )


def inner_size(lowerer: Lowerer, left: Dim, right: Dim) -> Dim:
    """The size of K. If only a run tells whether both factors agree on it, a step checks that; nobody reads beyond the smaller one."""
    if left == right:
        return left
    check_equal(lowerer, [(left, right)])
    return dim.minimum(left, right)


def _dot_steps(lowerer: Lowerer, node: Node, A: Value, B: Value, operations: Sequence[Operation]) -> bool:
    """Add the step of a product of few rows, or of one column, if both factors lie along K; whether that is so."""
    a_shape, b_shape = _arranged_shape(node, 0), _arranged_shape(node, 1)
    is_column = b_shape[-1] == 1
    if not is_column and (lowerer.can_pack(B) or not isinstance(a_shape[-2], int) or a_shape[-2] > MAX_ROWS):
        return False
    few, many = _arranged(lowerer.view(A), node, 0), _turned(_arranged(lowerer.view(B), node, 1))
    if is_column:
        few, many = many, few
    if few.strides[-1] != 1 or many.strides[-1] != 1:
        return False
    inner = inner_size(lowerer, few.shape[-1], many.shape[-1])
    is_flat = _has_no_batch(few) and (is_column or _has_no_batch(many))
    flat = with_flat_rows(many) if is_flat else None
    groups = _groups(node, flat=False)
    batch = () if flat else (shape_of(node.outputs[0]) or ())[: groups[0]]
    if few.shape[-2] == 1:  # one result per column: the columns are all axes there are
        groups = (0, sum(groups)) if flat else (groups[0], 0, groups[1] + groups[2])
    elif flat:
        groups = (groups[0] + groups[1], groups[2])
    _dot_step(lowerer, few, flat or many, inner, batch, lowerer.sink(node, groups, operations=operations))
    return True


def _dot_step(lowerer: Lowerer, few: View, many: View, inner: Dim, batch: Dims, sink: Sink) -> None:
    """Add the step of the products of few rows with many columns, both along K."""
    rows, columns = fixed(few.shape[-2], "the number of rows"), many.shape[-2]
    sizes, steps = collapse(batch, [batch_steps(few, batch), batch_steps(many, batch)])
    lanes, total = lowerer.target.lanes(few.type), dim.product(batch)
    lowerer.call(
        dot_kernel(lowerer.target, Dots(few.type, many.type, rows, len(sizes)), sink.chain),
        DotArguments(
            few=LineArguments(place=few.place, stride=few.strides[-2], batch_strides=steps[0]),
            many=LineArguments(place=many.place, stride=many.strides[-2], batch_strides=steps[1]),
            columns=columns,
            inner=inner,
            batch_sizes=sizes,
            sink=sink.arguments,
        ),
        total * dim.ceildiv(columns, lanes),
        dot_grain(lanes, inner),
        flops=total * rows * inner * columns * 2,
        traffic=total * (rows * inner + inner * columns + rows * columns) * few.type.bytes,
    )


def _has_no_batch(view: View) -> bool:
    return all(size == 1 for size in view.shape[:-2])


def _turned(view: View) -> View:
    """Rows and columns exchanged."""
    rank = len(view.shape)
    return view.transposed([*range(rank - 2), rank - 1, rank - 2])


def with_flat_rows(view: View) -> View | None:
    """All axes but the last as one; None if they do not step evenly."""
    sizes, (steps,) = collapse(view.shape[:-1], [view.strides[:-1]])
    if len(sizes) > 1:
        return None
    return View(view.buffer, view.type, (sizes[0], view.shape[-1]), (steps[0], view.strides[-1]), view.offset)


def _groups(node: Node, flat: bool) -> tuple[int, ...]:
    """How many axes of the output are batch, rows and columns."""
    ranks = [len(shape_of(value) or ()) for value in node.inputs[:2] if value is not None]
    rank = len(shape_of(node.outputs[0]) or ())
    has_rows, has_columns = (int(rank > 1) for rank in ranks)
    batch = rank - has_rows - has_columns
    return (batch + has_rows, has_columns) if flat else (batch, has_rows, has_columns)


def _left_factor(lowerer: Lowerer, view: View, batch: Dims, columns: Dim, rows: int) -> Factor:
    """A where it is, if its elements lie well or are not read often; else packed in tiles of `rows`."""
    row_step, inner_step = view.strides[-2:]
    few = isinstance(columns, int) and columns < WORTH_PACKING
    if not view.type.is_narrow_float and inner_step == 1 and (few or not _collides(lowerer, view)):
        return Factor(view.place, view.type, "k", row_step * rows, row_step, batch_steps(view, batch))
    if not view.type.is_narrow_float and row_step == 1 and (few or _is_near(lowerer, inner_step, view.type)):
        return Factor(view.place, view.type, "rows", rows, inner_step, batch_steps(view, batch))
    lanes = lowerer.target.lanes(view.type)
    width = -(-rows // lanes) * lanes
    packed = packed_view(lowerer, view, view.type.computed, width, rows)
    return Factor(packed.buffer, packed.type, "rows", packed.tile_stride, width, _packed_steps(view.shape, packed, batch))


def _collides(lowerer: Lowerer, view: View) -> bool:
    """Whether the rows of a tile compete for the same places of the first-level cache."""
    rows, step = view.shape[-2], view.strides[-2]
    if isinstance(rows, int) and rows <= lowerer.target.caches.ways:
        return False
    return isinstance(step, int) and step * view.type.bytes % lowerer.target.caches.distance == 0


def _is_near(lowerer: Lowerer, step: Dim, type: Type) -> bool:
    """Whether what lies so far apart can be read again and again, without being packed."""
    if not isinstance(step, int):
        return False
    bytes = step * type.bytes
    return bytes <= lowerer.budgets.unpacked_distance and bytes % lowerer.target.caches.distance != 0


def _right_factor(lowerer: Lowerer, node: Node, B: Value, batch: Dims, width: int, *, is_once: bool) -> Factor:
    """B in panels: packed now if it is constant, else by a step, or as it is where that is about as good.

    `is_once` says that each element of it is read only once.
    """
    shape = _arranged_shape(node, 1)
    type = element_of(B)
    assert type is not None
    if lowerer.can_pack(B):
        transposed, batched = _arrangement(node, 1)

        def arrange(array: np.ndarray) -> np.ndarray:
            return array[:, None] if array.ndim == 1 else array.transpose(_axes(array.ndim, transposed, batched))

        packed = packed_weights(lowerer, B, (transposed, batched), arrange, type, width)
        return packed_factor(shape, packed, batch, width)
    return viewed_factor(lowerer, _arranged(lowerer.view(B), node, 1), batch, width, is_once)


def packed_factor(shape: Dims, packed: Packed, batch: Dims, width: int) -> Factor:
    """Panels of a factor (batch…, k, columns)."""
    return Factor(packed.buffer, packed.type, "panels", packed.tile_stride, width, _packed_steps(shape, packed, batch))


def viewed_factor(lowerer: Lowerer, view: View, batch: Dims, width: int, is_once: bool) -> Factor:
    """A view (batch…, k, columns) packed by a step, or as it is where that is about as good."""
    if _is_readable(lowerer, view, width, is_once):
        return Factor(view.place, view.type, "columns", 0, view.strides[-2], batch_steps(view, batch))
    return packed_factor(view.shape, packed_view(lowerer, _turned(view), view.type, width, width), batch, width)


def _is_readable(lowerer: Lowerer, view: View, width: int, is_once: bool) -> bool:
    """Whether B can be read without packing: whole vectors lie side by side, and close to each other if they are read often."""
    columns, (step, column_step) = view.shape[-1], view.strides[-2:]
    if column_step != 1 or not isinstance(columns, int) or columns < width:
        return False
    return is_once or _is_near(lowerer, step, view.type)


def batch_steps(view: View, batch: Dims) -> Dims:
    """How an operand moves along the axes of the batch, in elements."""
    if not batch:
        return ()
    return view.broadcast((*batch, *view.shape[-2:])).strides[:-2]


def _packed_steps(shape: Dims, packed: Packed, batch: Dims) -> Dims:
    """The same for one that was packed, batch after batch."""
    mine = shape[:-2] if batch else ()
    strides: list[Dim] = []
    step = packed.batch_stride
    for size, wanted in zip(reversed(mine), reversed(batch)):
        strides.insert(0, broadcast_stride(step, size, wanted))
        step = step * size
    return (0,) * (len(batch) - len(mine)) + tuple(strides)
