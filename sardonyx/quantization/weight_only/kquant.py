"""k-quant: scale and minimum of each block by weighted least squares around a grid of scales, as llama.cpp finds them."""

from __future__ import annotations

import numpy as np

from sardonyx.quantization.weight_only.blocks import Blocks, in_blocks

STEPS = 20
FIRST, STEP = -1.0, 0.1
"""Scales are tried that give the top code a value from FIRST on, in STEPs, beyond its own."""


def k_quant(weight: np.ndarray, bits: int, block_size: int) -> Blocks:
    """Blocks with zero points whose weighted squared error is least among the tries."""
    values = in_blocks(weight, block_size)
    importance = np.sqrt((values**2).mean(axis=2, keepdims=True)) + np.abs(values)
    scales, lowest = _best_lines(values, importance, 2**bits - 1)
    top = np.float32(2**bits - 1)
    zero_points = np.clip(np.rint(-lowest / scales), 0, top)
    codes = np.clip(np.rint(values / scales + zero_points), 0, top).astype(np.uint8)
    return Blocks(codes, scales[:, :, 0].astype(weight.dtype), zero_points[:, :, 0].astype(np.uint8), bits, weight.shape[1])


def _best_lines(values: np.ndarray, importance: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """(scale, minimum) of each block: first from its extremes, then the best of the fits."""
    low, high = values.min(axis=2, keepdims=True), values.max(axis=2, keepdims=True)
    span = np.where(high == low, np.float32(1), high - low)
    flat = high == low
    scales, lowest = np.where(flat, np.float32(1), span / top), low
    codes = np.clip(np.rint((values - low) / scales), 0, top)
    best = _error(values, importance, codes, scales, lowest)
    totals = importance.sum(axis=2, keepdims=True), (importance * values).sum(axis=2, keepdims=True)
    for step in range(STEPS):
        span = np.where(high == lowest, np.float32(1), high - lowest)  # a better minimum moves the grid of the next steps
        codes = np.clip(np.rint((FIRST + STEP * step + top) / span * (values - lowest)), 0, top).astype(np.float32)
        fitted, shifted, is_fit = _fit(values, importance, codes, *totals)
        error = _error(values, importance, codes, fitted, shifted)
        better = is_fit & ~flat & (error < best)
        best = np.where(better, error, best)
        scales, lowest = np.where(better, fitted, scales), np.where(better, shifted, lowest)
    return scales.astype(np.float32), lowest.astype(np.float32)


def _error(values: np.ndarray, importance: np.ndarray, codes: np.ndarray, scale: np.ndarray, lowest: np.ndarray) -> np.ndarray:
    return (importance * (scale * codes + lowest - values) ** 2).sum(axis=2, keepdims=True)


def _fit(
    values: np.ndarray, importance: np.ndarray, codes: np.ndarray, weight: np.ndarray, weighted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The line through (code, value) with the least weighted squares, and whether there is one."""
    weighted_codes = importance * codes
    first = weighted_codes.sum(axis=2, keepdims=True)
    squares = (weighted_codes * codes).sum(axis=2, keepdims=True)
    mixed = (weighted_codes * values).sum(axis=2, keepdims=True)
    determinant = weight * squares - first * first
    is_fit = determinant > 0
    safe = np.where(is_fit, determinant, np.float32(1))
    scale = (weight * mixed - weighted * first) / safe
    lowest = (squares * weighted - first * mixed) / safe
    return scale, lowest, is_fit & (scale > 0)
