"""Numbers of eight bits and fewer, a byte each in memory: what their bits are as float32 or int32, and which bits a number becomes.

Conversions of element types call this. What the standard leaves open is as `ml_dtypes` has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, I32, Type
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class SmallFloat:
    """The fields of a float below its sign."""

    exponent: int
    """How many bits."""
    fraction: int
    bias: int
    largest: int
    """The code of the largest finite number."""
    infinity: int | None = None
    """The code of what is beyond; of types without infinity that of NaN, None where all numbers are finite."""
    nan: int | None = None

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.fraction)

    @property
    def has_negative_zero(self) -> bool:
        """Whether its code is not that of NaN."""
        return self.nan != self.sign

    @property
    def limit(self) -> float:
        """The largest finite number."""
        exponent, fraction = divmod(self.largest, 1 << self.fraction)
        return math.ldexp(1 + fraction / (1 << self.fraction), exponent - self.bias)


SMALL_FLOATS = {
    "float8e4m3fn": SmallFloat(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8e4m3fnuz": SmallFloat(4, 3, 8, 0x7F, 0x80, 0x80),
    "float8e5m2": SmallFloat(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8e5m2fnuz": SmallFloat(5, 2, 16, 0x7F, 0x80, 0x80),
    "float6e2m3": SmallFloat(2, 3, 1, 0x1F),
    "float6e3m2": SmallFloat(3, 2, 3, 0x1F),
    "float4e2m1": SmallFloat(2, 1, 1, 0x7),
}
SMALL_INTEGERS = {"int4": (4, True), "uint4": (4, False), "int2": (2, True), "uint2": (2, False)}
"""How many bits, and whether the first of them is a sign."""
POWERS = "float8e8m0"
"""The exponent of a power of two alone; 255 is NaN."""


def can_decode(type: Type) -> bool:
    """Whether bits stand for a number."""
    return type.format in SMALL_FLOATS or type.format in SMALL_INTEGERS or type.format == POWERS


def decoded(x: Value) -> Value:
    """The number that bits stand for: float32, or int32 for integers."""
    f, format = x.f, x.type.format
    word = Type("uint", 32, x.type.lanes)
    bits = f.emit(word, f"zext {x} to {word}")
    if format in SMALL_INTEGERS:
        return _integer(bits, *SMALL_INTEGERS[format])
    if format == POWERS:
        number = f.bitcast(f.select(bits == 0, f.const(word, 0x00400000), bits << 23), F32.vector(x.type.lanes))
        return f.select(bits == 255, math.nan, number)
    return _float(bits, SMALL_FLOATS[format])


def _integer(bits: Value, count: int, is_signed: bool) -> Value:
    f = bits.f
    if is_signed:
        signed = f.bitcast(bits << (32 - count), I32.vector(bits.type.lanes))
        return signed >> (32 - count)
    return f.bitcast(bits & ((1 << count) - 1), I32.vector(bits.type.lanes))


def _float(bits: Value, format: SmallFloat) -> Value:
    """Exponent and fraction moved into float32's place, then scaled: denormals come out right."""
    f, single = bits.f, F32.vector(bits.type.lanes)
    magnitude = bits & (format.sign - 1)
    number = f.bitcast(magnitude << (23 - format.fraction), single) * 2.0 ** (127 - format.bias)
    if format.infinity is not None and format.infinity != format.nan:
        number = f.select(magnitude == format.infinity, math.inf, number)
        number = f.select(magnitude > format.infinity, math.nan, number)
    elif format.nan is not None and format.has_negative_zero:
        number = f.select(magnitude == format.nan, math.nan, number)
    sign = (bits & format.sign) << (31 - format.exponent - format.fraction)
    number = f.bitcast(f.bitcast(number, Type("uint", 32, bits.type.lanes)) | sign, single)
    return number if format.has_negative_zero else f.select((bits & (2 * format.sign - 1)) == format.sign, math.nan, number)


def encoded(x: Value, type: Type, saturate: int = 1, round_mode: str = "up") -> Value:
    """The bits of a float32, or for integers of an int32."""
    if type.format in SMALL_INTEGERS:
        bits = x & ((1 << SMALL_INTEGERS[type.format][0]) - 1)
    elif type.format == POWERS:
        bits = _power(x, saturate, round_mode)
    else:
        bits = _float_bits(x, SMALL_FLOATS[type.format], saturate)
    out = type.vector(x.type.lanes)
    return x.f.emit(out, f"trunc {bits} to {out}")


def _float_bits(x: Value, format: SmallFloat, saturate: int) -> Value:
    """Rounded to nearest, ties to even."""
    f, word = x.f, Type("uint", 32, x.type.lanes)
    is_nan, sign = f.is_nan(x), (f.bitcast(x, word) >> 31) << (format.exponent + format.fraction)
    bits = f.bitcast(f.abs(x), word)
    shift = 23 - format.fraction
    rest = bits - ((127 - format.bias) << 23)
    normal = (rest + ((1 << (shift - 1)) - 1) + ((bits >> shift) & 1)) >> shift
    # below the normal range: added to a float whose last bit is the smallest number, the rounded fraction is in the low bits
    large = 2.0 ** (24 - format.bias - format.fraction)
    with f.exact():
        small = f.bitcast(f.bitcast(bits, x.type) + large, word) - f.bitcast(f.const(x.type, large), word)
    code = f.select(bits < ((128 - format.bias) << 23), small, normal)
    beyond = format.largest if saturate or format.infinity is None else format.infinity
    overflows = (bits >= 0x7F800000) | ((bits >= ((128 - format.bias) << 23)) & (normal > format.largest))
    code = f.select(overflows, f.const(word, beyond), code)
    if not format.has_negative_zero:
        signed = f.select((code == 0) | (code == format.sign), code, code | sign)
    else:
        signed = code | sign
    # where there is no NaN, it is a zero
    return f.select(is_nan, f.const(word, format.sign if format.nan is None else format.nan), signed)


def _power(x: Value, saturate: int, round_mode: str) -> Value:
    """The exponent of the next power of two; zero and negative numbers lie below the smallest."""
    f, word = x.f, Type("uint", 32, x.type.lanes)
    # the smallest power is a denormal: all are computed as if a hundred times as high
    wide = f.bitcast(x * 2.0**23, word)
    is_small = f.abs(x) < 2.0**-100
    bits = f.select(is_small, wide, f.bitcast(x, word))
    above = _rounds_up[round_mode](bits & 0x7FFFFF)
    exponent = f.bitcast(bits >> 23, I32.vector(x.type.lanes)) + f.convert(above, I32)
    exponent = f.select(is_small, exponent - 23, exponent)
    none = f.const(exponent.type, -1)
    code = f.select(x > 0.0, f.select(x == math.inf, f.const(exponent.type, 255), exponent), none)
    if saturate:
        code = f.minimum(f.maximum(code, 0), 254)
    else:
        code = f.select((code < 0) | (code > 254), f.const(exponent.type, 255), code)
    return f.bitcast(f.select(f.is_nan(x), f.const(exponent.type, 255), code), word)


_rounds_up: dict[str, Callable[[Value], Value]] = {
    "up": lambda fraction: fraction != 0,
    "down": lambda fraction: fraction.f.const(Type("bool", 1, fraction.type.lanes), False),
    "nearest": lambda fraction: fraction >= 0x400000,
}
