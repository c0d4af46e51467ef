"""Deformable convolution, in NumPy: columns are interpolated where Conv copies them."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.providers.cpu.conv import COLUMN_BYTES, check_channels, per_channel
from sardonyx.providers.cpu.sampling import sample
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.cpu.window import boxes, make_window
from sardonyx.providers.termination import watched


@cpu.kernel("DeformConv", widen=True)
def deform_conv(
    X, W, offset, B=None, mask=None, dilations=None, group=1, kernel_shape=None, offset_group=1, pads=None, strides=None
):
    check_channels(X, W, group, kernel_shape)
    window = make_window(X.shape[2:], W.shape[2:], strides, dilations, pads)
    batch, rank, taps = len(X), X.ndim - 2, math.prod(window.kernel)
    offsets = offset.reshape(batch, offset_group, taps, rank, *window.output)
    masks = None if mask is None else mask.reshape(batch, offset_group, 1, taps, *window.output)
    weights = W.reshape(group, len(W) // group, math.prod(W.shape[1:]))
    Y = np.empty((batch, len(W), *window.output), X.dtype)
    column_bytes = max(1, X.shape[1] * taps * X.itemsize)
    for image in watched(range(batch)):
        for place in boxes(window.output, max(1, COLUMN_BYTES // column_bytes)):
            columns = _columns(X[image], offsets[(image, ..., *place)], window, place)
            if masks is not None:
                columns *= masks[(image, ..., *place)]
            positions = columns.shape[3:]
            products = np.matmul(weights, columns.reshape(group, weights.shape[2], math.prod(positions)))
            Y[(image, slice(None), *place)] = products.reshape(len(W), *positions)
    if B is not None:
        Y += per_channel(B, Y.ndim)
    return Y


def _columns(image, offsets, window, place):
    """Interpolated pixels under the taps, (offset_group, channels, taps, *positions), at some of the window's positions."""
    groups = len(offsets)
    channels = image.reshape(groups, len(image) // groups, *image.shape[1:])
    grid = [_tap_positions(window, axis, place) for axis in range(len(place))]
    sampled = (
        sample(some, [grid[axis] + moves[:, axis] for axis in range(len(place))], "linear")
        for some, moves in zip(channels, offsets, strict=True)
    )
    return np.stack(list(sampled))


def _tap_positions(window, axis, place):
    """Coordinates along one axis, (taps, *positions), before they are moved by the offsets; integers, so any float type stays."""
    tap_index = np.indices(window.kernel)[axis].reshape(math.prod(window.kernel), *(1,) * len(place))
    starts = np.arange(place[axis].start, place[axis].stop) * window.strides[axis] - window.begin[axis]
    shape = [1] * len(place)
    shape[axis] = -1
    return (tap_index * window.dilations[axis] + starts.reshape(shape)).astype(np.float32)
