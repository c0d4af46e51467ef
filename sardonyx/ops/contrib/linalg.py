"""Matrix products of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32, int32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import text
from sardonyx.ops.table import in_domain

define(
    "com.microsoft",
    "MatMulNBits",
    1,
    "(A: T1, B: T2, scales: T1, zero_points: T3?, g_idx: T4?, bias: T1?, *, K: int, N: int, block_size: int, bits: int = 4,"
    " accuracy_level: int = 0, weight_prepacked: int = 0) -> (Y: T1)",
    T1={float32, float16, bfloat16},
    T2={uint8},
    T3={uint8, float32, float16, bfloat16},
    T4={int32},
)


@in_domain("com.microsoft")("MatMulNBits")
def mat_mul_n_bits(A, K, N):
    if A.shape is None:
        return None
    if not A.shape or (isinstance(A.shape[-1], int) and A.shape[-1] != K):
        raise InferenceError(f"A is {text(A.shape)}, its last size should be K, {K}")
    return (*A.shape[:-1], N)
