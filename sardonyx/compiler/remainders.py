"""Remainders of floats in generated code, exactly: by long division of the fractions as integers."""

from __future__ import annotations

import math

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import copysign
from sardonyx.compiler.types import I64, U32, U64, Type

_FRACTION = {32: 23, 64: 52}


def fmod(a: Value, b: Value) -> Value:
    """The remainder with the dividend's sign, as C has it."""
    f, bits = a.f, a.type.bits
    fraction = _FRACTION[bits]
    (top, first), (bottom, second) = _parts(a, fraction), _parts(b, fraction)
    divisor = f.select(second == 0, f.const(second.type, 1), second)
    difference = f.variable(f.maximum(top - bottom, 0))
    rest = f.variable(first % divisor)
    step = 63 - fraction
    with f.while_() as more:
        left = difference.get()
        more.leave_if(~f.any_lane(left > 0))
        shift = f.minimum(left, step)
        rest.set((rest.get() << f.bitcast(shift, rest.get().type)) % divisor)
        difference.set(left - shift)
    # an integer below 2^53 times a power of two, as there are such floats
    number = f.convert(f.bitcast(rest.get(), I64.vector(a.type.lanes)), Type("float", bits)) * 2.0**-fraction
    word = (U64 if bits == 64 else U32).vector(a.type.lanes)
    scale = f.bitcast(f.convert(bottom, word.scalar) << fraction, a.type)
    found = f.select(f.abs(a) < f.abs(b), f.abs(a), number * scale)
    undefined = f.unordered(a, b) | (f.abs(a) == math.inf) | (b == 0.0)
    return copysign(f.select(undefined, math.nan, found), a)


def _parts(x: Value, fraction: int) -> tuple[Value, Value]:
    """The exponent, at least 1, and the fraction with its leading one, of a float's magnitude."""
    f, lanes = x.f, x.type.lanes
    word = (U64 if x.type.bits == 64 else U32).vector(lanes)
    bits = f.convert(f.bitcast(f.abs(x), word), U64)
    exponent = bits >> fraction
    whole = (bits & (2**fraction - 1)) | f.select(exponent == 0, f.const(bits.type, 0), f.const(bits.type, 2**fraction))
    return f.bitcast(f.maximum(exponent, 1), I64.vector(lanes)), whole


def modulo(a: Value, b: Value) -> Value:
    """The remainder with the divisor's sign, as Python has it."""
    f = a.f
    rest = fmod(a, b)
    moved = f.select((rest < 0.0) == (b < 0.0), rest, rest + b)
    return f.select(rest == 0.0, copysign(f.const(a.type, 0.0), b), f.select(f.is_nan(rest), rest, moved))
