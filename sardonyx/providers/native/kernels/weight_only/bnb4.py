"""MatMulBnb4: products with weights of 4 bits that stand for numbers of a book, as bitsandbytes makes them."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import F32
from sardonyx.ir import Node, Value, dim
from sardonyx.ops.reading import inputs_named, operand
from sardonyx.providers.cpu.contrib.quantized_matmul import CODE_BOOKS, dequantized
from sardonyx.providers.native.kernels.linalg.tile_kernel import Tile, tile_vectors
from sardonyx.providers.native.kernels.weight_only.kernel import Codes, coded_kernel
from sardonyx.providers.native.kernels.weight_only.packing import Panels, Weights, pack
from sardonyx.providers.native.kernels.weight_only.steps import apart, float_rows, product_step, shared_rows
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.providers.provider import CannotCompile

CONTRIB = "com.microsoft"
BOOKED = PackedFormat("booked-panels")
SHORTEST_BLOCK = 16


def _numbers(node: Node) -> tuple[int, int, int, int]:
    K, N, block_size, quant_type = (int(operand(node, name)) for name in ("K", "N", "block_size", "quant_type"))
    return K, N, block_size, quant_type


def _is_sound(node: Node) -> bool:
    """Constant weights, as many as the attributes say."""
    K, N, block_size, quant_type = _numbers(node)
    B, absmax = (value.constant if value is not None else None for value in inputs_named(node, "B", "absmax"))
    if B is None or absmax is None or min(K, N, block_size) < 1 or quant_type not in (0, 1):
        return False
    return dim.product(B.shape) == (N * K + 1) // 2 and dim.product(absmax.shape) == -(-N * K // block_size)


def _block(node: Node) -> int:
    """Blocks follow each other from row to row: the largest power of two of numbers in a row that surely have one scale."""
    K, _, block_size, _ = _numbers(node)
    return min(K & -K, block_size & -block_size)


def _claims(node: Node) -> bool:
    return _is_sound(node) and bool(operand(node, "transB")) and _block(node) >= SHORTEST_BLOCK


@lower("MatMulBnb4", domain=CONTRIB, claims=_claims, packs=True)
def mat_mul_bnb4(lowerer: Lowerer, node: Node) -> None:
    K, N, block_size, quant_type = _numbers(node)
    A, B, absmax = map(required, inputs_named(node, "A", "B", "absmax"))
    lowerer.require(dims(A)[-1], K)
    lanes, vectors = lowerer.target.lanes(F32), tile_vectors(lowerer.target, F32, N)
    weights = Weights(K, N, _block(node), 4)
    codes = Codes(4, "middle", weights.middle, tuple(map(float, CODE_BOOKS[quant_type])))
    whole = Panels(weights, codes, vectors * lanes, 0)
    panels = Panels(weights, codes, whole.width, K // whole.block)
    memory = lowerer.weights

    def make(bytes: np.ndarray, largest: np.ndarray) -> list[np.ndarray]:
        swapped = (bytes.reshape(N, -1) << np.uint8(4)) | (bytes.reshape(N, -1) >> np.uint8(4))
        starts = np.arange(0, N * K, weights.block_size)
        return [pack(memory, panels, None, swapped, largest.reshape(-1)[starts // block_size], None)]

    (buffer,) = lowerer.packed([B, absmax], BOOKED, (panels, block_size), [panels.count * panels.stride * F32.bytes], make)
    tile = Tile(F32, F32, shared_rows(lowerer.target), vectors, lanes, "k", True)
    product_step(lowerer, node, coded_kernel, apart(lowerer, float_rows(lowerer, A)), tile, panels, buffer)


@compose("MatMulBnb4", domain=CONTRIB, claims=_is_sound, widen=True)
def dequantized_product(op: Composer, A: Value, node: Node) -> Value:
    """Blocks that do not go along rows, as those of transposed weights: a product of floats."""
    B, absmax = (value.constant for value in map(required, inputs_named(node, "B", "absmax")))
    if B is None or absmax is None:
        raise CannotCompile("the weights are not constant", quiet=True)
    weights = dequantized(B.numpy(), absmax.numpy(), _numbers(node))
    made: Value = op.MatMul(A, op.constant(np.ascontiguousarray(weights.T) if operand(node, "transB") else weights))
    return made
