"""Reading an image between its pixels: interpolation at arbitrary coordinates, for GridSample and deformable convolution."""

from __future__ import annotations

import itertools
import math

import numpy as np

CUBIC_COEFFICIENT = -0.75


def sample(image, coordinates, mode, outside="zeros", align_corners=False):
    """Values of `image` (C, *spatial) at `coordinates`, one array of equal shape per spatial axis, in pixels: (C, *shape).

    `mode` is "nearest", "linear" or "cubic"; `outside` says what lies beyond the border: "zeros", "border" or "reflection".
    """
    coordinates = [_bounded(positions, size) for positions, size in zip(coordinates, image.shape[1:], strict=True)]
    stencils = [STENCILS[mode](positions) for positions in coordinates]
    flat = image.reshape(len(image), math.prod(image.shape[1:]))
    total = None
    for choice in itertools.product(*stencils):
        pixels = [place(pixel, size, outside, align_corners) for (pixel, _), size in zip(choice, image.shape[1:], strict=True)]
        values = _gather(flat, image.shape[1:], pixels)
        if mode == "nearest":
            return values
        weight = np.ones((), coordinates[0].dtype)
        for _, factor in choice:
            weight = weight * factor
        values *= weight.astype(values.dtype, copy=False)
        total = values if total is None else np.add(total, values, out=total)
    return total


def _bounded(positions, size):
    """Coordinates that are safe as integers; NaN is outside, far away stays far away."""
    reach = 2.0**22 + size if positions.dtype == np.float32 else 2.0**40
    return np.clip(np.nan_to_num(positions, nan=-reach), -reach, reach)


def nearest_stencil(positions):
    return ((np.rint(positions).astype(np.int64), None),)


def linear_stencil(positions):
    below = np.floor(positions)
    fraction = positions - below
    pixel = below.astype(np.int64)
    return (pixel, 1 - fraction), (pixel + 1, fraction)


def cubic_stencil(positions):
    below = np.floor(positions)
    fraction = positions - below
    pixel = below.astype(np.int64)
    return tuple((pixel + step, cubic_weight(fraction - step, CUBIC_COEFFICIENT)) for step in (-1, 0, 1, 2))


STENCILS = {"nearest": nearest_stencil, "linear": linear_stencil, "cubic": cubic_stencil}


def cubic_weight(distance, a):
    """Keys' convolution kernel with coefficient `a` (doi 10.1109/TASSP.1981.1163711, eq. 4)."""
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.where(t < 1, near, np.where(t < 2, far, 0)).astype(t.dtype)


def place(pixel, size, outside, align_corners):
    """Where pixels beyond the border are read; -1 where there is nothing to read."""
    if outside == "border":
        return np.clip(pixel, 0, size - 1)
    if outside == "reflection":
        return _reflected(pixel, size, align_corners)
    return np.where((pixel < 0) | (pixel >= size), -1, pixel)


def _reflected(pixel, size, align_corners):
    """Mirror at the centre of the border pixels, or at their outer edge."""
    period = 2 * (size - 1) if align_corners else 2 * size
    if period == 0:
        return np.zeros_like(pixel)
    folded = pixel % period
    return np.minimum(folded, period - folded if align_corners else period - 1 - folded)


def _gather(flat, sizes, pixels):
    """Pixels of (C, S) by their per-axis index; -1 on any axis reads as zero."""
    missing = np.zeros(np.shape(pixels[0]), bool)
    index = np.zeros(np.shape(pixels[0]), np.int64)
    for pixel, size in zip(pixels, sizes, strict=True):
        missing |= pixel < 0
        index = index * size + pixel
    if flat.shape[1] == 0:
        return np.zeros((len(flat), *index.shape), flat.dtype)
    index[missing] = 0
    values = np.take(flat, index, axis=1)
    if missing.any():
        values[:, missing] = "" if flat.dtype == object else 0
    return values


def as_elements(Y, dtype, rounded=False):
    """What was computed as elements of a result: integers are cut off, or rounded, and saturate."""
    if dtype.kind not in "iu" or Y.dtype == dtype:
        return Y.astype(dtype, copy=False)
    return np.clip(np.rint(Y) if rounded else Y, *limits_of(dtype, Y.dtype)).astype(dtype)


def limits_of(dtype, floats):
    """The nearest floats within the limits of integers, for float64 does not hold the largest int64."""
    limits, floats = np.iinfo(dtype), np.dtype(floats).type
    low, high = floats(limits.min), floats(limits.max)
    return low, high if int(high) <= limits.max else np.nextafter(high, low)
