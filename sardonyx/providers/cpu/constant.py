"""Ops that make a tensor out of little or nothing: constants, ranges, unit matrices, in NumPy. The CPU table calls them."""

from __future__ import annotations

import math

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import bounded, braced, normal_axis, scalar, whole
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("Constant")
def constant(
    value=None,
    sparse_value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
):
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value.to_dense()
    for content, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if content is not None:
            return np.array(content, dtype=dtype)
    raise KernelError("one of the attributes value, sparse_value and value_* must be set")


@cpu.kernel("ConstantOfShape")
def constant_of_shape(input, value=None):
    value = np.zeros((), np.float32) if value is None else np.reshape(value, ())
    filled = np.empty(bounded(input, value.dtype), value.dtype)
    filled[...] = value
    return filled


@cpu.kernel("EyeLike")
def eye_like(input, k=0, dtype=None):
    if input.ndim != 2:
        raise KernelError(f"EyeLike : Input tensor dimension is not 2, its shape is {braced(input.shape)}", InvalidArgument)
    rows, columns = input.shape
    element = input.dtype if dtype is None else dtypes.from_code(dtype).numpy
    return np.eye(rows, columns, k=max(-rows, min(k, columns)), dtype=element)


@cpu.kernel("Range")
def range_of_numbers(start, limit, delta, stash_type=dtypes.float32.code):
    start, limit, delta = scalar(start, "start"), scalar(limit, "limit"), scalar(delta, "delta")
    first, last, step = start.item(), limit.item(), delta.item()
    if step == 0:
        raise KernelError("delta in Range operator can not be zero!", InvalidArgument)
    if start.dtype.kind in "iu":
        count = max(0, -((first - last) // step))
        bounded([count], start.dtype)
        if step == 1:
            return np.arange(first, first + count, dtype=start.dtype)
        # a product that is out of range wraps around, and its sum with start wraps back
        return start + np.arange(count).astype(start.dtype) * delta
    if dtypes.from_numpy(start.dtype) in dtypes.HALVES:
        start, limit, delta = (number.astype(dtypes.from_code(stash_type).numpy) for number in (start, limit, delta))
    count = _count_of_floats(float(start), float(limit), float(delta))
    bounded([count], start.dtype)
    return start + np.arange(count).astype(start.dtype) * delta


def _count_of_floats(start: float, limit: float, delta: float) -> int:
    steps = (limit - start) / delta
    if not math.isfinite(steps):
        raise KernelError("Range: the computed number of elements is not a finite value.", InvalidArgument)
    return max(0, math.ceil(steps))


@cpu.kernel("OneHot")
def one_hot(indices, depth, values, axis=-1):
    depth = whole(depth, "depth")
    if depth < 0:
        raise KernelError(f"Depth is negative: {depth}", InvalidArgument)
    axis = normal_axis(axis, indices.ndim + 1)
    shape = bounded([*indices.shape[:axis], depth, *indices.shape[axis:]], values.dtype)
    off_value, on_value = values
    filled = np.empty(shape, values.dtype)
    filled[...] = off_value
    if filled.size:
        position = _as_int64(indices)
        position = np.expand_dims(np.where(position < 0, position + depth, position), axis)
        inside = (position >= 0) & (position < depth)
        np.put_along_axis(filled, np.clip(position, 0, depth - 1), np.where(inside, on_value, off_value), axis)
    return filled


def _as_int64(indices):
    """Floats truncated; what int64 cannot hold is out of any depth's range."""
    if indices.dtype == np.uint64:
        return np.minimum(indices, np.uint64(2**63 - 1)).astype(np.int64)
    with np.errstate(invalid="ignore"):
        return indices.astype(np.int64)
