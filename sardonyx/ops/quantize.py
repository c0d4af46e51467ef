"""Type and shape inference of quantization, dequantization and quantized matrix products."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.shapes import axis_index, broadcast, element_type, text
from sardonyx.ops.table import infer


def check_quantized_axis(x, scale, axis):
    """Refuse an axis that x does not have; where one scale is for all, nobody looks at it."""
    if x.shape is None or scale.shape is None or axis is None:
        return
    if not _may_be_one_number(scale.shape):
        axis_index(axis, len(x.shape))


def check_parameters(x, axis, block_size, **parameters):
    """Refuse scales and zero points of other sizes than blocks, or else the axis, ask for. One number is for all."""
    if block_size is not None and block_size < 0:
        raise InferenceError(f"block_size must not be negative, it is {block_size}")
    if x.shape is None or axis is None:
        return
    for name, parameter in parameters.items():
        if parameter is not None and parameter.shape is not None and len(x.shape) > 0:
            _check_parameter(name, parameter.shape, x.shape, axis, block_size or 0)


def _check_parameter(name, shape, sizes, axis, block_size):
    if _may_be_one_number(shape):
        return
    axis = axis_index(axis, len(sizes))
    if not block_size:
        if len(shape) == 1 and _differ(shape[0], sizes[axis]):
            raise InferenceError(f"{name} is {text(shape)}, but axis {axis} of {text(sizes)} has {sizes[axis]} indices")
        return
    wanted = (*sizes[:axis], dim.ceildiv(sizes[axis], block_size), *sizes[axis + 1 :])
    if len(shape) != len(wanted) or any(map(_differ, shape, wanted)):
        raise InferenceError(
            f"{name} is {text(shape)}, but blocks of {block_size} along axis {axis} of {text(sizes)} need {text(wanted)}"
        )


def _may_be_one_number(shape):
    """Whether all elements may have the same parameter. Kernels look at the axis where an open size turns out to be another."""
    return len(shape) == 0 or (len(shape) == 1 and not (isinstance(shape[0], int) and shape[0] != 1))


def _differ(size, other):
    return isinstance(size, int) and isinstance(other, int) and size != other


def table_fault(scales, zero_points, shape, axis, block_size, shared):
    """What is wrong with the shapes of scales and zero points for the blocks of a table, None if nothing is known to be.

    One may stand for all along an axis. `shared` zero points have a byte.
    """
    count = dim.ceildiv(shape[axis], block_size) if block_size else 1
    wanted = (*shape[:axis], count, *shape[axis + 1 :])
    packed = (*wanted[:-1], dim.ceildiv(wanted[-1], shared))
    for name, found, sizes in (("scales", scales, wanted), ("zero_points", zero_points, packed)):
        if found is not None and (len(found) != len(sizes) or any(a != 1 and _differ(a, b) for a, b in zip(found, sizes))):
            return f"{name} is {text(found)}, blocks of {block_size} ask for {text(sizes)}"
    return None


def check_counts(each=1, **parameters):
    """Refuse scales and zero points that are neither one number nor `each`, one for each row, column or filter."""
    for name, parameter in parameters.items():
        count = None if parameter is None or parameter.shape is None else dim.product(parameter.shape)
        if isinstance(count, int) and count != 1 and _differ(count, each):
            wanted = "one number" if each == 1 else f"one number or {each}"
            raise InferenceError(f"{name} is {text(parameter.shape)}, it should be {wanted}")


def check_factor(shape, rows=False, **parameters):
    """Refuse scales and zero points of a matrix that are neither one number, nor one for each column (or row), in a vector or broadcast."""
    if shape is None:
        return
    if len(shape) < 2:
        check_counts(**parameters)
        return
    each, sizes = (shape[-2], (*shape[:-1], 1)) if rows else (shape[-1], (*shape[:-2], 1, shape[-1]))
    for name, parameter in parameters.items():
        if parameter is None or parameter.shape is None or len(parameter.shape) < 2:
            check_counts(each, **{name: parameter})
        elif not broadcasts(parameter.shape, sizes):
            raise InferenceError(f"{name} is {text(parameter.shape)}, it should be one number, {each} or {text(sizes)}")


def broadcasts(shape, sizes):
    """Whether an operand may be spread over these sizes, as far as they are known."""
    pairs = zip(reversed(shape), reversed(sizes))
    return len(shape) <= len(sizes) and not any(a != 1 and _differ(a, b) for a, b in pairs)


def check_scales(divisors=None, *, has_dead_channels=False, **scales):
    """Refuse constant scales by which no number can be multiplied or, those of `divisors`, divided. Others are known in runs only.

    With `has_dead_channels` 0 may stand among several divisors: quantizers write it for channels that are 0, and 0 they stay.
    """
    for name, scale in {**scales, **(divisors or {})}.items():
        if scale is None or not scale.is_concrete or scale.dtype not in dtypes.FLOATS:
            continue
        numbers = np.asarray(scale.value).astype(np.float64)
        is_divisor = divisors is not None and name in divisors
        too_small = numbers < 0 if has_dead_channels and numbers.size > 1 else numbers <= 0
        bad = ~np.isfinite(numbers) | (is_divisor & too_small)  # quantizers to few bits write factors below 0
        if bad.any():
            expected = "finite and above 0" if is_divisor else "finite"
            raise InferenceError(f"{name} must be {expected}, but has {numbers[bad].flat[0]}")


@infer("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point, axis, block_size, output_dtype, precision):
    check_quantized_axis(x, y_scale, axis)
    check_parameters(x, axis, block_size, y_scale=y_scale, y_zero_point=y_zero_point)
    check_scales({"y_scale": y_scale}, has_dead_channels=True)
    if precision:
        element_type(precision, "precision")
    named = element_type(output_dtype, "output_dtype") if output_dtype else None
    if y_zero_point is None:
        return TensorType(named or dtypes.uint8, x.shape)
    if named is not None and y_zero_point.dtype not in (None, named):
        raise InferenceError(f"output_dtype is {named}, but y_zero_point is {y_zero_point.dtype}")
    return TensorType(y_zero_point.dtype, x.shape)


@infer("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point, axis, block_size, output_dtype):
    check_quantized_axis(x, x_scale, axis)
    check_parameters(x, axis, block_size, x_scale=x_scale, x_zero_point=x_zero_point)
    check_scales(x_scale=x_scale)
    if output_dtype:
        return TensorType(element_type(output_dtype, "output_dtype"), x.shape)
    if x_scale.dtype is dtypes.float8e8m0:
        raise InferenceError("output_dtype is needed, for the output cannot have the type of x_scale, float8e8m0")
    return TensorType(x_scale.dtype, x.shape)


@infer("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    return [x.shape, (), ()]


@infer("MatMulInteger")
def mat_mul_integer(A, B, a_zero_point, b_zero_point):
    check_factor(A.shape, rows=True, a_zero_point=a_zero_point)
    check_factor(B.shape, b_zero_point=b_zero_point)
    return _product_shape(A, B)


@infer("QLinearMatMul")
def q_linear_mat_mul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    check_scales({"y_scale": y_scale}, a_scale=a_scale, b_scale=b_scale)
    check_factor(a.shape, rows=True, a_scale=a_scale, a_zero_point=a_zero_point)
    check_factor(b.shape, b_scale=b_scale, b_zero_point=b_zero_point)
    shape = _product_shape(a, b)
    check_factor(shape, rows=True, y_scale=y_scale, y_zero_point=y_zero_point)
    return shape


def _product_shape(A, B):
    """The shape of a matrix product as numpy.matmul has it."""
    if A.shape is None or B.shape is None:
        return None
    if not A.shape or not B.shape:
        raise InferenceError(
            f"a matrix product needs operands of rank 1 or more, A is {text(A.shape)} and B is {text(B.shape)}"
        )
    rows = A.shape if A.rank > 1 else (1, *A.shape)
    columns = B.shape if B.rank > 1 else (*B.shape, 1)
    if isinstance(rows[-1], int) and isinstance(columns[-2], int) and rows[-1] != columns[-2]:
        raise InferenceError(f"inner sizes differ, A is {text(A.shape)} and B is {text(B.shape)}")
    return broadcast(rows[:-2], columns[:-2]) + rows[-2:-1] * (A.rank > 1) + columns[-1:] * (B.rank > 1)
