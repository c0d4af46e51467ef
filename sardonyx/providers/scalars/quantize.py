"""Quantization, dequantization and quantized arithmetic on single elements. Kernels of integer products end with `requantize`.

Real numbers are divided by their scale, rounded to the nearest whole number, ties to the even one, shifted by the zero point and kept
within the type's range; NaN becomes the least number.
"""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import sigmoid
from sardonyx.compiler.small_types import SMALL_FLOATS, SMALL_INTEGERS, can_decode, decoded
from sardonyx.compiler.types import BF16, F16, F32, I32, Type
from sardonyx.dtypes import ElementType
from sardonyx.ir import Node, TensorType
from sardonyx.ops.reading import operand
from sardonyx.providers.scalars.activation import leaky_relu
from sardonyx.providers.scalars.table import SINGLES, scalar, unlisted

CONTRIB = "com.microsoft"
BYTES = frozenset({dtypes.int8, dtypes.uint8})
SMALL = BYTES | {dtypes.int16, dtypes.uint16}
"""What reals are quantized to."""
FEW_BITS = frozenset(getattr(dtypes, name) for name in (*SMALL_INTEGERS, *SMALL_FLOATS))
"""What weights may be besides, a byte each in memory."""
DEQUANTIZED = SMALL | {dtypes.int32} | FEW_BITS


def limits(type: Type) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    return (-(1 << type.bits - 1), (1 << type.bits - 1) - 1) if type.is_signed else (0, (1 << type.bits) - 1)


class Codes(Value):
    """Whole numbers of few bits that were just computed in 32: who widens them takes those."""

    __slots__ = ("whole",)

    def __init__(self, narrow: Value, whole: Value):
        super().__init__(narrow.f, narrow.type, narrow.ref)
        self.whole = whole


FAR = 2**30
"""Beyond the range of every type; 32 bits hold it shifted by a zero point, too."""


def saturated(values: Value, zero_point: Value | None, type: Type, *, is_near: bool = False) -> Value:
    """Quotients as whole numbers of a type, shifted after they are rounded. With `is_near` all of them are nearer than `FAR`."""
    f = values.f
    shift = f.const(I32.vector(values.type.lanes), 0)
    if zero_point is not None:
        shift = f.splat(f.convert(zero_point, I32), values.type.lanes)
    low, high = limits(type)
    if not f.saturates:
        # clipped before it is shifted: what is beyond 32 bits is beyond the type's range too
        least, most = (f.convert(end - shift, F32) for end in (low, high))
        whole = f.nearest(f.minimum(most, f.maximum(values, least))) + shift
        return Codes(f.convert(whole, type), whole)
    rounded = f.nearest(values if is_near else f.minimum(float(FAR), values))
    # NaN and what is far below are the least number of 32 bits now, which must not wrap
    shifted = (f.maximum(rounded, -FAR) if type.is_signed and not is_near else rounded) + shift
    whole = f.minimum(f.maximum(rounded, low - shift), high - shift) + shift
    return Codes(f.convert(f.minimum(f.maximum(shifted, low), high), type), whole)


def centered(values, zero_point):
    """Numbers less their zero point, in 32 bits."""
    return _wide(values) if zero_point is None else _wide(values) - _wide(zero_point)


def _wide(values):
    """Numbers in 32 bits: int32, or float32 for floats of few bits."""
    if isinstance(values, Codes):
        return values.whole
    return decoded(values) if can_decode(values.type) else values.f.convert(values, I32)


def real(values, scale, zero_point):
    """What quantized numbers stand for."""
    return values.f.convert(centered(values, zero_point), F32) * scale


# --- the standard's ops


def _dtype(node: Node, number: int) -> ElementType | None:
    value = node.inputs[number] if number < len(node.inputs) else None
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def _rank(node: Node, number: int) -> int | None:
    value = node.inputs[number] if number < len(node.inputs) else None
    shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else ()
    return None if shape is None else len(shape)


def _is_one(node: Node, number: int) -> bool:
    """Whether a scale or zero point is absent, or one number for all."""
    value = node.inputs[number] if number < len(node.inputs) else None
    return value is None or (isinstance(value.type, TensorType) and value.type.shape in ((), (1,)))


def axes_behind(node: Node, number: int) -> int:
    """How many axes stand behind that along which there is one scale, or zero point, for each index."""
    if number == 0 or _is_one(node, number):
        return 0
    rank, axis = _rank(node, 0), operand(node, "axis")
    assert rank is not None
    return rank - 1 - int(axis) % rank


def _is_spread(node: Node) -> bool:
    """Whether scales and zero points are one for all, or one for each index of an axis that there is."""
    rank, axis = _rank(node, 0), operand(node, "axis")
    if rank is None:
        return False
    for number in (1, 2):
        if not _is_one(node, number):
            along = axis is not None and -rank <= int(axis) < rank and not operand(node, "block_size")
            if _rank(node, number) != 1 or not along:
                return False
    return True


def _has_zero_point_like(node: Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None or _dtype(node, 2) is _output_dtype(node)


def _output_dtype(node: Node) -> ElementType | None:
    type = node.outputs[0].type
    return type.dtype if isinstance(type, TensorType) else None


def quantizes_singly(node: Node) -> bool:
    """Whether quotients are computed in float32, to numbers that generated code holds."""
    working = operand(node, "precision") or 0
    fits = _dtype(node, 1) is dtypes.float32 and working in (0, dtypes.float32.code)
    return fits and _output_dtype(node) in SMALL and _has_zero_point_like(node)


@scalar(
    "QuantizeLinear",
    types=SINGLES | {dtypes.int32},
    claims=lambda node: quantizes_singly(node) and _is_spread(node),
    trailing=axes_behind,
    varies=True,
)
@scalar(
    "QuantizeLinear",
    domain=CONTRIB,
    types=SINGLES | {dtypes.int32},
    claims=lambda node: quantizes_singly(node) and _is_spread(node),
    trailing=axes_behind,
    varies=True,
)
def quantize_linear(
    x, y_scale, y_zero_point=None, *, type, axis=1, saturate=1, block_size=0, output_dtype=0, precision=0
):  # fmt: skip
    return saturated(x.f.convert(x, F32) / y_scale, y_zero_point, type)


def _quantizes_in(dtype: ElementType):
    """Whether quotients are rounded to a type of 16 bits before they are rounded to whole numbers."""

    def claims(node: Node) -> bool:
        working = operand(node, "precision") or 0
        fits = _dtype(node, 0) is _dtype(node, 1) is dtype and working in (0, dtype.code)
        return fits and _output_dtype(node) in SMALL and _has_zero_point_like(node) and _is_spread(node)

    return claims


@scalar(
    "QuantizeLinear",
    domain=CONTRIB,
    types={dtypes.float16},
    claims=_quantizes_in(dtypes.float16),
    trailing=axes_behind,
    varies=True,
    case="the scale is float16",
)
@scalar(
    "QuantizeLinear",
    types={dtypes.float16},
    claims=_quantizes_in(dtypes.float16),
    trailing=axes_behind,
    varies=True,
    case="the scale is float16",
)
def quantize_half(x, y_scale, y_zero_point=None, *, type, axis=1, saturate=1, block_size=0, output_dtype=0, precision=0):
    return saturated(x.f.rounded(x / y_scale, F16), y_zero_point, type)


@scalar(
    "QuantizeLinear",
    types={dtypes.bfloat16},
    claims=_quantizes_in(dtypes.bfloat16),
    trailing=axes_behind,
    varies=True,
    case="the scale is bfloat16",
)
def quantize_brain(x, y_scale, y_zero_point=None, *, type, axis=1, saturate=1, block_size=0, output_dtype=0, precision=0):
    return saturated(x.f.rounded(x / y_scale, BF16), y_zero_point, type)


def dequantizes(node: Node) -> bool:
    dtype = _dtype(node, 0)
    is_single = _dtype(node, 1) in SINGLES and _output_dtype(node) in SINGLES
    return is_single and dtype in DEQUANTIZED and _dtype(node, 2) in (None, dtype)


@scalar(
    "DequantizeLinear",
    types=DEQUANTIZED,
    claims=lambda node: dequantizes(node) and _is_spread(node),
    trailing=axes_behind,
    varies=True,
)
@scalar(
    "DequantizeLinear",
    domain=CONTRIB,
    types=DEQUANTIZED,
    claims=lambda node: dequantizes(node) and _is_spread(node),
    trailing=axes_behind,
    varies=True,
)
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    return real(x, x_scale, x_zero_point)


# --- arithmetic of com.microsoft


def _of_bytes(*tensors: int, condition: int | None = None):
    """Whether some operands are tensors of one 8-bit type, and all others but a condition are one scale or zero point."""

    def claims(node: Node) -> bool:
        dtype = _dtype(node, tensors[0])
        others = [number for number in range(len(node.inputs)) if number not in (*tensors, condition)]
        same = all(_dtype(node, number) is dtype for number in tensors) and _output_dtype(node) is dtype
        return dtype in BYTES and same and all(_is_one(node, number) for number in others)

    return claims


def _shifted(values: Value, scale: Value, zero_point: Value | None, type: Type) -> Value:
    """values / scale + zero point, rounded as a whole: with an odd zero point ties fall otherwise than in QuantizeLinear."""
    quotient = values / scale
    if zero_point is not None:
        f = quotient.f
        # to subtract a 0 of the code is nothing to do; to add it is, as it makes 0 of -0
        quotient = quotient - f.convert(-f.convert(zero_point, I32), F32)
    return saturated(quotient, None, type)


@scalar("QLinearAdd", domain=CONTRIB, claims=_of_bytes(0, 3), varies=True)
def q_linear_add(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None, *, type):
    with A.f.exact():
        return _shifted(real(A, A_scale, A_zero_point) + real(B, B_scale, B_zero_point), C_scale, C_zero_point, type)


@scalar("QLinearMul", domain=CONTRIB, claims=_of_bytes(0, 3), varies=True)
def q_linear_mul(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None, *, type):
    f = A.f
    with f.exact():
        product = f.convert(centered(A, A_zero_point), F32) * f.convert(centered(B, B_zero_point), F32)
        return _shifted(product * (A_scale * B_scale), C_scale, C_zero_point, type)


@scalar("QLinearSigmoid", domain=CONTRIB, claims=_of_bytes(0), varies=True)
def q_linear_sigmoid(X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None, *, type):
    return saturated(sigmoid(real(X, X_scale, X_zero_point)) / Y_scale, Y_zero_point, type)


@scalar("QLinearLeakyRelu", domain=CONTRIB, claims=_of_bytes(0), varies=True)
def q_linear_leaky_relu(X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None, *, type, alpha=0.01):
    return saturated(leaky_relu(real(X, X_scale, X_zero_point), alpha=alpha) / Y_scale, Y_zero_point, type)


@scalar("QLinearWhere", domain=CONTRIB, claims=_of_bytes(1, 4, condition=0), varies=True)
def q_linear_where(
    condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point, *, type
):  # fmt: skip
    f = X.f
    first, second = real(X, x_scale, x_zero_point), real(Y, y_scale, y_zero_point)
    return saturated(f.select(condition, first, second) / z_scale, z_zero_point, type)


# --- what kernels of integer products do with their sums


@unlisted
def requantize(total, ratio, zero_point, *, type, is_near=False):
    """Sums of products of whole numbers, as those of another scale."""
    return saturated(total.f.convert(total, F32) * ratio, zero_point, type, is_near=is_near)


@unlisted
def scaled(total, scale):
    """Sums of products of whole numbers as reals."""
    return total.f.convert(total, F32) * scale


@unlisted
def added(total, bias):
    """Sums of 32 bits, from a kernel that has them as whole floats or as they are, with a bias; they wrap."""
    f = total.f
    return f.convert(total, I32) + bias


@unlisted
def uncentered(total, zero_point, sums, *, offset):
    """Sums of products less what a zero point of one factor, and an offset, add to them; `sums` are those of the other factor."""
    f = total.f
    return total - (f.convert(zero_point, I32) + offset) * sums


@unlisted
def center(values, zero_point, *, type):
    """Whole numbers less their zero point, in a wider type."""
    return values.f.convert(centered(values, zero_point), type)


@unlisted
def flip(values, *, type):
    """Bytes with their sign turned round: 128 more as a type without sign, 128 less as one with."""
    return values.f.bitcast(values ^ (-128 if values.type.is_signed else 128), type.vector(values.type.lanes))
