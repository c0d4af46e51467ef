"""Lowerings of products with weights of few bits: MatMulNBits."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import F32, U8
from sardonyx.ir import Node, Value, dim
from sardonyx.ops.reading import inputs_named, operand
from sardonyx.providers.cpu.contrib.linalg import ROUNDED
from sardonyx.providers.native.kernels.linalg.tile_kernel import Tile, tile_vectors
from sardonyx.providers.native.kernels.weight_only.integer_kernel import integer_kernel, tile_height
from sardonyx.providers.native.kernels.weight_only.kernel import Codes, coded_kernel
from sardonyx.providers.native.kernels.weight_only.packing import (
    Order,
    Panels,
    Weights,
    order_of,
    pack,
    zero_kind,
)
from sardonyx.providers.native.kernels.weight_only.rounding import rounded_rows
from sardonyx.providers.native.kernels.weight_only.steps import apart, float_rows, product_step, shared_rows
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.providers.prepacking import PackedFormat

CONTRIB = "com.microsoft"
CODED = PackedFormat("coded-panels")
MAX_BITS = 8
OPERANDS = ("B", "scales", "zero_points", "g_idx")


def _weights(node: Node) -> Weights:
    return Weights(*(int(operand(node, name)) for name in ("K", "N", "block_size", "bits")))


def _claims_n_bits(node: Node) -> bool:
    """Constant weights of the sizes that the attributes say."""
    weights = _weights(node)
    A, bias = inputs_named(node, "A", "bias")
    B, scales, zero_points, g_idx = inputs_named(node, *OPERANDS)
    if not _is_sound(weights) or operand(node, "weight_prepacked") or not _has_columns(A, weights.K):
        return False
    if any(value is not None and not value.is_constant for value in (B, scales, zero_points, g_idx)):
        return False
    operands = {"B": B, "scales": scales, "zero_points": zero_points, "g_idx": g_idx, "bias": bias}
    return all(map(_fits, operands, operands.values(), [weights] * len(operands))) and _fits_groups(g_idx, weights)


def _is_sound(weights: Weights) -> bool:
    block = weights.block_size
    return weights.K > 0 and weights.N > 0 and block >= 16 and block & (block - 1) == 0 and 2 <= weights.bits <= MAX_BITS


def _has_columns(A: Value | None, K: int) -> bool:
    shape = None if A is None else shape_of(A)
    return bool(shape) and (shape[-1] == K or not isinstance(shape[-1], int))  # type: ignore[index]


def _fits(name: str, value: Value | None, weights: Weights) -> bool:
    """Whether an operand has as many elements as the attributes say."""
    if value is None:
        return True
    name = "packed zero_points" if name == "zero_points" and element_of(value) == U8 else name
    return shape_of(value) is not None and dim.product(dims(value)) in weights.sizes[name]


def _fits_groups(g_idx: Value | None, weights: Weights) -> bool:
    array = _array(g_idx)
    if array is None or not array.size:
        return True
    groups = array.reshape(-1)[: weights.K]
    return bool(groups.min() >= 0 and groups.max() < weights.blocks)


@lower("MatMulNBits", domain=CONTRIB, claims=_claims_n_bits, packs=True)
def mat_mul_n_bits(lowerer: Lowerer, node: Node) -> None:
    weights = _weights(node)
    (A,) = inputs_named(node, "A")
    lowerer.require(dims(required(A))[-1], weights.K)
    order = order_of(_array(inputs_named(node, "g_idx")[0]), weights)
    lanes, vectors = lowerer.target.lanes(F32), tile_vectors(lowerer.target, F32, weights.N)
    zero = zero_kind(_array(inputs_named(node, "zero_points")[0]), weights)
    codes = Codes(weights.code_bits, zero, weights.middle)
    panels = _panels(weights, codes, vectors * lanes, order)
    rows = float_rows(lowerer, required(A), order)
    is_rounded = operand(node, "accuracy_level") == ROUNDED
    if is_rounded:
        rows = rounded_rows(lowerer, rows, codes, panels.block, panels.blocks)
    else:
        rows = apart(lowerer, rows)
    height = tile_height(lowerer.target, vectors) if is_rounded else shared_rows(lowerer.target)
    tile = Tile(rows.type, F32, height, vectors, lanes, "k", True)
    kernel = integer_kernel if is_rounded else coded_kernel
    (bias,) = inputs_named(node, "bias")
    product_step(lowerer, node, kernel, rows, tile, panels, _packed(lowerer, node, panels, order), bias)


def _array(value: Value | None) -> np.ndarray | None:
    return None if value is None or value.constant is None else value.constant.peek()


def _panels(weights: Weights, codes: Codes, width: int, order: Order | None) -> Panels:
    panels = Panels(weights, codes, width, 0)
    blocks = -(-weights.K // panels.block) if order is None else len(order.groups)
    return Panels(weights, codes, width, blocks)


def _packed(lowerer: Lowerer, node: Node, panels: Panels, order: Order | None) -> Buffer:
    B, scales, zero_points, g_idx = inputs_named(node, *OPERANDS)
    sources = [value for value in (B, scales, zero_points, g_idx) if value is not None]
    memory = lowerer.weights

    def make(*arrays: np.ndarray) -> list[np.ndarray]:
        zeros = arrays[2] if zero_points is not None else None
        return [pack(memory, panels, order, arrays[0], arrays[1], zeros)]

    (buffer,) = lowerer.packed(sources, CODED, (panels,), [panels.count * panels.stride * F32.bytes], make)
    return buffer
