"""Conversions of single elements between types."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.compiler.small_types import SMALL_INTEGERS, decoded, encoded
from sardonyx.compiler.types import F32, F64, I32, I64, U32
from sardonyx.ir import Node, TensorType
from sardonyx.providers.provider import element_type
from sardonyx.providers.scalars.table import scalar


def _is_of_numbers(node: Node) -> bool:
    """Whether code computes with both types: complex numbers are only moved."""
    types = [element_type(value) for value in (node.inputs[0], node.outputs[0]) if value is not None]
    return not any(dtype in dtypes.COMPLEX for dtype in types)


@scalar("Cast", since=6, claims=_is_of_numbers)
def cast(input, *, type, to, saturate=1, round_mode="up"):
    """As in C on x86, where it leaves floats beyond an integer's range undefined."""
    f = input.f
    if input.type.kind == "bits":
        input = decoded(input)
    if type.kind == "bits":
        return encoded(_before_rounding(input, type), type, saturate, round_mode)
    if type.is_integer and input.type.is_float:
        return whole(input, type)
    if type.is_narrow_float:
        narrowed = _to_odd(input) if input.type.bits == 64 and input.type.is_float and not type.brain else f.convert(input, F32)
        return f.rounded(narrowed, type)
    return f.convert(input, type)


def _before_rounding(x, type):
    """A number as it is encoded from: float32, int32 for small integers."""
    if type.format in SMALL_INTEGERS:
        return x.f.convert(x, I32)
    return _to_odd(x) if x.type.is_float and x.type.bits == 64 else x.f.convert(x, F32)


def whole(x, type):
    """A float as an integer, as C casts it on x86: types of up to 16 bits are cut from 32, uint32 from 64, uint64 is made of two halves."""
    f = x.f
    if type.bits < 32 or type == U32:
        return f.convert(_signed(x, I64 if type == U32 else I32), type)
    if type.is_signed:
        return _signed(x, type)
    half = 2**63
    upper = x >= float(half)
    below = _signed(f.select(upper, x - float(half), x), I64)
    return f.bitcast(f.select(upper, below ^ -half, below), type.vector(x.type.lanes))


def _signed(x, type):
    """A float as int32 or int64. NaN and what does not fit become the least number: LLVM leaves them open, and folds constants otherwise
    than CPUs convert them.
    """
    least = -(2.0 ** (type.bits - 1))
    return x.f.convert(x.f.select(x.f.abs(x) < -least, x, least), type)


def _to_odd(x):
    """A float64 as a float32 that rounds to what the float64 itself would: toward zero, the last bit set if anything was lost."""
    f = x.f
    words = U32.vector(x.type.lanes)
    near = f.convert(x, F32)
    back = f.convert(near, F64)
    bits = f.bitcast(near, words)
    bits = f.select(f.abs(back) > f.abs(x), bits - 1, bits)
    lost = (back != x) & ~f.is_nan(x)
    return f.bitcast(f.select(lost, bits | 1, f.bitcast(near, words)), F32.vector(x.type.lanes))


def _is_one_element(node: Node) -> bool:
    """Whether the operand that only names a type can be read along with any other."""
    like = node.inputs[1]
    shape = like.type.shape if like is not None and isinstance(like.type, TensorType) else None
    return shape is not None and all(size == 1 for size in shape)


@scalar("CastLike", claims=_is_one_element)
def cast_like(input, target_type, *, type, saturate=1, round_mode="up"):
    return cast(input, type=type, to=0, saturate=saturate, round_mode=round_mode)
