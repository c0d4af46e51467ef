"""Lowerings of matrix products of quantized numbers: the standard's and those of com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import numpy as np

from sardonyx.compiler.types import F32, I8, I32, U8
from sardonyx.ir import Dim, Node, Value
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.quantize.dynamic import dense_view, parameters_steps
from sardonyx.providers.native.kernels.quantize.operands import quantized_rows
from sardonyx.providers.native.kernels.quantize.products import (
    Operand,
    columns_of,
    corrections_of,
    integer_product,
    product_step,
)
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of, stored
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.providers.scalars.quantize import FAR, added, requantize, scaled
from sardonyx.startup.records import replace

CONTRIB = "com.microsoft"
BYTES = (I8, U8)
Scale = Union[Value, View, Operation]


# --- what is claimed


def input_of(node: Node, number: int) -> Value | None:
    return node.inputs[number] if number < len(node.inputs) else None


def is_one(value: Value | None) -> bool:
    """Whether a scale or zero point is absent or one number."""
    return value is None or shape_of(value) in ((), (1,))


def is_one_or_each(value: Value | None, size: object) -> bool:
    """Whether it is absent, one number, or one for each of so many columns."""
    return is_one(value) or (value is not None and shape_of(value) == (size,))


def may_be_one_or_each(value: Value | None, size: object) -> bool:
    """Whether it is, or is if an open size is that of this vector: `require_each` has a run tell."""
    shape = None if value is None else shape_of(value)
    is_vector = shape is not None and len(shape) == 1 and isinstance(shape[0], int)
    return is_one_or_each(value, size) or (is_vector and not isinstance(size, int))


def require_each(lowerer: Lowerer, size: Dim, *values: Value | None) -> None:
    """Have NumPy compute where numbers for each row or column are not as many."""
    for value in values:
        if value is not None and not is_one(value):
            lowerer.require(dims(value)[0], size)


def _claims_factors(A: Value | None, B: Value | None, a_zero: Value | None, b_zero: Value | None) -> bool:
    """8-bit integers, with zero points of their types."""
    if A is None or B is None or not shape_of(A) or not shape_of(B):
        return False
    pairs = ((A, a_zero), (B, b_zero))
    return all(element_of(one) in BYTES and (zero is None or element_of(zero) == element_of(one)) for one, zero in pairs)


def _has_inner(a: Sequence[object], b: Sequence[object]) -> bool:
    """Whether inner sizes may agree."""
    left, right = a[-1], b[-2] if len(b) > 1 else b[0]
    return left == right or not isinstance(left, int) or not isinstance(right, int)


def _claims_integers(node: Node) -> bool:
    A, B, a_zero, b_zero = (*node.inputs, None, None)[:4]
    if not _claims_factors(A, B, a_zero, b_zero) or A is None or B is None:
        return False
    a, b = shape_of(A) or (), shape_of(B) or ()
    rows = may_be_one_or_each(a_zero, a[-2]) if len(a) > 1 and len(b) > 1 else is_one(a_zero)
    columns = may_be_one_or_each(b_zero, b[-1]) if len(b) > 1 else is_one(b_zero)
    return rows and columns and _has_inner(a, b)


@lower("MatMulInteger", claims=_claims_integers)
def mat_mul_integer(lowerer: Lowerer, node: Node) -> None:
    A, B = Operand(required(node.inputs[0]), input_of(node, 2)), Operand(required(node.inputs[1]), input_of(node, 3))
    if len(A.shape) > 1:
        require_each(lowerer, A.shape[-2], A.zero_point)
    require_each(lowerer, B.shape[-1], B.zero_point)
    integer_product(lowerer, node, A, B, ())


def _claims_q_linear(node: Node) -> bool:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    if not _claims_factors(a, b, a_zero, b_zero) or a is None or b is None:
        return False
    columns = (shape_of(b) or ())[-1] if len(shape_of(b) or ()) > 1 else 1
    scales = [a_scale, b_scale, y_scale]
    is_single = all(one is not None and element_of(one) == F32 for one in scales)
    is_narrow = is_one(a_scale) and is_one(a_zero) and is_one(y_scale) and is_one(y_zero)
    is_wide = may_be_one_or_each(b_scale, columns) and may_be_one_or_each(b_zero, columns)
    result = element_of(node.outputs[0]) in BYTES
    return is_single and is_narrow and is_wide and result and _has_inner(shape_of(a) or (), shape_of(b) or ())


@lower("QLinearMatMul", claims=_claims_q_linear)
def q_linear_mat_mul(lowerer: Lowerer, node: Node) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(required, node.inputs)
    require_each(lowerer, dims(b)[-1], b_scale, b_zero)
    ratio = ratio_of(lowerer, [a_scale, b_scale], y_scale)
    operations = [requantization(ratio, single(lowerer, y_zero), node)]
    integer_product(lowerer, node, Operand(a, a_zero), Operand(b, b_zero), operations)


def _may_be_bias(bias: Value | None, columns: object) -> bool:
    return bias is None or shape_of(bias) == (columns,) or (not is_one(bias) and may_be_one_or_each(bias, columns))


def _claims_to_float(node: Node) -> bool:
    A, B, a_scale, b_scale, a_zero, b_zero, bias = (*node.inputs, None, None, None)[:7]
    if not _claims_factors(A, B, a_zero, b_zero) or A is None or B is None or len(shape_of(B) or ()) < 2:
        return False
    columns = (shape_of(B) or ())[-1]
    scales = [one for one in (a_scale, b_scale, bias, node.outputs[0]) if one is not None]
    is_single = all(element_of(one) == F32 for one in scales) and is_one(a_scale) and is_one(a_zero)
    wide = all(may_be_one_or_each(one, columns) for one in (b_scale, b_zero)) and _may_be_bias(bias, columns)
    return is_single and wide and _has_inner(shape_of(A) or (), shape_of(B) or ())


@lower("MatMulIntegerToFloat", domain=CONTRIB, claims=_claims_to_float)
def mat_mul_integer_to_float(lowerer: Lowerer, node: Node) -> None:
    A, B, a_scale, b_scale, a_zero, b_zero, bias = (*node.inputs, None, None, None)[:7]
    require_each(lowerer, dims(required(B))[-1], b_scale, b_zero, bias)
    scale = ratio_of(lowerer, [required(a_scale), required(b_scale)])
    operations = _real_operations(scale, bias)
    integer_product(lowerer, node, Operand(required(A), a_zero), Operand(required(B), b_zero), operations)


def _real_operations(scale: Scale, bias: Value | None) -> list[Operation]:
    operations = [Operation(scaled, (None, scale), type=F32)]
    return operations if bias is None else [*operations, Operation("Add", (None, bias))]


def _claims_dynamic(node: Node) -> bool:
    A, B, b_scale, b_zero, bias = (*node.inputs, None, None)[:5]
    if A is None or B is None or not shape_of(A) or len(shape_of(B) or ()) < 2:
        return False
    columns = (shape_of(B) or ())[-1]
    is_single = all(one is None or element_of(one) == F32 for one in (A, b_scale, bias))
    zero = b_zero is None or element_of(b_zero) == element_of(B)
    wide = all(may_be_one_or_each(one, columns) for one in (b_scale, b_zero)) and _may_be_bias(bias, columns)
    return is_single and element_of(B) in BYTES and zero and wide and _has_inner(shape_of(A) or (), shape_of(B) or ())


@lower("DynamicQuantizeMatMul", domain=CONTRIB, claims=_claims_dynamic)
def dynamic_quantize_mat_mul(lowerer: Lowerer, node: Node) -> None:
    """A is quantized into rows of groups at once."""
    A, B, b_scale, b_zero, bias = (*node.inputs, None, None)[:5]
    a, b = required(A), Operand(required(B), b_zero)
    require_each(lowerer, b.shape[-1], b_scale, b_zero, bias)
    x = dense_view(lowerer, a)
    scale, zero = (View(lowerer.scratch(type.bytes), type, (), ()) for type in (F32, U8))
    parameters_steps(lowerer, x, scale, zero)
    columns = columns_of(lowerer, b)
    rows = quantized_rows(lowerer, columns.product, a, scale, zero)
    product = Operation("Mul", (scale, spread_scale(lowerer, required(b_scale), 0)), type=F32)
    operations = [*corrections_of(lowerer, columns, rows, zero, 0), *_real_operations(product, bias)]
    product_step(lowerer, node, rows, columns, dims(a), b.shape, operations)


def _claims_gemm(node: Node) -> bool:
    A, a_scale, a_zero, B, b_scale, b_zero, C, y_scale, y_zero = (*node.inputs, None, None, None)[:9]
    if not _claims_factors(A, B, a_zero, b_zero) or A is None or B is None:
        return False
    shape, result = shape_of(node.outputs[0]), element_of(node.outputs[0])
    if shape is None or len(shape) != 2 or any(len(shape_of(one) or ()) != 2 for one in (A, B)):
        return False
    scales = [one for one in (a_scale, b_scale, y_scale) if one is not None]
    is_single = all(element_of(one) == F32 for one in scales) and all(map(is_one, (a_scale, a_zero, y_scale, y_zero)))
    wide = all(may_be_one_or_each(one, shape[-1]) for one in (b_scale, b_zero))
    if operand(node, "transB") and not is_one(b_zero) and not B.is_constant:
        return False  # the zero point would have to lie along the rows of what is packed in each run
    return (
        is_single
        and wide
        and (C is None or element_of(C) == I32)
        and (result == F32 or (result in BYTES and y_scale is not None))
    )


@lower("QGemm", domain=CONTRIB, claims=_claims_gemm)
def q_gemm(lowerer: Lowerer, node: Node) -> None:
    A, a_scale, a_zero, B, b_scale, b_zero, C, y_scale, y_zero = (*node.inputs, None, None, None)[:9]
    require_each(lowerer, dims(node.outputs[0])[-1], b_scale, b_zero)
    alpha = np.float32(operand(node, "alpha"))
    operations = [] if C is None else [Operation(added, (None, C), type=I32)]
    scale = ratio_of(lowerer, [required(a_scale), required(b_scale)], first=alpha)
    operations.append(Operation(scaled, (None, scale), type=F32))
    if y_scale is not None:
        zero = single(lowerer, y_zero)
        last = (None, single(lowerer, y_scale), 0 if zero is None else zero)
        operations.append(Operation("QuantizeLinear", last, type=stored(node.outputs[0])))
    left = Operand(required(A), a_zero, bool(operand(node, "transA")))
    integer_product(lowerer, node, left, Operand(required(B), b_zero, bool(operand(node, "transB"))), operations)


# --- what follows the sums


def ratio_of(
    lowerer: Lowerer,
    factors: Sequence[Value],
    divisor: Value | None = None,
    *,
    first: np.float32 | None = None,
    axes_behind: int = 0,
) -> Scale:
    """A product of scales, over another one: a constant if they are, else computed with the results. In float32, from left to right."""
    values = [*factors, *([] if divisor is None else [divisor])]
    if all(value.constant is not None for value in values):
        arrays = [_flat(value) for value in values]
        with np.errstate(all="ignore"):
            found = arrays[0] if first is None else first * arrays[0]
            for array in arrays[1 : len(factors)]:
                found = found * array
            found = found if divisor is None else found / arrays[-1]
        table = np.ascontiguousarray(found, np.float32)
        return View(lowerer.table(table), F32, table.shape, contiguous_strides(table.shape)).with_axes_behind(
            axes_behind if table.ndim else 0
        )
    operands: list[Scale] = [spread_scale(lowerer, value, axes_behind) for value in factors]
    result = operands[0] if first is None or first == 1 else Operation("Mul", (float(first), operands[0]), type=F32)
    for one in operands[1:]:
        result = Operation("Mul", (result, one), type=F32)
    return result if divisor is None else Operation("Div", (result, spread_scale(lowerer, divisor, 0)), type=F32)


def spread_scale(lowerer: Lowerer, value: Value, axes_behind: int) -> Scale:
    """One number for all, or one for each index of an axis with so many behind it."""
    view = lowerer.view(value)
    if all(size == 1 for size in view.shape):
        return View(view.buffer, view.type, (), (), view.offset)
    return view.with_axes_behind(axes_behind)


def _flat(value: Value) -> np.ndarray:
    assert value.constant is not None
    array = value.constant.numpy()
    return array.reshape(()) if array.size == 1 else array


def requantization(ratio: Scale, zero_point: View | None, node: Node) -> Operation:
    """Sums in the scale of the result."""
    operands = (None, ratio, 0 if zero_point is None else zero_point)
    return Operation(requantize, operands, (("is_near", _keeps_near(ratio)),), type=stored(node.outputs[0]))


def _keeps_near(ratio: Scale) -> bool:
    """Whether sums of 32 bits, times this, are nearer than `FAR`."""
    table = ratio.buffer.array if isinstance(ratio, View) else None
    return table is not None and bool((np.abs(table) < FAR / 2**31).all())


def single(lowerer: Lowerer, value: Value | None) -> View | None:
    """One number for all, to be loaded: as a part of the code each layer's would make a kernel of its own."""
    return None if value is None else replace(lowerer.view(value), shape=(), strides=())
