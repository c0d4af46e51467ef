"""Quantization, dequantization and matrix products of quantized numbers, in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx import dtypes
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.cast import convert
from sardonyx.providers.cpu.shape import normal_axis
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.kernel_table import widened

EXACT_IN_SINGLE = 2**24
"""Sums of products of whole numbers that stay within this are exact in float32; 2**53 of float64 is out of reach here."""


@cpu.kernel("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, axis=1, saturate=1, block_size=0, output_dtype=0, precision=0):
    if y_zero_point is not None:
        target = dtypes.from_numpy(y_zero_point.dtype)
    else:
        target = dtypes.from_code(output_dtype) if output_dtype else dtypes.uint8
    scale = spread(y_scale, x.shape, axis, block_size)
    zero_point = None if y_zero_point is None else spread(y_zero_point, x.shape, axis, block_size)
    return requantized(_quotient(x, scale, precision), zero_point, target, saturate)


@np.errstate(all="ignore")
def _quotient(x, scale, precision):
    """x / scale, rounded to the type that `precision` or else the scale's type names. Whole scales divide in float64."""
    working = dtypes.from_code(precision) if precision else dtypes.from_numpy(scale.dtype)
    if working in dtypes.HALVES:
        quotient = convert(x, working) / convert(scale, working)
        return quotient.astype(np.float32)
    wide = np.float64 if working in (dtypes.int32, dtypes.float64) else np.float32
    return x.astype(wide, copy=False) / widened(scale).astype(wide, copy=False)


@np.errstate(all="ignore")
def requantized(values, zero_point, target, saturate=1):
    """Floats, already divided by their scale, as `target`: whole numbers are rounded to even, shifted and saturated."""
    if target not in dtypes.INTS:
        return convert(values if zero_point is None else values + widened(zero_point), target, saturate)
    low, high = integer_range(target)
    values = np.rint(values)
    if zero_point is not None:
        values = values + zero_point.astype(values.dtype)
    # fmax turns NaN into the lowest number, as onnxruntime does
    return np.minimum(np.fmax(values, low), high).astype(target.numpy)


def integer_range(target):
    limits = ml_dtypes.iinfo(target.numpy)
    return int(limits.min), int(limits.max)


def spread(parameter, shape, axis, block_size=0):
    """A scale or zero point in a shape that broadcasts with data of `shape`: for all, for each index of `axis`, or for blocks along it."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    axis = normal_axis(axis, len(shape))
    if parameter.ndim == 1 and not block_size:
        if parameter.size != shape[axis]:
            raise KernelError(f"a scale or zero point has {parameter.size} elements, but axis {axis} has {shape[axis]}")
        return parameter.reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return _spread_blocks(parameter, shape, axis, block_size)


def _spread_blocks(parameter, shape, axis, block_size):
    if not block_size and parameter.ndim == len(shape) and parameter.shape[axis]:
        block_size = -(-shape[axis] // parameter.shape[axis])
    expected = (*shape[:axis], -(-shape[axis] // (block_size or 1)), *shape[axis + 1 :])
    if parameter.shape != expected:
        raise KernelError(
            f"a scale or zero point is {list(parameter.shape)}, but blocks of {block_size} along axis {axis} of {list(shape)}"
            f" need {list(expected)}"
        )
    index = [slice(None)] * len(shape)
    index[axis] = np.arange(shape[axis]) // block_size
    return parameter[tuple(index)]


@cpu.kernel("DequantizeLinear")
@np.errstate(all="ignore")
def dequantize_linear(x, x_scale, x_zero_point=None, axis=1, block_size=0, output_dtype=0):
    values = _whole_or_float(x)
    if x_zero_point is not None:
        values = values - _whole_or_float(spread(x_zero_point, x.shape, axis, block_size))
    scale = widened(spread(x_scale, x.shape, axis, block_size))
    result = np.multiply(values, scale, dtype=np.float32)
    return convert(result, dtypes.from_code(output_dtype)) if output_dtype else result


def _whole_or_float(array):
    """Small integers as int32, where a zero point can be subtracted, and small floats as float32."""
    return array.astype(np.int32) if array.dtype.kind in "iu" else widened(array)


@cpu.kernel("DynamicQuantizeLinear")
@np.errstate(all="ignore")
def dynamic_quantize_linear(x):
    low = np.minimum.reduce(x, axis=None, initial=0).astype(np.float32)
    high = np.maximum.reduce(x, axis=None, initial=0).astype(np.float32)
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero_point = np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)
    return requantized(x / scale, zero_point, dtypes.uint8), scale, zero_point


@cpu.kernel("MatMulInteger")
def mat_mul_integer(A, B, a_zero_point=None, b_zero_point=None):
    product = integer_product(_centered(A, a_zero_point, of_rows=True), _centered(B, b_zero_point))
    return product.astype(np.int64).astype(np.int32) if product.dtype == np.float64 else product.astype(np.int32)


@cpu.kernel("QLinearMatMul")
@np.errstate(all="ignore")
def q_linear_mat_mul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    left, right = _centered(a, a_zero_point, of_rows=True), _centered(b, b_zero_point)
    exact = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    product = integer_product(left, right) if exact else np.matmul(left.astype(np.float32), right.astype(np.float32))
    scale = _parameter(widened(a_scale), a.ndim, of_rows=True) * _parameter(widened(b_scale), b.ndim)
    ratio = scale / _parameter(widened(y_scale), np.ndim(product), of_rows=True)
    zero_point = _parameter(y_zero_point, np.ndim(product), of_rows=True)
    return requantized(product.astype(np.float32) * ratio, zero_point, dtypes.from_numpy(y_zero_point.dtype))


def _centered(matrix, zero_point, of_rows=False):
    """The matrix without its zero point, which is one number, a vector of rows or columns, or broadcasts by itself."""
    values = matrix.astype(np.int16) if matrix.dtype.kind in "iu" else widened(matrix)
    if zero_point is None:
        return values
    shift = _parameter(zero_point, matrix.ndim, of_rows)
    if np.broadcast_shapes(shift.shape, matrix.shape) != matrix.shape:
        raise KernelError(f"a zero point is {list(zero_point.shape)}, its matrix {list(matrix.shape)}")
    return values - (shift.astype(np.int16) if shift.dtype.kind in "iu" else widened(shift))


def _parameter(parameter, rank, of_rows=False):
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter[:, None] if of_rows and parameter.ndim == 1 and rank > 1 else parameter


def integer_product(A, B):
    """The exact matrix product of small whole numbers, as BLAS has it: in float32 if that can hold it, else in float64."""
    depth = A.shape[-1] if A.ndim else 1
    bound = depth * _magnitude(A) * _magnitude(B)
    wide = np.float32 if bound <= EXACT_IN_SINGLE else np.float64
    return np.matmul(A.astype(wide), B.astype(wide))


def _magnitude(array):
    return max(int(array.max(initial=0)), -int(array.min(initial=0)))
