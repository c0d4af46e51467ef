"""Cases of com.microsoft's MatMulNBitsMlp and MatMulNBitsQkv, of which onnxruntime has kernels for GPUs only."""

import math

import numpy as np

from sardonyx.dtypes import bfloat16, float16, float32
from tests.ops.cases import array, case, f32, refuse

CONTRIB = "com.microsoft"
HALVES = {"types": {"T1": {float32, float16, bfloat16}}, "rtol": 5e-2, "atol": 5e-2, "domain": CONTRIB}
K, N, BLOCK = 32, 6, 16


def weights(packed, scales):
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1).astype(np.float32) - 8
    return codes * np.repeat(scales.reshape(len(packed), -1), BLOCK, axis=1)


def normalized(A, skip, norm_scale, epsilon):
    total = A if skip is None else A + skip
    if norm_scale is None:
        return total, total
    return total / np.sqrt((total**2).mean(axis=-1, keepdims=True) + epsilon) * norm_scale, total


def erf_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float32])(x / math.sqrt(2)))


def gated(
    A, gate_B, gate_scales, up_B, up_scales, activation, skip=None, norm_scale=None, gate_bias=0, up_bias=0, epsilon=1e-5
):
    rows, total = normalized(A, skip, norm_scale, epsilon)
    gate, up = rows @ weights(gate_B, gate_scales).T + gate_bias, rows @ weights(up_B, up_scales).T + up_bias
    return (erf_gelu(gate) if activation == "gelu" else gate / (1 + np.exp(-gate))) * up, total


def packed(rows):
    return array(np.uint8, rows, K // BLOCK, BLOCK // 2, low=0, high=256)


def scales(rows):
    return f32(rows, K // BLOCK, low=0.01, high=0.05)


MLP = {
    "gate_B": packed(N),
    "gate_scales": scales(N),
    "up_B": packed(N),
    "up_scales": scales(N),
    "K": K,
    "N": N,
    "block_size": BLOCK,
}
MLP |= {"A": f32(2, 3, K)}


def expected_mlp(
    A, gate_B, gate_scales, up_B, up_scales, activation, skip=None, norm_scale=None, gate_bias=0, up_bias=0, epsilon=1e-5
):
    parts = gate_B.reshape(N, -1), gate_scales, up_B.reshape(N, -1), up_scales
    return gated(A, *parts, activation, skip, norm_scale, gate_bias, up_bias, epsilon)


for activation in ("silu", "gelu"):
    common = {**MLP, "activation": activation, "expect": expected_mlp, **HALVES}
    case("MatMulNBitsMlp", **common)
    case("MatMulNBitsMlp", **common, gate_bias=f32(N), up_bias=f32(N))
    case("MatMulNBitsMlp", **common, norm_scale=f32(K))
    case("MatMulNBitsMlp", **common, norm_scale=f32(K), skip=f32(2, 3, K), epsilon=0.1)
refuse("MatMulNBitsMlp", **MLP, activation="relu", domain=CONTRIB, match="not 'relu'")
refuse("MatMulNBitsMlp", **{**MLP, "A": f32(2, 31)}, activation="silu", domain=CONTRIB, match="should be K, 32")


def projected(
    A, norm_scale, q_B, q_scales, k_B, k_scales, v_B, v_scales, skip=None, q_bias=0, k_bias=0, v_bias=0, epsilon=1e-6
):
    rows, total = normalized(A, skip, norm_scale, epsilon)
    matrices = ((q_B, q_scales, q_bias), (k_B, k_scales, k_bias), (v_B, v_scales, v_bias))
    return *(rows @ weights(B.reshape(len(B), -1), scale).T + bias for B, scale, bias in matrices), total


QKV = {"A": f32(2, 3, K), "norm_scale": f32(K), "q_B": packed(8), "q_scales": scales(8), "K": K, "Nq": 8, "Nkv": 4}
QKV |= {"k_B": packed(4), "k_scales": scales(4), "v_B": packed(4), "v_scales": scales(4), "block_size": BLOCK, **HALVES}
case("MatMulNBitsQkv", **QKV, expect=projected)
case("MatMulNBitsQkv", **QKV, q_bias=f32(8), k_bias=f32(4), v_bias=f32(4), skip=f32(2, 3, K), epsilon=0.1, expect=projected)
