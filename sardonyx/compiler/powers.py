"""Powers of vectors in generated code. Those of float64 need more digits on the way than a float64 has.

A pair of floats is a number: their sum, of which the second is the rounded-off rest.
"""

from __future__ import annotations

import math

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import copysign, exp, exponent_and_fraction, log, polynomial
from sardonyx.compiler.types import F32, F64

Pair = tuple[Value, Value]


def pow(x: Value, y: Value) -> Value:
    """x to the power of y, as C has it at all edges."""
    f = x.f
    if x.type.bits == 64:
        result = _magnitude(f.abs(x), y)
    else:
        base, exponent = f.convert(f.abs(x), F64), f.convert(y, F64)
        result = f.convert(exp(log(base) * exponent), F32)
    whole = f.trunc(y) == y
    halved = y * 0.5
    odd = whole & (f.trunc(halved) != halved)
    result = f.select(odd, copysign(result, x), result)
    undefined = (x < 0.0) & (x != -math.inf) & ~whole
    result = f.select(undefined, f.const(x.type, math.nan), result)
    one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (f.abs(y) == math.inf))
    return f.select(one, f.const(x.type, 1.0), result)


def integer_power(x: Value, y: Value) -> Value:
    """x to the power of y (int64) in integers, which wraps; what a negative exponent gives is cut off."""
    f = x.f
    result, base, exponent = f.variable(f.const(x.type, 1)), f.variable(x), f.variable(f.maximum(y, 0))
    with f.while_() as more:
        left = exponent.get()
        more.leave_if(~f.any_lane(left != 0))
        factor = base.get()
        result.set(f.select((left & 1) != 0, result.get() * factor, result.get()))
        base.set(factor * factor)
        exponent.set(left >> 1)
    least = f.const(x.type, -(2 ** (x.type.bits - 1)))  # what an infinite float becomes
    is_one = (x == 1) | ((x == -1) & ((y & 1) == 0))
    cut = f.select(is_one, f.const(x.type, 1), f.select(x == -1, f.const(x.type, -1), f.const(x.type, 0)))
    cut = f.select(x == 0, least, cut)
    return f.select(y < 0, cut, result.get())


# --- float64


def _product(a: Value, b: Value) -> Pair:
    """a·b, exactly: by halves of 26 bits, for not all CPUs multiply and add in one rounding."""
    with a.f.exact():
        whole = a * b
        (a1, a2), (b1, b2) = _halves(a), _halves(b)
        return whole, ((a1 * b1 - whole) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(a: Value) -> Pair:
    far = a * float(2**27 + 1)
    high = far - (far - a)
    return high, a - high


def _sum(a: Value, b: Value) -> Pair:
    """a + b, exactly, where a is not the smaller one."""
    with a.f.exact():
        whole = a + b
        return whole, b - (whole - a)


_SERIES = tuple(2 / (2 * k + 5) for k in reversed(range(13)))
"""((log((1+s)/(1-s)) / s - 2) / s² - 2/3) / s², in powers of s²."""
_TWO_THIRDS = (2 / 3, 2 / 3 / 2**54)
"""As a pair. The bits of 2/3 repeat, so what is left is the number itself, 54 places further right."""
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)


def _log(x: Value) -> Pair:
    """The logarithm of a positive number, to about 100 bits: from s = f / (2 + f) where x = 2^e·(1 + f)."""
    f = x.f
    e, fraction = exponent_and_fraction(x)
    with f.exact():
        below = fraction + 2.0
        s = fraction / below
        product, rest = _product(s, below)
        s_low = (((fraction - product) - rest) - s * (fraction - (below - 2.0))) / below
        z, z_low = _product(s, s)
        z_low = z_low + s * s_low * 2.0
    small = polynomial(z, _SERIES) * z
    with f.exact():
        p = small + _TWO_THIRDS[0]
        p_low = small - (p - _TWO_THIRDS[0]) + _TWO_THIRDS[1]
        u, u_low = _product(z, p)
        u_low = u_low + (z * p_low + z_low * p)
        v, v_low = _product(s, u)
        v_low = v_low + (s * u_low + s_low * u)
        near, near_low = _sum(s * 2.0, v)
        total, rest = _sum(e * _LN2[0], near)
        # without an exponent the logarithm of 1 + f is all there is
        total, rest = f.select(e == 0.0, near, total), f.select(e == 0.0, 0.0, rest)
        return _sum(total, rest + (near_low + s_low * 2.0 + v_low) + e * _LN2[1])


def _magnitude(x: Value, y: Value) -> Value:
    """x to the power of y for x ≥ 0; NaN where one of them is."""
    f = x.f
    is_ordinary = (x > 0.0) & (x < math.inf)
    high, low = _log(f.select(is_ordinary, x, 1.0))
    # beyond this every power but that of 1 is 0 or infinite
    bounded = f.maximum(-(2.0**70), f.minimum(2.0**70, y))
    product, rest = _product(bounded, high)
    with f.exact():
        rest = rest + bounded * low
    power = exp(product)
    found = f.select(power < math.inf, power + power * rest, power)
    edge = f.select((x == 0.0) == (y > 0.0), f.const(x.type, 0.0), math.inf)
    return f.select(f.unordered(x, y), math.nan, f.select(is_ordinary, found, edge))
