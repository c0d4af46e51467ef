"""Inference of pools over windows, images and regions."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import by_entry, exact, first_output_by_entry, with_first_operand
from sardonyx.ops.shapes import fresh_shape, merge_shapes
from sardonyx.ops.table import infer
from sardonyx.ops.window import check_numbers, output_sizes, per_axis, span_of, split_pads, transposed_size


@infer("AveragePool", has_layout=True, non_negative=with_first_operand, rows=by_entry)
@infer("LpPool", has_layout=True, rows=by_entry)
def pool(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides, p=None):
    check_norm(p)
    return pooled_shape(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


@infer("MaxPool", has_layout=True, non_negative=with_first_operand, rows=first_output_by_entry, precision=exact)
def max_pool(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides):
    shape = pooled_shape(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return [shape, shape]


def check_norm(p):
    """Of the pools only Lp pools have one."""
    if p is not None and p <= 0:
        raise InferenceError(f"p must be positive, it is {p}")


def pooled_shape(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode):
    if X.shape is None:
        return None if kernel_shape is None else fresh_shape(len(kernel_shape) + 2)
    _require_channels(X)
    kernel = X.shape[2:] if kernel_shape is None else kernel_shape  # LpPool of opset 1 may leave it out
    return (*X.shape[:2], *output_sizes(X.shape[2:], kernel, strides, dilations, pads, auto_pad, ceil_mode))


def _require_channels(X):
    if X.rank is not None and X.rank < 2:
        raise InferenceError(f"X must have a batch and a channel axis, its rank is {X.rank}")


@infer("GlobalAveragePool", has_layout=True, non_negative=with_first_operand, rows=by_entry)
@infer("GlobalMaxPool", has_layout=True, non_negative=with_first_operand, rows=by_entry, precision=exact)
@infer("GlobalLpPool", has_layout=True, rows=by_entry)
def global_pool(X, p=None):
    check_norm(p)
    _require_channels(X)
    return None if X.shape is None else (*X.shape[:2], *(1,) * (X.rank - 2))


@infer("MaxUnpool", has_layout=True, precision=exact)
def max_unpool(X, I, output_shape, kernel_shape, pads, strides):
    _require_channels(X)
    merge_shapes(X.shape, I.shape, "X and I")
    rank = X.rank - 2 if X.rank is not None else len(kernel_shape)
    kernel, strides = per_axis(kernel_shape, rank, "kernel_shape"), per_axis(strides, rank, "strides")
    begin, end = split_pads(pads, rank)
    if output_shape is not None:
        check_numbers(output_shape.ints or (), "output_shape")
        return output_shape.dims or fresh_shape(rank + 2)
    if X.shape is None:
        return fresh_shape(rank + 2)
    axes = zip(X.shape[2:], kernel, strides, begin, end)
    return (*X.shape[:2], *(transposed_size(size, span_of(k, 1), s) - b - e for size, k, s, b, e in axes))


@infer("MaxRoiPool", precision=exact)
def max_roi_pool(X, rois, pooled_shape):
    return _per_region(X, rois, pooled_shape)


@infer("RoiAlign")
def roi_align(X, rois, batch_indices, output_height, output_width, sampling_ratio):
    if sampling_ratio < 0:
        raise InferenceError(f"sampling_ratio must not be negative, it is {sampling_ratio}")
    batch_indices.require_rank(1, name="batch_indices")
    return _per_region(X, rois, (output_height, output_width))


def _per_region(X, rois, size):
    images, regions = X.require_rank(4, name="X"), rois.require_rank(2, name="rois")
    count = dim.fresh() if regions is None else regions[0]
    channels = dim.fresh() if images is None else images[1]
    return count, channels, *size
