"""Functions of float32 for AVX-512: one instruction looks up sixteen numbers in a register, so that little is left to a polynomial.

`math` calls these for vectors of whole registers. Exponentials: x = n·ln 2 + r, where n counts sixteenths; 2^n is a number from a table
times a power of two, and e^r of |r| up to ln 2 / 32 takes three terms. tanh and erf have a polynomial for each of sixteen intervals.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, I32, U32

REGISTER_BITS = 512
LANES = 16
"""Of float32."""
_SHIFTER = 1.5 * 2.0**19
"""Added to a small number, it leaves its sixteenths, rounded, in the low bits of the sum."""
_LIMIT = 0.022
"""A little more than ln 2 / 32."""


def _single(number: float) -> float:
    return struct.unpack("<f", struct.pack("<f", number))[0]


_LN2 = _single(math.log(2))
_LN2_REST = math.log(2) - _LN2
_POWERS = [_single(2.0 ** (index / LANES)) for index in range(LANES)]
_OFFSETS = [index * math.log(2) / LANES - math.log(power) for index, power in enumerate(_POWERS)]
"""How much larger the logarithms of the powers should be: they are rounded, and e^(r + offset) makes up for it."""

_TANH_START, _ERF_START = 0.625, 0.3125
"""Added to |x|, they let quarters of octaves of the sum be intervals of |x| in which polynomials of degree 5 suffice."""
_TANH_END, _ERF_END = 9.25, 4.25
"""For larger arguments the functions are 1."""
_TANH = (
    (
        *(1.6249857, 2.124913, 2.625136, 3.1251278, 3.8751073, 4.875238),
        *(5.874714, 6.874714, 8.375, 0.0, 0.18750109),
        *(0.31248993, 0.4999708, 0.7499749, 1.0000303, 1.2500209),
    ),
    (
        *(0.92534417, 0.9718679, 0.9895626, 0.9961475, 0.9991391, 0.9998835),
        *(0.9999842, 0.99999785, 0.9999999, 0.0, 0.18533425),
        *(0.30270058, 0.4620942, 0.635134, 0.7616069, 0.8482895),
    ),
    (
        *(0.14373805, 0.05547274, 0.020765923, 0.007690134, 0.0017211662, 0.00023304751),
        *(3.1574862e-05, 4.2732513e-06, 2.1263116e-07, 1.0, 0.9656512),
        *(0.90837234, 0.78646904, 0.5966048, 0.41995496, 0.28040493),
    ),
    (
        *(-0.13301432, -0.05391128, -0.020548103, -0.0076599848, -0.0017175808, -0.00023272776),
        *(-3.128848e-05, -3.977912e-06, -1.0541515e-07, 3.1139606e-07, -0.17896792),
        *(-0.27496463, -0.3634176, -0.37892392, -0.31984246, -0.23786607),
    ),
    (
        *(0.07517848, 0.033905834, 0.013412199, 0.0050672903, 0.0011430157, 0.00015510024),
        *(2.1036933e-05, 2.846467e-06, 1.4032403e-07, -0.3333556, -0.2887152),
        *(-0.21954913, -0.09424453, 0.041796107, 0.10361073, 0.10831339),
    ),
    (
        *(-0.024855526, -0.015027705, -0.0064784307, -0.0025210644, -0.00059665367, -8.1282284e-05),
        *(-1.2022077e-05, -2.6514338e-06, -1.8801983e-07, 0.00047215103, 0.11286145),
        *(0.15780026, 0.16359672, 0.09973877, 0.028106604, -0.012265789),
    ),
    (
        *(0.0011028731, 0.0044528204, 0.0023601379, 0.0009758991, 0.00023672734, 3.2477616e-05),
        *(4.360228e-06, 5.954788e-07, 3.2636855e-08, 0.12998898, 0.096876316),
        *(0.04420621, -0.025528384, -0.063491434, -0.04639145, -0.019438485),
    ),
)
_ERF = (
    (
        *(1.9374745, 2.4374602, 2.937361, 3.437357, 3.993893, 0.0),
        *(0.0937526, 0.15624441, 0.24998507, 0.37500358, 0.49999404),
        *(0.6250325, 0.81250226, 1.0624638, 1.3125206, 1.5624712),
    ),
    (
        *(0.99385613, 0.99943334, 0.99996734, 0.9999988, 1.0, 0.0),
        *(0.10547935, 0.17487873, 0.27631056, 0.40412042, 0.52049464),
        *(0.6232657, 0.74946535, 0.86704504, 0.93657273, 0.9728718),
    ),
    (
        *(0.026435941, 0.0029663413, 0.00020200266, 8.3383875e-06, 1.3333508e-07, 0.12837917),
        *(1.1185046, 1.1011664, 1.060022, 0.9803502, 0.8787878),
        *(0.7634685, 0.58311105, 0.364931, 0.2015076, 0.09822113),
    ),
    (
        *(-0.051223014, -0.007225328, -0.0005917322, -2.5273219e-05, -1.8795731e-06, 4.94615e-07),
        *(-0.10486303, -0.172051, -0.2649898, -0.36763468, -0.4393884),
        *(-0.4771927, -0.47377717, -0.38772696, -0.26448518, -0.15346947),
    ),
    (
        *(0.05736286, 0.010758878, 0.0010926321, 6.2739084e-05, 1.3504215e-06, -0.37616622),
        *(-0.36614707, -0.3492639, -0.3091415, -0.23488615, -0.14646752),
        *(-0.05562614, 0.06225091, 0.15298513, 0.1642585, 0.12712066),
    ),
    (
        *(-0.038286865, -0.010962388, -0.0014909839, -0.00015954049, 1.1340653e-05, 0.001031675),
        *(0.05266631, 0.08438228, 0.12688734, 0.16636892, 0.18282089),
        *(0.17633642, 0.13223575, 0.048194166, -0.019154295, -0.047784243),
    ),
    (
        *(0.012114219, 0.0072495793, 0.0013826054, 0.00012437606, 4.3635782e-06, 0.10439936),
        *(0.012944478, 0.19894639, 0.0737422, 0.04758263, 0.007291349),
        *(-0.031242969, -0.06099186, -0.06599993, -0.039021812, -0.00822665),
    ),
)
"""For 16 intervals a number near the middle and the polynomial around it, lowest power first; they stand at the lowest bits of the
sum's exponent and the first two of its fraction. Middles were chosen so that results there are nearly floats; the first one is 0.
In the first interval the error function is |x| and the polynomial, which has more bits so."""
_ERF_SECOND = _ERF_START * 1.2
"""The sum from which on it is the second."""


def fits(x: Value) -> bool:
    """Whether a value is float32 in whole registers of AVX-512."""
    return fills(x) and x.type.bits == 32 and x.type.lanes <= 4 * LANES


def fills(x: Value) -> bool:
    """Whether a value takes whole registers of AVX-512: one, or a power of two."""
    target, bits = x.f.target, x.type.bits * x.type.lanes
    return target is not None and target.has_avx512 and bits >= REGISTER_BITS and bits & (bits - 1) == 0


# --- instructions


def in_registers(function: Callable[..., Value], *values: Value) -> Value:
    """A function of single registers for vectors of several."""
    f, lanes = values[0].f, values[0].type.lanes
    if lanes * values[0].type.bits == REGISTER_BITS:
        return function(*values)
    half = lanes // 2
    sides = [range(half), range(half, lanes)]
    low, high = (in_registers(function, *(f.shuffle(value, value, side) for value in values)) for side in sides)
    return f.shuffle(low, high, range(lanes))


def _call(name: str, first: Value, *operands: str) -> Value:
    """An instruction that gives what its first operand is."""
    types = ", ".join(operand.split(">")[0] + ">" if ">" in operand else operand.split()[0] for operand in operands)
    first.f.declare(f"declare {first.type} @llvm.x86.avx512.{name}.512({first.type}, {types})")
    return first.f.emit(first.type, f"call {first.type} @llvm.x86.avx512.{name}.512({first}, {', '.join(operands)})")


def looked_up(numbers: Sequence[float], indices: Value) -> Value:
    """Sixteen numbers at the lowest four bits of indices."""
    table = indices.f.constants(F32, numbers)
    return in_registers(lambda register: _call("permvar.sf", table, str(register)), indices)


def scaled(x: Value, n: Value) -> Value:
    """x·2^⌊n⌋ with one rounding, for any n: infinity and 0 where it is beyond all numbers."""
    name, mask = ("mask.scalef.ps", "i16 -1") if x.type.bits == 32 else ("mask.scalef.pd", "i8 -1")
    return in_registers(lambda register, power: _call(name, register, str(power), str(register), mask, "i32 4"), x, n)


def nearer_to_0(x: Value, y: Value) -> Value:
    """The smaller magnitude of two with the sign of x; of a number and NaN the number."""
    return in_registers(
        lambda register, other: _call("mask.range.ps", register, str(other), "i32 2", str(register), "i16 -1", "i32 4"), x, y
    )


def nearly_reciprocal(x: Value) -> Value:
    """1 / x to 14 bits."""
    return in_registers(lambda register: _call("rcp14.ps", register, str(register), "i16 -1"), x)


# --- functions


def exp(x: Value, *, precise: bool = False) -> Value:
    """e^x within 1.1 ulp, or within 0.6 ulp where it is normal."""
    f = x.f
    shifted, n = _sixteenths(f.fma(x, 1 / math.log(2), f.const(x.type, _SHIFTER)))
    r = f.fma(n, -_LN2, x)
    r = r + f.fma(n, -_LN2_REST, looked_up(_OFFSETS, shifted)) if precise else f.fma(n, -_LN2_REST, r)
    return _power(shifted, n, r)


def exp2(x: Value) -> Value:
    """2^x within 1.1 ulp."""
    with x.f.exact():
        shifted, n = _sixteenths(x + _SHIFTER)
        return _power(shifted, n, (x - n) * math.log(2))


def sigmoid(x: Value) -> Value:
    """e^x / (e^x + 1) within 1.5 ulp: an estimate of the quotient is corrected by what is left of e^x - quotient·(e^x + 1)."""
    f = x.f
    e = exp(f.minimum(20.0, x), precise=True)
    inverse = nearly_reciprocal(e + 1.0)
    quotient = e * inverse
    with f.exact():
        rest = e - quotient
    return f.fma(f.fma(-quotient, e, rest), inverse, quotient)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent within 1.3 ulp."""
    _, d, coefficients = _in_interval(x, _TANH_START, _TANH_END, _TANH)
    return nearer_to_0(x, _polynomial(d, coefficients))


def erf(x: Value) -> Value:
    """The error function within 1 ulp."""
    f = x.f
    place, d, (first, *others) = _in_interval(x, _ERF_START, _ERF_END, _ERF)
    return f.copysign(_polynomial(d, [f.select(place < _ERF_SECOND, d, first), *others]), x)


def _in_interval(x: Value, start: float, end: float, columns: Sequence[Sequence[float]]) -> tuple[Value, Value, list[Value]]:
    """The sum that tells the interval of |x|, how far |x| is from its middle, and the coefficients of the polynomial there."""
    f = x.f
    magnitude = f.minimum(end, f.abs(x))
    place = magnitude + start
    interval = f.bitcast(f.bitcast(place, U32.vector(x.type.lanes)) >> 21, I32.vector(x.type.lanes))
    middle, *coefficients = (looked_up(column, interval) for column in columns)
    return place, magnitude - middle, coefficients


def _polynomial(x: Value, coefficients: Sequence[Value]) -> Value:
    """Horner's scheme, from the lowest power on."""
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = x.f.fma(result, x, coefficient)
    return result


def _sixteenths(shifted: Value) -> tuple[Value, Value]:
    """The bits of a sum with the shifter, and what was added to that."""
    with shifted.f.exact():
        return shifted.f.bitcast(shifted, I32.vector(shifted.type.lanes)), shifted - _SHIFTER


def _power(shifted: Value, n: Value, r: Value) -> Value:
    """2^n·e^r. Where x was infinite or n has lost its low bits, r can be anything: it is limited, and n decides."""
    f = r.f
    r = nearer_to_0(r, f.const(r.type, _LIMIT))
    table = looked_up(_POWERS, shifted)
    terms = f.fma(f.fma(r, 1 / 6, f.const(r.type, 0.5)), r, f.const(r.type, 1.0))
    return scaled(f.fma(table * r, terms, table), n)
