"""Reductions over axes, arg-reductions and running sums and products, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.elementwise import truncated_quotient
from sardonyx.providers.cpu.shape import normal_axis, whole
from sardonyx.providers.cpu.table import cpu


def _reduced_axes(data, axes, noop_with_empty_axes):
    """The axes to reduce, as NumPy takes them: non-negative, each once."""
    if axes is None or len(axes) == 0:
        return () if noop_with_empty_axes else tuple(range(data.ndim))
    return tuple(dict.fromkeys(normal_axis(axis, data.ndim) for axis in axes))


def _reduction(*ops):
    """Register a function of (data, axes, keepdims) that gets its axes normalized."""

    def register(function):
        @np.errstate(all="ignore")
        def kernel(data, axes=None, keepdims=1, noop_with_empty_axes=0):
            return function(data, _reduced_axes(data, axes, noop_with_empty_axes), bool(keepdims))

        kernel.__name__ = function.__name__
        cpu.kernel(*ops, widen=True)(kernel)
        return function

    return register


def _in_doubles(function):
    """Reduce integers in float64; what their type cannot hold becomes its greatest or least number, and NaN the least."""

    def reduce(data, axes, keepdims):
        if data.dtype.kind == "f":
            return function(data, axes, keepdims)
        result = function(data.astype(np.float64), axes, keepdims)
        least, greatest = map(data.dtype.type, _bounds(data.dtype))
        fits = (result > least) & (result < greatest)
        return np.where(fits, np.where(fits, result, 0).astype(data.dtype), np.where(result >= greatest, greatest, least))

    return reduce


@_reduction("ReduceSum")
def reduce_sum(data, axes, keepdims):
    return np.add.reduce(data, axis=axes, keepdims=keepdims)


@_reduction("ReduceMean")
def reduce_mean(data, axes, keepdims):
    total = np.add.reduce(data, axis=axes, keepdims=keepdims)
    count = math.prod(data.shape[axis] for axis in axes)
    return total / count if data.dtype.kind == "f" else truncated_quotient(total, np.asarray(count or 1, total.dtype))


@_reduction("ReduceProd")
def reduce_prod(data, axes, keepdims):
    return np.multiply.reduce(data, axis=axes, keepdims=keepdims)


@_reduction("ReduceMax")
def reduce_max(data, axes, keepdims):
    return np.maximum.reduce(data, axis=axes, keepdims=keepdims, initial=_bounds(data.dtype)[0])


@_reduction("ReduceMin")
def reduce_min(data, axes, keepdims):
    return np.minimum.reduce(data, axis=axes, keepdims=keepdims, initial=_bounds(data.dtype)[1])


def _bounds(dtype):
    """The least and the greatest value, infinities included: the maximum and the minimum of nothing."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@_reduction("ReduceL1")
def reduce_l1(data, axes, keepdims):
    return np.add.reduce(np.abs(data), axis=axes, keepdims=keepdims)


@_reduction("ReduceL2")
@_in_doubles
def reduce_l2(data, axes, keepdims):
    return np.sqrt(np.add.reduce(np.square(data), axis=axes, keepdims=keepdims))


@_reduction("ReduceSumSquare")
def reduce_sum_square(data, axes, keepdims):
    return np.add.reduce(np.square(data), axis=axes, keepdims=keepdims)


@_reduction("ReduceLogSum")
@_in_doubles
def reduce_log_sum(data, axes, keepdims):
    return np.log(np.add.reduce(data, axis=axes, keepdims=keepdims))


@_reduction("ReduceLogSumExp")
@_in_doubles
def reduce_log_sum_exp(data, axes, keepdims):
    largest = np.maximum.reduce(data, axis=axes, keepdims=True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0)
    total = np.log(np.add.reduce(np.exp(data - largest), axis=axes, keepdims=keepdims))
    return total + largest.reshape(np.shape(total))


@cpu.kernel("ArgMax", widen=True)
def arg_max(data, axis=0, keepdims=1, select_last_index=0):
    return _arg_reduced(np.argmax, data, axis, keepdims, select_last_index)


@cpu.kernel("ArgMin", widen=True)
def arg_min(data, axis=0, keepdims=1, select_last_index=0):
    return _arg_reduced(np.argmin, data, axis, keepdims, select_last_index)


def _arg_reduced(function, data, axis, keepdims, select_last_index):
    axis = normal_axis(axis, data.ndim)
    if data.shape[axis] == 0:
        raise KernelError(f"axis {axis} of {list(data.shape)} has no elements to choose from")
    if select_last_index:
        return data.shape[axis] - 1 - function(np.flip(data, axis), axis=axis, keepdims=bool(keepdims))
    return function(data, axis=axis, keepdims=bool(keepdims))


@cpu.kernel("CumSum", widen=True)
@np.errstate(all="ignore")
def cum_sum(x, axis, exclusive=0, reverse=0):
    return _accumulated(np.add, x, axis, exclusive, reverse)


@cpu.kernel("CumProd", widen=True)
@np.errstate(all="ignore")
def cum_prod(x, axis, exclusive=0, reverse=0):
    return _accumulated(np.multiply, x, axis, exclusive, reverse)


def _accumulated(ufunc, x, axis, exclusive, reverse):
    axis, direction = normal_axis(whole(axis, "axis"), x.ndim), -1 if reverse else 1
    steps = np.moveaxis(x, axis, 0)[::direction]
    result = np.empty_like(steps)
    skipped = 1 if exclusive else 0
    result[:skipped] = ufunc.identity
    ufunc.accumulate(steps[: len(steps) - skipped], axis=0, dtype=x.dtype, out=result[skipped:])
    return np.moveaxis(result[::direction], 0, axis)
