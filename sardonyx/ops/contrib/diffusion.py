"""Ops of com.microsoft that diffusion models are optimized to, most of them on images with their channels last."""

from __future__ import annotations

from sardonyx.dtypes import float16, float32, float64
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.contrib.fused import channels_behind, with_channels_first
from sardonyx.ops.conv import convolved_shape
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import broadcast
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

TYPES = {float16, float32}
GROUPS = "epsilon: float = 1e-5, groups: int, activation: int, channels_last: int = 1"

define("com.microsoft", "BiasAdd", 1, "(X: T, bias: T, skip: T) -> (Y: T)", T=TYPES)
define("com.microsoft", "BiasSplitGelu", 1, "(X: T, bias: T) -> (Y: T)", T=TYPES)
define("com.microsoft", "GroupNorm", 1, f"(X: T, gamma: M, beta: M, *, {GROUPS}) -> (Y: T)", T=TYPES, M=TYPES)
define(
    "com.microsoft",
    "SkipGroupNorm",
    1,
    f"(X: T, gamma: M, beta: M, skip: T, bias: T?, *, {GROUPS}) -> (Y: T, S: T?)",
    T=TYPES,
    M=TYPES,
)
define(
    "com.microsoft",
    "NhwcConv",
    1,
    "(X: T, W: T, B: T?, *, auto_pad: string = 'NOTSET', dilations: ints?, group: int = 1, kernel_shape: ints?, pads: ints?,"
    " strides: ints?) -> (Y: T)",
    T={float16, float32, float64},
)


@contrib("BiasAdd")
def bias_add(X, bias, skip):
    return broadcast(X.shape, bias.shape, skip.shape)


@contrib("BiasSplitGelu")
def bias_split_gelu(X):
    shape = X.require_rank(3, name="X")
    return None if shape is None else (*shape[:2], dim.floordiv(shape[2], 2))


@contrib("GroupNorm")
def group_norm(X, groups, channels_last):
    _check_groups(X, groups, channels_last)
    return X.shape


@contrib("SkipGroupNorm")
def skip_group_norm(X, groups, channels_last):
    _check_groups(X, groups, channels_last)
    return [X.shape, X.shape]


def _check_groups(X, groups, channels_last):
    shape = X.require_rank(4, name="X")
    channels = None if shape is None else shape[3] if channels_last else shape[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise InferenceError(f"{channels} channels cannot be divided into {groups} groups")


@contrib("NhwcConv")
def nhwc_conv(X, W, group, auto_pad, dilations, kernel_shape, pads, strides):
    """Filters stand with their channels last too, (M, kH, kW, C/group)."""
    arranged = with_channels_first(X), with_channels_first(W)
    return channels_behind(convolved_shape(*arranged, group, kernel_shape, strides, dilations, pads, auto_pad))
