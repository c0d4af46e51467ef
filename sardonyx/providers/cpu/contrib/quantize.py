"""QGemm, QLinearAdd and QLinearMul of com.microsoft, in NumPy; `contrib/qlinear.py` builds on what they share."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.quantize import integer_product, requantized
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("QLinearAdd")
def q_linear_add(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None):
    total = real_values(A, A_scale, A_zero_point) + real_values(B, B_scale, B_zero_point)
    return _shifted(total, C_scale, C_zero_point, A.dtype)


@contrib("QLinearMul")
def q_linear_mul(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None):
    product = _centered(A, A_zero_point).astype(np.float32) * _centered(B, B_zero_point).astype(np.float32)
    return _shifted(product * (A_scale.reshape(()) * B_scale.reshape(())), C_scale, C_zero_point, A.dtype)


def real_values(values, scale, zero_point):
    return _centered(values, zero_point).astype(np.float32) * scale.reshape(())


def _centered(values, zero_point):
    wide = values.astype(np.int16)
    return wide if zero_point is None else wide - zero_point.astype(np.int16)


def _shifted(values, scale, zero_point, dtype):
    """values / scale + zero point, rounded as a whole: with an odd zero point ties fall otherwise than in QuantizeLinear."""
    quotient = values / scale.reshape(())
    if zero_point is not None:
        quotient = quotient + zero_point.reshape(()).astype(np.float32)
    return requantized(quotient, None, dtypes.from_numpy(dtype))


@contrib("QGemm")
def q_gemm(
    A,
    a_scale,
    a_zero_point,
    B,
    b_scale,
    b_zero_point,
    C=None,
    y_scale=None,
    y_zero_point=None,
    *,
    alpha=1.0,
    transA=0,
    transB=0,
):
    """C is in the scale of the product. Without `y_scale` the result stays in floats."""
    left = _centered(A.T if transA else A, a_zero_point.reshape(()))
    right = _centered(B.T if transB else B, b_zero_point)
    product = integer_product(left, right)
    if C is not None:
        if np.broadcast_shapes(C.shape, product.shape) != product.shape:
            raise KernelError(f"C is {list(C.shape)}, it is added to a product {list(product.shape)}")
        product = (product.astype(np.int64) + C).astype(np.int32)  # which wraps, as sums of 32 bits do
    values = product.astype(np.float32) * (np.float32(alpha) * a_scale.reshape(()) * b_scale)
    if y_scale is None:
        return values
    target = dtypes.uint8 if y_zero_point is None else dtypes.from_numpy(y_zero_point.dtype)
    return requantized(values / y_scale.reshape(()), None if y_zero_point is None else y_zero_point.reshape(()), target)
