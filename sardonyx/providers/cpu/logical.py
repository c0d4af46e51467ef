"""Comparisons, Boolean algebra, bits, and tests for infinity and NaN, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.providers.cpu.broadcasting import broadcasts, limited
from sardonyx.providers.cpu.table import cpu


def _of_A_B(ufunc):
    @broadcasts
    def kernel(A, B, *, out=None):
        return ufunc(A, B, out=out)

    kernel.__name__ = ufunc.__name__
    return kernel


OF_ALL_OPSETS: dict[str, np.ufunc] = {
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Greater": np.greater,
    "Less": np.less,
}
OF_NEW_OPSETS: dict[str, np.ufunc] = {
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}
for _op, _ufunc in (OF_ALL_OPSETS | OF_NEW_OPSETS).items():
    _kernel = _of_A_B(_ufunc)
    cpu.kernel(_op, since=7, widen=True)(_kernel)
    if _op in OF_ALL_OPSETS:
        cpu.kernel(_op, until=6, widen=True)(limited(_kernel))


@cpu.kernel("Equal", since=7, widen=True, plain=True)
@broadcasts
def equal(A, B):
    return A == B  # unlike np.equal, this is Boolean for strings too


cpu.kernel("Equal", until=6, widen=True)(limited(equal))


@cpu.kernel("Not")
def logical_not(X, *, out=None):
    return np.logical_not(X, out=out)


@cpu.kernel("BitwiseNot")
def bitwise_not(X, *, out=None):
    return np.invert(X, out=out)


@cpu.kernel("BitShift")
@broadcasts
def bit_shift(X, Y, direction):
    """NumPy gives what the spec asks for negative and too large amounts: the fill alone."""
    return np.left_shift(X, Y) if direction == "LEFT" else np.right_shift(X, Y)


@cpu.kernel("IsNaN", widen=True)
def is_nan(X):
    return np.isnan(X)


@cpu.kernel("IsInf", widen=True)
def is_inf(X, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return np.isinf(X)
    if detect_negative or detect_positive:
        return np.inf * (1 if detect_positive else -1) == X
    return np.zeros(X.shape, np.bool_)
