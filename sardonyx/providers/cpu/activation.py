"""Activation functions that go element by element, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu import error_function
from sardonyx.providers.cpu.broadcasting import broadcasts
from sardonyx.providers.cpu.table import FIRST, cpu


@cpu.kernel("Relu", widen=True)
def relu(X, *, out=None):
    return np.maximum(X, 0, out=out)


@cpu.kernel("LeakyRelu", widen=True, inplace=FIRST)
@np.errstate(all="ignore")
def leaky_relu(X, alpha=0.01):
    return np.maximum(X, X * alpha) if 0 < alpha <= 1 else np.where(X < 0, X * alpha, X)


@cpu.kernel("ThresholdedRelu", widen=True, inplace=FIRST)
def thresholded_relu(X, alpha=1.0):
    return np.where(alpha < X, X, 0)


@cpu.kernel("PRelu", since=7, widen=True, inplace=FIRST)
@broadcasts
def prelu(X, slope):
    return np.where(X < 0, slope * X, X)


@cpu.kernel("PRelu", until=6, widen=True, inplace=FIRST)
def prelu_of_channels(X, slope):
    """Up to opset 6 the slope was one number, or one for each channel."""
    if slope.ndim == 1 and X.ndim > 2 and slope.size > 1:
        slope = slope.reshape(slope.shape + (1,) * (X.ndim - 2))
    result = prelu(X, slope.reshape(()) if slope.size == 1 else slope)
    if result.shape != X.shape:
        raise KernelError(f"the slope {list(slope.shape)} cannot be broadcast to X {list(X.shape)}")
    return result


@cpu.kernel("Elu", widen=True, inplace=FIRST)
@np.errstate(all="ignore")
def elu(X, alpha=1.0):
    return np.where(X < 0, alpha * np.expm1(np.minimum(X, 0)), X)


@cpu.kernel("Selu", widen=True, inplace=FIRST)
@np.errstate(all="ignore")
def selu(X, alpha, gamma):
    return gamma * elu(X, alpha)


@cpu.kernel("Celu", widen=True, inplace=FIRST)
@np.errstate(all="ignore")
def celu(X, alpha=1.0):
    return np.maximum(X, 0) + np.minimum(alpha * np.expm1(X / alpha), 0)


@cpu.kernel("Sigmoid", widen=True)
def sigmoid(X, *, out=None):
    """exp(-x) is beyond the type's range where the result is not yet 0, so that of -|x| is taken."""
    power = np.exp(-np.abs(X))
    return np.divide(np.where(X < 0, power, 1), power + 1, out=out)


@cpu.kernel("HardSigmoid", widen=True, inplace=FIRST)
@np.errstate(all="ignore")
def hard_sigmoid(X, alpha=0.2, beta=0.5):
    return np.clip(X * alpha + beta, 0, 1)


@cpu.kernel("HardSwish", widen=True, inplace=FIRST)
@np.errstate(invalid="ignore")
def hard_swish(X):
    return X * hard_sigmoid(X, 1 / 6, 0.5)


@cpu.kernel("Swish", widen=True, inplace=FIRST)
@np.errstate(over="ignore", invalid="ignore")
def swish(X, alpha=1.0):
    return X * sigmoid(X * alpha)


@cpu.kernel("SwiGLU", widen=True)
@np.errstate(over="ignore", invalid="ignore")
def swi_glu(A, B, alpha=1.0):
    if A.shape != B.shape:
        raise KernelError(f"A and B must have one shape, A is {list(A.shape)} and B is {list(B.shape)}")
    return swish(A, alpha) * B


@cpu.kernel("Mish", widen=True, inplace=FIRST)
@np.errstate(invalid="ignore")
def mish(X):
    """With e = exp(x), tanh(log(1+e)) is e(e+2) / (e(e+2) + 2); beyond x = 20 that is 1."""
    weights = np.exp(np.minimum(X, 20))
    weights = weights * (weights + 2)
    return X * (weights / (weights + 2))


@cpu.kernel("Gelu", widen=True, inplace=FIRST)
@np.errstate(over="ignore", invalid="ignore")
def gelu(X, approximate="none"):
    if approximate == "tanh":
        return 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * (X * X * X))))
    return error_function.gelu(X)


@cpu.kernel("Softplus", widen=True, inplace=FIRST)
def softplus(X):
    return np.maximum(X, 0) + np.log1p(np.exp(-np.abs(X)))


@cpu.kernel("Softsign", widen=True, inplace=FIRST)
@np.errstate(invalid="ignore")
def softsign(input):
    return input / (1 + np.abs(input))


@cpu.kernel("Shrink", widen=True, inplace=FIRST)
@np.errstate(all="ignore")
def shrink(input, bias=0.0, lambd=0.5):
    return np.where(input < -lambd, input + bias, np.where(input > lambd, input - bias, 0))
