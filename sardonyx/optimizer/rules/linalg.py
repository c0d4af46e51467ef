"""Matrix products take over what stands before and after them: sums, transposes, factors, batch normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.ir import Node, Value, dim
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.rewrite import Answer, Skip, rule, skip
from sardonyx.optimizer.rules.conv import batch_factors, is_training
from sardonyx.optimizer.rules.shape import viewed_shape
from sardonyx.optimizer.values import (
    CONTRIB_TYPES,
    FIRST_BROADCASTING,
    broadcasts_into,
    dtype_of,
    is_float,
    rank_of,
    scalar,
    shape_of,
    stays_finite,
)

CONTRIB = "com.microsoft"


# --- Gemm -----------------------------------------------------------------------------------------------------------


@rule("Sum|Add(gemm:Gemm(A, B), C)", name="GemmSumFusion")
def add_in_gemm(op: Builder, gemm: Node, A: Value, B: Value, C: Value) -> Answer:
    """Gemm adds a third matrix itself."""
    if not broadcasts_into(C, gemm.outputs[0]):
        return skip("what is added may enlarge the result")
    return op.Gemm(A, B, C, **{**given_attributes(gemm), "beta": 1.0})


@rule("Add(product:MatMul(A, B), C)", name="MatMulAddFusion")
def bias_of_matrix(op: Builder, product: Node, A: Value, B: Value, C: Value, root: Node) -> Answer:
    """A product of two matrices and a sum are one Gemm.

    Products of stacks of matrices stay: reshaping around a Gemm is no gain, and hides attention and Gelu from their rules.
    """
    if rank_of(A) != 2 or rank_of(B) != 2:
        return skip("the factors are not two matrices")
    if not is_float(A) or root.version < FIRST_BROADCASTING:
        return skip("there is no such Gemm")
    if not broadcasts_into(C, product.outputs[0]):
        return skip("what is added may enlarge the result")
    return op.Gemm(A, B, C)


@rule("Add(product:MatMul(A, B), C)", name="MatMulAddFusion")
def bias_outside_attention(op: Builder, product: Node, A: Value, B: Value, C: Value, root: Node) -> Answer:
    """The same, but projections whose heads are split off or were put together wait until attention has been looked for."""
    if any(user.op_type in HEADS for user in root.outputs[0].users) or (A.producer is not None and A.producer.op_type in HEADS):
        return skip("it may be a projection of attention")
    return bias_of_matrix(op, product, A, B, C, root)


HEADS = frozenset({"Reshape", "Split"})
"""Ops by which projections are split into heads, and heads put together."""


@rule("view:Reshape(gemm:Gemm(flat:Reshape(x, ...), W, C?), ...)", name="ReshapeFusion")
def product_of_stack(
    op: Builder, view: Node, gemm: Node, flat: Node, x: Value, W: Value, C: Value | None, root: Node
) -> Answer:
    """A stack of matrices that is flattened for a Gemm alone is multiplied as it is; what computes its shape is not needed then."""
    sizes, weights = shape_of(x), shape_of(W)
    if not W.is_constant or weights is None or sizes is None or len(sizes) < 2 or C is None or rank_of(C) != 1:
        return skip("the weights are not constant, or there is no bias per column")
    if operand(gemm, "transA") or operand(gemm, "alpha") != 1 or operand(gemm, "beta") != 1:
        return skip("the product is transposed or scaled")
    turned = operand(gemm, "transB")
    flattened, result = viewed_shape(flat, x), viewed_shape(view, gemm.outputs[0])
    if flattened is None or flattened[-1] != sizes[-1] or result != (*sizes[:-1], weights[0 if turned else 1]):
        return skip("the shape around the product is not the tensor's own")
    return op.Add(op.MatMul(x, op.constant(np.ascontiguousarray(constant(W).T)) if turned else W), C)  # type: ignore[union-attr]


@rule(
    "t = Transpose<perm=perm?>(A); gemm:Gemm(t, B, C?)",
    keep=("t",),
    name="GemmTransposeFusion",
)
def transpose_first_factor(op: Builder, gemm: Node, A: Value, B: Value, C: Value | None, perm: list[int] | None) -> Answer:
    """Gemm transposes its first factor itself."""
    if perm not in (None, [1, 0]):
        return skip("nothing is transposed")
    return op.Gemm(A, B, C, **{**given_attributes(gemm), "transA": 1 - operand(gemm, "transA")})


@rule(
    "t = Transpose<perm=perm?>(B); gemm:Gemm(A, t, C?)",
    keep=("t",),
    name="GemmTransposeFusion",
)
def transpose_second_factor(op: Builder, gemm: Node, A: Value, B: Value, C: Value | None, perm: list[int] | None) -> Answer:
    """Gemm transposes its second factor itself."""
    if perm not in (None, [1, 0]):
        return skip("nothing is transposed")
    return op.Gemm(A, B, C, **{**given_attributes(gemm), "transB": 1 - operand(gemm, "transB")})


@rule("Transpose<perm=perm?>(gemm:Gemm(A, B))", name="GemmTransposeFusion")
def transpose_product(op: Builder, gemm: Node, A: Value, B: Value, perm: list[int] | None) -> Answer:
    """The transpose of a product is the product of the transposes, in the other order."""
    if perm not in (None, [1, 0]):
        return skip("nothing is transposed")
    flags = {"transA": 1 - operand(gemm, "transB"), "transB": 1 - operand(gemm, "transA")}
    return op.Gemm(B, A, **{**given_attributes(gemm), **flags})


# --- batch normalization --------------------------------------------------------------------------------------------


@rule(
    "BatchNormalization(product:MatMul(x, W), scale, bias, mean, var)",
    "BatchNormalization(Transpose(product:MatMul(x, W)), scale, bias, mean, var)",
    "BatchNormalization(Reshape(product:MatMul(x, W), ...), scale, bias, mean, var)",
    "BatchNormalization(Transpose(Reshape(product:MatMul(x, W), ...)), scale, bias, mean, var)",
    "BatchNormalization(Reshape(Transpose(product:MatMul(x, W)), ...), scale, bias, mean, var)",
    name="MatmulBNFusion",
)
def fold_into_matmul(
    op: Builder, product: Node, x: Value, W: Value, scale: Value, bias: Value, mean: Value, var: Value, root: Node
) -> Answer:
    """Batch normalization of the columns of a product is a factor and an offset per column, wherever these are moved in between."""
    weights, chain = constant(W), _chain(root, product)
    if weights is None or weights.ndim != 2 or is_training(root):
        return skip("the weights are not a constant matrix, or the normalization trains")
    if not _is_last_axis(product.outputs[0], chain):
        return skip("the channels are not the columns of the product")
    folded = batch_factors(root, scale, bias, mean, var)
    if folded is None:
        return skip("the statistics are not constant")
    factor, offset = (array.reshape(-1) for array in folded)
    scaled = _rounded(weights.astype(np.float64) * factor, weights)
    if scaled is None:
        return skip("the weights would not be finite")
    result = _with_offset(op, x, op.constant(scaled), op.constant(offset.astype(weights.dtype)), root)
    for node in chain:
        result = op.node(node.op_type, result, *node.inputs[1:], **given_attributes(node))
    return result


@rule("BatchNormalization(gemm:Gemm(A, W, C?), scale, bias, mean, var)", name="MatmulBNFusion")
def fold_into_gemm(
    op: Builder, gemm: Node, A: Value, W: Value, C: Value | None, scale: Value, bias: Value, mean: Value, var: Value, root: Node
) -> Answer:
    """The same for a product that has a bias already."""
    weights, own = constant(W), np.zeros(1) if C is None else constant(C)
    folded = batch_factors(root, scale, bias, mean, var)
    if weights is None or own is None or folded is None or is_training(root) or gemm.version < FIRST_BROADCASTING:
        return skip("weights, bias or statistics are not constant")
    factor, offset = (array.reshape(-1) for array in folded)
    columns = factor[:, np.newaxis] if operand(gemm, "transB") else factor
    scaled = _rounded(weights.astype(np.float64) * columns, weights)
    if scaled is None:
        return skip("the weights would not be finite")
    shifted = own.astype(np.float64) * (operand(gemm, "beta") * factor) + offset
    inputs = A, op.constant(scaled), op.constant(shifted.astype(weights.dtype))
    return op.Gemm(*inputs, **{**given_attributes(gemm), "beta": 1.0})


def _rounded(wide: np.ndarray, like: np.ndarray) -> np.ndarray | None:
    """Weights in their own type again; None if that makes infinities."""
    with np.errstate(all="ignore"):
        result = wide.astype(like.dtype)
    return result if stays_finite(result, like) else None


def _chain(root: Node, product: Node) -> list[Node]:
    """The nodes between a product and the root, from the product on."""
    nodes: list[Node] = []
    value = root.inputs[0]
    while value is not None and value.producer is not None and value.producer is not product:
        nodes.insert(0, value.producer)
        value = value.producer.inputs[0]
    return nodes


def _is_last_axis(product: Value, chain: list[Node]) -> bool:
    """Whether axis 1 after the chain is the last axis of the product."""
    axis: int | None = 1
    for node in reversed(chain):
        axis = _axis_before(node, axis)
        if axis is None:
            return False
    rank = rank_of(product)
    return rank is not None and axis == rank - 1


def _axis_before(node: Node, axis: int | None) -> int | None:
    """Which axis of a Transpose's or Reshape's input an axis of its output is, None if it is not one of them."""
    data, shape = node.inputs[0], shape_of(node.outputs[0])
    before = None if data is None else shape_of(data)
    if before is None or shape is None or axis is None or axis >= len(shape):
        return None
    if node.op_type == "Transpose":
        perm = operand(node, "perm") or list(reversed(range(len(shape))))
        return int(perm[axis])
    behind = dim.product(shape[axis + 1 :])
    return next((i for i, size in enumerate(before) if size == shape[axis] and dim.product(before[i + 1 :]) == behind), None)


def _with_offset(op: Builder, x: Value, weights: Value, offset: Value, root: Node) -> Value:
    if rank_of(x) == 2 and root.version >= FIRST_BROADCASTING:
        return op.Gemm(x, weights, offset)
    return op.Add(op.MatMul(x, weights), offset)


# --- FusedMatMul ----------------------------------------------------------------------------------------------------


@rule(
    "t = Transpose<perm=perm?>(A); product:MatMul|com.microsoft.FusedMatMul(t, B)",
    "t = Transpose<perm=perm?>(A); c = cast:Cast(t); product:MatMul|com.microsoft.FusedMatMul(c, B)",
    keep=("t", "c"),
    name="MatmulTransposeFusion",
)
def transposed_first(
    op: Builder, product: Node, A: Value, B: Value, perm: list[int] | None, cast: Node | None = None
) -> Answer:
    """A product reads its first factor in another order instead of waiting for a transposed copy."""
    flags = _transposed(product, "A", A, B, perm)
    return flags if isinstance(flags, Skip) else _fused(op, product, _recast(op, A, cast), B, flags)


@rule(
    "t = Transpose<perm=perm?>(B); product:MatMul|com.microsoft.FusedMatMul(A, t)",
    "t = Transpose<perm=perm?>(B); c = cast:Cast(t); product:MatMul|com.microsoft.FusedMatMul(A, c)",
    keep=("t", "c"),
    name="MatmulTransposeFusion",
)
def transposed_second(
    op: Builder, product: Node, A: Value, B: Value, perm: list[int] | None, cast: Node | None = None
) -> Answer:
    """The same for the second factor."""
    flags = _transposed(product, "B", B, A, perm)
    return flags if isinstance(flags, Skip) else _fused(op, product, A, _recast(op, B, cast), flags)


def _recast(op: Builder, value: Value, cast: Node | None) -> Value:
    return value if cast is None else op.Cast(value, **given_attributes(cast))


def _transposed(product: Node, which: str, factor: Value, other: Value, perm: list[int] | None) -> dict[str, Any] | Skip:
    """Flags of a product whose factor is read in the order `perm`."""
    if dtype_of(product.outputs[0]) not in CONTRIB_TYPES:
        return skip("FusedMatMul is not for this type")
    rank, other_rank = rank_of(factor), rank_of(other)
    if rank is None or rank < 2 or other_rank is None or other_rank < 2:
        return skip("the factors are not known to be matrices")
    axes, order = list(range(rank)), perm or list(reversed(range(rank)))
    trans, batch = operand(product, f"trans{which}") or 0, operand(product, f"transBatch{which}") or 0
    if order == [*axes[:-2], rank - 1, rank - 2] and not batch:
        return {f"trans{which}": 1 - trans}
    if rank < 3 or rank != other_rank or trans or batch:
        return skip("FusedMatMul cannot read it in this order")
    if order == [*axes[1:-1], 0, rank - 1]:
        return {f"transBatch{which}": 1}
    if order == [*axes[1:-1], rank - 1, 0]:
        return {f"transBatch{which}": 1, f"trans{which}": 1}
    return skip("FusedMatMul cannot read it in this order")


@rule(
    "scaling:Mul|Div(product:MatMul|com.microsoft.FusedMatMul(A, B), factor)",
    name="MatMulScaleFusion",
)
def scale_product(op: Builder, scaling: Node, product: Node, A: Value, B: Value, factor: Value) -> Answer:
    """A constant factor of a product is its alpha."""
    return _scaled(op, scaling, product, A, B, factor, product.outputs[0])


@rule("product:MatMul|com.microsoft.FusedMatMul(scaling:Mul|Div(A, factor), B)", name="MatMulScaleFusion")
def scale_first(op: Builder, scaling: Node, product: Node, A: Value, B: Value, factor: Value) -> Answer:
    """A constant factor of the first operand is the product's alpha."""
    return _scaled(op, scaling, product, A, B, factor, A)


@rule("product:MatMul|com.microsoft.FusedMatMul(A, scaling:Mul|Div(B, factor))", name="MatMulScaleFusion")
def scale_second(op: Builder, scaling: Node, product: Node, A: Value, B: Value, factor: Value) -> Answer:
    """A constant factor of the second operand is the product's alpha."""
    return _scaled(op, scaling, product, A, B, factor, B)


def _scaled(op: Builder, scaling: Node, product: Node, A: Value, B: Value, factor: Value, of: Value) -> Answer:
    number = scalar(factor)
    if number is None or not broadcasts_into(factor, of):
        return skip("the factor is not one constant number")
    if dtype_of(product.outputs[0]) not in CONTRIB_TYPES:
        return skip("FusedMatMul is not for this type")
    with np.errstate(all="ignore"):
        scale = operand(product, "alpha")
        alpha = np.float64(1.0 if scale is None else scale)
        alpha = alpha / number if scaling.op_type == "Div" else alpha * number
    if not np.isfinite(np.float32(alpha)) or (alpha != 0 and abs(alpha) < np.finfo(np.float32).tiny):
        return skip("alpha would not be a normal number")
    return _fused(op, product, A, B, {"alpha": float(alpha)})


def _fused(op: Builder, product: Node, A: Value, B: Value, flags: dict[str, Any]) -> Answer:
    return op.node("FusedMatMul", A, B, domain=CONTRIB, **{**given_attributes(product), **flags})


# --- weights of few bits --------------------------------------------------------------------------------------------


@rule("Add(product:com.microsoft.MatMulNBits(A, B, scales, zero_points?, g_idx?), bias)", name="MatMulNBitsFusion")
def bias_of_bits(
    op: Builder, product: Node, A: Value, B: Value, scales: Value, zero_points: Value | None, g_idx: Value | None, bias: Value
) -> Answer:
    """MatMulNBits adds a bias itself."""
    if shape_of(bias) != (operand(product, "N"),):
        return skip("what is added is not a bias per column")
    return op.node("MatMulNBits", A, B, scales, zero_points, g_idx, bias, domain=CONTRIB, **given_attributes(product))
