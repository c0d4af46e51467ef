"""Ops of com.microsoft that diffusion models are optimized to, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.activation import gelu, swish
from sardonyx.providers.cpu.conv import conv
from sardonyx.providers.cpu.normalization import group_normalization
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("BiasAdd", widen=True)
def bias_add(X, bias, skip):
    return X + bias + skip


@contrib("BiasSplitGelu", widen=True)
def bias_split_gelu(X, bias):
    left, right = np.split(X + bias, 2, axis=-1)
    return left * gelu(right)


@contrib("GroupNorm", widen=True)
def group_norm(X, gamma, beta, *, groups, activation, epsilon=1e-5, channels_last=1):
    if activation not in (0, 1):
        raise KernelError(f"activation must be 0 (none) or 1 (SiLU), not {activation}", InvalidArgument)
    arranged = np.moveaxis(X, -1, 1) if channels_last else X
    Y = group_normalization(arranged, gamma, beta, groups, epsilon)
    Y = swish(Y) if activation else Y
    return np.moveaxis(Y, 1, -1) if channels_last else Y


@contrib("SkipGroupNorm", widen=True)
def skip_group_norm(X, gamma, beta, skip, bias=None, *, groups, activation, epsilon=1e-5, channels_last=1):
    if skip.ndim == 2:
        skip = skip[:, None, None] if channels_last else skip[:, :, None, None]
    S = X + skip
    if bias is not None:
        S = S + (bias if channels_last else bias[:, None, None])
    return group_norm(S, gamma, beta, groups=groups, activation=activation, epsilon=epsilon, channels_last=channels_last), S


@contrib("NhwcConv", widen=True)
def nhwc_conv(X, W, B=None, **attributes):
    return np.moveaxis(conv(np.moveaxis(X, -1, 1), np.moveaxis(W, -1, 1), B, **attributes), 1, -1)
