"""Ops that take or put elements at given positions, in NumPy. The CPU table calls them."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import braced, normal_axis
from sardonyx.providers.cpu.table import FIRST, cpu
from sardonyx.providers.kernel_table import widened


def _from_front(indices, size: int):
    """Indices into an axis of `size`, counted from its front."""
    if indices.size == 0:
        return indices
    lowest, highest = indices.min(), indices.max()
    if lowest < -size or highest >= size:
        raise KernelError(_out_of_bounds(lowest if lowest < -size else highest, size), InvalidArgument)
    return np.where(indices < 0, indices.astype(np.intp) + size, indices) if lowest < 0 else indices


def _out_of_bounds(index, size: int) -> str:
    return f"indices element out of data bounds, idx={index} must be within the inclusive range [{-size},{size - 1}]"


# --- taking ---------------------------------------------------------------------------------------------------------


@cpu.kernel("Gather", plain=True)
def gather(data, indices, axis):
    axis = normal_axis(axis, data.ndim)
    before = (slice(None),) * axis
    try:
        if indices.ndim == 0:
            return data[(*before, int(indices), ...)].copy()
        # take is quicker than indexing, but copies data that is not contiguous as a whole, and takes any index of nothing
        return np.take(data, indices, axis=axis) if data.flags.c_contiguous and data.size else data[(*before, indices)]
    except IndexError:
        _from_front(indices, data.shape[axis])
        raise


@cpu.kernel("GatherElements")
def gather_elements(data, indices, axis):
    positions = _element_positions(data, indices, axis)
    return np.take(data.reshape(-1), positions)


def _element_positions(data, indices, axis):
    """Where in the flattened `data` the elements stand that `indices` names along `axis`."""
    axis = normal_axis(axis, data.ndim)
    if indices.ndim != data.ndim:
        raise KernelError(f"'indices' and 'data' must have the same rank: {indices.ndim} and {data.ndim}", InvalidArgument)
    strides = [math.prod(data.shape[position + 1 :]) for position in range(data.ndim)]
    positions = _from_front(indices, data.shape[axis]).astype(np.intp) * strides[axis]
    for position, (count, size) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if position == axis:
            continue
        if count > size:
            raise KernelError(
                f"'indices' shape should have values within bounds of 'data' shape. Invalid value in indices shape is: {count}",
                InvalidArgument,
            )
        if count > 1:
            positions += np.arange(count).reshape((-1,) + (1,) * (data.ndim - 1 - position)) * strides[position]
    return positions


@cpu.kernel("GatherND")
def gather_nd(data, indices, batch_dims=0):
    if not 0 <= batch_dims < max(1, min(data.ndim, indices.ndim)):
        raise KernelError(f"batch_dims is {batch_dims}, data has rank {data.ndim} and indices {indices.ndim}", InvalidArgument)
    batch = math.prod(data.shape[:batch_dims])
    if data.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise KernelError(
            f"Batch dimensions differ between data {braced(data.shape)} and indices {braced(indices.shape)}", InvalidArgument
        )
    indexed, inner, positions = _slice_positions(data.shape[batch_dims:], indices)
    if batch_dims:
        first = np.arange(batch) * math.prod(indexed)
        positions = positions + first.reshape(indices.shape[:batch_dims] + (1,) * (positions.ndim - batch_dims))
    return np.take(data.reshape(batch * math.prod(indexed), *inner), positions, axis=0)


def _slice_positions(shape, indices):
    """The sizes that the tuples in `indices` walk over, the sizes behind them, and each tuple as one number."""
    length = indices.shape[-1]
    if length > len(shape):
        raise KernelError(f"last dimension of indices must not be larger than rank of input tensor: {length}, {len(shape)}")
    indexed, inner = shape[:length], shape[length:]
    positions = np.zeros(indices.shape[:-1], np.intp)
    for part, size in enumerate(indexed):
        positions = positions * size + _from_front(indices[..., part], size)
    return indexed, inner, positions


@cpu.kernel("Compress")
def compress(input, condition, axis=None):
    if axis is None:
        input, axis = input.reshape(-1), 0
    axis = normal_axis(axis, input.ndim)
    return np.take(input, np.flatnonzero(condition[: input.shape[axis]]), axis=axis)


@cpu.kernel("NonZero")
def non_zero(X):
    if X.ndim == 0:
        # the spec: a scalar's positions have no coordinates, but they are counted
        return np.zeros((0, int(bool(X))), np.int64)
    return np.array(np.nonzero(X), dtype=np.int64)


# --- putting --------------------------------------------------------------------------------------------------------

_REDUCTIONS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@cpu.kernel("ScatterElements", "Scatter", inplace=FIRST)
def scatter_elements(data, indices, updates, axis, reduction="none"):
    if indices.shape != updates.shape:
        raise KernelError(
            f"Indices vs updates dimensions differs: {braced(indices.shape)} and {braced(updates.shape)}", InvalidArgument
        )
    positions = _element_positions(data, indices, axis)
    return _scattered(data, positions.reshape(-1), updates.reshape(-1), reduction)


@cpu.kernel("ScatterND", inplace=FIRST)
def scatter_nd(data, indices, updates, reduction="none"):
    _, inner, positions = _slice_positions(data.shape, indices)
    if updates.shape != indices.shape[:-1] + inner:
        raise KernelError(
            "updates tensor should have shape equal to indices.shape[:-1] + data.shape[indices.shape[-1]:]. "
            f"updates shape: {braced(updates.shape)}, indices shape: {braced(indices.shape)}, data shape: {braced(data.shape)}",
            InvalidArgument,
        )
    if reduction == "none":
        return _scattered(data, positions.reshape(-1), updates.reshape(positions.size, *inner), reduction, inner)
    length = math.prod(inner)
    elements = positions.reshape(-1, 1) * length + np.arange(length)
    return _scattered(data, elements.reshape(-1), updates.reshape(-1), reduction)


def _scattered(data, positions, updates, reduction: str, inner=()):
    """A copy of `data` with `updates` put in or joined at positions of its flat form, whose elements have the shape `inner`."""
    if reduction == "none":
        result = np.array(data, order="C")
        result.reshape(math.prod(data.shape[: data.ndim - len(inner)]), *inner)[positions] = updates
        return result
    if reduction not in _REDUCTIONS or (data.dtype == object and reduction != "add"):
        raise KernelError(f"the reduction {reduction!r} does not exist for elements of type {data.dtype}", InvalidArgument)
    wide = np.array(widened(data), order="C")
    # with both flat and of one type, `at` takes its quick way
    with np.errstate(over="ignore", invalid="ignore"):
        _REDUCTIONS[reduction].at(wide.reshape(-1), positions, widened(updates).astype(wide.dtype, copy=False))
    return wide.astype(data.dtype, copy=False)


@cpu.kernel("TensorScatter", inplace=FIRST)
def tensor_scatter(past_cache, update, write_indices=None, axis=-2, mode="linear"):
    axis = normal_axis(axis, past_cache.ndim)
    if axis == 0:
        raise KernelError("axis cannot be 0, the batch dimension", InvalidArgument)
    batch, capacity, length = past_cache.shape[0], past_cache.shape[axis], update.shape[axis]
    first = np.zeros(batch, np.int64) if write_indices is None else write_indices
    if first.size and (first.min() < 0 or length > capacity or (mode == "linear" and first.max() + length > capacity)):
        raise KernelError(f"{length} elements from {first.tolist()} on do not fit into a cache of {capacity}", InvalidArgument)
    positions = first[:, None] + np.arange(length)
    if mode == "circular":
        positions %= capacity
    present_cache = np.array(past_cache, order="C")
    np.moveaxis(present_cache, axis, 1)[np.arange(batch)[:, None], positions] = np.moveaxis(update, axis, 1)
    return present_cache
