"""GPTQ: column after column is rounded, and what rounding costs is made up for by the columns that are left.

After Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (2022). The inputs that
calibration sees say how much the columns matter together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sardonyx.quantization.weight_only.blocks import Blocks
from sardonyx.quantization.weight_only.rounding import scales_of

SHRINKS = 80
"""Hundredths by which the range is narrowed at most when the best is looked for."""


@dataclass(frozen=True)
class GptqOptions:
    """`damping`: what is added to the diagonal, as a share of its mean; `by_importance`: columns in order of it."""

    damping: float = 0.01
    by_importance: bool = False
    search_range: bool = False


def second_moments(inputs: np.ndarray, so_far: np.ndarray | None) -> np.ndarray:
    """The sum of xᵀx over rows of inputs, added to that of earlier batches."""
    rows = inputs.reshape(-1, inputs.shape[-1]).astype(np.float64)
    moments = rows.T @ rows
    return moments if so_far is None else so_far + moments


def optimal_rounding(
    weight: np.ndarray, moments: np.ndarray, bits: int, block_size: int, symmetric: bool, options: GptqOptions
) -> Blocks:
    """Blocks of a weight (rows, columns) whose outputs are near those of the floats on the calibrated inputs."""
    rows, columns = weight.shape
    order = np.argsort(-np.diag(moments), kind="stable") if options.by_importance else np.arange(columns)
    values = weight.astype(np.float64)[:, order]
    inverse = _inverse_factor(moments[np.ix_(order, order)], values, options.damping)
    blocks = -(-columns // block_size)
    scales, zero_points = _group_scales(weight, bits, block_size, symmetric, options.search_range)
    top = 2**bits - 1
    codes = np.zeros((rows, columns), dtype=np.uint8)
    for column in range(columns):
        group = order[column] // block_size
        scale, zero = scales[:, group], zero_points[:, group]
        steps = np.clip(np.rint(values[:, column] / scale + zero), 0, top)
        codes[:, order[column]] = steps
        error = (values[:, column] - (steps - zero) * scale) / inverse[column, column]
        values[:, column + 1 :] -= np.outer(error, inverse[column, column + 1 :])
    padded = np.zeros((rows, blocks * block_size), dtype=np.uint8)
    padded[:, :columns] = codes
    stored = None if symmetric else zero_points.astype(np.uint8)
    return Blocks(padded.reshape(rows, blocks, block_size), scales.astype(weight.dtype), stored, bits, columns)


def _inverse_factor(moments: np.ndarray, values: np.ndarray, damping: float) -> np.ndarray:
    """The upper triangle of Cholesky of the inverse; columns that calibration never saw become 0."""
    moments = moments.copy()
    unseen = np.diag(moments) == 0
    moments[unseen, unseen] = 1.0
    values[:, unseen] = 0.0
    diagonal = np.arange(len(moments))
    moments[diagonal, diagonal] += max(damping * float(np.mean(np.diag(moments))), np.finfo(np.float64).tiny)
    return np.linalg.cholesky(np.linalg.inv(moments)).T


def _group_scales(
    weight: np.ndarray, bits: int, block_size: int, symmetric: bool, search: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(scales, zero points) as (rows, blocks): from the extremes, or from the narrower range with the least squared error."""
    scales, zero_points = [], []
    for start in range(0, weight.shape[1], block_size):
        values = weight[:, start : start + block_size].astype(np.float32)
        scale, zero = _searched(values, bits, symmetric) if search else scales_of(values, bits, symmetric)
        scales.append(scale[:, 0])
        zero_points.append(zero[:, 0])
    return np.stack(scales, axis=1).astype(np.float64), np.stack(zero_points, axis=1).astype(np.float64)


def _searched(values: np.ndarray, bits: int, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    top = 2**bits - 1
    best: tuple[np.ndarray, np.ndarray] | None = None
    least = np.full((len(values), 1), np.inf)
    for shrink in range(0, SHRINKS, 5):
        scale, zero = scales_of(values, bits, symmetric, 1 - shrink / 100)
        error = ((np.clip(np.rint(values / scale + zero), 0, top) - zero) * scale - values) ** 2
        total = error.sum(axis=1, keepdims=True)
        better = total < least
        best = (scale, zero) if best is None else (np.where(better, scale, best[0]), np.where(better, zero, best[1]))
        least = np.minimum(least, total)
    assert best is not None
    return best
