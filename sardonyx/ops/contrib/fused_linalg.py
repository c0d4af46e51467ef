"""MatMulNBitsMlp and MatMulNBitsQkv of com.microsoft: products with weights of few bits, and the normalization before them."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32, uint8
from sardonyx.ops.contrib.linalg import coded_product
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

TYPES = {float32, float16, bfloat16}

define(
    "com.microsoft",
    "MatMulNBitsMlp",
    1,
    "(A: T1, skip: T1?, norm_scale: T1?, gate_B: T2, gate_scales: T1, gate_bias: T1?, up_B: T2, up_scales: T1,"
    " up_bias: T1?, *, K: int, N: int, bits: int = 4, block_size: int, accuracy_level: int = 0, epsilon: float = 1e-5,"
    " activation: string) -> (Y: T1, input_skip_bias_sum: T1?)",
    T1=TYPES,
    T2={uint8},
)
define(
    "com.microsoft",
    "MatMulNBitsQkv",
    1,
    "(A: T1, skip: T1?, norm_scale: T1, q_B: T2, q_scales: T1, q_bias: T1?, k_B: T2, k_scales: T1, k_bias: T1?, v_B: T2,"
    " v_scales: T1, v_bias: T1?, *, K: int, Nq: int, Nkv: int, bits: int = 4, block_size: int, accuracy_level: int = 0,"
    " epsilon: float = 1e-6) -> (Q: T1, K: T1, V: T1, input_skip_bias_sum: T1?)",
    T1=TYPES,
    T2={uint8},
)


@contrib("MatMulNBitsMlp")
def mat_mul_n_bits_mlp(A, K, N):
    return [coded_product(A, K, N), A.shape]


@contrib("MatMulNBitsQkv")
def mat_mul_n_bits_qkv(A, K, Nq, Nkv):
    return [*(coded_product(A, K, columns) for columns in (Nq, Nkv, Nkv)), A.shape]
