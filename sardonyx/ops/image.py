"""Inference of resizing, sampling and decoding images; how large a resized image is, the kernels ask here too."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import by_entry, exact_if
from sardonyx.ops.reading import operand
from sardonyx.ops.shapes import axis_indices, fresh_shape
from sardonyx.ops.table import infer


def _keeps_entries(node, batched):
    """A crop may be of entries, too."""
    return batched[0] and operand(node, "coordinate_transformation_mode") != "tf_crop_and_resize"


@infer("Resize", has_layout=True, rows=_keeps_entries)
def resize(X, roi, scales, sizes, axes, keep_aspect_ratio_policy):
    wanted = next((o for o in (scales, sizes) if o is not None and o.shape != (0,)), None)
    if wanted is None:
        raise InferenceError("either scales or sizes must be given")
    wanted.require_rank(1, name="scales" if wanted is scales else "sizes")
    if X.shape is None:
        return _fresh_of(wanted) if axes is None else None
    axes = range(X.rank) if axes is None else axis_indices(axes, X.rank)
    count = wanted.shape[0] if wanted.shape else None
    if isinstance(count, int) and count != len(axes):
        raise InferenceError(
            f"{'scales' if wanted is scales else 'sizes'} has {count} elements, but {len(axes)} axes are resized"
        )
    resized = list(X.shape)
    for axis, size in zip(axes, _sizes_of(wanted, wanted is scales, [X.shape[a] for a in axes], keep_aspect_ratio_policy)):
        resized[axis] = size
    return tuple(resized)


def _fresh_of(vector):
    count = vector.shape[0] if vector.shape else None
    return fresh_shape(count) if isinstance(count, int) else None


def _sizes_of(wanted, are_scales, lengths, policy):
    if wanted.value is None:
        return fresh_shape(len(lengths))
    if are_scales:
        return [scaled_size(length, scale) for length, scale in zip(lengths, wanted.value.tolist())]
    if policy in (None, "stretch"):
        return wanted.dims
    if wanted.ints is None or not all(isinstance(length, int) for length in lengths):
        return fresh_shape(len(lengths))
    return kept_ratio(lengths, wanted.ints, policy)[0]


def scaled_size(length, scale):
    """`length * scale` rounded down. Scales are float32, and so is the product; a symbolic one must be exact.

    Resize's text multiplies by the region's extent too; the standard's own shape inference does not, nor does any engine.
    """
    scale = np.float32(scale)
    if not 0 < scale < np.inf:
        raise InferenceError(f"a scale must be positive, it is {scale}")
    if isinstance(length, int):
        return math.floor(np.float32(length) * scale)
    numerator, denominator = float(scale).as_integer_ratio()
    return dim.floordiv(length * numerator, denominator) if denominator <= 64 else dim.fresh()


def kept_ratio(lengths, sizes, policy):
    """Sizes with the proportions of `lengths`, within `sizes` (not_larger) or around them, and their common scale."""
    ratios = [np.float32(size) / np.float32(max(1, length)) for size, length in zip(sizes, lengths)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(ratio * np.float32(length) + np.float32(0.5)) for length in lengths], ratio


@infer("Upsample", rows=by_entry, precision=exact_if("mode", "nearest"))
def upsample(X, scales, height_scale, width_scale):
    if scales is None:
        X.require_rank(4, name="X")
        factors = [1, 1, height_scale, width_scale]
    elif scales.value is None:
        return _fresh_of(scales) if X.rank is None else fresh_shape(X.rank)
    else:
        factors = scales.value.reshape(-1).tolist()
    if X.shape is None:
        return fresh_shape(len(factors))
    if len(factors) != X.rank:
        raise InferenceError(f"scales has {len(factors)} elements, but X has rank {X.rank}")
    return tuple(scaled_size(length, scale) for length, scale in zip(X.shape, factors))


@infer("GridSample", has_layout=True)
def grid_sample(X, grid):
    rank = X.rank if grid.rank is None else grid.rank
    if rank is None:
        return None
    if None not in (X.rank, grid.rank) and X.rank != grid.rank:
        raise InferenceError(f"X has rank {X.rank}, grid has rank {grid.rank}")
    if rank < 3:
        raise InferenceError(f"X must have spatial axes, it has rank {rank}")
    images, points = X.shape or fresh_shape(rank), grid.shape or fresh_shape(rank)
    return images[0], images[1], *points[1:-1]


@infer("AffineGrid")
def affine_grid(theta, size):
    theta.require_rank(3, name="theta")
    count = (size.require_rank(1, name="size") or (None,))[0]
    if isinstance(count, int) and count not in (4, 5):
        raise InferenceError(f"size must be 4 or 5 numbers, it has {count}")
    if size.dims is None:
        axes = theta.shape[1] if theta.shape is not None else size.shape[0] - 2 if size.shape else None
        return (*fresh_shape(axes + 1), axes) if isinstance(axes, int) else None
    batch, _, *spatial = size.dims
    return batch, *spatial, len(spatial)


@infer("ImageDecoder")
def image_decoder(encoded_stream, pixel_format):
    encoded_stream.require_rank(1, name="encoded_stream")
    return *fresh_shape(2), 1 if pixel_format == "Grayscale" else 3
