"""Matrix products of com.microsoft with quantized factors and floats as a result."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32, int8, int16, int32, int64, uint8, uint16, uint32
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.coded_weights import blob_size
from sardonyx.ops.linalg import product_shape
from sardonyx.ops.quantize import check_counts, check_factor, check_scales
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, text
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "DynamicQuantizeMatMul",
    1,
    "(A: T1, B: T2, b_scale: T1, b_zero_point: T2?, bias: T1?) -> (Y: T1)",
    T1={float32},
    T2={uint8, int8},
)
define(
    "com.microsoft",
    "MatMulIntegerToFloat",
    1,
    "(A: T1, B: T2, a_scale: T3, b_scale: T3, a_zero_point: T1?, b_zero_point: T2?, bias: T3?) -> (Y: T3)",
    T1={uint8, int8},
    T2={uint8, int8},
    T3={float32, float16},
)
define(
    "com.microsoft",
    "MatMulInteger16",
    1,
    "(A: T1, B: T2) -> (Y: T3)",
    T1={int16, uint16},
    T2={int16, uint16},
    T3={int32, uint32},
)
define(
    "com.microsoft",
    "MatMulBnb4",
    1,
    "(A: T1, B: T2, absmax: T1, *, K: int, N: int, block_size: int, quant_type: int, training_mode: int = 0,"
    " transB: int = 1) -> (Y: T1)",
    T1={float32, float16, bfloat16},
    T2={uint8},
)
define(
    "com.microsoft",
    "MatMulFpQ4",
    1,
    "(A: T1, B: T2, B_shape: T3, *, blk_quant_type: int = 1) -> (Y: T1)",
    T1={float32},
    T2={uint8},
    T3={int64},
)


@contrib("MatMulInteger16")
def mat_mul_integer16(A, B):
    """Products of unsigned numbers are unsigned."""
    return TensorType(uint32 if A.dtype is B.dtype is uint16 else int32, product_shape(A.shape, B.shape))


@contrib("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(A, B, b_scale, b_zero_point, bias):
    check_scales(b_scale=b_scale)
    check_factor(B.shape, b_scale=b_scale, b_zero_point=b_zero_point, bias=bias)
    return product_shape(A.shape, B.shape)


@contrib("MatMulIntegerToFloat")
def mat_mul_integer_to_float(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias):
    check_scales(a_scale=a_scale, b_scale=b_scale)
    check_counts(a_scale=a_scale)
    check_factor(A.shape, rows=True, a_zero_point=a_zero_point)
    check_factor(B.shape, b_scale=b_scale, b_zero_point=b_zero_point, bias=bias)
    return product_shape(A.shape, B.shape)


@contrib("MatMulBnb4")
def mat_mul_bnb4(A, B, absmax, K, N, block_size, quant_type, transB):
    if K < 1 or N < 1 or block_size < 1:
        raise InferenceError(f"K, N and block_size are {K}, {N} and {block_size}, they must be positive")
    if quant_type not in (0, 1):
        raise InferenceError(f"quant_type must be 0 (FP4) or 1 (NF4), not {quant_type}")
    check_scales(absmax=absmax)
    for name, operand, size in (("B", B, (N * K + 1) // 2), ("absmax", absmax, -(-N * K // block_size))):
        count = None if operand.shape is None else dim.product(operand.shape)
        if isinstance(count, int) and count != size:
            raise InferenceError(f"{name} is {text(operand.shape)}, K, N and block_size ask for {size} elements")
    if A.shape is None:
        return None
    inner, columns = (K, N) if transB else (N, K)
    if not A.shape or (isinstance(A.shape[-1], int) and A.shape[-1] != inner):
        raise InferenceError(f"A is {text(A.shape)}, its last size should be {inner}")
    return (*A.shape[:-1], columns)


@contrib("MatMulFpQ4")
def mat_mul_fp_q4(A, B, B_shape, blk_quant_type):
    """B is a blob, and B_shape says what it holds: (K, N)."""
    sizes = B_shape.require_rank(1, name="B_shape")
    if sizes is not None and isinstance(sizes[0], int) and sizes != (2,):
        raise InferenceError(f"B_shape is {text(sizes)}, it should hold two sizes, K and N")
    if A.shape is None:
        return None
    if not B_shape.is_concrete:
        return (*A.shape[:-1], fresh_shape(1)[0])
    K, N = map(int, B_shape.value)
    size = blob_size(K, N, blk_quant_type)
    blob = B.require_rank(1, name="B")
    if blob is not None and isinstance(blob[0], int) and blob != (size,):
        raise InferenceError(f"B is {text(B.shape)}, {K} x {N} weights of blk_quant_type {blk_quant_type} take {size} bytes")
    if not A.shape or (isinstance(A.shape[-1], int) and A.shape[-1] != K):
        raise InferenceError(f"A is {text(A.shape)}, its last size should be {K}")
    return (*A.shape[:-1], N)
