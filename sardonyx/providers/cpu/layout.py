"""Ops that put a tensor's elements in another order, in NumPy. The CPU table calls them."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import braced, whole
from sardonyx.providers.cpu.table import FIRST, cpu


@cpu.kernel("Transpose", view=FIRST)
def transpose(data, perm=None):
    if perm is not None and sorted(perm) != list(range(data.ndim)):
        raise KernelError(f"perm: {list(perm)} does not align with rank of input data: {data.ndim}")
    return np.transpose(data, perm)


@cpu.kernel("DepthToSpace")
def depth_to_space(input, blocksize, mode="DCR"):
    batch, depth, height, width = _four_sizes(input)
    if blocksize < 1 or depth % blocksize**2:
        raise KernelError(
            f"DepthToSpace requires input depth to be a multiple of (block_size * block_size): {depth}, {blocksize}"
        )
    channels = depth // blocksize**2
    if _is_depth_first(mode):
        blocks = input.reshape(batch, blocksize, blocksize, channels, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = input.reshape(batch, channels, blocksize, blocksize, height, width).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(batch, channels, height * blocksize, width * blocksize)


@cpu.kernel("SpaceToDepth")
def space_to_depth(input, blocksize, mode="DCR"):
    batch, channels, height, width = _four_sizes(input)
    if blocksize < 1 or height % blocksize or width % blocksize:
        raise KernelError(
            f"SpaceToDepth requires input height and width to be multiples of block_size: {height}, {width}, {blocksize}"
        )
    rows, columns = height // blocksize, width // blocksize
    blocks = input.reshape(batch, channels, rows, blocksize, columns, blocksize)
    order = (0, 3, 5, 1, 2, 4) if _is_depth_first(mode) else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape(batch, channels * blocksize**2, rows, columns)


def _four_sizes(input) -> tuple[int, int, int, int]:
    if input.ndim != 4:
        raise KernelError(f"the input must have the four axes N, C, H, W; its shape is {braced(input.shape)}", InvalidArgument)
    return input.shape


def _is_depth_first(mode: str) -> bool:
    if mode not in ("DCR", "CRD"):
        raise KernelError(f"the mode is DCR or CRD, not {mode!r}", InvalidArgument)
    return mode == "DCR"


@cpu.kernel("ReverseSequence")
def reverse_sequence(input, sequence_lens, batch_axis, time_axis):
    if {batch_axis, time_axis} != {0, 1}:
        raise KernelError(f"batch_axis and time_axis must be 0 and 1, not {batch_axis} and {time_axis}", InvalidArgument)
    times_first = np.moveaxis(input, (time_axis, batch_axis), (0, 1))
    steps, batch = times_first.shape[:2]
    if sequence_lens.shape != (batch,) or np.any((sequence_lens < 0) | (sequence_lens > steps)):
        raise KernelError(
            f"Invalid sequence length: {batch} in [0, {steps}] are expected, got {sequence_lens.tolist()}", InvalidArgument
        )
    time = np.arange(steps)[:, None]
    source = np.where(time < sequence_lens, sequence_lens - 1 - time, time)
    return np.moveaxis(times_first[source, np.arange(batch)], (0, 1), (time_axis, batch_axis))


@cpu.kernel("Trilu", inplace=FIRST)
def trilu(input, k=None, upper=1):
    if input.ndim < 2:
        raise KernelError(f"Input tensor should have a rank of at least 2, its shape is {braced(input.shape)}", InvalidArgument)
    rows, columns = input.shape[-2:]
    diagonal = 0 if k is None else max(-rows - 1, min(whole(k, "k"), columns + 1))
    outside = "" if input.dtype == object else np.zeros((), input.dtype)
    if upper:
        return np.where(np.tri(rows, columns, diagonal - 1, dtype=bool), outside, input)
    return np.where(np.tri(rows, columns, diagonal, dtype=bool), input, outside)
