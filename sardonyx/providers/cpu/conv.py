"""Convolutions of floats, their transposes, and Col2Im, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.window import NOT_SET, SAME, distribute_pads, span_of, transposed_size
from sardonyx.providers.cpu import window as geometry
from sardonyx.providers.cpu.activation import swish
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.cpu.window import Window, boxes, fold, make_window, padded, per_axis, split_pads
from sardonyx.providers.termination import watched

COLUMN_BYTES = 32 << 20
"""Largest buffer of unfolded windows."""

CACHE_BYTES = 256 << 10
"""Largest piece of an image whose taps are added up in one go, so that it stays in the cache."""


@cpu.kernel("Conv", widen=True)
def conv(X, W, B=None, group=1, auto_pad="NOTSET", dilations=None, kernel_shape=None, pads=None, strides=None):
    check_channels(X, W, group, kernel_shape)
    window = make_window(X.shape[2:], W.shape[2:], strides, dilations, pads, auto_pad, refusal=InvalidArgument)
    Y = convolve(X, W, window, group)
    if B is not None:
        Y += per_channel(B, Y.ndim)
    return Y


def check_channels(X, W, group, kernel_shape=None):
    check_kernel_shape(W, kernel_shape)
    if X.ndim != W.ndim:
        raise KernelError(f"Input X must be {W.ndim}-dimensional as W is. X: {list(X.shape)}, W: {list(W.shape)}")
    if X.shape[1] != W.shape[1] * group or W.shape[0] % group:
        reason = "Input channels C is not equal to kernel channels * group."
        raise KernelError(f"{reason} C: {X.shape[1]} kernel channels: {W.shape[1]} group: {group}")


def check_kernel_shape(W, kernel_shape):
    if kernel_shape and tuple(kernel_shape) != W.shape[2:]:
        raise KernelError(f"kernel_shape is not compatible with W shape. kernel_shape: {kernel_shape} W: {list(W.shape)}")


def per_channel(values, rank):
    """A vector of channels, shaped to broadcast over (N, C, ...)."""
    return values.reshape(-1, *(1,) * (rank - 2))


def convolve(X, W, window: Window, group):
    """Slide W over X, both of one float type, and return a new array."""
    X = padded(X, window)
    if W.shape[1] == 1 and group > 1:
        return _convolve_depthwise(X, W, window)
    if math.prod(window.kernel) == 1:
        return _convolve_pointwise(geometry.tap_view(X, window, (0,) * len(window.kernel)), W, group)
    return _convolve_unfolded(X, W, window, group)


def _convolve_pointwise(X, W, group):
    batch, channels, *spatial = X.shape
    pixels = X.reshape(batch, group, channels // group, math.prod(spatial))
    weights = W.reshape(group, len(W) // group, channels // group)
    return np.matmul(weights, pixels).reshape(batch, len(W), *spatial)


def _convolve_depthwise(X, W, window):
    """Each channel has filters of its own: add up the taps, a few channels at a time."""
    batch, channels, multiplier = len(X), X.shape[1], len(W) // X.shape[1]
    Y = np.zeros((batch, channels, multiplier, *window.output), X.dtype)
    filters = W.reshape(channels, multiplier, *W.shape[2:])
    X = X[:, :, np.newaxis]
    plane_bytes = multiplier * math.prod(window.output) * X.itemsize
    for images, some in boxes((batch, channels), max(1, CACHE_BYTES // max(1, plane_bytes))):
        total, product = Y[images, some], np.empty_like(Y[images, some])
        for tap in watched(window.taps()):
            weight = filters[(some, slice(None), *tap)].reshape(some.stop - some.start, multiplier, *(1,) * len(tap))
            np.multiply(geometry.tap_view(X[images, some], window, tap), weight, out=product)
            total += product
    return Y.reshape(batch, channels * multiplier, *window.output)


def _convolve_unfolded(X, W, window, group):
    """Copy the pixels under the windows into columns and multiply: one product per group and image."""
    batch, channels, *_ = X.shape
    rank, filters, depth = len(window.kernel), len(W) // group, math.prod(W.shape[1:])
    views = geometry.windows(X.reshape(batch, group, channels // group, *X.shape[2:]), window)
    weights = W.reshape(group, filters, depth)
    Y = np.empty((batch, group, filters, *window.output), X.dtype)
    column_bytes = max(1, group * depth * X.itemsize)
    for images, *place in boxes((batch, *window.output), max(1, COLUMN_BYTES // column_bytes)):
        view = views[(images, ..., *place)]
        positions = view.shape[-rank:]
        columns = view.reshape(len(view), group, depth, math.prod(positions))
        products = np.matmul(weights, columns)
        Y[(images, slice(None), slice(None), *place)] = products.reshape(len(view), group, filters, *positions)
    return Y.reshape(batch, len(W), *window.output)


@cpu.kernel("ConvTranspose", widen=True)
def conv_transpose(
    X,
    W,
    B=None,
    group=1,
    auto_pad="NOTSET",
    dilations=None,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
):
    check_kernel_shape(W, kernel_shape)
    if X.ndim != W.ndim or X.shape[1] != W.shape[0] or W.shape[0] % group:
        raise KernelError(f"X {list(X.shape)} and W {list(W.shape)} differ in channels or rank, group is {group}")
    window, image = transposed_window(
        X.shape[2:], W.shape[2:], strides, dilations, pads, auto_pad, output_padding, output_shape
    )
    Y = convolve_transposed(X, W, window, image, group)
    if B is not None:
        Y += per_channel(B, Y.ndim)
    return Y


def transposed_window(input, kernel, strides, dilations, pads, auto_pad, output_padding, output_shape):
    """The window that slides over the output with one position per input pixel, and the output's spatial sizes."""
    rank = len(input)
    strides, dilations = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    extra = per_axis(output_padding, rank, "output_padding") if output_padding else (0,) * rank
    spans = map(span_of, kernel, dilations)
    full = [transposed_size(*axis) for axis in zip(input, spans, strides, extra, strict=True)]
    if output_shape is not None and len(output_shape):
        sizes = [int(size) for size in output_shape[-rank:]]  # some old models give batch and channels too
    elif auto_pad in SAME:
        sizes = [i * s for i, s in zip(input, strides, strict=True)]
    else:
        begin, end = split_pads(pads if auto_pad in NOT_SET else None, rank)
        sizes = [f - b - e for f, b, e in zip(full, begin, end, strict=True)]
        if min(sizes) < 0 and 0 not in input:
            raise KernelError(f"a size of the result would be negative: {sizes}")
        sizes = [max(0, size) for size in sizes]
        return Window(tuple(kernel), strides, dilations, begin, end, tuple(input)), tuple(sizes)
    totals = [max(0, f - size) for f, size in zip(full, sizes, strict=True)]
    begin, end = distribute_pads(totals, auto_pad)
    return Window(tuple(kernel), strides, dilations, begin, end, tuple(input)), tuple(sizes)


def convolve_transposed(X, W, window, image, group):
    """Spread every pixel of X over the window it stands for, a few output channels at a time."""
    batch, channels, filters = len(X), X.shape[1] // group, W.shape[1]
    pixels = X.reshape(batch, group, channels, math.prod(window.output))
    weights = np.moveaxis(W.reshape(group, channels, filters, math.prod(window.kernel)), 1, -1)
    Y = np.empty((batch, group, filters, *image), X.dtype)
    map_bytes = group * math.prod(window.kernel) * math.prod(window.output) * X.itemsize
    for images, some in boxes((batch, filters), max(1, COLUMN_BYTES // max(1, map_bytes))):
        some_weights = weights[:, some].reshape(group, (some.stop - some.start) * weights.shape[2], channels)
        columns = np.matmul(some_weights, pixels[images])
        shape = (len(columns), group, some.stop - some.start, *window.kernel, *window.output)
        Y[images, :, some] = fold(columns.reshape(shape), window, image)
    return Y.reshape(batch, group * filters, *image)


@cpu.kernel("Col2Im", widen=True)
def col2im(input, image_shape, block_shape, dilations=None, pads=None, strides=None):
    image = tuple(int(size) for size in image_shape)
    window = make_window(image, block_shape.tolist(), strides, dilations, pads)
    batch, depth, count = input.shape
    if count != math.prod(window.output):
        raise KernelError(f"an image {list(image)} has {math.prod(window.output)} blocks, the input holds {count}")
    channels = depth // max(1, math.prod(window.kernel))
    return fold(input.reshape(batch, channels, *window.kernel, *window.output), window, image)


@cpu.kernel("CausalConvWithState", widen=True)
def causal_conv_with_state(input, weight, bias=None, past_state=None, activation="none"):
    batch, channels, length = input.shape
    taps = weight.shape[-1]
    if not taps:
        raise KernelError("weight has no taps")
    past = np.zeros((batch, channels, taps - 1), input.dtype) if past_state is None else past_state
    sequence = np.concatenate([past, input], axis=-1)
    output = np.zeros_like(input)
    for tap in watched(range(taps if output.size else 0)):
        output += sequence[..., tap : tap + length] * weight[:, :, tap]
    if bias is not None:
        output += bias[:, np.newaxis]
    return _activate(output, activation), sequence[..., sequence.shape[-1] - (taps - 1) :]


def _activate(values, activation):
    if activation == "none":
        return values
    if activation not in ("silu", "swish"):
        raise KernelError(f"activation is {activation!r}, expected 'silu', 'swish' or 'none'")
    return swish(values)
