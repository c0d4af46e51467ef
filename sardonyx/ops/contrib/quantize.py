"""Arithmetic of com.microsoft on quantized numbers."""

from __future__ import annotations

from sardonyx.dtypes import float32, int8, int32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType
from sardonyx.ops.quantize import broadcasts, check_counts, check_scales
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import broadcast, fresh_shape, text
from sardonyx.ops.table import in_domain

define(
    "com.microsoft",
    "QGemm",
    1,
    "(A: TA, a_scale: T, a_zero_point: TA, B: TB, b_scale: T, b_zero_point: TB, C: TC?, y_scale: T?, y_zero_point: TYZ?, *,"
    " alpha: float = 1.0, transA: int = 0, transB: int = 0) -> (Y: TY)",
    T={float32},
    TA={uint8, int8},
    TB={uint8, int8},
    TC={int32},
    TYZ={uint8, int8},
    TY={float32, uint8, int8},
)
for name in ("QLinearAdd", "QLinearMul"):
    define(
        "com.microsoft",
        name,
        1,
        "(A: T, A_scale: float, A_zero_point: T?, B: T, B_scale: float, B_zero_point: T?, C_scale: float, C_zero_point: T?)"
        " -> (C: T)",
        T={uint8, int8},
    )

contrib = in_domain("com.microsoft")


@contrib("QLinearAdd", "QLinearMul")
def q_linear_arithmetic(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point):
    check_scales({"C_scale": C_scale}, A_scale=A_scale, B_scale=B_scale)
    check_counts(A_scale=A_scale, A_zero_point=A_zero_point, B_scale=B_scale, B_zero_point=B_zero_point)
    check_counts(C_scale=C_scale, C_zero_point=C_zero_point)
    return broadcast(A.shape, B.shape)


@contrib("QGemm")
def q_gemm(A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point, transA, transB):
    check_scales({"y_scale": y_scale}, a_scale=a_scale, b_scale=b_scale)
    check_counts(a_scale=a_scale, a_zero_point=a_zero_point, y_scale=y_scale, y_zero_point=y_zero_point)
    left, right = A.require_rank(2, name="A") or fresh_shape(2), B.require_rank(2, name="B") or fresh_shape(2)
    rows, inner = left[::-1] if transA else left
    depth, columns = right[::-1] if transB else right
    if isinstance(inner, int) and isinstance(depth, int) and inner != depth:
        raise InferenceError(f"inner sizes differ, A is {text(left)} and B is {text(right)}")
    check_counts(columns, b_scale=b_scale, b_zero_point=b_zero_point)
    if C is not None and C.shape is not None and not broadcasts(C.shape, (rows, columns)):
        raise InferenceError(f"C is {text(C.shape)}, it is added to a product {text((rows, columns))}")
    if y_scale is None:
        return TensorType(float32, (rows, columns))
    return TensorType(uint8 if y_zero_point is None else y_zero_point.dtype, (rows, columns))
