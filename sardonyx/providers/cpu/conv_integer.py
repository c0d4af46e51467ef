"""Convolutions of 8-bit integers, in NumPy: exact sums through floating-point products."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.conv import check_channels, convolve, per_channel
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.cpu.window import make_window


@cpu.kernel("ConvInteger")
def conv_integer(
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    group=1,
    auto_pad="NOTSET",
    dilations=None,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    check_channels(x, w, group, kernel_shape)
    _check_filters(w, w_zero_point=w_zero_point)
    window = make_window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return convolve_integers(_centred(x, x_zero_point), _centred(w, w_zero_point), window, group)


def _check_filters(w, **parameters):
    """Refuse scales and zero points that are neither one number nor one for each filter."""
    for name, parameter in parameters.items():
        if parameter is not None and parameter.size not in (1, len(w)):
            raise KernelError(f"{name} is {list(parameter.shape)}, it should be one number or {len(w)}")


def _centred(values, zero_point):
    """8-bit values less their zero point (one, or one per output channel), exact in int16."""
    values = values.astype(np.int16)
    if zero_point is None or not zero_point.any():
        return values
    zero_point = zero_point.astype(np.int16)
    return values - zero_point.reshape(-1, *(1,) * (values.ndim - 1) if zero_point.size > 1 else ())


def convolve_integers(x, w, window, group):
    """The int32 sums, exact modulo 2**32: a float type is chosen that holds every partial sum."""
    rows = np.abs(w.astype(np.int64)).sum(axis=tuple(range(1, w.ndim)))
    bound = int(rows.max(initial=0)) * int(np.abs(x).max(initial=0))
    dtype = np.float32 if bound < 2**24 else np.float64
    sums = convolve(x.astype(dtype), w.astype(dtype), window, group)
    return sums.astype(np.int32) if bound < 2**31 else sums.astype(np.int64).astype(np.int32)


@cpu.kernel("QLinearConv")
def qlinear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    group=1,
    auto_pad="NOTSET",
    dilations=None,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    _check_filters(w, w_scale=w_scale)
    if B is not None and B.shape != (len(w),):
        raise KernelError(f"B is {list(B.shape)}, it should have a number for each of {len(w)} filters")
    sums = conv_integer(x, w, x_zero_point, w_zero_point, group, auto_pad, dilations, kernel_shape, pads, strides)
    if B is not None:
        sums += per_channel(B, sums.ndim)
    scale = x_scale.reshape(()) * w_scale.reshape(-1) / y_scale.reshape(())
    values = np.rint(sums.astype(np.float32) * per_channel(scale, sums.ndim))
    values += y_zero_point.astype(np.float32).reshape(())
    limits = np.iinfo(y_zero_point.dtype)
    return np.clip(values, limits.min, limits.max).astype(y_zero_point.dtype)
