"""Ops with quantized weights that are composed of others: MatMulFpQ4, MatMulNBitsMlp, MatMulNBitsQkv, MatMulInteger16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Node, Value
from sardonyx.ops.coded_weights import BLOBS, blob_size
from sardonyx.providers.cpu.contrib.quantized_matmul import blob_weights
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.provider import CannotCompile, element_type
from sardonyx.startup.records import dataclass

CONTRIB = "com.microsoft"


@compose("MatMulFpQ4", domain=CONTRIB)
def mat_mul_fp_q4(op: Composer, A: Value, B: Value, B_shape: Value, blk_quant_type: int) -> Value:
    """A blob is taken apart when a session is made."""
    if B.constant is None or B_shape.constant is None:
        raise CannotCompile("the weights are not constant", quiet=True)
    K, N = map(int, B_shape.constant.numpy())
    blob = B.constant.numpy()
    if blob.size != blob_size(K, N, blk_quant_type):
        raise CannotCompile("the blob has another size", quiet=True)
    operands = [None if array is None else op.constant(array) for array in blob_weights(blob, K, N, blk_quant_type)]
    made: Value = op.node("MatMulNBits", A, *operands, domain=CONTRIB, K=K, N=N, block_size=BLOBS[blk_quant_type][0])
    return made


# --- products of a decoder's block, with the normalization before them


@dataclass(frozen=True)
class _Rows:
    """What the products of a node take, in float32."""

    op: Composer
    rows: Value
    layout: dict[str, Any]

    def product(self, N: int, B: Value, scales: Value, bias: Value | None) -> Value:
        op = self.op
        added = None if bias is None else op.cast_to(bias, dtypes.float32)
        made: Value = op.node(
            "MatMulNBits", self.rows, B, self._wide(scales), None, None, added, domain=CONTRIB, N=N, **self.layout
        )
        return made

    def _wide(self, scales: Value) -> Value:
        """Scales in the type of the rows; those of constant weights are constant."""
        if scales.constant is None:
            raise CannotCompile("the weights are not constant", quiet=True)
        array = scales.constant.numpy()
        return scales if array.dtype == np.float32 else self.op.constant(array.astype(np.float32))


def _normalized(op: Composer, A: Value, skip: Value | None, norm_scale: Value | None, epsilon: float) -> tuple[Value, Value]:
    """What the products take, and the sum of A and skip."""
    A = op.cast_to(A, dtypes.float32)
    if norm_scale is None:
        return A, A
    gamma = op.cast_to(norm_scale, dtypes.float32)
    if skip is None:
        return op.node("SimplifiedLayerNormalization", A, gamma, axis=-1, epsilon=epsilon), A
    operands = A, op.cast_to(skip, dtypes.float32), gamma
    rows, _, _, total = op.node("SkipSimplifiedLayerNormalization", *operands, outputs=4, domain=CONTRIB, epsilon=epsilon)
    return rows, total


@compose("MatMulNBitsMlp", domain=CONTRIB)
def mat_mul_n_bits_mlp(
    op: Composer,
    A: Value,
    skip: Value | None,
    norm_scale: Value | None,
    gate_B: Value,
    gate_scales: Value,
    gate_bias: Value | None,
    up_B: Value,
    up_scales: Value,
    up_bias: Value | None,
    K: int,
    N: int,
    bits: int,
    block_size: int,
    accuracy_level: int,
    epsilon: float,
    activation: str,
) -> Sequence[Value]:
    if activation not in ("silu", "swish", "gelu"):
        raise CannotCompile(f"there is no activation {activation}", quiet=True)
    normalized, total = _normalized(op, A, skip, norm_scale, epsilon)
    rows = _Rows(op, normalized, {"K": K, "bits": bits, "block_size": block_size, "accuracy_level": accuracy_level})
    gate = rows.product(N, gate_B, gate_scales, gate_bias)
    up = rows.product(N, up_B, up_scales, up_bias)
    opened = op.Gelu(gate) if activation == "gelu" else op.Mul(gate, op.Sigmoid(gate))
    return op.Mul(opened, up), total


@compose("MatMulNBitsQkv", domain=CONTRIB)
def mat_mul_n_bits_qkv(
    op: Composer,
    A: Value,
    skip: Value | None,
    norm_scale: Value,
    q_B: Value,
    q_scales: Value,
    q_bias: Value | None,
    k_B: Value,
    k_scales: Value,
    k_bias: Value | None,
    v_B: Value,
    v_scales: Value,
    v_bias: Value | None,
    K: int,
    Nq: int,
    Nkv: int,
    bits: int,
    block_size: int,
    accuracy_level: int,
    epsilon: float,
) -> Sequence[Value]:
    normalized, total = _normalized(op, A, skip, norm_scale, epsilon)
    rows = _Rows(op, normalized, {"K": K, "bits": bits, "block_size": block_size, "accuracy_level": accuracy_level})
    query = rows.product(Nq, q_B, q_scales, q_bias)
    return query, rows.product(Nkv, k_B, k_scales, k_bias), rows.product(Nkv, v_B, v_scales, v_bias), total


# --- 16 bits


@compose("MatMulInteger16", domain=CONTRIB)
def mat_mul_integer16(op: Composer, A: Value, B: Value, node: Node) -> Value:
    """Sums of 32 bits, which wrap: those of numbers that were widened before."""
    wide = element_type(node.outputs[0])
    assert wide is not None
    made: Value = op.MatMul(op.cast_to(A, wide), op.cast_to(B, wide))
    return made
