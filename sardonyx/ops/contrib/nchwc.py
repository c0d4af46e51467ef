"""Ops of com.microsoft.nchwc, found in models that onnxruntime, or `optimizer/passes/nchwc.py`, wrote for one kind of processor.

There, tensors hold channels in blocks of 8 or 16 while their shapes stay (N, C, H, W), with C rounded up to whole blocks. We keep
the rounded C but the plain order of numbers; only the weights of a model come in blocks, and are unpacked.

The attribute `__block_size` is ours: it tells what the other attributes do not. onnxruntime passes over names that begin so.
"""

from __future__ import annotations

import functools
import importlib
import platform

from sardonyx.dtypes import float32
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops import pool
from sardonyx.ops.contrib.fused import CONVOLUTION, channels_behind, with_channels_first
from sardonyx.ops.conv import convolved_shape
from sardonyx.ops.image import scaled_size
from sardonyx.ops.operand import Operand
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

DOMAIN = "com.microsoft.nchwc"
nchwc = in_domain(DOMAIN)

BLOCK = "__block_size: int?"
POOL = "auto_pad: string = 'NOTSET', ceil_mode: int = 0, dilations: ints?, kernel_shape: ints, pads: ints?, strides: ints?"

define(DOMAIN, "Conv", 1, f"(X: T, W: T, B: T?, Sum: T?, *, {CONVOLUTION}, {BLOCK}) -> (Y: T)", T={float32})
define(DOMAIN, "MaxPool", 1, f"(X: T, *, {POOL}, storage_order: int = 0) -> (Y: T)", T={float32})
define(DOMAIN, "AveragePool", 1, f"(X: T, *, {POOL}, count_include_pad: int = 0) -> (Y: T)", T={float32})
define(DOMAIN, "GlobalMaxPool", 1, "(X: T) -> (Y: T)", T={float32})
define(DOMAIN, "GlobalAveragePool", 1, "(X: T) -> (Y: T)", T={float32})
define(DOMAIN, "ReorderInput", 1, f"(X: T, *, channels_last: int = 0, {BLOCK}) -> (Y: T)", T={float32})
define(DOMAIN, "ReorderOutput", 1, "(X: T, *, channels: int = 0, channels_last: int = 0) -> (Y: T)", T={float32})
define(
    DOMAIN,
    "Upsample",
    1,
    "(X: T, *, scales: ints?, mode: string = 'nearest', coordinate_transformation_mode: string = 'asymmetric') -> (Y: T)",
    T={float32},
)

nchwc("GlobalMaxPool", "GlobalAveragePool")(pool.global_pool)


@functools.cache
def block_size() -> int:
    """How many channels make a block here. Files of onnxruntime do not tell; it, too, takes them for made on such a machine."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return 16
    features: dict[str, bool] = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    return 16 if features.get("AVX512F") else 8


@nchwc("Conv")
def conv(X, W, group, auto_pad, dilations, kernel_shape, pads, strides):
    inputs = Operand(X.type) if X.shape is None or W.shape is None else _with_channels(X, W.shape[1] * group)
    return convolved_shape(inputs, W, group, kernel_shape, strides, dilations, pads, auto_pad)


def _with_channels(X, channels):
    """The filters have as many channels as the blocks of the machine that made them had room for."""
    if len(X.shape) != 4:
        raise InferenceError(f"X must have rank 4, not {len(X.shape)}")
    return Operand(type(X.type)(X.dtype, (X.shape[0], channels, *X.shape[2:])))


@nchwc("MaxPool", "AveragePool")
def pool_of_blocks(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides):
    return pool.pooled_shape(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


@nchwc("ReorderInput")
def reorder_input(X, channels_last, __block_size):
    arranged = with_channels_first(X) if channels_last else X
    shape = arranged.require_rank(4, name="X")
    block = __block_size or block_size()
    return None if shape is None else (shape[0], dim.ceildiv(shape[1], block) * block, *shape[2:])


@nchwc("ReorderOutput")
def reorder_output(X, channels, channels_last):
    shape = X.require_rank(4, name="X")
    if shape is None:
        return None
    shape = (shape[0], channels or shape[1], *shape[2:])
    return channels_behind(shape) if channels_last else shape


@nchwc("Upsample")
def upsample(X, scales):
    if X.shape is None or not scales:
        return X.shape
    return tuple(scaled_size(length, scale) for length, scale in zip(X.shape, scales))
