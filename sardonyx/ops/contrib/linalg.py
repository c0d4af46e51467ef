"""Matrix products of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32, int32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.coded_weights import weight_sizes, wrong_size
from sardonyx.ops.quantize import check_scales
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
def mat_mul_n_bits(A, B, scales, zero_points, g_idx, bias, K, N, block_size, bits):
    operands = {"B": B, "scales": scales, "zero_points": zero_points, "g_idx": g_idx, "bias": bias}
    _check_weights(K, N, block_size, bits, **operands)
    check_scales(scales=scales)
    return coded_product(A, K, N)


def coded_product(A, K, N):
    """The shape of a product with weights (N, K)."""
    if A.shape is None:
        return None
    if not A.shape or (isinstance(A.shape[-1], int) and A.shape[-1] != K):
        raise InferenceError(f"A is {text(A.shape)}, its last size should be K, {K}")
    return (*A.shape[:-1], N)


def _check_weights(K, N, block_size, bits, **operands):
    """Refuse operands that are not as large as the attributes say."""
    if K < 1 or N < 1 or not 2 <= bits <= 8:
        raise InferenceError(f"K, N and bits are {K}, {N} and {bits}; sizes must be positive and bits from 2 to 8")
    if block_size < 16 or block_size & (block_size - 1):
        raise InferenceError(f"block_size must be a power of two, 16 or more, not {block_size}")
    sizes = weight_sizes(K, N, block_size, bits)
    for name, operand in operands.items():
        if operand is None or operand.shape is None:
            continue
        wanted = sizes["packed zero_points" if name == "zero_points" and operand.dtype is uint8 else name]
        count = dim.product(operand.shape)
        if isinstance(count, int) and count not in wanted:
            raise InferenceError(wrong_size(name, operand.shape, wanted))
