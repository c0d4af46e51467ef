"""Ops of com.microsoft that ONNX has taken over since, or that exporters wrote before it had an equal, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu import constant, image, indexing, layout
from sardonyx.providers.cpu import shape as shapes
from sardonyx.providers.cpu.conv import conv_transpose
from sardonyx.providers.cpu.shape import bounded, braced, normal_axis, whole
from sardonyx.providers.cpu.table import FIRST, cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("Trilu")
def trilu(X, k=None, upper=1):
    return layout.trilu(X, k, upper)


@contrib("Range")
def range_of_numbers(start, limit, delta=None):
    return constant.range_of_numbers(start, limit, np.ones((), start.dtype) if delta is None else delta)


@contrib("Pad")
def pad(data, pads, value=None, mode="constant"):
    return shapes.pad(data, pads.reshape(-1), value, mode=mode)


@contrib("GatherND")
def gather_nd(data, indices):
    return indexing.gather_nd(data, indices)


@contrib("Unique")
def unique(x):
    """In the order in which they come first; a NaN is not even equal to itself."""
    if x.ndim != 1:
        raise KernelError("Input tensor to Unique op should be 1D", InvalidArgument)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[inverse], counts[order]


@contrib("GridSample", widen=True)
def grid_sample(X, Grid, mode="bilinear", padding_mode="zeros", align_corners=0):
    return image.grid_sample(X, Grid, align_corners, mode, padding_mode)


@contrib("Inverse", widen=True)
def inverse(X):
    try:
        return np.linalg.inv(X)
    except np.linalg.LinAlgError:
        return _inverse_where_there_is_one(X)


def _inverse_where_there_is_one(X):
    result = np.full_like(X, np.nan)
    regular = np.linalg.slogdet(X)[0] != 0
    result[regular] = np.linalg.inv(X[regular])
    return result


@contrib("ExpandDims", alias=FIRST)
def expand_dims(X, axis):
    place, points = whole(axis, "axis"), X.ndim + 1
    if not -points <= place < points:
        raise KernelError(f"Axis must be within range [{-points}, {points - 1}]. Axis is {place}", InvalidArgument)
    return np.expand_dims(X, place)


@contrib("UnfoldTensor", view=FIRST)
def unfold_tensor(input, size, dim=-1, step=1):
    axis = normal_axis(dim, input.ndim)
    if not 1 <= size <= input.shape[axis] or step < 1:
        raise KernelError(
            f"slices of {size} elements, {step} apart, cannot be taken from axis {axis} of {braced(input.shape)}",
            InvalidArgument,
        )
    windows = np.lib.stride_tricks.sliding_window_view(input, size, axis=axis)
    return windows[(slice(None),) * axis + (slice(None, None, step),)]


@contrib("ConvTransposeWithDynamicPads", widen=True)
def conv_transpose_with_dynamic_pads(X, W, Pads=None, B=None, **attributes):
    return conv_transpose(X, W, B, pads=None if Pads is None else Pads.tolist(), **attributes)


# --- CropAndResize


@contrib("CropAndResize", widen=True)
def crop_and_resize(X, rois, batch_indices, crop_size, mode="bilinear", extrapolation_value=0.0):
    if mode not in ("bilinear", "nearest"):
        raise KernelError(f"mode must be bilinear or nearest, not {mode!r}", InvalidArgument)
    if crop_size.shape != (2,) or rois.shape != (*batch_indices.shape, 4):
        shapes = f"{list(crop_size.shape)}, {list(rois.shape)} and {list(batch_indices.shape)}"
        raise KernelError(
            f"the shapes of crop_size, rois and batch_indices, {shapes}, must be [2], [n, 4] and [n]", InvalidArgument
        )
    shape = bounded((len(rois), X.shape[1], *crop_size), X.dtype)
    if 0 in shape:  # no image is looked into
        return np.empty(shape, X.dtype)
    if not 0 <= batch_indices.min() <= batch_indices.max() < len(X):
        raise KernelError(f"batch_indices {batch_indices.tolist()} go beyond {len(X)} images", InvalidArgument)
    height, width = X.shape[2:]
    rows = _positions(rois[:, 0], rois[:, 2], int(crop_size[0]), height)
    columns = _positions(rois[:, 1], rois[:, 3], int(crop_size[1]), width)
    inside = _within(rows, height)[:, :, None] & _within(columns, width)[:, None, :]
    rows, columns = np.clip(rows, 0, max(0, height - 1)), np.clip(columns, 0, max(0, width - 1))
    image_of = batch_indices[:, None, None]
    if mode == "nearest":
        crops = X[image_of, :, _nearest(rows)[:, :, None], _nearest(columns)[:, None, :]]
    else:
        crops = _interpolated(X, image_of, rows, columns)
    crops = np.where(inside[..., None], crops, X.dtype.type(extrapolation_value))
    return crops.transpose(0, 3, 1, 2)


def _positions(first, last, count, size):
    """Where the pixels of a crop stand in the image; the outer ones stand on the edges of the region."""
    edge = first.dtype.type(size - 1)
    if count == 1:
        return ((first + last) * edge / 2)[:, None]
    step = (last - first) * edge / first.dtype.type(max(1, count - 1))
    return (first * edge)[:, None] + np.arange(count, dtype=first.dtype) * step[:, None]


def _within(positions, size):
    return (positions >= 0) & (positions <= size - 1)


def _nearest(positions):
    return np.floor(positions + positions.dtype.type(0.5)).astype(np.int64)


def _interpolated(X, image_of, rows, columns):
    """Values between four pixels, (region, row, column, channel)."""
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    bottom, right = np.ceil(rows).astype(np.int64), np.ceil(columns).astype(np.int64)
    down, across = (rows - top).astype(X.dtype)[:, :, None, None], (columns - left).astype(X.dtype)[:, None, :, None]

    def line(row):
        before, after = X[image_of, :, row[:, :, None], left[:, None]], X[image_of, :, row[:, :, None], right[:, None]]
        return before + (after - before) * across

    above, below = line(top), line(bottom)
    return above + (below - above) * down
