"""Pools over sliding windows and whole images, and MaxUnpool, in NumPy.

Maximum and sum are taken along one spatial axis after the other, so a window of h x w pixels costs h + w passes.
"""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.shape import bounded
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.cpu.window import make_window, per_axis, split_pads
from sardonyx.providers.termination import watched


@cpu.kernel("AveragePool", widen=True)
def average_pool(X, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, pads=None, strides=None):
    window = make_window(X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = slide(np.add, X, window, 0)
    counts = np.ones((), np.int64)
    for axis, size in enumerate(X.shape[2:]):
        counts = counts[..., np.newaxis] * _tap_counts(window, axis, size, count_include_pad)
    # a window that lies in the padding alone has nothing to average
    return total / np.maximum(counts, 1).astype(X.dtype)


def _tap_counts(window, axis, size, count_include_pad):
    """How many taps of each window lie inside the input, or inside the padded input; never what lies beyond that."""
    first = np.arange(window.output[axis]) * window.strides[axis] - window.begin[axis]
    positions = first[:, np.newaxis] + np.arange(window.kernel[axis]) * window.dilations[axis]
    begin, end = (window.begin[axis], window.end[axis]) if count_include_pad else (0, 0)
    return ((positions >= -begin) & (positions < size + end)).sum(axis=1)


@cpu.kernel("LpPool", widen=True)
def lp_pool(X, kernel_shape=None, p=2, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, strides=None):
    kernel = X.shape[2:] if kernel_shape is None else kernel_shape
    window = make_window(X.shape[2:], kernel, strides, dilations, pads, auto_pad, ceil_mode)
    return slide(np.add, _power(X, p), window, 0) ** X.dtype.type(1 / p)


def _power(X, p):
    return X * X if p == 2 else np.abs(X) ** X.dtype.type(p)


@cpu.kernel("MaxPool", widen=True)
def max_pool(
    X,
    kernel_shape,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations=None,
    pads=None,
    storage_order=0,
    strides=None,
    *,
    output_count=1,
):
    window = make_window(X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if output_count > 1:
        return _max_with_indices(X, window, storage_order)
    return slide(np.maximum, X, window, lowest(X.dtype))


def lowest(dtype):
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def slide(combine, X, window, start):
    """Combine the pixels under each window with a ufunc, beginning from `start`; padding takes no part."""
    rank = len(window.kernel)
    for axis in range(rank):
        shape = list(X.shape)
        shape[axis - rank] = window.output[axis]
        result = np.full(shape, start, X.dtype)
        rest = (slice(None),) * (rank - axis - 1)
        for tap in watched(range(window.kernel[axis])):
            positions, pixels = window.meeting(axis, tap, X.shape[axis - rank])
            part = result[(..., positions, *rest)]
            combine(part, X[(..., pixels, *rest)], out=part)
        X = result
    return X


def _max_with_indices(X, window, storage_order):
    """The maxima and where they stand; of equal ones the first in row-major order, so the last axis goes first."""
    values, places = X, _flat_indices(X.shape, "F" if storage_order else "C")
    rank = len(window.kernel)
    for axis in reversed(range(rank)):
        values, places = _max_along(values, places, window, axis)
    return values, places


def _flat_indices(shape, order):
    """Each pixel's number in the flat tensor; within an image, rows or columns first."""
    spatial = shape[2:]
    inside = np.arange(math.prod(spatial)).reshape(spatial, order=order)
    images = np.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1,) * len(spatial))
    return images * math.prod(spatial) + inside


def _max_along(values, places, window, axis):
    rank = len(window.kernel)
    shape = list(values.shape)
    shape[axis - rank] = window.output[axis]
    best, best_places = np.full(shape, lowest(values.dtype), values.dtype), np.full(shape, -1)
    rest = (slice(None),) * (rank - axis - 1)
    for tap in watched(range(window.kernel[axis])):
        positions, pixels = window.meeting(axis, tap, values.shape[axis - rank])
        there, here = (..., positions, *rest), (..., pixels, *rest)
        # not (<=) lets a NaN win; what comes first takes the place whatever it is
        better = ~(values[here] <= best[there]) & (best[there] == best[there])
        better |= best_places[there] < 0
        np.copyto(best[there], values[here], where=better)
        np.copyto(best_places[there], places[here], where=better)
    return best, best_places


def _spatial_axes(X):
    return tuple(range(2, X.ndim))


@cpu.kernel("GlobalAveragePool", widen=True)
def global_average_pool(X):
    total = X.sum(axis=_spatial_axes(X), keepdims=True)
    with np.errstate(invalid="ignore"):  # no pixels: 0 / 0
        return total / X.dtype.type(math.prod(X.shape[2:]))


@cpu.kernel("GlobalMaxPool", widen=True)
def global_max_pool(X):
    return X.max(axis=_spatial_axes(X), keepdims=True, initial=lowest(X.dtype))


@cpu.kernel("GlobalLpPool", widen=True)
def global_lp_pool(X, p=2):
    return _power(X, p).sum(axis=_spatial_axes(X), keepdims=True) ** X.dtype.type(1 / p)


@cpu.kernel("MaxUnpool")
def max_unpool(X, I, kernel_shape, output_shape=None, pads=None, strides=None):
    if X.shape != I.shape:
        raise KernelError(f"X {list(X.shape)} and I {list(I.shape)} must have the same shape")
    rank = X.ndim - 2
    kernel, strides = per_axis(kernel_shape, rank, "kernel_shape"), per_axis(strides, rank, "strides")
    begin, end = split_pads(pads, rank)
    sizes = zip(X.shape[2:], kernel, strides, begin, end, strict=True)
    natural = (*X.shape[:2], *((size - 1) * s - b - e + k for size, k, s, b, e in sizes))
    wanted = natural if output_shape is None else tuple(int(size) for size in output_shape)
    if len(wanted) != X.ndim:
        raise KernelError(f"output_shape is {list(wanted)}, but the input has rank {X.ndim}")
    # indices count the cells of the natural shape; those of a pool whose input was larger only fit output_shape
    numbered = natural if I.max(initial=-1) < math.prod(natural) else wanted
    if I.size and (I.min() < 0 or I.max() >= math.prod(numbered)):
        raise KernelError(f"an index of I, {I.min()} or {I.max()}, lies outside the output of {math.prod(numbered)} elements")
    bounded(wanted, X.dtype)
    flat = np.zeros(bounded((math.prod(numbered),), X.dtype), X.dtype)
    flat[I.reshape(-1)] = X.reshape(-1)
    return _fitted(flat.reshape(numbered), wanted)


def _fitted(values, shape):
    """`values` in the upper corner of zeros of another shape."""
    if values.shape == shape:
        return values
    result = np.zeros(shape, values.dtype)
    common = tuple(slice(min(a, b)) for a, b in zip(values.shape, shape, strict=True))
    result[common] = values[common]
    return result
