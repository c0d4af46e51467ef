"""Quantized activations, joins, pools and convolutions of com.microsoft, in NumPy.

A function of one 8-bit number has 256 values, so activations are tables.
"""

from __future__ import annotations

import math

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.activation import leaky_relu, sigmoid
from sardonyx.providers.cpu.broadcasting import broadcasts
from sardonyx.providers.cpu.contrib.quantize import real_values
from sardonyx.providers.cpu.conv_integer import qlinear_conv
from sardonyx.providers.cpu.normalization import softmax, softmax_flattened
from sardonyx.providers.cpu.pool import average_pool, max_pool
from sardonyx.providers.cpu.quantize import requantized
from sardonyx.providers.cpu.shape import concat, normal_axes
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


def quantized_values(values, scale, zero_point, dtype):
    shift = None if zero_point is None else zero_point.reshape(())
    return requantized(values / scale.reshape(()), shift, dtypes.from_numpy(dtype))


def looked_up(X, function):
    """`function`, which makes an array of 8-bit numbers of another, through the table of all its values."""
    table = function(np.arange(256, dtype=np.uint8).view(X.dtype))
    return table[X.view(np.uint8)]


def rescaled(X, scale, zero_point, new_scale, new_zero_point, dtype=None):
    """The same numbers in another scale."""
    dtype = X.dtype if dtype is None else dtype
    return looked_up(X, lambda x: quantized_values(real_values(x, scale, zero_point), new_scale, new_zero_point, dtype))


@contrib("QLinearSigmoid")
def q_linear_sigmoid(X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None):
    return looked_up(
        X, lambda x: quantized_values(sigmoid(real_values(x, X_scale, X_zero_point)), Y_scale, Y_zero_point, X.dtype)
    )


@contrib("QLinearLeakyRelu")
def q_linear_leaky_relu(X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None, alpha=0.01):
    return looked_up(
        X, lambda x: quantized_values(leaky_relu(real_values(x, X_scale, X_zero_point), alpha), Y_scale, Y_zero_point, X.dtype)
    )


@contrib("QLinearSoftmax")
def q_linear_softmax(X, X_scale, x_zero_point=None, y_scale=None, y_zero_point=None, axis=-1, *, opset):
    """`opset` is that of the Softmax it was made of, which up to 12 took all axes from `axis` on for one."""
    values = real_values(X, X_scale, x_zero_point)
    chances = softmax(values, axis) if opset >= 13 else softmax_flattened(values, axis)
    return quantized_values(chances, y_scale, y_zero_point, X.dtype)


@contrib("QLinearConcat")
def q_linear_concat(Y_scale, Y_zero_point, inputs, axis):
    parts = [
        rescaled(X, scale, zero_point, Y_scale, Y_zero_point, Y_zero_point.dtype)
        for X, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    return concat(parts, axis)


@contrib("QLinearWhere")
def q_linear_where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    return _where(
        condition,
        rescaled(X, x_scale, x_zero_point, z_scale, z_zero_point),
        rescaled(Y, y_scale, y_zero_point, z_scale, z_zero_point),
    )


@broadcasts
def _where(condition, X, Y):
    return np.where(condition, X, Y)


@contrib("QLinearAveragePool")
def q_linear_average_pool(
    X, x_scale, x_zero_point=None, y_scale=None, y_zero_point=None, *, kernel_shape, channels_last=0, **attributes
):
    """Means are rounded together with the zero point: with an odd one ties fall otherwise than in QuantizeLinear."""
    numbers = real_values(np.moveaxis(X, -1, 1) if channels_last else X, np.float32(1), x_zero_point)
    quotient = average_pool(numbers, kernel_shape, **attributes) * x_scale.reshape(()) / y_scale.reshape(())
    if y_zero_point is not None:
        quotient = quotient + y_zero_point.reshape(()).astype(np.float32)
    Y = requantized(quotient, None, dtypes.from_numpy(X.dtype))
    return np.moveaxis(Y, 1, -1) if channels_last else Y


@contrib("QLinearGlobalAveragePool")
def q_linear_global_average_pool(X, x_scale, x_zero_point, y_scale, y_zero_point, channels_last=0):
    axes = tuple(range(1, X.ndim - 1) if channels_last else range(2, X.ndim))
    return _mean(X, axes, True, x_scale, x_zero_point, y_scale, y_zero_point)


@contrib("QLinearReduceMean")
def q_linear_reduce_mean(
    data, data_scale, data_zero_point=None, reduced_scale=None, reduced_zero_point=None, *, axes, keepdims
):
    axes = normal_axes(axes, data.ndim) if axes else tuple(range(data.ndim))
    return _mean(data, axes, bool(keepdims), data_scale, data_zero_point, reduced_scale, reduced_zero_point)


def _mean(X, axes, keepdims, x_scale, x_zero_point, y_scale, y_zero_point):
    count = math.prod(X.shape[axis] for axis in axes)
    if not count:
        raise KernelError(f"there is nothing to average in axes {list(axes)} of {list(X.shape)}")
    total = X.sum(axis=axes, keepdims=keepdims, dtype=np.int64)
    if x_zero_point is not None:
        total -= count * int(x_zero_point.reshape(()))
    values = total.astype(np.float32) * (x_scale.reshape(()) / np.float32(count))
    return quantized_values(values, y_scale, y_zero_point, X.dtype)


@contrib("NhwcMaxPool")
def nhwc_max_pool(x, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, strides=None):
    pooled = max_pool(np.moveaxis(x, -1, 1), kernel_shape, auto_pad, ceil_mode, dilations, pads, strides=strides)
    return np.moveaxis(pooled, 1, -1)


@contrib("QLinearConv")
def q_linear_conv(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, channels_last=0, **attributes
):
    parameters = (x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B)
    if not channels_last:
        return qlinear_conv(x, *parameters, **attributes)
    return np.moveaxis(qlinear_conv(np.moveaxis(x, -1, 1), *parameters, **attributes), 1, -1)
