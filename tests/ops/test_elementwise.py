"""Cases of arithmetic, elementary functions, minima and maxima, and choices."""

import functools
import math

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import COMPLEX, FLOATS, INTS, NUMERIC, SIGNED
from tests.ops.cases import booleans, case, f32, f64, i8, i32, i64, refuse, strings, u8

NAN, INF = np.nan, np.inf
EDGES = np.array([0.0, -0.0, 1.5, -1.5, INF, -INF, NAN], np.float32)


def each(function):
    """A function of the standard library, element by element in double precision."""
    return np.vectorize(lambda *numbers: function(*map(float, numbers)), otypes=[np.float64])


# --- functions of one number ---

OF_ONE = {  # op: (operand's name, where it is defined, what it is)
    "Acos": ("input", (-1, 1), math.acos),
    "Acosh": ("input", (1, 50), math.acosh),
    "Asin": ("input", (-1, 1), math.asin),
    "Asinh": ("input", (-50, 50), math.asinh),
    "Atan": ("input", (-50, 50), math.atan),
    "Atanh": ("input", (-0.95, 0.95), math.atanh),
    "Ceil": ("X", (-5, 5), math.ceil),
    "Cos": ("input", (-9, 9), math.cos),
    "Cosh": ("input", (-5, 5), math.cosh),
    "Erf": ("input", (-4, 4), math.erf),
    "Exp": ("input", (-5, 5), math.exp),
    "Floor": ("X", (-5, 5), math.floor),
    "Log": ("input", (0.1, 50), math.log),
    "Reciprocal": ("X", (0.5, 50), lambda x: 1 / x),
    "Round": ("X", (-5, 5), round),
    "Sin": ("input", (-9, 9), math.sin),
    "Sinh": ("input", (-5, 5), math.sinh),
    "Sqrt": ("X", (0, 50), math.sqrt),
    "Tan": ("input", (-1.4, 1.4), math.tan),
    "Tanh": ("input", (-5, 5), math.tanh),
}
for op, (name, (low, high), function) in OF_ONE.items():
    case(
        op,
        **{name: f64(3, 5, low=low, high=high)},
        types={"T": FLOATS},
        expect=lambda X=None, input=None, f=function: each(f)(input if X is None else X),
    )
    case(
        op, **{name: f32(low=low, high=high)}, expect=lambda X=None, input=None, f=function: f(float(input if X is None else X))
    )
    case(op, **{name: f32(0, 3)}, expect=np.zeros((0, 3), np.float32))

case("Abs", X=i32(3, 4), types={"T": NUMERIC}, expect=lambda X: np.where(X < 0, -X, X))
case("Abs", X=np.array([-128, 127], np.int8), expect=np.array([-128, 127], np.int8))
case("Neg", X=i32(3, 4), types={"T": SIGNED | FLOATS}, expect=lambda X: 0 - X)
case("Neg", X=np.array([-(2**63)], np.int64), expect=np.array([-(2**63)], np.int64))
case("Sign", input=i32(3, 4), types={"T": NUMERIC}, expect=lambda input: np.where(input > 0, 1, np.where(input < 0, -1, 0)))
case("Sign", input=EDGES, expect=np.array([0, 0, 1, -1, 1, -1, NAN], np.float32))
case("Round", X=np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999], np.float32), expect=np.array([0, 2, 2, -0.0, -2, 2], np.float32))
case("Ceil", X=EDGES, expect=np.array([0, 0, 2, -1, INF, -INF, NAN], np.float32))
case("Sqrt", X=EDGES, expect=np.array([0, 0, math.sqrt(1.5), NAN, INF, NAN, NAN], np.float32))
case("Log", input=EDGES, expect=np.array([-INF, -INF, math.log(1.5), NAN, INF, NAN, NAN], np.float32))
case("Exp", input=np.array([89, -120, INF, -INF], np.float32), expect=np.array([INF, 0, INF, 0], np.float32))
case("Exp", input=np.array([12.0], np.float16), expect=np.array([INF], np.float16))
case("Reciprocal", X=np.array([0, -0.0, INF, -INF], np.float32), expect=np.array([INF, -INF, 0, -0.0], np.float32))
case("Acosh", input=np.array([0.5, 1, INF], np.float32), expect=np.array([NAN, 0, INF], np.float32))
case("Atanh", input=np.array([1, -1, 2], np.float32), expect=np.array([INF, -INF, NAN], np.float32))
case("Erf", input=EDGES, expect=np.array([0, -0.0, math.erf(1.5), -math.erf(1.5), 1, -1, NAN], np.float32))
case("Erf", input=np.linspace(-7, 7, 40001), rtol=4e-16, atol=0.0, expect=lambda input: each(math.erf)(input))
case(
    "Erf",
    input=np.linspace(-5, 5, 40001, dtype=np.float32),
    rtol=1.7e-7,
    atol=0.0,
    expect=lambda input: each(math.erf)(input),
)
case("Erf", input=i8(4), until=12, types={"T": INTS}, expect=lambda input: each(math.erf)(input).astype(np.int8))


def test_erf_is_odd_and_keeps_tiny_numbers():
    from sardonyx.providers.cpu.error_function import erf

    tiny = np.array([1e-300, 1e-20, 1e-8])
    np.testing.assert_allclose(erf(tiny), tiny * 2 / math.sqrt(math.pi), rtol=1e-15)
    x = np.linspace(0, 6, 1001)
    np.testing.assert_array_equal(erf(-x), -erf(x))


# --- identity ---

case("Identity", input=f32(2, 3), types={"T": NUMERIC | COMPLEX | {dtypes.bool_}}, expect=lambda input: input)
case("Identity", input=strings(3), expect=lambda input: input)
case("Identity", input=i32(2, 3), types={"V": dtypes.ALL - {dtypes.string}}, expect=lambda input: input)
case("Identity", input=[f32(2), f32(2)], expect=lambda input: input)

# --- arithmetic ---

ARITHMETIC = {
    "Add": lambda A, B: A + B,
    "Sub": lambda A, B: A - B,
    "Mul": lambda A, B: A * B,
    "Div": lambda A, B: A / B if A.dtype.kind == "f" else A // B if A.dtype.kind == "u" else np.trunc(A / B),
}
for op, function in ARITHMETIC.items():
    case(op, A=i32(3, 4), B=i32(3, 4, low=1, high=7), types={"T": NUMERIC}, expect=function)
    case(op, A=f32(3, 1), B=f32(4), since=7, expect=function)
    case(op, A=f32(), B=f32(2, 1, 3), since=7, expect=function)
    case(op, A=f32(0, 3), B=f32(1, 3), since=7, expect=function)
    case(op, A=f32(2, 3, 4), B=f32(), broadcast=1, until=6, expect=function)
    case(op, A=f32(2, 3, 4), B=f32(1, 1), broadcast=1, until=6, expect=function)
    case(op, A=f32(2, 3, 4), B=f32(3, 4), broadcast=1, until=6, expect=function)
    case(op, A=f32(2, 3, 4), B=f32(3), broadcast=1, axis=1, until=6, expect=lambda A, B, f=function: f(A, B[:, None]))
    case(op, A=f32(2, 3, 4), B=f32(2, 3), broadcast=1, axis=0, until=6, expect=lambda A, B, f=function: f(A, B[..., None]))
    case(op, A=f32(2, 3, 4), B=f32(4), broadcast=1, axis=-1, until=6, expect=function)
    refuse(op, A=f32(2, 3), B=f32(2, 4), since=7, match="broadcast")
    refuse(op, A=f32(2, 3), B=f32(3), until=6, match="broadcast")
    refuse(op, A=f32(2, 3, 4), B=f32(2), broadcast=1, until=6, match="is not in that of A")
    for B in (f32(2, 3), f32(3), f32()):
        for axis in (-3, 3, 2**62):
            refuse(op, A=f32(2, 3), B=B, broadcast=1, axis=axis, until=6, match=f"axis {axis} is outside")
    case(op, A=f32(2, 3), B=f32(), broadcast=1, axis=2, until=6, expect=function)

case("Add", A=np.array([127, 1], np.int8), B=np.array([1, 1], np.int8), expect=np.array([-128, 2], np.int8))
case("Sub", A=np.array([0], np.uint8), B=np.array([1], np.uint8), expect=np.array([255], np.uint8))
case("Mul", A=np.array(2**40, np.int64), B=np.array(2**40, np.int64), expect=np.array(0, np.int64))
case("Mul", A=np.array([3e38, 0], np.float32), B=np.array([10, INF], np.float32), expect=np.array([INF, NAN], np.float32))
case(
    "Div", A=np.array([-7, 7, -7, 6], np.int32), B=np.array([2, -2, -2, 3], np.int32), expect=np.array([-3, -3, 3, 2], np.int32)
)
case("Div", A=np.array([-128], np.int8), B=np.array([-1], np.int8), expect=np.array([-128], np.int8))
case("Div", A=np.array(2**64 - 1, np.uint64), B=np.array(3, np.uint64), expect=np.array((2**64 - 1) // 3, np.uint64))
case("Div", A=np.array([1, 0, -1], np.float32), B=np.zeros(3, np.float32), expect=np.array([INF, NAN, -INF], np.float32))
refuse("Div", A=i32(3), B=np.array([1, 0, 2], np.int32), match="Integer division by zero")

MIXED_A, MIXED_B = np.array([-4, 7, 5, 4, -7, 8]), np.array([2, -3, 8, -2, 3, 5])
case("Mod", A=MIXED_A, B=MIXED_B, types={"T": SIGNED}, expect=[0, -2, 5, 0, 2, 3])
case("Mod", A=MIXED_A, B=MIXED_B, fmod=1, types={"T": SIGNED | FLOATS}, expect=[0, 1, 5, 0, -1, 3])
case("Mod", A=MIXED_A, B=MIXED_B, types={"T": FLOATS}, since=28, expect=[0, -2, 5, 0, 2, 3])
case("Mod", A=u8(3, 4), B=u8(4, low=1, high=5), types={"T": INTS}, expect=lambda A, B: A - A // B * B)
case(
    "Mod",
    A=np.array([5, -5, INF, 1], np.float32),
    B=np.array([INF, INF, 2, 0], np.float32),
    since=28,
    expect=[5, INF, NAN, NAN],
)
case("Mod", A=np.array([5, -5, INF, 1], np.float32), B=np.array([INF, INF, 2, 0], np.float32), fmod=1, expect=[5, -5, NAN, NAN])
refuse("Mod", A=i32(3), B=np.array([1, 0, 2], np.int32), match="Integer modulo by zero")


def power(X, Y):
    return each(math.pow)(X, Y)


FLOAT_POWERS = {"X": f32(3, 4, low=0.5, high=3), "Y": i32(3, 4, low=0, high=4)}
case("Pow", **FLOAT_POWERS, types={"T": FLOATS}, until=11, expect=power)
case("Pow", **FLOAT_POWERS, types={"T": FLOATS, "T1": {dtypes.int32, dtypes.float64}}, since=12, expect=power)
case("Pow", **FLOAT_POWERS, types={"T": {dtypes.float32}, "T1": FLOATS | INTS}, since=12, expect=power)
case("Pow", X=i32(3, 4), Y=i32(4, low=0, high=4), types={"T": {dtypes.int32, dtypes.int64}}, expect=power)
case("Pow", X=f32(2, 3, low=0, high=9), Y=f32(3), broadcast=1, until=6, expect=power)
case("Pow", X=f32(2, 3, low=0, high=9), Y=f32(2), broadcast=1, axis=0, until=6, expect=lambda X, Y: X ** Y[:, None])
for exponent in (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 2.5):
    case("Pow", X=f32(3, 4, low=0.1, high=9), Y=np.array(exponent, np.float32), since=7, expect=power)
case("Pow", X=np.array([-INF, -0.0, -1, 4], np.float32), Y=np.array([0.5], np.float32), since=7, expect=[INF, 0, NAN, 2])
case("Pow", X=f32(3), Y=np.array([[2.0]], np.float32), since=7, expect=lambda X: (X * X)[None])
case("Pow", X=np.array([2, -1, 1, 3, -1]), Y=np.array([-1, -3, -2, -1, -2]), since=12, expect=[0, -1, 1, 0, 1])
case("Pow", X=np.array([3]), Y=np.array([39]), since=12, expect=[3**39])
case("Pow", X=np.array([4, 9]), Y=np.array([0.5, 1.5], np.float32), since=12, expect=[2, 27])

# --- of many ---

THREE = [i32(3, 4), i32(3, 4), i32(3, 4)]
case("Max", data_0=THREE, types={"T": NUMERIC}, expect=lambda data_0: np.stack(data_0).max(0))
case("Min", data_0=THREE, types={"T": NUMERIC}, expect=lambda data_0: np.stack(data_0).min(0))
case("Sum", data_0=THREE, types={"T": FLOATS}, expect=lambda data_0: np.stack(data_0).sum(0))
case("Mean", data_0=THREE, types={"T": FLOATS}, expect=lambda data_0: np.stack(data_0).mean(0))
for op, function in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items():
    case(op, data_0=[f32(3)], expect=lambda data_0: data_0[0])
    case(
        op,
        data_0=[f32(3, 1), f32(4), f32()],
        since=8,
        expect=lambda data_0, f=function: functools.reduce(f, np.broadcast_arrays(*data_0)),
    )
    refuse(op, data_0=[f32(2, 3), f32(2, 4)], since=8, match="broadcast")
case("Mean", data_0=[f32(3, 1), f32(4)], since=8, expect=lambda data_0: (data_0[0] + data_0[1]) / 2)
case("Max", data_0=[np.array([NAN, 1], np.float32), np.array([1, NAN], np.float32)], expect=np.full(2, NAN, np.float32))

# --- limits and choices ---

case("Clip", input=f32(3, 4), min=-0.5, max=0.5, until=6, types={"T": FLOATS}, expect=lambda input: np.clip(input, -0.5, 0.5))
case("Clip", input=EDGES, until=1, expect=EDGES)
for bounds in ({"min": NAN}, {"max": NAN}, {"min": NAN, "max": 1.0}, {"min": -1.0, "max": NAN}):
    case("Clip", input=f32(3, 4), **bounds, expect=np.full((3, 4), np.nan, np.float32))
case(
    "Clip",
    input=i32(3, 4),
    min=-2,
    max=3,
    types={"T": NUMERIC},
    since=11,
    expect=lambda input, min, max: np.clip(input, min, max),
)
case("Clip", input=f32(3, 4), min=0.25, since=11, expect=lambda input: np.where(input < 0.25, 0.25, input))
case("Clip", input=f32(3, 4), max=0.25, since=11, expect=lambda input: np.where(input > 0.25, 0.25, input))
case("Clip", input=f32(3, 4), since=11, expect=lambda input: input)
case("Clip", input=f32(3, 4), min=2.0, max=1.0, expect=np.ones((3, 4), np.float32))
case("Clip", input=EDGES, min=-1.0, max=1.0, expect=np.array([0, 0, 1, -1, 1, -1, NAN], np.float32))
case("Clip", input=f32(), min=np.array([5], np.float32), since=11, expect=np.float32(5))

ALL_PLAIN = NUMERIC | COMPLEX | {dtypes.bool_, dtypes.string}
CHOICE = booleans(3, 4)
case("Where", condition=CHOICE, X=i32(3, 4), Y=i32(3, 4), types={"T": ALL_PLAIN}, expect=lambda X, Y: np.where(CHOICE, X, Y))
case("Where", condition=booleans(3, 1), X=i64(4), Y=i64(), expect=lambda condition, X, Y: np.where(condition, X, Y))
refuse("Where", condition=booleans(3), X=i64(4), Y=i64(1), match="broadcast")
