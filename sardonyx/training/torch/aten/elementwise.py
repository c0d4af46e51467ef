"""Arithmetic, comparisons, functions of one element, and their gradients."""

from __future__ import annotations

import math

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported

FUNCTIONS = {
    "neg": "Neg",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "tanh": "Tanh",
    "erf": "Erf",
    "sigmoid": "Sigmoid",
    "floor": "Floor",
    "ceil": "Ceil",
    "sign": "Sign",
    "sgn": "Sign",
    "relu": "Relu",
    "abs": "Abs",
}
KEEP_INTEGERS = {"neg", "floor", "ceil", "sign", "sgn", "relu", "abs"}


def _function(name, op_type):
    def lower(op, self):
        if not op.is_float(self) and name in ("floor", "ceil"):
            return op.Identity(self)
        return op.node(op_type, op.as_type(self, op.out_dtype))

    aten(f"{name}.default")(lower)


for _name, _op_type in FUNCTIONS.items():
    _function(_name, _op_type)


@aten("round.default")
def round_half_even(op, self):
    return op.Round(self) if op.is_float(self) else op.Identity(self)


@aten("trunc.default")
def trunc(op, self):
    return op.Mul(op.Sign(self), op.Floor(op.Abs(self))) if op.is_float(self) else op.Identity(self)


@aten("rsqrt.default")
def rsqrt(op, self):
    return op.Reciprocal(op.Sqrt(op.as_type(self, op.out_dtype)))


@aten("square.default")
def square(op, self):
    return op.Mul(self, self)


@aten("log2.default")
def log2(op, self):
    return op.scaled(op.Log(op.as_type(self, op.out_dtype)), 1 / math.log(2))


@aten("log10.default")
def log10(op, self):
    return op.scaled(op.Log(op.as_type(self, op.out_dtype)), 1 / math.log(10))


@aten("exp2.default")
def exp2(op, self):
    return op.Exp(op.scaled(op.as_type(self, op.out_dtype), math.log(2)))


@aten("log1p.default")
def log1p(op, self):
    """log(u) · x / (u - 1) for u = 1 + x as it was rounded, which undoes the rounding."""
    X = op.as_type(self, op.out_dtype)
    whole = op.Add(X, op.number(1, X))
    rest = op.Sub(whole, op.number(1, X))
    is_exact = op.Or(op.Equal(rest, op.number(0, X)), op.IsInf(whole))
    ratio = op.Where(is_exact, op.number(1, X), op.Div(X, op.Where(is_exact, op.number(1, X), rest)))
    logarithm = op.Where(op.Equal(rest, op.number(0, X)), X, op.Log(whole))
    return op.Mul(logarithm, ratio)


@aten("expm1.default")
def expm1(op, self):
    """tanh(x / 2) · (exp(x) + 1); of infinities as exp has them."""
    X = op.as_type(self, op.out_dtype)
    power = op.Exp(X)
    return op.Where(op.IsInf(power), power, op.Mul(op.Tanh(op.scaled(X, 0.5)), op.Add(power, op.number(1, X))))


@aten("erfc.default")
def erfc(op, self):
    X = op.as_type(self, op.out_dtype)
    return op.Sub(op.number(1, X), op.Erf(X))


# --- arithmetic


def _times(op, value, factor):
    return value if factor == 1 else op.Mul(value, op.scalar(factor, op.dtype(value)))


@aten("add.Tensor", "add.Scalar")
def add(op, self, other, alpha=1):
    dtype = op.out_dtype
    if dtype is dtypes.bool_:
        return op.Or(self, other)
    return op.Add(op.operand(self, dtype), _times(op, op.operand(other, dtype), alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(op, self, other, alpha=1):
    dtype = op.out_dtype
    return op.Sub(op.operand(self, dtype), _times(op, op.operand(other, dtype), alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(op, self, other, alpha=1):
    return sub(op, other, self, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(op, self, other):
    dtype = op.out_dtype
    if dtype is dtypes.bool_:
        return op.And(op.operand(self, dtype), op.operand(other, dtype))
    return op.Mul(op.operand(self, dtype), op.operand(other, dtype))


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(op, self, other):
    return op.Div(op.operand(self, op.out_dtype), op.operand(other, op.out_dtype))


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(op, self, other, rounding_mode):
    if rounding_mode is None:
        return div(op, self, other)
    dtype = op.out_dtype
    A, B = op.operand(self, dtype), op.operand(other, dtype)
    if dtype in dtypes.FLOATS:
        return op.Floor(op.Div(A, B)) if rounding_mode == "floor" else trunc(op, op.Div(A, B))
    if rounding_mode == "trunc":
        return op.Div(A, B)
    return op.Div(op.Sub(A, op.Mod(A, B)), B)


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(op, self, other):
    return div_mode(op, self, other, "floor")


@aten("remainder.Tensor", "remainder.Scalar")
def remainder(op, self, other):
    dtype = op.out_dtype
    A, B = op.operand(self, dtype), op.operand(other, dtype)
    if dtype in dtypes.FLOATS:
        return op.Sub(A, op.Mul(op.Floor(op.Div(A, B)), B))
    return op.Mod(A, B)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(op, self, other):
    return op.Mod(op.operand(self, op.out_dtype), op.operand(other, op.out_dtype), fmod=1)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(op, self, exponent):
    dtype = op.out_dtype
    base = op.operand(self, dtype)
    if exponent == 2:
        return op.Mul(base, base)
    if exponent == 1:
        return op.Identity(base)
    if exponent == 0.5:
        return op.Sqrt(base)
    if exponent == 3:
        return op.Mul(op.Mul(base, base), base)
    return op.Pow(base, op.operand(exponent, dtype))


@aten("maximum.default")
def maximum(op, self, other):
    return op.Max(op.operand(self, op.out_dtype), op.operand(other, op.out_dtype))


@aten("minimum.default")
def minimum(op, self, other):
    return op.Min(op.operand(self, op.out_dtype), op.operand(other, op.out_dtype))


@aten("clamp.default", "clamp.Tensor")
def clamp(op, self, min=None, max=None):
    dtype = op.out_dtype
    result = op.as_type(self, dtype)
    if min is not None:
        result = op.Max(result, op.operand(min, dtype))
    return result if max is None else op.Min(result, op.operand(max, dtype))


@aten("clamp_min.default", "clamp_min.Tensor")
def clamp_min(op, self, min):
    return clamp(op, self, min)


@aten("clamp_max.default", "clamp_max.Tensor")
def clamp_max(op, self, max):
    return clamp(op, self, None, max)


@aten("addcmul.default")
def addcmul(op, self, tensor1, tensor2, value=1):
    return op.Add(self, _times(op, op.Mul(tensor1, tensor2), value))


@aten("addcdiv.default")
def addcdiv(op, self, tensor1, tensor2, value=1):
    return op.Add(self, _times(op, op.Div(tensor1, tensor2), value))


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(op, self, end, weight):
    return op.Add(self, op.Mul(op.operand(weight, op.dtype(self)), op.Sub(end, self)))


# --- comparisons and logic


def _comparison(name, write):
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def lower(op, self, other):
        dtype = op.common_type(self, other)
        if dtype is dtypes.bool_ and name not in ("eq", "ne"):
            dtype = dtypes.int32
        return write(op, op.operand(self, dtype), op.operand(other, dtype))


_comparison("eq", lambda op, a, b: op.Equal(a, b))
_comparison("ne", lambda op, a, b: op.Not(op.Equal(a, b)))
_comparison("lt", lambda op, a, b: op.Less(a, b))
_comparison("le", lambda op, a, b: op.LessOrEqual(a, b))
_comparison("gt", lambda op, a, b: op.Greater(a, b))
_comparison("ge", lambda op, a, b: op.GreaterOrEqual(a, b))


def _truth(op, operand):
    return op.operand(operand, dtypes.bool_)


@aten("logical_not.default")
def logical_not(op, self):
    return op.Not(_truth(op, self))


@aten("logical_and.default")
def logical_and(op, self, other):
    return op.And(_truth(op, self), _truth(op, other))


@aten("logical_or.default")
def logical_or(op, self, other):
    return op.Or(_truth(op, self), _truth(op, other))


@aten("logical_xor.default")
def logical_xor(op, self, other):
    return op.Xor(_truth(op, self), _truth(op, other))


def _bitwise(name, logical, numeric):
    @aten(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar")
    def lower(op, self, other):
        dtype = op.out_dtype
        return op.node(logical if dtype is dtypes.bool_ else numeric, op.operand(self, dtype), op.operand(other, dtype))


_bitwise("and", "And", "BitwiseAnd")
_bitwise("or", "Or", "BitwiseOr")
_bitwise("xor", "Xor", "BitwiseXor")


@aten("bitwise_not.default")
def bitwise_not(op, self):
    return op.Not(self) if op.dtype(self) is dtypes.bool_ else op.BitwiseNot(self)


@aten("isnan.default")
def isnan(op, self):
    return op.IsNaN(self) if op.is_float(self) else op.Not(op.Equal(self, self))


@aten("isinf.default")
def isinf(op, self):
    return op.IsInf(self) if op.is_float(self) else op.Not(op.Equal(self, self))


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(op, condition, self, other):
    return op.Where(_truth(op, condition), op.operand(self, op.out_dtype), op.operand(other, op.out_dtype))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(op, self, mask, value):
    return op.Where(_truth(op, mask), op.operand(value, op.dtype(self)), self)


# --- activations


@aten("gelu.default")
def gelu(op, self, approximate="none"):
    return op.Gelu(self, approximate=approximate)


@aten("gelu_backward.default")
def gelu_backward(op, grad_output, self, approximate="none"):
    return op.contrib("GeluGrad" if approximate == "none" else "FastGeluGrad", grad_output, self)


@aten("silu.default")
def silu(op, self):
    return op.Mul(self, op.Sigmoid(self))


@aten("silu_backward.default")
def silu_backward(op, grad_output, self):
    gate, one = op.Sigmoid(self), op.number(1, self)
    return op.Mul(grad_output, op.Mul(gate, op.Add(one, op.Mul(self, op.Sub(one, gate)))))


@aten("threshold_backward.default")
def threshold_backward(op, grad_output, self, threshold):
    """What is not a number passes."""
    return op.Where(op.LessOrEqual(self, op.scalar(threshold, op.dtype(self))), op.number(0, grad_output), grad_output)


@aten("sigmoid_backward.default")
def sigmoid_backward(op, grad_output, output):
    return op.contrib("SigmoidGrad", grad_output, output)


@aten("tanh_backward.default")
def tanh_backward(op, grad_output, output):
    return op.contrib("TanhGrad", grad_output, output)


@aten("leaky_relu.default")
def leaky_relu(op, self, negative_slope=0.01):
    return op.LeakyRelu(self, alpha=negative_slope)


@aten("leaky_relu_backward.default")
def leaky_relu_backward(op, grad_output, self, negative_slope, self_is_result):
    if self_is_result and negative_slope < 0:
        raise Unsupported("a slope below 0 in place")
    is_positive = op.Greater(self, op.number(0, self))
    return op.Where(is_positive, grad_output, op.scaled(grad_output, negative_slope))


@aten("elu.default")
def elu(op, self, alpha=1, scale=1, input_scale=1):
    below = op.scaled(op.Sub(op.Exp(op.scaled(self, input_scale)), op.number(1, self)), alpha * scale)
    return op.Where(op.Greater(self, op.number(0, self)), op.scaled(self, scale), below)


@aten("elu_backward.default")
def elu_backward(op, grad_output, alpha, scale, input_scale, is_result, self_or_result):
    value = self_or_result
    if is_result:
        below = op.scaled(op.Add(value, op.number(alpha * scale, value)), input_scale)
    else:
        below = op.scaled(op.Exp(op.scaled(value, input_scale)), input_scale * alpha * scale)
    factor = op.Where(op.Greater(value, op.number(0, value)), op.number(scale, value), below)
    return op.Mul(grad_output, factor)


@aten("hardtanh.default")
def hardtanh(op, self, min_val=-1, max_val=1):
    return clamp(op, self, min_val, max_val)


@aten("hardtanh_backward.default")
def hardtanh_backward(op, grad_output, self, min_val, max_val):
    dtype = op.dtype(self)
    inside = op.And(op.Greater(self, op.scalar(min_val, dtype)), op.Less(self, op.scalar(max_val, dtype)))
    return op.where(inside, grad_output)


@aten("softplus.default")
def softplus(op, self, beta=1, threshold=20):
    scaled = op.scaled(self, beta)
    linear = op.Greater(scaled, op.number(threshold, self))
    return op.Where(linear, self, op.scaled(op.Softplus(scaled), 1 / beta))


@aten("softplus_backward.default")
def softplus_backward(op, grad_output, self, beta, threshold):
    scaled = op.scaled(self, beta)
    linear = op.Greater(scaled, op.number(threshold, self))
    return op.Where(linear, grad_output, op.Mul(grad_output, op.Sigmoid(scaled)))


@aten("log_sigmoid_forward.default")
def log_sigmoid(op, self):
    return op.Neg(op.Softplus(op.Neg(self))), op.Exp(op.Neg(op.Abs(self)))


@aten("log_sigmoid_backward.default")
def log_sigmoid_backward(op, grad_output, self, buffer):
    return op.Mul(grad_output, op.Sigmoid(op.Neg(self)))
