"""The error function and the exact Gelu on whole arrays, which NumPy lacks; kernels of Erf, Gelu and its fused forms call them.

The coefficients are Chebyshev and minimax fits of our own, made in 80 digits. Measured: erf is within 1.4 ulp in float32 and
1.1 ulp in float64; gelu keeps its relative accuracy however small it gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sardonyx.compiler import error_fit

BLOCK = 16384
"""Elements done at a time, so that the many steps of a polynomial stay in cache."""


class _Fit(NamedTuple):
    """erf(x) = x + x·near(x²) up to 1; erfc(x) = exp(-x²)·far(t)/(1+2x), t = (x-pivot)/(x+pivot), for x ≥ 0. Highest power first."""

    pivot: float
    near: Sequence[float]
    far: Sequence[float]


_SINGLE = _Fit(
    pivot=2.0,
    near=(7.85386146e-05, -0.000801019371, 0.00518832775, -0.0268538129, 0.112835854, -0.37612626, 0.128379166),
    far=(
        *(-0.000401715224, -0.00123187725, 0.00131372258, 0.00863327086, -0.00805959944),
        *(-0.0542047098, 0.164055273, -0.16603139, -0.0927639753, 1.27697837),
    ),
)
_DOUBLE = _Fit(error_fit.PIVOT, error_fit.NEAR, error_fit.FAR)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of a float32 or float64 array."""
    return _blockwise(_erf, x)


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the probability that a standard normal variable is below x, for a float32 or float64 array."""
    return _blockwise(_gelu, x)


def _blockwise(function: Callable[[np.ndarray, _Fit], np.ndarray], x: np.ndarray) -> np.ndarray:
    fit = _DOUBLE if x.dtype == np.float64 else _SINGLE
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        for start in range(0, flat.size, BLOCK):
            result[start : start + BLOCK] = function(flat[start : start + BLOCK], fit)
    return result.reshape(x.shape)


def _erf(x: np.ndarray, fit: _Fit) -> np.ndarray:
    # masked NumPy calls cost ten times what plain ones do: both branches are computed, and the sign comes from a quotient
    x = np.clip(x, -30, 30)
    magnitude = np.abs(x)
    far = 1 - _erfc(magnitude, fit)
    far *= x / np.maximum(magnitude, 1)
    near = _polynomial(fit.near, x * x)
    near *= x
    near += x
    return np.where(magnitude < 1, near, far)


def _gelu(x: np.ndarray, fit: _Fit) -> np.ndarray:
    """The rectified x, less |x| times the probability of lying beyond |x|; nothing lies beyond 40."""
    magnitude = np.abs(np.clip(x, -40, 40))
    loss = _erfc(magnitude * math.sqrt(0.5), fit)
    loss *= magnitude * 0.5
    return np.maximum(x, 0) - loss


def _erfc(x: np.ndarray, fit: _Fit) -> np.ndarray:
    """1 - erf(x) for finite x ≥ 0; it is 0 in either type from 28 on."""
    result = _polynomial(fit.far, (x - fit.pivot) / (x + fit.pivot))
    result *= np.exp(-(x * x))
    result /= x * 2 + 1
    return result


def _polynomial(coefficients: Sequence[float], x: np.ndarray) -> np.ndarray:
    result = x * coefficients[0]
    result += coefficients[1]
    for coefficient in coefficients[2:]:
        result *= x
        result += coefficient
    return result
