"""HQQ: zero points that make the error of weights sparse, found by half-quadratic splitting. No data is needed.

After Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models" (2023).
"""

from __future__ import annotations

import numpy as np

from sardonyx.quantization.weight_only.blocks import Blocks, in_blocks

ROUNDS = 20
NORM = 0.7
"""The power of the error that is made small; below 1, a few large errors are liked better than many small ones."""
PENALTY, GROWTH = 10.0, 1.01


def half_quadratic(weight: np.ndarray, bits: int, block_size: int) -> Blocks:
    """Blocks with float zero points."""
    values = in_blocks(weight, block_size)
    top = np.float32(2**bits - 1)
    low, high = values.min(axis=2, keepdims=True), values.max(axis=2, keepdims=True)
    scales = np.where(high > low, (high - low) / top, np.float32(1))
    zero_points = _refined(values, scales, -low / scales, top)
    codes = np.clip(np.rint(values / scales + zero_points), 0, top).astype(np.uint8)
    parameters = (scales[:, :, 0].astype(weight.dtype), zero_points[:, :, 0].astype(weight.dtype))
    return Blocks(codes, *parameters, bits, weight.shape[1])


def _refined(values: np.ndarray, scales: np.ndarray, zero_points: np.ndarray, top: np.float32) -> np.ndarray:
    """Zero points, moved as long as the mean error becomes smaller."""
    penalty, best = PENALTY, np.inf
    kept = zero_points
    for _ in range(ROUNDS):
        codes = np.clip(np.rint(values / scales + zero_points), 0, top)
        errors = values - (codes - zero_points) * scales
        mean = float(np.abs(errors).mean())
        if mean >= best:
            break
        best, kept = mean, zero_points
        sparse = _shrunk(errors, penalty)
        zero_points = (codes - (values - sparse) / scales).mean(axis=2, keepdims=True)
        penalty *= GROWTH
    return kept.astype(np.float32)


def _shrunk(errors: np.ndarray, penalty: float) -> np.ndarray:
    """The errors that stay: small ones become 0."""
    sizes = np.abs(errors)
    with np.errstate(divide="ignore"):
        less = sizes - np.where(sizes > 0, sizes ** (NORM - 1), np.inf) / penalty
    return np.sign(errors) * np.maximum(less, 0)
