"""Angles of float64 modulo a right angle, for sines, cosines and tangents. `trigonometry` calls it."""

from __future__ import annotations

import functools
import itertools
import math

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import small_to_double
from sardonyx.compiler.types import I32, I64, U64

_BITS = 1280
"""Of 2/π: as many as the largest float64 needs."""
_WORDS = _BITS // 64
_NEAR = 2.0**20


@functools.cache
def _pi(bits: int) -> int:
    """π times a power of two, by Machin's formula."""

    def arctangent_of_inverse(number: int) -> int:
        total = term = (1 << (bits + 16)) // number
        square, n, sign = number * number, 3, -1
        while term:
            term //= square
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    return (16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)) >> 16


@functools.cache
def _right_angle() -> tuple[float, float, float]:
    """π/2 in three parts, the first two of 33 bits."""
    from fractions import Fraction  # few kernels are compiled that have angles

    rest, parts = Fraction(_pi(256), 1 << 257), []
    for _ in range(2):
        scale = Fraction(2) ** (33 - math.frexp(float(rest))[1])
        parts.append(float(Fraction(math.floor(rest * scale)) / scale))
        rest -= Fraction(parts[-1])
    return parts[0], parts[1], float(rest)


@functools.cache
def _inverse_words() -> tuple[int, ...]:
    """64 zeros and then the bits of 2/π behind the point, in words."""
    bits = (2 << (2 * _BITS)) // _pi(_BITS)
    kept = bits >> 64
    return tuple((kept >> (64 * (_WORDS - 1 - number))) & (2**64 - 1) for number in range(_WORDS))


def reduced_angle(x: Value) -> tuple[Value, Value]:
    """x as a count of right angles, modulo 4 (int32), and the rest in radians."""
    f = x.f
    high, middle, low = _right_angle()
    with f.exact():
        near = f.select(f.abs(x) < _NEAR, x, 0.0)
        n = f.round_even(near * (2 / math.pi))
        start, part = near - n * high, n * middle
        rest = start - part
        rest = rest + (((start - rest) - part) - n * low)
    quadrant, angle = f.variable(f.convert(n, I32)), f.variable(rest)
    far = f.abs(x) >= _NEAR
    with f.if_(f.any_lane(far)):
        other, more = _reduced_far(x)
        quadrant.set(f.select(far, other, quadrant.get()))
        angle.set(f.select(far, more, angle.get()))
    return quadrant.get(), f.select(f.abs(x) < math.inf, angle.get(), math.nan)


def _reduced_far(x: Value) -> tuple[Value, Value]:
    """The same for any magnitude, in integers: those bits of 2/π are taken whose product with x is below 4."""
    f = x.f
    words = U64.vector(x.type.lanes)
    bits = f.bitcast(x, words)
    mantissa = (bits & (2**52 - 1)) | 2**52
    start = ((bits >> 52) & 2047) - (1075 - 62)
    first, second, third = _window(start)
    low, high = second * mantissa, _high_product(second, mantissa)
    middle = low + _high_product(third, mantissa)
    top = first * mantissa + high + f.convert(middle < low, U64)
    fraction, rest = (top << 2) | (middle >> 62), middle << 2
    is_upper = (fraction >> 63) != 0
    quadrant = f.convert(top >> 62, I32) + f.convert(is_upper, I32)
    signed = f.bitcast(fraction, I64.vector(x.type.lanes))
    with f.exact():
        turns = small_to_double(signed >> 32) * 2.0**-32 + (_low_half(fraction) * 2.0**-64 + _low_half(rest >> 32) * 2.0**-96)
    is_negative = x < 0.0
    angle = turns * (math.pi / 2)
    return f.select(is_negative, -quadrant, quadrant), f.select(is_negative, -angle, angle)


def _low_half(word: Value) -> Value:
    f = word.f
    return small_to_double(f.bitcast(word & (2**32 - 1), I64.vector(word.type.lanes)))


def _window(start: Value) -> tuple[Value, Value, Value]:
    """192 bits of the words from a bit on."""
    f = start.f
    number, shift = start >> 6, start & 63
    words = _inverse_words()
    found = []
    for offset in range(4):
        word = f.const(start.type, _signed(words[min(offset, _WORDS - 1)]))
        for index in range(1, _WORDS - offset):
            word = f.select(number == index, f.const(start.type, _signed(words[index + offset])), word)
        found.append(word)
    first, second, third = ((a << shift) | ((b >> 1) >> (63 - shift)) for a, b in itertools.pairwise(found))
    return first, second, third


def _signed(word: int) -> int:
    """As LLVM writes a word."""
    return word - 2**64 if word >= 2**63 else word


def _high_product(a: Value, b: Value) -> Value:
    """The upper 64 bits of the product of two words."""
    low = 2**32 - 1
    a0, a1, b0, b1 = a & low, a >> 32, b & low, b >> 32
    first = a0 * b0
    second = a1 * b0 + (first >> 32)
    third = a0 * b1 + (second & low)
    return a1 * b1 + (second >> 32) + (third >> 32)
