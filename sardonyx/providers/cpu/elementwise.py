"""Arithmetic, elementary functions, minima and maxima, choices: ops that go element by element, in NumPy.

Comparisons and bits are in `logical`, activations in `activation`, conversions of type in `cast`.
"""

from __future__ import annotations

import functools

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu import error_function
from sardonyx.providers.cpu.broadcasting import aligned, broadcasts, limited
from sardonyx.providers.cpu.shape import scalar
from sardonyx.providers.cpu.table import FIRST, OVER_ANY, cpu


def _of_X(ufunc):
    @np.errstate(all="ignore")
    def kernel(X, *, out=None):
        return ufunc(X, out=out)

    kernel.__name__ = ufunc.__name__
    return kernel


def _of_input(ufunc):
    @np.errstate(all="ignore")
    def kernel(input, *, out=None):
        return ufunc(input, out=out)

    kernel.__name__ = ufunc.__name__
    return kernel


# Ops that are one NumPy function each; the spec names their operand either X or input.
OF_X: dict[str, np.ufunc] = {
    "Abs": np.absolute,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sqrt": np.sqrt,
}
OF_INPUT: dict[str, np.ufunc] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Log": np.log,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
for _op, _ufunc in OF_X.items():
    cpu.kernel(_op, widen=True)(_of_X(_ufunc))
for _op, _ufunc in OF_INPUT.items():
    cpu.kernel(_op, widen=True)(_of_input(_ufunc))


@cpu.kernel("Erf", widen=True, inplace=FIRST)
def erf(input):
    return error_function.erf(input if input.dtype.kind == "f" else input.astype(np.float64))


@cpu.kernel("Identity", alias=FIRST, plain=True)
def identity(input):
    return input


@cpu.kernel("Add", since=7, widen=True)
@broadcasts
def add(A, B, *, out=None):
    return np.add(A, B, out=out)


@cpu.kernel("Sub", since=7, widen=True)
@broadcasts
def sub(A, B, *, out=None):
    return np.subtract(A, B, out=out)


@cpu.kernel("Mul", since=7, widen=True)
@broadcasts
def mul(A, B, *, out=None):
    return np.multiply(A, B, out=out)


@cpu.kernel("Div", since=7, widen=True)
@broadcasts
def div(A, B, *, out=None):
    return np.divide(A, B, out=out) if A.dtype.kind == "f" else truncated_quotient(A, B)


def truncated_quotient(A, B):
    """A / B of integers rounded toward zero, as in C."""
    if not np.all(B):
        raise KernelError("Integer division by zero")
    quotient = np.floor_divide(A, B)
    if A.dtype.kind == "i":
        quotient = quotient + ((quotient * B != A) & ((A < 0) != (B < 0)))
    return quotient


for _op, _kernel in {"Add": add, "Sub": sub, "Mul": mul, "Div": div}.items():
    cpu.kernel(_op, until=6, widen=True)(limited(_kernel))


@cpu.kernel("Mod", widen=True, inplace=FIRST)
@broadcasts
def mod(A, B, fmod=0):
    if A.dtype.kind != "f" and not np.all(B):
        raise KernelError("Integer modulo by zero")
    return np.fmod(A, B) if fmod else np.mod(A, B)


@cpu.kernel("Pow", since=7, widen=True, inplace=FIRST)
@broadcasts
def pow(X, Y):
    if X.dtype.kind == "i":
        return _integer_power(X, Y)
    if Y.size == 1 and Y.ndim <= X.ndim and Y.item() in _EASY_POWERS:
        return _EASY_POWERS[Y.item()](X)
    return np.power(X, Y if Y.dtype.kind == "f" else Y.astype(X.dtype))


@cpu.kernel("Pow", until=6, widen=True, inplace=FIRST)
def pow_limited(X, Y, broadcast=0, axis=None):
    return pow(X, aligned(X, Y, broadcast, axis))


def _root(X):
    """X ** 0.5, which unlike the square root is positive at both -0 and -inf."""
    return np.where(np.isneginf(X), np.inf, np.sqrt(X + 0)).astype(X.dtype, copy=False)


_EASY_POWERS = {1: np.positive, 2: np.square, 3: lambda X: X * X * X, 0.5: _root, -1: np.reciprocal}


def _integer_power(X, Y):
    """Whole exponents are exact and wrap; what a negative or broken exponent gives is truncated."""
    if Y.dtype.kind == "f":
        return np.power(X, Y, dtype=np.float64).astype(X.dtype)
    Y = Y.astype(np.int64)
    result = np.power(X, np.maximum(Y, 0))
    if np.any(Y < 0):
        fractions = np.power(X, Y, dtype=np.float64).astype(X.dtype)
        result = np.where(Y < 0, fractions, result)
    return result


@cpu.kernel("Max", widen=True, inplace=OVER_ANY)
@broadcasts
def max(data_0):
    return functools.reduce(np.maximum, data_0)


@cpu.kernel("Min", widen=True, inplace=OVER_ANY)
@broadcasts
def min(data_0):
    return functools.reduce(np.minimum, data_0)


@cpu.kernel("Sum", widen=True, inplace=OVER_ANY)
@broadcasts
def sum(data_0):
    return functools.reduce(np.add, data_0)


@cpu.kernel("Mean", widen=True, inplace=OVER_ANY)
@broadcasts
def mean(data_0):
    return functools.reduce(np.add, data_0) / len(data_0)


@cpu.kernel("Clip", widen=True)
def clip(input, min=None, max=None, *, out=None):
    low = None if min is None else scalar(np.asarray(min, input.dtype), "min")
    high = None if max is None else scalar(np.asarray(max, input.dtype), "max")
    return input if low is None and high is None else np.clip(input, low, high, out=out)


@cpu.kernel("Where", inplace=OVER_ANY)
@broadcasts
def where(condition, X, Y):
    return np.where(condition, X, Y)
