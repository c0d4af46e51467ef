"""Type and shape inference of the ops that take or put elements at given positions. The driver calls these functions."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import bound_to_type, exact, exact_if
from sardonyx.ops.operand import Known
from sardonyx.ops.shape import element_count, is_small
from sardonyx.ops.shapes import axis_index, text
from sardonyx.ops.table import infer


@infer("GatherElements", moves=True)
def gather_elements(data, indices, axis):
    _check_elements(data, indices, axis)
    return indices.shape


@infer("Scatter", "ScatterElements", precision=exact_if("reduction", "none", "max", "min"))
def scatter_elements(data, indices, updates, axis):
    _check_elements(data, indices, axis)
    if None not in (indices.rank, updates.rank) and indices.rank != updates.rank:
        raise InferenceError(f"indices {text(indices.shape)} and updates {text(updates.shape)} have different ranks")
    return data.shape


def _check_elements(data, indices, axis):
    """Each index stands where its element does, but for the axis: the ranks must be the same."""
    if data.rank is None:
        return
    axis_index(axis, data.rank)
    if indices.rank is not None and indices.rank != data.rank:
        raise InferenceError(f"indices {text(indices.shape)} and data {text(data.shape)} have different ranks")


@infer("Gather", moves=True)
def gather(data, indices, axis):
    if data.shape is None:
        return None
    axis = axis_index(axis, len(data.shape))
    if indices.shape is None:
        return None
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if data.value is None or not indices.is_concrete or not is_small(shape):
        return shape
    size = data.shape[axis]
    if np.any((indices.value < -size) | (indices.value >= size)):
        raise InferenceError(f"indices element out of data bounds: {indices.value.tolist()}, the axis has {size} elements")
    return Known(shape, np.asarray(np.take(data.value, indices.value, axis=axis)))


@infer("GatherND", moves=True)
def gather_nd(data, indices, batch_dims):
    if data.shape is None or indices.shape is None:
        return None
    if not indices.shape or not data.shape:
        raise InferenceError(
            f"data and indices must have at least one axis, they are {text(data.shape)}, {text(indices.shape)}"
        )
    length, batch = indices.shape[-1], batch_dims or 0
    shorter = min(len(data.shape), len(indices.shape))
    if not 0 <= batch < shorter:
        raise InferenceError(f"batch_dims {batch} is outside [0, {shorter - 1}]")
    if not isinstance(length, int):
        return None
    if batch + length > len(data.shape):
        raise InferenceError(f"indices {text(indices.shape)} have too many coordinates for data {text(data.shape)}")
    return (*indices.shape[:-1], *data.shape[batch + length :])


@infer("ScatterND", precision=exact_if("reduction", "none", "max", "min"))
def scatter_nd(data, indices, updates):
    length = indices.shape[-1] if indices.shape else None
    if isinstance(length, int) and None not in (data.rank, updates.rank):
        rank = indices.rank - 1 + data.rank - length
        if updates.rank != rank:
            raise InferenceError(
                f"updates {text(updates.shape)} must have {rank} axes, as data is {text(data.shape)} and indices {text(indices.shape)}"
            )
    return data.shape


@infer("TensorScatter", precision=exact)
def tensor_scatter(past_cache, axis):
    if past_cache.shape is not None and axis_index(axis, len(past_cache.shape)) == 0:
        raise InferenceError("axis cannot be 0, the batch dimension")
    return past_cache.shape


@infer("Compress", moves=True)
def compress(input, condition, axis):
    if axis is None:
        return (_chosen(element_count(input), condition),)
    if input.shape is None:
        return None
    axis = axis_index(axis, len(input.shape))
    return (*input.shape[:axis], _chosen(input.shape[axis], condition), *input.shape[axis + 1 :])


def _chosen(size, condition):
    """How many of `size` elements a condition keeps."""
    if not condition.is_concrete or not isinstance(size, int):
        return dim.fresh()
    return int(np.count_nonzero(condition.value[:size]))


@infer("NonZero", precision=bound_to_type)  # what is not 0 may be when it is rounded
def non_zero(X):
    return (dim.fresh() if X.shape is None else len(X.shape), dim.fresh())
