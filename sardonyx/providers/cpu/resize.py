"""Resize and Upsample, in NumPy. Each axis is resized alone: by a gather, or by a weighted sum of a few gathers."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.ops.image import kept_ratio, scaled_size
from sardonyx.providers.cpu.sampling import as_elements, cubic_weight
from sardonyx.providers.cpu.shape import bounded, normal_axes
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class ResizedAxis:
    """How one axis is resized. A given scale is a float32 and used as such; one that follows from sizes is taken as a fraction."""

    axis: int
    length: int
    resized: int
    scale: np.float32
    width: float
    """What `resized` would be if it needed not be whole."""
    by_size: bool
    start: np.float32
    end: np.float32

    @property
    def changes(self) -> bool:
        return self.resized != self.length or self.scale != 1 or self.start != 0 or self.end != 1

    def unscaled(self, x: np.ndarray) -> np.ndarray:
        """`x / scale`, without rounding errors that would tip a tie between two pixels."""
        return x.astype(np.float64) * self.length / self.resized if self.by_size else x / self.scale


@cpu.kernel("Resize", since=11, widen=True)
def resize(
    X,
    roi=None,
    scales=None,
    sizes=None,
    antialias=0,
    axes=None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    for name, numbers in (("scales", scales), ("sizes", sizes)):
        if numbers is not None and np.ndim(numbers) != 1:
            raise KernelError(f"{name} must have one axis, not {np.ndim(numbers)}")
    cropping = coordinate_transformation_mode == "tf_crop_and_resize"
    plan = plan_in_memory(X, roi if cropping else None, scales, sizes, axes, keep_aspect_ratio_policy)
    transform = COORDINATES.get(coordinate_transformation_mode)
    if transform is None:
        raise KernelError(f"coordinate_transformation_mode is {coordinate_transformation_mode!r}, which Resize does not know")
    positions = {step.axis: transform(step, np.arange(step.resized, dtype=np.float32)) for step in plan if step.changes}
    steps = [step for step in plan if step.changes]
    if mode == "nearest":
        Y = _gather(X, {step.axis: nearest_pixels(positions[step.axis], step.length, nearest_mode) for step in steps})
    elif mode in ("linear", "cubic"):
        stencils = {
            step: stencil(step, positions[step.axis], mode, antialias, exclude_outside, cubic_coeff_a) for step in steps
        }
        Y = _interpolate(X, stencils, rounded=bool(antialias))
    else:
        raise KernelError(f"mode is {mode!r}, expected 'nearest', 'linear' or 'cubic'")
    return _extrapolate(Y, plan, positions, extrapolation_value) if cropping else Y


@cpu.kernel("Resize", "Upsample", until=10, widen=True)
def upsample(X, scales=None, mode="nearest", height_scale=None, width_scale=None):
    """Until opset 10 an output pixel stands at the input pixel `index / scale`; nearest means the one below, or above when shrinking."""
    if scales is None:
        scales = [1, 1, height_scale, width_scale]
    if mode in ("linear", "bilinear"):
        return resize(X, scales=scales, mode="linear", coordinate_transformation_mode="asymmetric")
    if mode != "nearest":
        raise KernelError(f"mode is {mode!r}, expected 'nearest' or 'linear'")
    indices = {}
    for step in plan_in_memory(X, None, scales, None, None, "stretch"):
        if step.changes:
            positions = _asymmetric(step, np.arange(step.resized, dtype=np.float32))
            indices[step.axis] = nearest_pixels(positions, step.length, "ceil" if step.scale < 1 else "floor")
    return _gather(X, indices)


# --- sizes ----------------------------------------------------------------------------------------------------------


def plan_in_memory(X, roi, scales, sizes, axes, policy) -> list[ResizedAxis]:
    """How the axes of an image are resized, if there is memory for the result."""
    plan = plan_axes(X.shape, roi, scales, sizes, axes, policy)
    resized = list(X.shape)
    for step in plan:
        resized[step.axis] = step.resized
    bounded(resized, X.dtype)
    return plan


def plan_axes(shape, roi, scales, sizes, axes, policy) -> list[ResizedAxis]:
    """How the axes are resized that `axes` names, or all."""
    axes = range(len(shape)) if axes is None else normal_axes(axes, len(shape))
    lengths = [shape[axis] for axis in axes]
    starts, ends = _split_roi(roi, len(lengths))
    if scales is not None and len(scales):
        return [
            _scaled_axis(*step) for step in zip(axes, lengths, _counted(scales, lengths, "scales"), starts, ends, strict=True)
        ]
    if sizes is None:
        raise KernelError("either scales or sizes must be given")
    sizes = [int(size) for size in _counted(sizes, lengths, "sizes")]
    ratios = [np.float32(size) / np.float32(max(1, length)) for size, length in zip(sizes, lengths, strict=True)]
    stretched = policy == "stretch"
    if not stretched:
        sizes, ratio = kept_ratio(lengths, sizes, policy)
        ratios = [ratio] * len(sizes)
    return [
        ResizedAxis(axis, length, size, ratio, size, stretched, start, end)
        for axis, length, size, ratio, start, end in zip(axes, lengths, sizes, ratios, starts, ends, strict=True)
    ]


def _counted(values, lengths, name):
    if len(values) != len(lengths):
        raise KernelError(f"{name} has {len(values)} elements, expected one for each of {len(lengths)} axes")
    return values


def _split_roi(roi, count):
    if roi is None or not len(roi):
        return [np.float32(0)] * count, [np.float32(1)] * count
    roi = roi.astype(np.float32)
    return list(roi[:count]), list(roi[count:])


def _scaled_axis(axis, length, scale, start, end):
    scale = np.float32(scale)
    if not scale > 0:
        raise KernelError(f"Scale value should be greater than 0, got {scale}")
    return ResizedAxis(axis, length, scaled_size(length, scale), scale, float(np.float32(length) * scale), False, start, end)


# --- coordinates: where an output pixel stands in the input ---------------------------------------------------------

HALF = np.float32(0.5)


def _half_pixel(step, x):
    return step.unscaled(x + HALF) - HALF


def _half_pixel_symmetric(step, x):
    offset = np.float32(step.length / 2 * (1 - step.resized / step.width))
    return offset + step.unscaled(x + HALF) - HALF


def _pytorch_half_pixel(step, x):
    return _half_pixel(step, x) if step.resized > 1 else np.zeros_like(x)


def _align_corners(step, x):
    """By the number of pixels, as the text of the standard has it; its reference takes the length times the scale, and misses corners."""
    return x * np.float32(step.length - 1) / np.float32(step.resized - 1) if step.resized != 1 else np.zeros_like(x)


def _asymmetric(step, x):
    return step.unscaled(x)


def _tf_half_pixel_for_nn(step, x):
    return step.unscaled(x + HALF)


def _tf_crop_and_resize(step, x):
    last = np.float32(step.length - 1)
    if step.resized <= 1:
        return np.full_like(x, HALF * (step.start + step.end) * last)
    return step.start * last + x * (step.end - step.start) * last / np.float32(step.resized - 1)


COORDINATES = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
    "tf_crop_and_resize": _tf_crop_and_resize,
}


# --- pixels ---------------------------------------------------------------------------------------------------------


def nearest_pixels(positions, length, nearest_mode):
    below = np.floor(positions)
    above = {
        "floor": lambda rest: rest < 0,
        "ceil": lambda rest: rest > 0,
        "round_prefer_floor": lambda rest: rest > 0.5,
        "round_prefer_ceil": lambda rest: rest >= 0.5,
    }.get(nearest_mode)
    if above is None:
        raise KernelError(f"nearest_mode is {nearest_mode!r}, which Resize does not know")
    return np.clip((below + above(positions - below)).astype(np.int64), 0, max(length - 1, 0))


def _gather(X, indices):
    """Pick indices along some axes, the inner ones first: then the outer ones move whole rows."""
    for axis in sorted(indices, reverse=True):
        X = np.take(X, indices[axis], axis=axis)
    return X


def stencil(step, positions, mode, antialias, exclude_outside, cubic_coeff_a):
    """The pixels, (outputs, taps), that each output of an axis is made of, and their weights."""
    squeeze = min(step.scale, np.float32(1)) if antialias else np.float32(1)
    reach = (1 if mode == "linear" else 2) / squeeze
    pixels = (np.floor(positions - reach) + 1).astype(np.int64)[:, np.newaxis] + np.arange(int(np.ceil(2 * reach)))
    distances = (pixels - positions[:, np.newaxis]).astype(positions.dtype) * squeeze
    if mode == "linear":
        weights = np.maximum(1 - np.abs(distances), 0)
    else:
        weights = cubic_weight(distances, positions.dtype.type(cubic_coeff_a))
    if exclude_outside:
        weights = np.where((pixels < 0) | (pixels >= step.length), 0, weights)
    if exclude_outside or squeeze != 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(pixels, 0, max(step.length - 1, 0)), weights


def _interpolate(X, stencils, rounded):
    """Apply the stencils, those first that leave least to do for the others; of integers, whose last bits count, the first axis first."""
    dtype = _working_type(X.dtype)
    Y = X.astype(dtype, copy=False)
    for step in sorted(stencils, key=lambda step: step.resized / max(1, step.length) if X.dtype == dtype else step.axis):
        pixels, weights = stencils[step]
        weights = weights.astype(np.finfo(dtype).dtype).reshape(*weights.shape, *(1,) * (X.ndim - step.axis - 1))
        total = None
        for tap in watched(range(pixels.shape[1])):
            part = np.take(Y, pixels[:, tap], axis=step.axis)
            part *= weights[:, tap]
            total = part if total is None else np.add(total, part, out=total)
        Y = total
    return as_elements(Y, X.dtype, rounded)


def _working_type(dtype):
    if dtype.kind == "O":
        raise KernelError("strings can only be resized with mode 'nearest'")
    if dtype.kind in "fc":
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def _extrapolate(Y, plan, positions, value):
    """tf_crop_and_resize reads a constant where it leaves the image."""
    if Y.dtype.kind == "O":
        raise KernelError("strings cannot be extrapolated")
    for step in plan:
        if step.axis in positions:
            outside = (positions[step.axis] < 0) | (positions[step.axis] > step.length - 1)
            Y = np.where(outside.reshape(-1, *(1,) * (Y.ndim - step.axis - 1)), Y.dtype.type(value), Y)
    return Y
