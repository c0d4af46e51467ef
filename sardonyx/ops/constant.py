"""Type and shape inference of the ops that make a tensor out of little or nothing. The driver calls these functions."""

from __future__ import annotations

import math

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.facts import bound_to_type, exact
from sardonyx.ops.operand import Known, is_symbolic
from sardonyx.ops.shape import content_sizes, is_small
from sardonyx.ops.shapes import axis_index, element_type
from sardonyx.ops.table import infer


@infer("Constant")
def constant(value, sparse_value, value_float, value_floats, value_int, value_ints, value_string, value_strings):
    if sparse_value is not None:
        return TensorType(sparse_value.type.dtype, sparse_value.dense_shape)
    for attribute, dtype in (
        (value, None),
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if attribute is not None:
            return _known(np.asarray(attribute, dtype=dtype))
    raise InferenceError("one of the attributes value, sparse_value and value_* must be set")


def _known(array):
    return Known(TensorType(dtypes.from_numpy(array.dtype), array.shape), array)


@infer("ConstantOfShape")
def constant_of_shape(input, value):
    input.require_rank(1)
    value = np.zeros((), np.float32) if value is None else value
    if value.size != 1:
        raise InferenceError(f"value must have one element, it has {value.size}")
    shape = content_sizes(input)
    type = TensorType(dtypes.from_numpy(value.dtype), shape)
    if input.value is None or not is_small(shape) or min(shape, default=0) < 0:
        return type
    return Known(type, np.broadcast_to(value.reshape(()), shape))


@infer("EyeLike")
def eye_like(input, dtype):
    return TensorType(_element(dtype) or input.dtype, input.require_rank(2) or (dim.fresh(), dim.fresh()))


def _element(code) -> ElementType | None:
    """The element type of an attribute's number."""
    return None if code is None else element_type(code)


@infer("Range", precision=bound_to_type)
def range_of_numbers(start, limit, delta):
    for name, operand in (("start", start), ("limit", limit), ("delta", delta)):
        operand.require_one(name)
    numbers = [operand.item for operand in (start, limit, delta)]
    if any(number is None for number in numbers):
        return (dim.fresh(),)
    if any(is_symbolic(operand.value) for operand in (start, limit, delta)) or start.value.dtype.kind in "iuO":
        first, last, step = (operand.dims[0] for operand in (start, limit, delta))
        if isinstance(step, int) and step == 0:
            raise InferenceError("delta in Range operator can not be zero!")
        return (dim.maximum(0, dim.ceildiv(last - first, step)),)
    first, last, step = map(float, numbers)
    if step == 0:
        raise InferenceError("delta in Range operator can not be zero!")
    count = (last - first) / step
    return (max(0, math.ceil(count)) if math.isfinite(count) else dim.fresh(),)


@infer("OneHot", precision=exact)
def one_hot(indices, depth, axis):
    if indices.shape is None:
        return None
    size = depth.as_size("depth")
    if isinstance(size, int) and size < 0:
        raise InferenceError(f"depth is negative: {size}")
    axis = axis_index(axis, len(indices.shape) + 1)
    return (*indices.shape[:axis], size, *indices.shape[axis:])
