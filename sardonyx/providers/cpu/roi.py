"""Pools over regions of interest, in NumPy. Regions differ in size, so they are taken one after the other."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers import memory_limit
from sardonyx.providers.cpu.pool import lowest
from sardonyx.providers.cpu.shape import bounded
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched


@cpu.kernel("MaxRoiPool", widen=True)
def max_roi_pool(X, rois, pooled_shape, spatial_scale=1.0):
    height, width = pooled_shape
    Y = np.zeros(bounded((len(rois), X.shape[1], height, width), X.dtype), X.dtype)
    for region, (batch, *corners) in watched(zip(Y, rois, strict=True)):
        image = _image(X, int(batch))
        # half away from zero, as in C's round
        x1, y1, x2, y2 = (int(np.copysign(np.floor(np.abs(c) * spatial_scale + 0.5), c)) for c in corners)
        rows = _bins(y1, y2, height, X.shape[2])
        columns = _bins(x1, x2, width, X.shape[3])
        _max_of_bins(_max_of_bins(image, rows, axis=1), columns, axis=2, out=region)
    return Y


def _image(X, batch):
    if not 0 <= batch < len(X):
        raise KernelError(f"Invalid batch index, {batch} is not within the batch of {len(X)}")
    return X[batch]


def _bins(first, last, count, size):
    """Begin and end of each bin of a region, clipped to the image."""
    width = np.float32(max(last - first + 1, 1)) / np.float32(count)
    edges = np.arange(count, dtype=np.float32)
    begin = np.floor(edges * width).astype(np.int64) + first
    end = np.ceil((edges + 1) * width).astype(np.int64) + first
    return np.clip(begin, 0, size), np.clip(end, 0, size)


def _max_of_bins(image, bins, axis, out=None):
    """The maximum of each bin along an axis; an empty bin counts as -inf between the axes and as 0 in the end."""
    begin, end = bins
    shape = list(image.shape)
    shape[axis] = len(begin)
    result = np.full(shape, lowest(image.dtype), image.dtype)
    filled = end > begin
    if filled.any():
        # reduceat takes from each index to the next one, so every other result is a bin; the added row keeps `end` in range
        padded = np.concatenate([image, np.full_like(image[(slice(None),) * axis + (slice(1),)], -np.inf)], axis=axis)
        edges = np.stack([begin[filled], end[filled]], axis=1).reshape(-1)
        maxima = np.maximum.reduceat(padded, edges, axis=axis)
        result[(slice(None),) * axis + (filled,)] = maxima[(slice(None),) * axis + (slice(0, None, 2),)]
    if out is None:
        return result
    out[...] = np.where(np.isneginf(result), 0, result)
    return out


@cpu.kernel("RoiAlign", widen=True)
def roi_align(
    X,
    rois,
    batch_indices,
    coordinate_transformation_mode="output_half_pixel",
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    """Version 10 knows no coordinate_transformation_mode; its pixels are those of output_half_pixel."""
    shifted = coordinate_transformation_mode == "half_pixel"
    Y = np.empty(bounded((len(rois), X.shape[1], output_height, output_width), X.dtype), X.dtype)
    pool = _average_samples if mode == "avg" else _max_samples
    for region, corners, batch in watched(zip(Y, rois, batch_indices, strict=True)):
        x1, y1, x2, y2 = corners * rois.dtype.type(spatial_scale) - rois.dtype.type(0.5 if shifted else 0)
        rows = _Samples(y1, y2, output_height, sampling_ratio, X.shape[2], shifted)
        columns = _Samples(x1, x2, output_width, sampling_ratio, X.shape[3], shifted)
        region[...] = pool(_image(X, int(batch)), rows, columns)
    return Y


MAX_SAMPLES = 1 << 20
"""Along an axis of a region: a hostile region or ratio must not keep us busy forever."""


class _Samples:
    """Sampling points of a region along one axis: `per_bin` for each bin, each between the pixels `low` and `high`."""

    def __init__(self, first, last, bins, sampling_ratio, size, shifted):
        length = last - first if shifted else max(last - first, last.dtype.type(1))
        step = length / bins
        self.bins = bins
        if not np.isfinite(first) or not np.isfinite(step):
            raise KernelError(f"the corners of a region must be finite, along an axis they are {first} and {last}")
        self.per_bin = max(0, sampling_ratio if sampling_ratio > 0 else int(np.ceil(step)))
        if bins * self.per_bin > MAX_SAMPLES:
            raise KernelError(f"a region of {length} pixels in {bins} bins takes {bins * self.per_bin} samples along an axis")
        ticks = (np.arange(self.per_bin) + 0.5) / max(1, self.per_bin) + np.arange(bins)[:, np.newaxis]
        points = (first + ticks * step).reshape(-1).astype(last.dtype)
        self.inside = (points >= -1) & (points <= size)
        points = np.clip(points, 0, max(size - 1, 0))
        self.low = np.floor(points).astype(np.int64)
        self.high = np.minimum(self.low + 1, max(size - 1, 0))
        self.high_weight = np.where(self.inside, points - self.low, 0).astype(last.dtype)
        self.low_weight = np.where(self.inside, 1 - (points - self.low), 0).astype(last.dtype)

    def averaging(self):
        """First pixel read and the matrix (bins, pixels) that averages each bin's samples."""
        first = int(self.low.min()) if len(self.low) else 0
        count = int(self.high.max(initial=0)) + 1 - first
        matrix = np.zeros((self.bins, count), self.low_weight.dtype)
        bins = np.repeat(np.arange(self.bins), self.per_bin)
        np.add.at(matrix, (bins, self.low - first), self.low_weight)
        np.add.at(matrix, (bins, self.high - first), self.high_weight)
        return first, matrix / max(1, self.per_bin)


def _average_samples(image, rows, columns):
    """Interpolating and averaging are linear, and separate by axis: two small products."""
    top, row_matrix = rows.averaging()
    left, column_matrix = columns.averaging()
    patch = image[:, top : top + row_matrix.shape[1], left : left + column_matrix.shape[1]]
    return np.matmul(row_matrix, np.matmul(patch, column_matrix.T))


def _max_samples(image, rows, columns):
    """The largest weighted corner of a bin's samples."""
    memory_limit.require(len(image) * len(rows.low) * len(columns.low) * image.itemsize, "the samples of a region")
    total = None
    for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight)):
        for column, column_weight in ((columns.low, columns.low_weight), (columns.high, columns.high_weight)):
            corner = image[:, row[:, np.newaxis], column] * (row_weight[:, np.newaxis] * column_weight)
            total = corner if total is None else np.maximum(total, corner)
    if not total.size:
        return 0
    return total.reshape(len(image), rows.bins, rows.per_bin, columns.bins, columns.per_bin).max(axis=(2, 4))
