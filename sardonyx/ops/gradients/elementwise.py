"""Gradients of the ops that go element by element. At kinks they follow PyTorch: Abs and Relu have 0 at 0, Clip has 1 at its bounds."""

from __future__ import annotations

import math

from sardonyx import dtypes
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import gradient, no_gradient

no_gradient("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")
no_gradient("Ceil", "Floor", "Round", "Sign")

# --- of one tensor


@gradient("Identity")
def identity(op, output_grad):
    return output_grad


@gradient("Cast")
def cast(op, input, output_grad):
    return op.cast(output_grad, input)


@gradient("CastLike")
def cast_like(op, input, output_grad):
    return op.cast(output_grad, input)


@gradient("Neg")
def neg(op, Y_grad):
    return op.Neg(Y_grad)


@gradient("Abs")
def abs(op, X, Y_grad):
    return op.Mul(Y_grad, op.Sign(X))


@gradient("Reciprocal")
def reciprocal(op, Y, Y_grad):
    return op.Neg(op.Mul(Y_grad, op.Mul(Y, Y)))


@gradient("Exp")
def exp(op, output, output_grad):
    return op.Mul(output_grad, output)


@gradient("Log")
def log(op, input, output_grad):
    return op.Div(output_grad, input)


@gradient("Sqrt")
def sqrt(op, Y, Y_grad):
    return op.Div(Y_grad, op.Add(Y, Y))


@gradient("Erf")
def erf(op, input, output_grad):
    bell = op.Exp(op.Neg(op.Mul(input, input)))
    return op.Mul(output_grad, op.scaled(bell, 2 / math.sqrt(math.pi)))


@gradient("Sin")
def sin(op, input, output_grad):
    return op.Mul(output_grad, op.Cos(input))


@gradient("Cos")
def cos(op, input, output_grad):
    return op.Neg(op.Mul(output_grad, op.Sin(input)))


@gradient("Tan")
def tan(op, output, output_grad):
    return op.Mul(output_grad, _one_plus_square(op, output))


@gradient("Asin")
def asin(op, input, output_grad):
    return op.Div(output_grad, op.Sqrt(_one_minus_square(op, input)))


@gradient("Acos")
def acos(op, input, output_grad):
    return op.Neg(op.Div(output_grad, op.Sqrt(_one_minus_square(op, input))))


@gradient("Atan")
def atan(op, input, output_grad):
    return op.Div(output_grad, _one_plus_square(op, input))


@gradient("Sinh")
def sinh(op, input, output_grad):
    return op.Mul(output_grad, op.Cosh(input))


@gradient("Cosh")
def cosh(op, input, output_grad):
    return op.Mul(output_grad, op.Sinh(input))


@gradient("Asinh")
def asinh(op, input, output_grad):
    return op.Div(output_grad, op.Sqrt(_one_plus_square(op, input)))


@gradient("Acosh")
def acosh(op, input, output_grad):
    one = op.number(1, input)
    return op.Div(output_grad, op.Sqrt(op.Mul(op.Sub(input, one), op.Add(input, one))))


@gradient("Atanh")
def atanh(op, input, output_grad):
    return op.Div(output_grad, _one_minus_square(op, input))


def _one_plus_square(op, x):
    return op.Add(op.Mul(x, x), op.number(1, x))


def _one_minus_square(op, x):
    return op.Sub(op.number(1, x), op.Mul(x, x))


# --- activations


@gradient("Tanh")
def tanh(op, output, output_grad):
    return op.Mul(output_grad, _one_minus_square(op, output))


@gradient("Sigmoid")
def sigmoid(op, Y, Y_grad):
    return op.Mul(Y_grad, op.Mul(Y, op.Sub(op.number(1, Y), Y)))


@gradient("Relu")
def relu(op, Y, Y_grad):
    return op.where(op.Greater(Y, op.number(0, Y)), Y_grad)


@gradient("LeakyRelu")
def leaky_relu(op, X, Y_grad, alpha):
    return op.Where(_is_positive(op, X), Y_grad, op.scaled(Y_grad, alpha))


@gradient("PRelu")
def prelu(op, X, slope, Y_grad):
    negative = op.Less(X, op.number(0, X))
    return {
        "X": op.fitted(op.Where(negative, op.Mul(Y_grad, slope), Y_grad), X),
        "slope": op.fitted(op.where(negative, op.Mul(Y_grad, X)), slope),
    }


@gradient("Elu")
def elu(op, X, Y_grad, alpha):
    return op.Where(_is_positive(op, X), Y_grad, op.Mul(Y_grad, op.scaled(op.Exp(_below_zero(op, X)), alpha)))


@gradient("Selu")
def selu(op, X, Y_grad, alpha, gamma):
    return op.scaled(elu(op, X, Y_grad, alpha), gamma)


@gradient("Celu")
def celu(op, X, Y_grad, alpha):
    slope = op.Exp(op.scaled(_below_zero(op, X), 1 / alpha))
    return op.Where(_is_positive(op, X), Y_grad, op.Mul(Y_grad, slope))


@gradient("ThresholdedRelu")
def thresholded_relu(op, X, Y_grad, alpha):
    return op.where(op.Greater(X, op.number(alpha, X)), Y_grad)


@gradient("Softplus")
def softplus(op, X, Y_grad):
    return op.Mul(Y_grad, op.Sigmoid(X))


@gradient("Softsign")
def softsign(op, input, output_grad):
    root = op.Add(op.Abs(input), op.number(1, input))
    return op.Div(output_grad, op.Mul(root, root))


@gradient("HardSigmoid")
def hard_sigmoid(op, Y, Y_grad, alpha):
    inside = op.And(op.Greater(Y, op.number(0, Y)), op.Less(Y, op.number(1, Y)))
    return op.where(inside, op.scaled(Y_grad, alpha))


@gradient("HardSwish")
def hard_swish(op, X, Y_grad):
    """0 below -3, 1 above 3, x/3 + 1/2 between."""
    slope = op.Add(op.scaled(X, 1 / 3), op.number(0.5, X))
    ramp = op.where(op.Greater(X, op.number(-3, X)), op.Mul(Y_grad, slope))
    return op.Where(op.Less(X, op.number(3, X)), ramp, Y_grad)


@gradient("Mish")
def mish(op, X, Y_grad):
    soft = op.Tanh(op.Softplus(X))
    rise = op.Mul(op.Mul(X, op.Sigmoid(X)), _one_minus_square(op, soft))
    return op.Mul(Y_grad, op.Add(soft, rise))


def _is_positive(op, X):
    return op.Greater(X, op.number(0, X))


def _below_zero(op, X):
    """X where it is negative, and 0 elsewhere, where its exponential would overflow."""
    return op.Where(op.Less(X, op.number(0, X)), X, op.number(0, X))


@gradient("Gelu")
def gelu(op, X, Y_grad, approximate):
    return _tanh_gelu(op, X, Y_grad) if approximate == "tanh" else exact_gelu(op, X, Y_grad)


@gradient("Gelu", domain=CONTRIB)
def exact_gelu(op, X, Y_grad):
    half, scaled = op.number(0.5, X), op.scaled(X, math.sqrt(0.5))
    share = op.Add(half, op.Mul(half, op.Erf(scaled)))
    bell = op.scaled(op.Exp(op.Neg(op.Mul(scaled, scaled))), 1 / math.sqrt(2 * math.pi))
    return op.Mul(Y_grad, op.Add(share, op.Mul(X, bell)))


def _tanh_gelu(op, X, Y_grad):
    """x/2 (1 + tanh u), where u = sqrt(2/pi) (x + 0.044715 x³)."""
    root, half = math.sqrt(2 / math.pi), op.number(0.5, X)
    square = op.Mul(X, X)
    u = op.Mul(X, op.Add(op.scaled(square, 0.044715 * root), op.number(root, X)))
    slope = op.Add(op.scaled(square, 3 * 0.044715 * root), op.number(root, X))
    bend = op.Tanh(u)
    share = op.Add(half, op.Mul(half, bend))
    rise = op.Mul(op.Mul(half, X), op.Mul(_one_minus_square(op, bend), slope))
    return op.Mul(Y_grad, op.Add(share, rise))


@gradient("FastGelu", domain=CONTRIB)
def fast_gelu(op, X, bias, Y_grad):
    if bias is None:
        return _tanh_gelu(op, X, Y_grad)
    whole = _tanh_gelu(op, op.Add(X, bias), Y_grad)
    return {"X": whole, "bias": op.fitted(whole, bias)}


@gradient("BiasGelu", domain=CONTRIB)
def bias_gelu(op, A, B, C_grad):
    whole = exact_gelu(op, op.Add(A, B), C_grad)
    return {"A": op.fitted(whole, A), "B": op.fitted(whole, B)}


@gradient("QuickGelu", domain=CONTRIB)
def quick_gelu(op, X, Y_grad, alpha):
    scaled = op.scaled(X, alpha)
    share = op.Sigmoid(scaled)
    rise = op.Mul(scaled, op.Mul(share, op.Sub(op.number(1, X), share)))
    return op.Mul(Y_grad, op.Add(share, rise))


# --- of several tensors


@gradient("Add", since=7)
def add(op, A, B, C_grad):
    return {"A": op.fitted(C_grad, A), "B": op.fitted(C_grad, B)}


@gradient("Sub", since=7)
def sub(op, A, B, C_grad, wanted):
    by_b = op.fitted(op.Neg(C_grad), B) if "B" in wanted else None
    return {"A": op.fitted(C_grad, A), "B": by_b}


@gradient("Mul", since=7)
def mul(op, A, B, C_grad, wanted):
    by_a = op.fitted(op.Mul(C_grad, B), A) if "A" in wanted else None
    by_b = op.fitted(op.Mul(C_grad, A), B) if "B" in wanted else None
    return {"A": by_a, "B": by_b}


@gradient("Div", since=7)
def div(op, A, B, C, C_grad, wanted):
    by_a = op.Div(C_grad, B)
    by_b = op.fitted(op.Neg(op.Mul(by_a, C)), B) if "B" in wanted else None
    return {"A": op.fitted(by_a, A) if "A" in wanted else None, "B": by_b}


@gradient("Pow", since=7)
def pow(op, X, Y, Z, Z_grad, wanted):
    return {
        "X": op.fitted(op.Mul(Z_grad, _slope_of_power(op, X, Y)), X) if "X" in wanted else None,
        "Y": op.fitted(op.cast(_by_exponent(op, X, Y, Z, Z_grad), Y), Y) if "Y" in wanted else None,
    }


def _slope_of_power(op, X, Y):
    """y · x^(y-1), and 0 where y is 0, even at x = 0."""
    one = op.number(1, Y)
    is_zero = op.Equal(Y, op.number(0, Y))
    lower = op.Where(is_zero, one, op.Sub(Y, one)) if op.dtype(Y) in dtypes.FLOATS else op.Sub(Y, one)
    return op.Where(is_zero, op.number(0, X), op.Mul(op.cast(Y, X), op.Pow(X, lower)))


def _by_exponent(op, X, Y, Z, Z_grad):
    """z · log x, and 0 where the base is 0 and the power cannot grow."""
    flat = op.And(op.Equal(X, op.number(0, X)), op.GreaterOrEqual(Y, op.number(0, Y)))
    return op.Where(flat, op.number(0, Z), op.Mul(Z_grad, op.Mul(Z, op.Log(X))))


@gradient("Sum")
def sum(op, data_0, sum_grad):
    return {"data_0": [op.fitted(sum_grad, value) for value in data_0]}


@gradient("Mean")
def mean(op, data_0, mean_grad):
    share = op.scaled(mean_grad, 1 / len(data_0))
    return {"data_0": [op.fitted(share, value) for value in data_0]}


@gradient("Max")
def max(op, data_0, max, max_grad):
    return {"data_0": _shared_by_equals(op, data_0, max, max_grad)}


@gradient("Min")
def min(op, data_0, min, min_grad):
    return {"data_0": _shared_by_equals(op, data_0, min, min_grad)}


def _shared_by_equals(op, operands, chosen, gradient):
    """Whoever is equal to what was chosen gets the same share."""
    masks = [op.floats(op.Equal(value, chosen), chosen) for value in operands]
    share = op.Div(gradient, op.Sum(*masks)) if len(masks) > 1 else gradient
    return [op.fitted(op.Mul(share, mask), value) for value, mask in zip(operands, masks, strict=True)]


@gradient("Where")
def where(op, condition, X, Y, output_grad):
    zero = op.number(0, output_grad)
    return {
        "X": op.fitted(op.Where(condition, output_grad, zero), X),
        "Y": op.fitted(op.Where(condition, zero, output_grad), Y),
    }


@gradient("Clip")
def clip(op, input, output_grad, min, max):
    masks = [op.Not(op.Less(input, op.cast(min, input)))] if min is not None else []
    masks += [op.Not(op.Greater(input, op.cast(max, input)))] if max is not None else []
    for mask in masks:
        output_grad = op.where(mask, output_grad)
    return output_grad


@gradient("FakeQuant", domain=CONTRIB)
def fake_quant(op, node, fake_quantized_tensor_grad):
    """Rounding counts as the identity between the bounds."""
    return op.contrib("FakeQuantGrad", fake_quantized_tensor_grad, op.result(node, 1))
