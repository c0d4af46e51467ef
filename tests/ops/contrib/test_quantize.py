"""Cases of com.microsoft's arithmetic on quantized numbers."""

import numpy as np

from sardonyx.dtypes import int8, uint8
from tests.ops.cases import array, case, f32, i8, i32, refuse, u8

CONTRIB = "com.microsoft"


def saturated(values, dtype):
    limits = np.iinfo(dtype)
    return np.clip(values, limits.min, limits.max).astype(dtype)


def real(values, scale, zero_point=None):
    return (values.astype(np.float32) - np.float32(0 if zero_point is None else zero_point)) * scale


def combined(operation):
    def expect(A, A_scale, B, B_scale, C_scale, A_zero_point=None, B_zero_point=None, C_zero_point=0):
        values = operation(real(A, A_scale, A_zero_point), real(B, B_scale, B_zero_point))
        return saturated(np.rint(values / C_scale + int(C_zero_point)), A.dtype)

    return expect


# scales are powers of two, so that ties are ties in every way of computing them
SCALES = {"A_scale": 0.125, "B_scale": 0.25, "C_scale": 0.5, "domain": CONTRIB}
for op, operation in (("QLinearAdd", np.add), ("QLinearMul", np.multiply)):
    expect = combined(operation)
    for shape in ((3, 4), (4,), (3, 1), ()):
        settings = {**SCALES, "against_onnxruntime": True, "expect": expect}
        points = {"A_zero_point": u8(low=0, high=9), "B_zero_point": u8(low=0, high=9), "C_zero_point": u8(low=0, high=9)}
        case(op, A=u8(3, 4, low=0, high=256), B=u8(*shape, low=0, high=256), **points, **settings)
        points = {"A_zero_point": i8(low=-9, high=9), "B_zero_point": i8(low=-9, high=9), "C_zero_point": i8(low=-9, high=9)}
        case(op, A=i8(3, 4, low=-128, high=128), B=i8(*shape, low=-128, high=128), **points, **settings)
    case(op, A=u8(3, 4), B=u8(3, 4), **SCALES, types={"T": {uint8, int8}}, expect=expect)
    case(op, A=u8(0, 4), B=u8(4), **SCALES, expect=np.zeros((0, 4), np.uint8))
    refuse(op, A=u8(3, 4), B=u8(3, 3), **SCALES, match="broadcast")

# --- QGemm


def gemm(
    A, a_scale, a_zero_point, B, b_scale, b_zero_point, C=None, y_scale=None, y_zero_point=None, alpha=1.0, transA=0, transB=0
):
    left = (A.T if transA else A).astype(np.int64) - int(a_zero_point)
    right = (B.T if transB else B).astype(np.int64) - np.asarray(b_zero_point).astype(np.int64)
    values = (left @ right + (0 if C is None else C)) * (alpha * np.float64(a_scale) * np.asarray(b_scale, np.float64))
    if y_scale is None:
        return values.astype(np.float32)
    return saturated(np.rint(values / y_scale) + int(y_zero_point), y_zero_point.dtype)


for ta, tb in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8), (np.int8, np.uint8)):
    left = {"A": array(ta, 3, 5), "a_scale": 0.25, "a_zero_point": array(ta)}
    common = {**left, "domain": CONTRIB, "expect": gemm, "against_onnxruntime": True}
    case("QGemm", **common, B=array(tb, 5, 4), b_scale=0.125, b_zero_point=array(tb))
    case("QGemm", **common, B=array(tb, 5, 4), b_scale=f32(4, low=0.1, high=1), b_zero_point=array(tb, 4), C=i32(4))
    case("QGemm", **common, B=array(tb, 4, 5), b_scale=0.125, b_zero_point=array(tb), C=i32(3, 4), transB=1, alpha=0.5)
    for ty in (np.uint8, np.int8):
        y = {"y_scale": 0.5, "y_zero_point": np.array(3, ty)}
        case("QGemm", **common, B=array(tb, 5, 4), b_scale=0.125, b_zero_point=array(tb), **y)
LEFT = {"a_scale": 0.25, "a_zero_point": np.array(3, np.uint8), "b_scale": 0.125, "b_zero_point": np.array(3, np.uint8)}
case("QGemm", A=u8(5, 3), B=u8(5, 4), **LEFT, transA=1, C=i32(1, 4), domain=CONTRIB, expect=gemm)
case("QGemm", A=u8(0, 5), B=u8(5, 4), **LEFT, domain=CONTRIB, expect=np.zeros((0, 4), np.float32))
BIG = {
    "A": np.full((1, 300), 255, np.uint8),
    "B": np.full((300, 1), -128, np.int8),
    **LEFT,
    "a_zero_point": np.array(0, np.uint8),
}
case("QGemm", **{**BIG, "b_zero_point": np.array(0, np.int8)}, domain=CONTRIB, expect=[[300 * 255 * -128 / 32]])
FULL = {"A": np.array([[4]], np.uint8), "B": np.array([[4]], np.uint8), "C": np.array([2**31 - 1], np.int32)}
case("QGemm", **FULL, **LEFT, domain=CONTRIB, expect=[[-(2**31) / 32]])  # 1 is added to the largest sum of 32 bits
refuse("QGemm", A=u8(3, 5), B=u8(4, 4), **LEFT, domain=CONTRIB, match="inner sizes differ")
