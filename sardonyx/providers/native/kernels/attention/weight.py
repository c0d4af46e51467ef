"""The exponential of softmax in attention kernels: quicker than the general one, and good enough for weights."""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import LOG2_E, exp, polynomial
from sardonyx.compiler.types import U32

_POWER_NEAR = (0.001326472731307149, 0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653, 1.0)
"""2^r for |r| up to 1/2, within 1e-7, and 1 at 0."""
_POWER_ABOVE = (0.0018775766948238015, 0.008989340625703335, 0.05582631751894951, 0.24015361070632935, 0.6931530833244324, 1.0)
"""2^r for r from 0 to 1, within 2e-7."""
_SHIFTER = 1.5 * 2.0**23
"""Added to a small float32, it leaves the nearest integer in the low bits of the sum."""


def weight(x: Value) -> Value:
    """e^x for a score less the largest one: x is not above 0. It need not be right where it is too small to count beside 1."""
    f = x.f
    if x.type.bits == 64:
        return exp(x)
    power = x * LOG2_E
    if f.target is not None and f.target.has_avx512 and x.type.lanes == 16:
        return _power_of_two(power)
    # the bits of 2^-127 are those of 0; a product, unlike a sum of bits, keeps any NaN
    power = f.maximum(-127.0, power)
    with f.exact():
        shifted = power + _SHIFTER
        rest = power - (shifted - _SHIFTER)
    bits = (f.bitcast(shifted, U32.vector(x.type.lanes)) << 23) + (127 << 23)
    return polynomial(rest, _POWER_NEAR) * f.bitcast(bits, x.type)


def _power_of_two(x: Value) -> Value:
    """2^x with two instructions of AVX-512, what is left above a whole number and scaling by one, right at -inf too."""
    f, wide = x.f, x.type
    reduce, scale = "llvm.x86.avx512.mask.reduce.ps.512", "llvm.x86.avx512.mask.scalef.ps.512"
    f.declare(f"declare {wide} @{reduce}({wide}, i32, {wide}, i16, i32)")
    f.declare(f"declare {wide} @{scale}({wide}, {wide}, {wide}, i16, i32)")
    rest = f.emit(wide, f"call {wide} @{reduce}({x}, i32 9, {x}, i16 -1, i32 4)")
    power = polynomial(rest, _POWER_ABOVE)
    return f.emit(wide, f"call {wide} @{scale}({power}, {x}, {power}, i16 -1, i32 4)")
