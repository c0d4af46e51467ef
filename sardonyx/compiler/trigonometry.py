"""Circular functions and their inverses of vectors in generated code; `math` has the others and says what holds for all of them.

Sine, cosine and tangent of a float32 take their argument modulo a right angle in float64; `angles` does so for float64.
"""

from __future__ import annotations

import math

from sardonyx.compiler.angles import reduced_angle
from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import copysign, in_double, polynomial
from sardonyx.compiler.types import F64, I32, Type

_RIGHT_ANGLE = (1.5707963267341256, 6.077100506506192e-11)
"""π/2 in two parts, the first of 33 bits."""
_SHIFTER = 1.5 * 2.0**52
_NEAR = 2.0**20
"""Up to here the product of a count of right angles and their first part is exact."""

_TURNS = (
    ("0x1.45f306cp-1", "0x1.c9c882ap-29", "0x1.4fe13a8p-59", "0x1.f47d4d3p-86"),
    ("0x1.27220a9p+1", "0x1.3f84eaep-29", "0x1.a3ea69bp-57", "0x1.7036d8ap-86"),
    ("0x1.fc2757cp+0", "0x1.1f534ddp-28", "0x1.81b6c52p-57", "0x1.664f10ep-86"),
    ("0x1.f534ddcp+0", "0x1.b6c52ap-33", "0x1.3278872p-57", "0x1.07f945p-90"),
)
"""2/π times 2^(32k) modulo 4, for k from 0: parts of 29 bits, so that their products with a float32 are exact in float64."""

_SIN_SINGLE = (-0.000195108398, 0.00833213143, -0.166666538)
_COS_SINGLE = (2.4431205e-05, -0.0013887306, 0.0416666456)
_SIN_DOUBLE = (
    *(1.5915322383951738e-10, -2.5051092522774312e-08, 2.7557315912162048e-06),
    *(-0.00019841269836388283, 0.0083333333333307016, -0.16666666666666666),
)
_COS_DOUBLE = (
    *(-1.1372824643626679e-11, 2.0875970287737547e-09, -2.7557316122475268e-07),
    *(2.48015872954777e-05, -0.0013888888888883555, 0.04166666666666665),
)
"""(sin(r)/r - 1)/r² and (cos(r) - 1 + r²/2)/r⁴ in powers of r², for |r| up to π/4."""
_ATAN = (
    *(0.021247828604029441, -0.043582105508726023, 0.056922695425049803, -0.066410774705089354, 0.076900642583347584),
    *(-0.090907822034694122, 0.11111106648300841, -0.14285714195230809, 0.19999999999089865, -0.33333333333330162),
)
"""(atan(t)/t - 1)/t² in powers of t², for |t| up to tan(π/8)."""


def _reduced(x: Value) -> tuple[Value, Value]:
    """x of float32 as a count of right angles, modulo 4 (int32), and the rest in radians (float64)."""
    f = x.f
    wide = f.convert(x, F64)
    shifted = f.fma(wide, 2 / math.pi, f.const(wide.type, _SHIFTER))
    with f.exact():
        n = shifted - _SHIFTER
    high, low = _RIGHT_ANGLE
    quadrant = f.variable(f.convert(n, I32))
    rest = f.variable(f.fma(n, -low, f.fma(n, -high, wide)))
    far = f.abs(x) >= _NEAR
    with f.if_(f.any_lane(far)):
        other, more = _reduced_far(wide)
        quadrant.set(f.select(far, other, quadrant.get()))
        rest.set(f.select(far, more, rest.get()))
    return quadrant.get(), rest.get()


def _reduced_far(x: Value) -> tuple[Value, Value]:
    """The same for any magnitude: multiples of 4 are left out of x·2/π before they can cost precision."""
    f = x.f
    magnitude = f.abs(x)
    parts = [f.const(x.type, float.fromhex(text)) for text in _TURNS[0]]
    for k, texts in enumerate(_TURNS[1:], 1):
        beyond = magnitude >= 2.0 ** (24 + 32 * k)
        parts = [f.select(beyond, f.const(x.type, float.fromhex(text)), part) for text, part in zip(texts, parts)]
        x = f.select(beyond, x * 2.0**-32, x)
    with f.exact():
        first, second, third, fourth = (x * part for part in parts)
        first = first - f.round_even(first * 0.25) * 4.0
        second = second - f.round_even(second * 0.25) * 4.0
        counts = [f.round_even(first), f.round_even(second)]
        first, second = first - counts[0], second - counts[1]
        counts.append(f.round_even(first + second))
        fraction = (first - counts[2]) + second
        counts.append(f.round_even(fraction + third))
        fraction = (fraction - counts[3]) + third + fourth
        total = counts[0] + counts[1] + counts[2] + counts[3]
    return f.convert(total, I32), fraction * (math.pi / 2)


def _sin_cos(r: Value) -> tuple[Value, Value]:
    f = r.f
    double = r.type.bits == 64
    z = r * r
    sine = f.fma(r * z, polynomial(z, _SIN_DOUBLE if double else _SIN_SINGLE), r)
    cosine = f.fma(z * z, polynomial(z, _COS_DOUBLE if double else _COS_SINGLE), f.fma(z, -0.5, f.const(r.type, 1.0)))
    return sine, cosine


def sin(x: Value) -> Value:
    f = x.f
    quadrant, rest = _reduced_any(x)
    return f.select(f.abs(x) < (1e-8 if x.type.bits == 64 else 1e-4), x, _of_quadrant(quadrant, rest, x.type.scalar))


def cos(x: Value) -> Value:
    quadrant, rest = _reduced_any(x)
    return _of_quadrant(quadrant + 1, rest, x.type.scalar)


def _reduced_any(x: Value) -> tuple[Value, Value]:
    return reduced_angle(x) if x.type.bits == 64 else _reduced(x)


def _of_quadrant(quadrant: Value, rest: Value, type: Type) -> Value:
    """The sine at so many right angles and a rest."""
    f = rest.f
    sine, cosine = _sin_cos(f.convert(rest, type))
    found = f.select((quadrant & 1) == 0, sine, cosine)
    return f.select((quadrant & 2) == 0, found, -found)


def tan(x: Value) -> Value:
    f = x.f
    quadrant, rest = _reduced_any(x)
    sine, cosine = _sin_cos(rest)
    even = (quadrant & 1) == 0
    result = f.select(even, sine, -cosine) / f.select(even, cosine, sine)
    return f.select(f.abs(x) < (1e-8 if x.type.bits == 64 else 1e-4), x, f.convert(result, x.type.scalar))


@in_double
def atan(x: Value) -> Value:
    """The angle whose tangent is x: beyond 1 that of 1/x, beyond tan(π/8) that of (t-1)/(t+1)."""
    f = x.f
    magnitude = f.abs(x)
    inverted = magnitude > 1.0
    t = f.select(inverted, 1.0 / magnitude, magnitude)
    turned = t > math.tan(math.pi / 8)
    t = f.select(turned, (t - 1.0) / (t + 1.0), t)
    z = t * t
    angle = f.fma(t * z, polynomial(z, _ATAN), t)
    angle = f.select(turned, angle + math.pi / 4, angle)
    return copysign(f.select(inverted, math.pi / 2 - angle, angle), x)


@in_double
def asin(x: Value) -> Value:
    with x.f.exact():
        return atan(x / x.f.sqrt((1.0 - x) * (x + 1.0)))


@in_double
def acos(x: Value) -> Value:
    with x.f.exact():
        return atan(x.f.sqrt((1.0 - x) / (x + 1.0))) * 2.0
