"""Cases of activation functions."""

import math

import numpy as np

from sardonyx.dtypes import FLOATS, INTS, SIGNED, UNSIGNED
from tests.ops.cases import case, f32, f64, i32, refuse

NAN, INF = np.nan, np.inf
X = f32(3, 4, low=-4, high=4)


def each(function):
    """A formula for one number, element by element in double precision."""
    return lambda X: np.vectorize(lambda number: function(float(number)), otypes=[np.float64])(X)


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def softplus(x):
    return math.log1p(math.exp(-abs(x))) + max(x, 0)


def gelu(x):
    return x * math.erfc(-x / math.sqrt(2)) / 2


def gelu_tanh(x):
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMULAS = (  # op, attributes, what it is
    ("Relu", {}, lambda x: max(x, 0)),
    ("LeakyRelu", {}, lambda x: x if x >= 0 else 0.01 * x),
    ("LeakyRelu", {"alpha": 2.0}, lambda x: x if x >= 0 else 2 * x),
    ("LeakyRelu", {"alpha": -0.5}, lambda x: x if x >= 0 else -0.5 * x),
    ("ThresholdedRelu", {}, lambda x: x if x > 1 else 0),
    ("ThresholdedRelu", {"alpha": -0.5}, lambda x: x if x > -0.5 else 0),
    ("Elu", {}, lambda x: x if x >= 0 else math.expm1(x)),
    ("Elu", {"alpha": 2.0}, lambda x: x if x >= 0 else 2 * math.expm1(x)),
    ("Selu", {"alpha": 1.5, "gamma": 2.0}, lambda x: 2 * x if x >= 0 else 3 * math.expm1(x)),
    ("Celu", {}, lambda x: x if x >= 0 else math.expm1(x)),
    ("Celu", {"alpha": 2.0}, lambda x: x if x >= 0 else 2 * math.expm1(x / 2)),
    ("Sigmoid", {}, sigmoid),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.75}, lambda x: min(max(0.25 * x + 0.75, 0), 1)),
    ("HardSwish", {}, lambda x: x * min(max(x / 6 + 0.5, 0), 1)),
    ("Swish", {}, lambda x: x * sigmoid(x)),
    ("Swish", {"alpha": 1.75}, lambda x: x * sigmoid(1.75 * x)),
    ("Mish", {}, lambda x: x * math.tanh(softplus(x))),
    ("Gelu", {}, gelu),
    ("Gelu", {"approximate": "none"}, gelu),
    ("Gelu", {"approximate": "tanh"}, gelu_tanh),
    ("Softplus", {}, softplus),
)
for op, attributes, formula in FORMULAS:
    case(op, X=X, **attributes, types={"T": FLOATS}, rtol=None if op != "LeakyRelu" else 2e-2, expect=each(formula))
    case(op, X=f32(), **attributes, expect=each(formula))
    case(op, X=f32(0, 2), **attributes, expect=np.zeros((0, 2), np.float32))

case("Selu", X=X, until=1, expect=each(lambda x: 1.0507 * (x if x >= 0 else 1.6732 * math.expm1(x))))
case("Selu", X=X, since=6, expect=each(lambda x: 1.05070102 * (x if x >= 0 else 1.67326319 * math.expm1(x))))
case("HardSigmoid", X=X, expect=each(lambda x: min(max(0.2 * x + 0.5, 0), 1)))
case("Softsign", input=X, types={"T": FLOATS}, expect=lambda input: input / (1 + np.abs(input)))
case("Relu", X=i32(3, 4), types={"T": SIGNED}, expect=lambda X: np.where(X > 0, X, 0))

FAR = np.array([1000, -1000, NAN], np.float32)
case("Sigmoid", X=FAR, expect=np.array([1, 0, NAN], np.float32))
case("Sigmoid", X=np.array([INF, -INF, -80]), expect=np.array([1, 0, math.exp(-80)]))
case("Softplus", X=FAR, expect=np.array([1000, 0, NAN], np.float32))
case("Softplus", X=np.array([INF, -INF, -40]), expect=np.array([INF, 0, math.exp(-40)]))
case("Mish", X=FAR, expect=np.array([1000, 0, NAN], np.float32))
FAINT = np.array([-90, -93, -95], np.float32)  # exp(-x) is infinite, and the results are denormal
for op, factor in (("Sigmoid", 1.0), ("Swish", FAINT)):
    case(op, X=FAINT, expect=(factor * np.exp(FAINT.astype(np.float64))).astype(np.float32), rtol=1e-3, atol=0)
case("Swish", X=FAR, expect=np.array([1000, 0, NAN], np.float32))
case("Elu", X=FAR, expect=np.array([1000, -1, NAN], np.float32))
case("Celu", X=FAR, expect=np.array([1000, -1, NAN], np.float32))
for zero in (0.0, -0.0):  # one after the other, as kernels are remembered
    case(
        "Celu",
        X=f32(3, 4),
        alpha=zero,
        expect=lambda X, alpha: np.where((X > 0) == (math.copysign(1, alpha) > 0), NAN, np.maximum(X, 0)),
    )
case("Selu", X=FAR, alpha=2.0, gamma=1.0, expect=np.array([1000, -2, NAN], np.float32))
case("Selu", X=np.array([3.4e38], np.float32), expect=[INF])
case("HardSigmoid", X=np.array([3e38, -3e38], np.float32), alpha=9.0, expect=[1, 0])
case("Gelu", X=FAR, expect=np.array([1000, 0, NAN], np.float32))
case("Gelu", X=FAR, approximate="tanh", expect=np.array([1000, 0, NAN], np.float32))
case("HardSwish", X=FAR, expect=np.array([1000, 0, NAN], np.float32))
case("LeakyRelu", X=np.array([INF, -INF, NAN], np.float32), alpha=0.5, expect=np.array([INF, -INF, NAN], np.float32))
case("LeakyRelu", X=np.array([INF, 1, -2], np.float32), alpha=0.0, expect=np.array([INF, 1, 0], np.float32))
case("Relu", X=np.array([INF, -INF, NAN], np.float32), expect=np.array([INF, 0, NAN], np.float32))

case("Gelu", X=np.array([INF, -INF, 0], np.float32), expect=[INF, 0, 0])

# the lower tail keeps its relative accuracy
TAIL = np.linspace(-10, -1, 2001)
case("Gelu", X=TAIL, rtol=5e-14, atol=0.0, expect=each(gelu))
case("Gelu", X=TAIL.astype(np.float32), rtol=1e-5, atol=0.0, expect=each(gelu))
case("Gelu", X=f64(5, 7000, low=-6, high=6), rtol=1e-14, atol=0.0, expect=each(gelu))

case("PRelu", X=X, slope=f32(3, 4), types={"T": FLOATS}, since=7, expect=lambda X, slope: np.where(X < 0, X * slope, X))
case("PRelu", X=i32(3, 4), slope=i32(4), types={"T": INTS}, since=7, expect=lambda X, slope: np.where(X < 0, X * slope, X))
case("PRelu", X=X, slope=f32(1), expect=lambda X, slope: np.where(X < 0, X * slope, X))
case("PRelu", X=f32(2, 3, 4), slope=f32(3), until=6, expect=lambda X, slope: np.where(X < 0, X * slope[:, None], X))
case("PRelu", X=f32(2, 3), slope=f32(3), until=6, expect=lambda X, slope: np.where(X < 0, X * slope, X))
refuse("PRelu", X=f32(2, 3), slope=f32(2), since=7, match="broadcast")

case("SwiGLU", A=X, B=f32(3, 4), types={"T": FLOATS}, expect=lambda A, B: each(lambda a: a * sigmoid(a))(A) * B)
case("SwiGLU", A=X, B=f32(3, 4), alpha=0.5, expect=lambda A, B: each(lambda a: a * sigmoid(a / 2))(A) * B)
refuse("SwiGLU", A=f32(3, 4), B=f32(4), match="one shape")


def shrink(input, lambd, bias):
    return (
        np.trunc(np.select([input < -lambd, input > lambd], [input + bias, input - bias]))
        if input.dtype.kind in "iu"
        else (np.select([input < -lambd, input > lambd], [input + bias, input - bias]))
    )


case("Shrink", input=f32(3, 4), types={"T": FLOATS}, expect=lambda input: shrink(input, 0.5, 0.0))
case("Shrink", input=i32(3, 4), lambd=2.0, bias=1.5, types={"T": SIGNED | FLOATS}, expect=lambda input: shrink(input, 2.0, 1.5))
case(
    "Shrink",
    input=i32(3, 4, low=0, high=9),
    lambd=2.5,
    bias=2.0,
    types={"T": UNSIGNED},
    expect=lambda input: shrink(input, 2.5, 2.0),
)
FAR = {  # 5 less NaN, an infinity, 3e9, 300: as C casts it on x86
    np.uint8: (0, 0, 0, 217),
    np.int8: (0, 0, 0, -39),
    np.uint16: (0, 0, 0, 65241),
    np.int16: (0, 0, 0, -295),
    np.int32: (-(2**31), -(2**31), -(2**31), -295),
    np.uint32: (0, 0, 1294967301, 2**32 - 295),
    np.int64: (-(2**63), -(2**63), 5 - 3 * 10**9, -295),
    np.uint64: (2**63, 2**63, 2**64 + 5 - 3 * 10**9, 2**64 - 295),
}
for kind, numbers in FAR.items():
    for bias, number in zip((np.nan, np.inf, 3e9, 300.0), numbers, strict=True):
        for shape in ((1,), (3, 40)):
            case("Shrink", input=np.full(shape, 5, kind), lambd=0.0, bias=bias, expect=np.full(shape, number, kind))
