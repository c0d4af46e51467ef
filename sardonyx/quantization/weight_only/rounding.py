"""Round to nearest as the tools of neural compression do it: positive scales, halves to even."""

from __future__ import annotations

import numpy as np

from sardonyx.quantization.weight_only.blocks import Blocks, in_blocks


def rounded(weight: np.ndarray, bits: int, block_size: int, symmetric: bool, ratio: float = 1.0) -> Blocks:
    """Blocks whose range is that of their values, times `ratio`."""
    values = in_blocks(weight, block_size).astype(np.float64)
    scales, zero_points = scales_of(values, bits, symmetric, ratio)
    top = 2**bits - 1
    codes = np.clip(np.rint(values / scales) + zero_points, 0, top).astype(np.uint8)
    stored = None if symmetric else zero_points[:, :, 0].astype(np.uint8)
    return Blocks(codes, scales[:, :, 0].astype(weight.dtype), stored, bits, weight.shape[1])


def scales_of(values: np.ndarray, bits: int, symmetric: bool, ratio: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(scales, zero points) over the last axis, which stays as one of length 1."""
    low = np.minimum(values.min(axis=-1, keepdims=True), 0) * ratio
    high = np.maximum(values.max(axis=-1, keepdims=True), 0) * ratio
    top = 2**bits - 1
    if symmetric:
        scales = 2 * np.maximum(-low, high) / top
        zero_points = np.full(scales.shape, 2.0 ** (bits - 1))
    else:
        scales = (high - low) / top
        zero_points = np.zeros_like(scales)
    scales = np.where(scales > 0, scales, 1.0)
    if not symmetric:
        zero_points = np.clip(np.rint(-low / scales), 0, top)
    return scales, zero_points
