"""Elementary functions of vectors that generated code computes with, made of arithmetic alone: kernels and scalar functions call them.

    exp(x), tanh(x), erf(x), sigmoid(x), log(x), pow(x, y) …   x: a float32 or float64 Value, scalar or vector

All are free of branches (large arguments of sine and cosine excepted) and right for NaN, infinities, signed zeros and denormals. The
polynomials are minimax fits of our own. Measured over the whole range, float32 results are within 1.8 ulp, most within 1. What is
rarely hot in float32 is computed in float64 and rounded. `registers` has shorter ways for AVX-512, `trigonometry` the circular
functions and their inverses.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from sardonyx.compiler import error_fit, registers
from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, F64, I32, I64, U32, U64, Type

LOG2_E = 1 / math.log(2)


# --- what the functions are made of


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme, coefficients from the highest power down."""
    f = x.f
    result = f.const(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        result = f.fma(result, x, f.const(x.type, coefficient))
    return result


def in_double(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Let a function of float64 serve float32 too."""

    def either(x: Value) -> Value:
        if x.type.bits == 64:
            return function(x)
        return x.f.convert(function(x.f.convert(x, F64)), F32)

    either.__doc__, either.__name__ = function.__doc__, function.__name__
    return either


def copysign(magnitude: Value, sign: Value) -> Value:
    return magnitude.f.copysign(magnitude, sign)


def within(low: float, x: Value, high: float) -> Value:
    """x kept between two numbers; NaN stays NaN."""
    return x.f.maximum(low, x.f.minimum(high, x))


class _Format:
    """The fields of a float type, and what splits logarithms of 2 in it."""

    def __init__(self, words: Type, signed: Type, fraction: int, bias: int, ln2: tuple[float, float]):
        self.words = words
        self.signed = signed
        self.fraction = fraction
        """How many bits of it."""
        self.bias = bias
        self.shifter = 1.5 * 2.0**fraction
        """Added to a small number, it leaves the nearest integer in the low bits of the sum."""
        self.shifter_bits = ((bias + fraction) << fraction) + (1 << (fraction - 1))
        root_half = struct.pack("<d" if words.bits == 64 else "<f", math.sqrt(0.5))
        self.root_half = int.from_bytes(root_half, "little")
        """The bits of √½."""
        self.ln2 = ln2
        """Two parts of ln 2. The first has so few bits that its product with an exponent is exact."""


_SINGLE = _Format(U32, I32, 23, 127, (0.693359375, -2.1219444005469057e-04))
_DOUBLE = _Format(U64, I64, 52, 1023, (0.6931471803691238, 1.9082149292705877e-10))


def _format(x: Value) -> _Format:
    return _DOUBLE if x.type.bits == 64 else _SINGLE


def _words(x: Value) -> Value:
    return x.f.bitcast(x, _format(x).words.vector(x.type.lanes))


# --- exponentials

_EXP_SINGLE = (0.00139506022, 0.00836895313, 0.041666206, 0.166665182, 0.5)
_EXP_DOUBLE = (
    *(2.5110239396203332e-08, 2.7620202767565705e-07, 2.7557241809877592e-06, 2.480152105450836e-05),
    *(0.00019841269887082574, 0.0013888888917370011, 0.008333333333322035, 0.04166666666662381),
    *(0.16666666666666674, 0.50000000000000011),
)
"""(e^r - 1 - r) / r² for |r| up to ln 2 / 2."""


def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """x = n·ln 2 + r: n with the shifter added, n, r. For |x| such that n has few bits."""
    f, format = x.f, _format(x)
    shifted = f.fma(x, LOG2_E, f.const(x.type, format.shifter))
    with f.exact():
        n = shifted - format.shifter
    high, low = format.ln2
    return shifted, n, f.fma(n, -low, f.fma(n, -high, x))


def _exp_of_rest(r: Value) -> Value:
    """e^r - 1 for small r."""
    return r.f.fma(r * r, polynomial(r, _EXP_DOUBLE if r.type.bits == 64 else _EXP_SINGLE), r)


def _power_of_two(shifted: Value) -> Value:
    """2^n as a normal number, from n with the shifter added."""
    f, format = shifted.f, _format(shifted)
    return f.bitcast((_words(shifted) << format.fraction) + (format.bias << format.fraction), shifted.type)


def _scaled(x: Value, n: Value, shifted: Value) -> Value:
    """x·2^n with one rounding, for results beyond the normal range too."""
    f, format = x.f, _format(x)
    if registers.fills(x):
        return registers.scaled(x, n)
    both = _words(shifted) - (format.shifter_bits - 2 * format.bias)
    half = both >> 1
    first, second = (f.bitcast(power << format.fraction, x.type) for power in (half, both - half))
    with f.exact():
        return x * first * second


def exp(x: Value) -> Value:
    """e^x."""
    if registers.fits(x):
        return registers.exp(x)
    low, high = (-750.0, 710.0) if x.type.bits == 64 else (-105.0, 89.0)
    shifted, n, r = _reduced(within(low, x, high))
    return _scaled(_exp_of_rest(r) + 1.0, n, shifted)


def exp2(x: Value) -> Value:
    """2^x."""
    if registers.fits(x):
        return registers.exp2(x)
    f, format = x.f, _format(x)
    low, high = (-1080.0, 1025.0) if x.type.bits == 64 else (-152.0, 129.0)
    x = within(low, x, high)
    with f.exact():
        shifted = x + format.shifter
        n = shifted - format.shifter
    return _scaled(_exp_of_rest((x - n) * math.log(2)) + 1.0, n, shifted)


def expm1(x: Value) -> Value:
    """e^x - 1, right near 0."""
    f = x.f
    low, high = (-40.0, 710.0) if x.type.bits == 64 else (-20.0, 89.0)
    shifted, _, r = _reduced(within(low, x, high))
    # half of it first, because 2^n itself may be out of range
    half = f.bitcast(_words(_power_of_two(shifted)) - (1 << _format(x).fraction), x.type)
    result = f.fma(half, _exp_of_rest(r), half - 0.5) * 2.0
    return f.select(f.abs(x) < 2.0 ** -(_format(x).fraction + 3), x, result)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x), from q = e / (1 + e) with e = e^-|x|: q where x is negative, 1 - q elsewhere."""
    if registers.fits(x):
        return registers.sigmoid(x)
    f = x.f
    shifted, n, r = _reduced(f.maximum(-750.0 if x.type.bits == 64 else -105.0, -f.abs(x)))
    more = _exp_of_rest(r)
    with f.exact():
        whole = more + 1.0
        lost = more - (whole - 1.0)
    e, lost = _scaled(whole, n, shifted), _scaled(lost, n, shifted)
    inverse = 1.0 / (e + 1.0)
    q = e * inverse
    with f.exact():
        rest = e - q
    q = f.fma(f.fma(-q, e, rest) + lost * (1.0 - q), inverse, q)
    return f.select(x < 0.0, q, 1.0 - q)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent, from t = e^(2|x|) - 1: t / (t + 2), or 1 - 2 / (t + 2) where that is more."""
    if registers.fits(x):
        return registers.tanh(x)
    f = x.f
    shifted, _, r = _reduced(f.minimum(20.0 if x.type.bits == 64 else 10.0, f.abs(x)) * 2.0)
    power = _power_of_two(shifted)
    t = f.fma(power, _exp_of_rest(r), power - 1.0)
    inverse = 1.0 / (t + 2.0)
    quotient = t * inverse
    with f.exact():
        rest = t - quotient * 2.0
    near = f.fma(f.fma(-quotient, t, rest), inverse, quotient)
    return copysign(f.select(t > 2.0, 1.0 - inverse * 2.0, near), x)


# --- logarithms

_LOG_SINGLE = (
    *(-0.0785996616, 0.128858671, -0.131304488, 0.14180699),
    *(-0.166243479, 0.200023025, -0.250008166, 0.333333164),
)
"""(log(1+f) - f + f²/2) / f³ where 1+f is between √½ and √2."""
_LOG_DOUBLE = (
    *(0.14620454625848334, 0.153313876673386, 0.18182899527844676, 0.22222210986069099),
    *(0.28571428626931911, 0.39999999999897268, 0.66666666666666696),
)
"""(log((1+s)/(1-s)) / s - 2) / s², in powers of s²."""


def _split(x: Value) -> tuple[Value, Value]:
    """x = 2^e·m with m between √½ and √2, for normal x: e and m."""
    f, format = x.f, _format(x)
    offset = format.root_half
    bits = _words(x) - offset
    exponent = f.bitcast(bits, format.signed.vector(x.type.lanes)) >> format.fraction
    m = f.bitcast((bits & ((1 << format.fraction) - 1)) + offset, x.type)
    return small_to_double(exponent) if x.type.bits == 64 else f.convert(exponent, F32), m


def small_to_double(n: Value) -> Value:
    """A small int64 as float64, without the conversion that CPUs before AVX-512 lack."""
    f = n.f
    bits = f.bitcast(n, U64.vector(n.type.lanes)) + _DOUBLE.shifter_bits
    with f.exact():
        return f.bitcast(bits, F64.vector(n.type.lanes)) - _DOUBLE.shifter


def _with_log_edges(x: Value, result: Value) -> Value:
    """What a logarithm is outside the positive finite numbers."""
    f = x.f
    result = f.select(x == math.inf, x, result)
    result = f.select(x < 0.0, f.const(x.type, math.nan), result)
    return f.select(f.is_nan(x), x, f.select(x == 0.0, f.const(x.type, -math.inf), result))


def exponent_and_fraction(x: Value) -> tuple[Value, Value]:
    """Exponent and m - 1 for any positive finite x."""
    f, format = x.f, _format(x)
    tiny = x < 2.0 ** (1 - format.bias)
    exponent, m = _split(f.select(tiny, x * 2.0 ** (format.fraction + 1), x))
    exponent = f.select(tiny, exponent - float(format.fraction + 1), exponent)
    return exponent, m - 1.0


def _assembled(exponent: Value, fraction: Value, correction: Value | None = None) -> Value:
    """exponent·ln 2 + log(1 + fraction) + correction."""
    f = fraction.f
    high, low = _format(fraction).ln2
    rest = exponent * low if correction is None else f.fma(exponent, low, correction)
    half = fraction * fraction * 0.5
    if fraction.type.bits == 32:
        cube = fraction * fraction * fraction
        rest = f.fma(cube, polynomial(fraction, _LOG_SINGLE), rest)
        return f.fma(exponent, high, fraction - (half - rest))
    s = fraction / (fraction + 2.0)
    z = s * s
    rest = f.fma(s, f.fma(z, polynomial(z, _LOG_DOUBLE), half), rest)
    return f.fma(exponent, high, fraction - (half - rest))


def log(x: Value) -> Value:
    """The natural logarithm."""
    return _with_log_edges(x, _assembled(*exponent_and_fraction(x)))


def log1p(x: Value) -> Value:
    """log(1 + x), right near 0."""
    f = x.f
    with f.exact():
        whole = x + 1.0
        lost = f.select(x > 1.0, 1.0 - (whole - x), x - (whole - 1.0))
    result = _assembled(*exponent_and_fraction(whole), lost / whole)
    return copysign(_with_log_edges(whole, result), x)


def softplus(x: Value) -> Value:
    """log(1 + e^x)."""
    f = x.f
    below = -f.abs(x)
    return f.maximum(0.0, x) + log1p(registers.exp(below, precise=True) if registers.fits(x) else exp(below))


# --- powers


def reciprocal(x: Value) -> Value:
    return 1.0 / x


def rsqrt(x: Value) -> Value:
    """1 / √x, each step rounded."""
    return 1.0 / x.f.sqrt(x)


# --- the error function

_ERF_NEAR = (-0.000611129391, 0.00501622865, -0.0267819576, 0.112822302, -0.376125336, 0.128379151)
"""erf(x)/x - 1 in powers of x², for |x| up to 0.9."""
_ERF_FAR = (0.000197181405, -0.00305560464, 0.0222770758, -0.104037337, -0.637059748, -1.12774956, -0.000177497423)
"""log(1 - erf(x)) for x from 0.9 to 4, beyond which erf is 1."""


def erf(x: Value) -> Value:
    """The error function."""
    f = x.f
    if x.type.bits == 64:
        return _erf_double(x)
    if registers.fits(x):
        return registers.erf(x)
    magnitude = f.minimum(4.0, f.abs(x))
    near = f.fma(polynomial(x * x, _ERF_NEAR), x, x)
    shifted, _, r = _reduced(polynomial(magnitude, _ERF_FAR))
    power = _power_of_two(shifted)
    far = 1.0 - f.fma(power, _exp_of_rest(r), power)
    return f.select(magnitude < 0.9, near, copysign(far, x))


def _erf_double(x: Value) -> Value:
    f = x.f
    x = within(-30.0, x, 30.0)
    near = f.fma(polynomial(x * x, error_fit.NEAR), x, x)
    return f.select(f.abs(x) < 1.0, near, copysign(1.0 - erfc(f.abs(x)), x))


def erfc(x: Value) -> Value:
    """1 - erf(x) in float64, for finite x ≥ 0."""
    t = (x - error_fit.PIVOT) / (x + error_fit.PIVOT)
    return polynomial(t, error_fit.FAR) * exp(-(x * x)) / (x * 2.0 + 1.0)


# --- hyperbolic functions and their inverses


@in_double
def sinh(x: Value) -> Value:
    f = x.f
    magnitude = f.abs(x)
    t = expm1(magnitude)
    half = exp(magnitude * 0.5)
    large = half * 0.5 * half
    return copysign(f.select(magnitude > 40.0, large, (t + t / (t + 1.0)) * 0.5), x)


@in_double
def cosh(x: Value) -> Value:
    f = x.f
    half = exp(f.abs(x) * 0.5)
    return half * 0.5 * half + 0.5 / half / half


@in_double
def asinh(x: Value) -> Value:
    f = x.f
    magnitude = f.abs(x)
    square = magnitude * magnitude
    small = log1p(magnitude + square / (f.sqrt(square + 1.0) + 1.0))
    return copysign(f.select(magnitude > 2.0**28, log(magnitude) + math.log(2), small), x)


@in_double
def acosh(x: Value) -> Value:
    f = x.f
    above = x - 1.0
    small = log1p(above + f.sqrt(f.fma(above, above, above * 2.0)))
    result = f.select(x > 2.0**28, log(x) + math.log(2), small)
    return f.select(x < 1.0, f.const(x.type, math.nan), result)


@in_double
def atanh(x: Value) -> Value:
    magnitude = x.f.abs(x)
    return copysign(log1p(magnitude * 2.0 / (1.0 - magnitude)) * 0.5, x)
