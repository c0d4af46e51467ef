"""Softmax family and normalizations, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.dtypes import FLOATS, float16
from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.elementwise import pow
from sardonyx.providers.cpu.shape import normal_axes, normal_axis
from sardonyx.providers.cpu.table import FIRST, cpu
from sardonyx.providers.termination import watched


@cpu.kernel("Softmax", since=13, widen=True, T=FLOATS - {float16}, inplace=FIRST)
def softmax(input, axis=-1):
    if input.ndim == 0:
        return softmax(input[np.newaxis], 0)[0]
    with np.errstate(invalid="ignore"):  # a row of -inf, or with inf in it, is NaN
        weights = np.exp(_below_maximum(input, axis))
        weights /= weights.sum(axis=axis, keepdims=True)
    return weights


@cpu.kernel("Softmax", since=13, T={float16}, inplace=FIRST)
def softmax_half(input, axis=-1):
    """Every step is rounded to half precision, as the standard's suite has it; within the sum nothing is."""
    if input.ndim == 0:
        return softmax_half(input[np.newaxis], 0)[0]
    with np.errstate(invalid="ignore"):
        weights = np.exp(_below_maximum(input.astype(np.float32), axis).astype(np.float16).astype(np.float32)).astype(
            np.float16
        )
        return weights / weights.sum(axis=axis, keepdims=True, dtype=np.float32).astype(np.float16)


@cpu.kernel("LogSoftmax", since=13, widen=True, inplace=FIRST)
def log_softmax(input, axis=-1):
    if input.ndim == 0:
        return log_softmax(input[np.newaxis], 0)[0]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shifted = _below_maximum(input, axis)
        shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


def _below_maximum(input, axis):
    return input - input.max(axis=axis, keepdims=True, initial=-np.inf)


@cpu.kernel("Hardmax", since=13, widen=True, inplace=FIRST)
def hardmax(input, axis=-1):
    if input.ndim == 0:
        return np.ones_like(input)
    output = np.zeros_like(input)
    if input.size:
        first = np.expand_dims(input.argmax(axis=axis), axis)
        np.put_along_axis(output, first, 1, axis)
    return output


def _as_rows(input, axis):
    """Up to opset 12 the axes from `axis` on were one flat row."""
    axis = input.ndim if axis == input.ndim else normal_axis(axis, input.ndim)
    return input.reshape(math.prod(input.shape[:axis]), math.prod(input.shape[axis:]))


@cpu.kernel("Softmax", until=12, widen=True, inplace=FIRST)
def softmax_flattened(input, axis):
    return softmax(_as_rows(input, axis), 1).reshape(input.shape)


@cpu.kernel("LogSoftmax", until=12, widen=True, inplace=FIRST)
def log_softmax_flattened(input, axis):
    return log_softmax(_as_rows(input, axis), 1).reshape(input.shape)


@cpu.kernel("Hardmax", until=12, widen=True, inplace=FIRST)
def hardmax_flattened(input, axis):
    return hardmax(_as_rows(input, axis), 1).reshape(input.shape)


# --- over the batch -------------------------------------------------------------------------------------------------


@cpu.kernel("BatchNormalization", since=14, widen=True, inplace=FIRST)
def batch_normalization(X, scale, B, input_mean, input_var, epsilon=1e-5, momentum=0.9, training_mode=0):
    if not training_mode:
        return _normalize_channels(X, scale, B, input_mean, input_var, epsilon)
    mean, var = _channel_statistics(X)
    Y = _normalize_channels(X, scale, B, mean, var, epsilon)
    return Y, _running(input_mean, mean, momentum), _running(input_var, var, momentum)


@cpu.kernel("BatchNormalization", until=13, widen=True, inplace=FIRST)
def batch_normalization_by_outputs(
    X, scale, B, input_mean, input_var, epsilon=1e-5, momentum=0.9, is_test=0, spatial=1, *, output_count=1
):
    """Up to opset 13 a node trains if it has the outputs for it; without `spatial` every activation has its own statistics."""
    if not spatial:
        flat = X.reshape(len(X), math.prod(X.shape[1:]))
        parameters = (value.reshape(-1) for value in (scale, B, input_mean, input_var))
        Y, *statistics = _with_saved_statistics(flat, *parameters, epsilon, momentum, output_count > 1 and not is_test)
        return Y.reshape(X.shape), *(s.reshape(input_mean.shape) for s in statistics)
    return _with_saved_statistics(X, scale, B, input_mean, input_var, epsilon, momentum, output_count > 1 and not is_test)


def _with_saved_statistics(X, scale, B, input_mean, input_var, epsilon, momentum, training):
    if not training:
        return (_normalize_channels(X, scale, B, input_mean, input_var, epsilon),)
    Y, running_mean, running_var = batch_normalization(X, scale, B, input_mean, input_var, epsilon, momentum, 1)
    return Y, running_mean, running_var, *_channel_statistics(X)


def _normalize_channels(X, scale, B, mean, var, epsilon):
    factor = scale / np.sqrt(var + var.dtype.type(epsilon))
    shift = B - mean * factor
    Y = X * _by_channel(factor.astype(X.dtype, copy=False), X, "a parameter")
    Y += _by_channel(shift.astype(X.dtype, copy=False), X, "a parameter")
    return Y


def _by_channel(parameter, X, name):
    """One number for each channel, in a shape that broadcasts to X."""
    channels = X.shape[1] if X.ndim > 1 else 1
    if parameter.size != channels:
        raise KernelError(f"{name} must have {channels} elements, one for each channel, not {parameter.size}")
    return parameter.reshape((-1, *(1,) * (X.ndim - 2)) if X.ndim > 1 else (1,))


def _channel_statistics(X):
    axes = (0, *range(2, X.ndim))
    mean = X.mean(axis=axes, keepdims=True)
    var = np.square(X - mean).mean(axis=axes)
    return mean.reshape(-1), var.reshape(-1)


def _running(old, new, momentum):
    return old * old.dtype.type(momentum) + new * old.dtype.type(1 - momentum)


# --- within a sample ------------------------------------------------------------------------------------------------


def standardize(X, axes, epsilon):
    """X with mean 0 and variance 1 over `axes`, the mean, and the reciprocal of the deviation."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        count = X.dtype.type(math.prod(X.shape[axis] for axis in axes))
        mean = X.sum(axis=axes, keepdims=True) / count
        centred = X - mean
        variance = np.square(centred).sum(axis=axes, keepdims=True) / count
        inverse = 1 / np.sqrt(variance + X.dtype.type(epsilon))
        centred *= inverse
    return centred, mean, inverse


@cpu.kernel("InstanceNormalization", widen=True, inplace=FIRST)
def instance_normalization(input, scale, B, epsilon=1e-5):
    normalized, *_ = standardize(input, tuple(range(2, input.ndim)), epsilon)
    return normalized * _by_channel(scale, input, "scale") + _by_channel(B, input, "B")


@cpu.kernel("GroupNormalization", since=21, widen=True, inplace=FIRST)
def group_normalization(X, scale, bias, num_groups, epsilon=1e-5, stash_type=1):
    shape = (-1, *(1,) * (X.ndim - 2))
    return _standardize_groups(X, num_groups, epsilon) * scale.reshape(shape) + bias.reshape(shape)


@cpu.kernel("GroupNormalization", until=20, widen=True, inplace=FIRST)
def group_normalization_by_group(X, scale, bias, num_groups, epsilon=1e-5):
    """Before opset 21 scale and bias belonged to the groups, not to the channels."""
    per_group = X.shape[1] // num_groups
    return group_normalization(X, np.repeat(scale, per_group), np.repeat(bias, per_group), num_groups, epsilon)


def _standardize_groups(X, num_groups, epsilon):
    if num_groups <= 0 or X.shape[1] % num_groups:
        raise KernelError(f"{X.shape[1]} channels cannot be divided into {num_groups} groups")
    groups = X.reshape(len(X), num_groups, math.prod(X.shape[1:]) // num_groups)
    return standardize(groups, (2,), epsilon)[0].reshape(X.shape)


@cpu.kernel("LayerNormalization", widen=True, inplace=FIRST)
def layer_normalization(X, Scale, B=None, axis=-1, epsilon=1e-5, stash_type=1):
    """Narrow types are computed in float32 whatever `stash_type`, float64 stays; `stash_type` types Mean and InvStdDev."""
    normalized, mean, inverse = standardize(X, tuple(range(normal_axis(axis, X.ndim), X.ndim)), epsilon)
    normalized *= Scale
    if B is not None:
        normalized += B
    return normalized, mean, inverse


def scaled(normalized, scale):
    """Rows times a scale that broadcasts to them."""
    result = normalized * scale
    if result.shape != normalized.shape:
        raise KernelError(f"the scale {list(scale.shape)} cannot be broadcast to X {list(normalized.shape)}")
    return result


@cpu.kernel("RMSNormalization", widen=True, inplace=FIRST)
def rms_normalization(X, scale, axis=-1, epsilon=1e-5, stash_type=1):
    axes = tuple(range(normal_axis(axis, X.ndim), X.ndim))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        count = X.dtype.type(math.prod(X.shape[a] for a in axes))
        mean_square = np.square(X).sum(axis=axes, keepdims=True) / count
        return scaled(X * (1 / np.sqrt(mean_square + X.dtype.type(epsilon))), scale)


@cpu.kernel("MeanVarianceNormalization", widen=True, inplace=FIRST)
def mean_variance_normalization(X, axes=(0, 2, 3)):
    axes = normal_axes(axes, X.ndim)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        count = X.dtype.type(math.prod(X.shape[axis] for axis in axes))
        centred = X - X.sum(axis=axes, keepdims=True) / count
        deviation = np.sqrt(np.square(centred).sum(axis=axes, keepdims=True) / count)
        return centred / (deviation + X.dtype.type(1e-9))  # the epsilon of the op's function body


@cpu.kernel("LpNormalization", widen=True, inplace=FIRST)
def lp_normalization(input, axis=-1, p=2):
    if p not in (1, 2):
        raise KernelError(f"p is {p}, only 1 and 2 are supported")
    if p == 1:
        norm = np.abs(input).sum(axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.square(input).sum(axis=axis, keepdims=True))
    return input / np.where(norm == 0, 1, norm).astype(input.dtype)


@cpu.kernel("LRN", widen=True)
def lrn(X, size, alpha=1e-4, beta=0.75, bias=1.0):
    if size < 1:
        raise KernelError(f"size must be positive, it is {size}", InvalidArgument)
    squares = np.square(X)
    total = np.zeros_like(X)
    channels = X.shape[1]
    for shift in watched(range(-min((size - 1) // 2, channels - 1), min(size // 2, channels - 1) + 1)):
        first, last = max(0, -shift), min(channels, channels - shift)
        total[:, first:last] += squares[:, first + shift : last + shift]
    total *= X.dtype.type(alpha / size)
    total += X.dtype.type(bias)
    return X / pow(total, np.asarray(beta, X.dtype))
