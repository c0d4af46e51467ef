"""Arithmetic, elementary functions, minima and maxima, choices on single elements."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from sardonyx.compiler import math, powers, remainders, trigonometry
from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I64
from sardonyx.ir import Node
from sardonyx.providers.scalars.cast import whole
from sardonyx.providers.scalars.table import FLOATS, INTEGERS, scalar

Function = Callable[[Value], Value]


@scalar("Add", since=7)
def add(A, B):
    return A + B


@scalar("Sub", since=7)
def subtract(A, B):
    return A - B


@scalar("Mul", since=7)
def multiply(A, B):
    return A * B


@scalar("Div", since=7, types=FLOATS)
def divide(A, B):
    return A / B


def _may_divide(node: Node) -> bool:
    """Whether the divisor is not known to be 0 somewhere, which is an error; one that is computed is looked at in each run."""
    divisor = node.inputs[1]
    return divisor is not None and (divisor.constant is None or bool(divisor.constant.numpy().all()))


@scalar("Div", since=7, types=INTEGERS, claims=_may_divide, divisor=1)
def integer_quotient(A, B):
    """Toward zero. The quotient of the least integer and -1 wraps, where CPUs would stop, as they would in lanes that hold no element."""
    f = A.f
    if not A.type.is_signed:
        return A // f.select(B == 0, f.const(B.type, 1), B)
    negating = B == -1
    return f.select(negating, -A, A // f.select(negating | (B == 0), f.const(B.type, 1), B))


@scalar("Mod", types=INTEGERS, claims=_may_divide, divisor=1)
def modulo(A, B, *, fmod):
    """The remainder with the divisor's sign, with `fmod` the dividend's."""
    f = A.f
    rest = A - integer_quotient(A, B) * B
    if fmod or not A.type.is_signed:
        return rest
    return f.select((rest != 0) & ((rest ^ B) < 0), rest + B, rest)


@scalar("Mod", types=FLOATS)
def float_modulo(A, B, *, fmod):
    return remainders.fmod(A, B) if fmod else remainders.modulo(A, B)


def _power_of(wanted: float):
    """Register the function of Pow where the exponent is a constant number."""

    def claims(node: Node) -> bool:
        exponent = node.inputs[1]
        if exponent is None or exponent.constant is None:
            return False
        numbers = exponent.constant.numpy()
        return numbers.size == 1 and numbers.item() == wanted

    return scalar("Pow", since=7, types=FLOATS, claims=claims, case=f"the exponent is {wanted}")


@_power_of(1)
def first_power(X, Y):
    return X


@_power_of(2)
def square(X, Y):
    return X * X


@_power_of(3)
def cube(X, Y):
    return X * X * X


@_power_of(-1)
def inverse(X, Y):
    return 1.0 / X


@_power_of(0.5)
def root(X, Y):
    """The square root, but positive at -0 and -inf."""
    f = X.f
    return f.select(-float("inf") == X, -X, f.sqrt(X + 0.0))


@scalar("Pow", since=7, types=FLOATS)
def power(X, Y):
    return powers.pow(X, X.f.convert(Y, X.type.scalar))


@scalar("Pow", since=7, types=INTEGERS)
def integer_power(X, Y):
    """Whole exponents are exact and wrap. A float's result is cut off."""
    f = X.f
    if Y.type.is_integer:
        return powers.integer_power(X, f.convert(Y, I64))
    return whole(powers.pow(f.convert(X, F64), f.convert(Y, F64)), X.type.scalar)


@scalar("Neg")
def negate(X):
    return -X


@scalar("Abs")
def absolute(X):
    return X.f.abs(X)


@scalar("Sign")
def sign(input):
    f = input.f
    one, zero = f.const(input.type, 1), f.const(input.type, 0)
    if not (input.type.is_float or input.type.is_signed):
        return f.select(input > 0, one, zero)
    sign = f.select(input > 0, one, f.select(input < 0, -one, zero))
    return f.select(f.is_nan(input), input, sign) if input.type.is_float else sign


@scalar("Sqrt")
def square_root(X):
    return X.f.sqrt(X)


@scalar("Reciprocal")
def reciprocal(X):
    return 1.0 / X


@scalar("Floor")
def floor(X):
    return X.f.floor(X)


@scalar("Ceil")
def ceil(X):
    return X.f.ceil(X)


@scalar("Round")
def round_even(X):
    return X.f.round_even(X)


def _of_one(function):
    def element(input):
        return function(input)

    element.__qualname__ = element.__name__ = function.__name__
    return element


OF_FLOATS: dict[str, Function] = {
    "Acos": trigonometry.acos,
    "Acosh": math.acosh,
    "Asin": trigonometry.asin,
    "Asinh": math.asinh,
    "Atan": trigonometry.atan,
    "Atanh": math.atanh,
    "Cos": trigonometry.cos,
    "Cosh": math.cosh,
    "Erf": math.erf,
    "Exp": math.exp,
    "Log": math.log,
    "Sin": trigonometry.sin,
    "Sinh": math.sinh,
    "Tan": trigonometry.tan,
    "Tanh": math.tanh,
}
for _op, _function in OF_FLOATS.items():
    scalar(_op, types=FLOATS)(_of_one(_function))


def least(a: Value, b: Value) -> Value:
    """The smaller one, NaN if either is."""
    smallest = a.f.minimum(a, b)
    return a.f.select(a.f.is_nan(a), a, smallest) if a.type.is_float else smallest


def greatest(a: Value, b: Value) -> Value:
    """The larger one, NaN if either is."""
    largest = a.f.maximum(a, b)
    return a.f.select(a.f.is_nan(a), a, largest) if a.type.is_float else largest


@scalar("Max", since=8)
def maximum(*data_0):
    return functools.reduce(greatest, data_0)


@scalar("Min", since=8)
def minimum(*data_0):
    return functools.reduce(least, data_0)


@scalar("Sum", since=8)
def total(*data_0):
    return functools.reduce(add, data_0)


@scalar("Mean", since=8)
def mean(*data_0):
    return functools.reduce(add, data_0) / float(len(data_0))


@scalar("Clip", since=11)
def clip(input, min=None, max=None):
    result = input if min is None else greatest(min, input)
    return result if max is None else least(max, result)


@scalar("Clip", until=10)
def clip_by_attributes(input, *, min=None, max=None):
    f = input.f
    if any(np.isnan(bound) for bound in (min, max) if bound is not None):
        return input + float("nan")  # minimum and maximum pass over a NaN that comes first
    result = input if min is None else f.maximum(min, input)
    return result if max is None else f.minimum(max, result)


@scalar("Where")
def where(condition, X, Y):
    return X.f.select(condition, X, Y)


def _is_inference(node: Node) -> bool:
    """Whether nothing is dropped: the switch is off, or absent as in all versions before it."""
    switch = node.inputs[2] if len(node.inputs) > 2 else None
    return switch is None or (switch.constant is not None and not switch.constant.numpy().any())


@scalar("Dropout", since=7, claims=_is_inference)
def dropout(data, ratio_input=None, training_mode=None, *, ratio=None, seed=None):
    return data
