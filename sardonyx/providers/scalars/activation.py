"""Activation functions of single elements."""

from __future__ import annotations

import math

from sardonyx.compiler.math import erf, erfc, exp, expm1, tanh
from sardonyx.compiler.math import sigmoid as logistic
from sardonyx.compiler.math import softplus as soft_plus
from sardonyx.compiler.types import F64
from sardonyx.ir import Node, TensorType
from sardonyx.providers.scalars.cast import whole
from sardonyx.providers.scalars.table import FLOATS, INTEGERS, scalar


@scalar("Relu")
def relu(X):
    return X.f.maximum(0, X)


@scalar("LeakyRelu", types=FLOATS)
def leaky_relu(X, *, alpha=0.01):
    f = X.f
    scaled = X * alpha
    return f.maximum(scaled, X) if 0 < alpha <= 1 else f.select(X < 0.0, scaled, X)


@scalar("ThresholdedRelu", types=FLOATS)
def thresholded_relu(X, *, alpha=1.0):
    return X.f.select(alpha < X, X, 0.0)


@scalar("PRelu", since=7)
def prelu(X, slope):
    return X.f.select(X < 0, slope * X, X)


@scalar("Elu", types=FLOATS)
def elu(X, *, alpha=1.0):
    f = X.f
    return f.select(X < 0.0, expm1(f.minimum(0.0, X)) * alpha, X)


@scalar("Selu", types=FLOATS)
def selu(X, *, alpha, gamma):
    return elu(X, alpha=alpha) * gamma


@scalar("Celu", types=FLOATS)
def celu(X, *, alpha=1.0):
    f = X.f
    return f.maximum(0.0, X) + f.minimum(0.0, expm1(X / alpha) * alpha)


@scalar("Sigmoid", types=FLOATS)
def sigmoid(X):
    return logistic(X)


@scalar("HardSigmoid", types=FLOATS)
def hard_sigmoid(X, *, alpha=0.2, beta=0.5):
    f = X.f
    return f.minimum(1.0, f.maximum(0.0, X * alpha + beta))


@scalar("HardSwish", types=FLOATS)
def hard_swish(X):
    return X * hard_sigmoid(X, alpha=1 / 6, beta=0.5)


@scalar("Swish", types=FLOATS)
def swish(X, *, alpha=1.0):
    return X / (exp(X * -alpha) + 1.0)


def _same_shapes(node: Node) -> bool:
    shapes = [value.type.shape for value in node.inputs if value is not None and isinstance(value.type, TensorType)]
    return shapes[0] == shapes[1]


@scalar("SwiGLU", types=FLOATS, claims=_same_shapes)
def swi_glu(A, B, *, alpha=1.0):
    return swish(A, alpha=alpha) * B


@scalar("Mish", types=FLOATS)
def mish(X):
    """With e = exp(x), tanh(log(1+e)) is e(e+2) / (e(e+2) + 2); beyond x = 20 that is 1."""
    weights = exp(X.f.minimum(20.0, X))
    weights = weights * (weights + 2.0)
    return X * (weights / (weights + 2.0))


@scalar("Gelu", types=FLOATS)
def gelu(X, *, approximate="none"):
    return gelu_of_tanh(X) if approximate == "tanh" else gelu_of_erf(X)


def gelu_of_erf(x):
    """Below -40 it is 0, at -inf too."""
    if x.type.bits == 64:
        magnitude = x.f.minimum(40.0, x.f.abs(x))
        return x.f.maximum(0.0, x) - erfc(magnitude * math.sqrt(0.5)) * (magnitude * 0.5)
    return x.f.maximum(-40.0, x) * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


def gelu_of_tanh(x):
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


@scalar("Softplus", types=FLOATS)
def softplus(X):
    return soft_plus(X)


@scalar("Softsign", types=FLOATS)
def softsign(input):
    return input / (input.f.abs(input) + 1.0)


@scalar("Shrink", types=INTEGERS)
def integer_shrink(input, *, type, bias=0.0, lambd=0.5):
    """Computed in float64 and cut off."""
    return whole(shrink(input.f.convert(input, F64), bias=bias, lambd=lambd), type)


@scalar("Shrink", types=FLOATS)
def shrink(input, *, bias=0.0, lambd=0.5):
    f = input.f
    return f.select(input < -lambd, input + bias, f.select(input > lambd, input - bias, 0.0))
