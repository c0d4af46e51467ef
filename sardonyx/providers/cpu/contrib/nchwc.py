"""Ops of com.microsoft.nchwc, in NumPy. Tensors stand in plain order, see `ops/contrib/nchwc.py`; the weights of a model do not."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.contrib.nchwc import DOMAIN, block_size
from sardonyx.providers.cpu.contrib.fused import fused_conv
from sardonyx.providers.cpu.pool import average_pool, global_average_pool, global_max_pool, max_pool
from sardonyx.providers.cpu.prepared import prepared, unchanging
from sardonyx.providers.cpu.resize import resize
from sardonyx.providers.cpu.table import FIRST, cpu

nchwc = cpu.in_domain(DOMAIN)

nchwc("GlobalMaxPool")(global_max_pool)
nchwc("GlobalAveragePool")(global_average_pool)


@nchwc("Conv")
def conv(X, W, B=None, Sum=None, *, group=1, __block_size=None, **attributes):
    make, block = _grouped_filters if group > 1 else _filters, __block_size or _block_of(W)
    filters = prepared(make, W, block, size=W.nbytes) if unchanging(W) else make(W, block)
    return fused_conv(with_channels(X, filters.shape[1] * group), filters, B, Sum, group=group, **attributes)


def _filters(W, block):
    """(O, I, H, W) of filters whose output channels, and input channels unless they are too few, stand in blocks."""
    return _of_output_blocks(W, block) if W.shape[1] < block else _of_blocks(W, block)


def _grouped_filters(W, block):
    return _of_output_blocks(W, block) if W.shape[1] == 1 else _of_blocks(W, block)


def _block_of(W):
    """The block size of this machine, unless the filters cannot have been made with it."""
    block = block_size() if W.shape[0] % block_size() == 0 else 8
    if W.shape[0] % block:
        raise KernelError(f"{W.shape[0]} output channels do not stand in blocks of 8 or 16", InvalidArgument)
    return block


def _of_blocks(W, block):
    O, I, *kernel = W.shape
    block = block if I % block == 0 else math.gcd(I, 8)
    blocks = W.reshape(O // block, I // block, *kernel, block, block)
    return np.ascontiguousarray(blocks.transpose(0, 5, 1, 4, 2, 3)).reshape(W.shape)


def _of_output_blocks(W, block):
    blocks = W.reshape(W.shape[0] // block, *W.shape[1:], block)
    return np.ascontiguousarray(blocks.transpose(0, 4, 1, 2, 3)).reshape(W.shape)


def with_channels(X, count):
    """X with zeros for channels that are too few; those that are too many hold nothing."""
    channels = X.shape[1]
    if channels >= count:
        return X[:, :count]
    padded = np.zeros((len(X), count, *X.shape[2:]), X.dtype)
    padded[:, :channels] = X
    return padded


@nchwc("MaxPool")
def max_pool_of_blocks(X, kernel_shape, **attributes):
    return max_pool(X, kernel_shape, **attributes)


@nchwc("AveragePool")
def average_pool_of_blocks(X, kernel_shape, **attributes):
    return average_pool(X, kernel_shape, **attributes)


@nchwc("ReorderInput", view=FIRST)
def reorder_input(X, channels_last=0, __block_size=None):
    arranged = np.moveaxis(X, -1, 1) if channels_last else X
    block = __block_size or block_size()
    return with_channels(arranged, -(-arranged.shape[1] // block) * block)


@nchwc("ReorderOutput", view=FIRST)
def reorder_output(X, channels=0, channels_last=0):
    cut = X[:, : channels or X.shape[1]]
    return np.moveaxis(cut, 1, -1) if channels_last else cut


@nchwc("Upsample")
def upsample(X, scales=None, mode="nearest", coordinate_transformation_mode="asymmetric"):
    return resize(
        X,
        scales=scales or [1] * X.ndim,
        mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        nearest_mode="floor",
    )
