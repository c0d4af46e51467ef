"""Weights quantized in blocks into arrays of the caller, as the original's compiled module does it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sardonyx.quantization.matmul_bnb4_quantizer import bnb4_blocks
from sardonyx.quantization.weight_only.blocks import check_shape, packed_columns, packed_rows

Array = np.ndarray


def quantize_matmul_2bits(
    dst: Array, src: Array, scale: Array, zero_points: Array, block_size: int, columns: int, rows: int, is_symmetric: bool
) -> None:
    """Quantize a weight (rows, columns) to 2 bits in blocks along rows: fills codes (columns, blocks, bytes), scales, zero points."""
    _fill_columns(2, dst, src, scale, zero_points, block_size, columns, rows, is_symmetric)


def quantize_matmul_4bits(
    dst: Array, src: Array, scale: Array, zero_points: Array, block_size: int, columns: int, rows: int, is_symmetric: bool
) -> None:
    """The same to 4 bits."""
    _fill_columns(4, dst, src, scale, zero_points, block_size, columns, rows, is_symmetric)


def quantize_matmul_8bits(
    dst: Array, src: Array, scale: Array, zero_points: Array, block_size: int, columns: int, rows: int, is_symmetric: bool
) -> None:
    """The same to 8 bits."""
    _fill_columns(8, dst, src, scale, zero_points, block_size, columns, rows, is_symmetric)


def quantize_matmul_bnb4(
    dst: Array, src: Array, absmax: Array, block_size: int, quant_type: int, columns: int, rows: int
) -> None:
    """Quantize a weight (columns, rows), transposed unlike the others, to FP4 (0) or NF4 (1): fills codes and the largest of each block."""
    codes, largest = bnb4_blocks(_weight(src, columns, rows).T, block_size, quant_type)
    _fill(dst, codes)
    _fill(absmax, largest)


def quantize_qdq_matmul_2bits(
    dst: Array, src: Array, scale: Array, zero_points: Array, block_size: int, columns: int, rows: int, is_symmetric: bool
) -> bool:
    """Quantize a weight (rows, columns) to 2 bits for DequantizeLinear, in its own order; returns whether the codes have a sign."""
    return _fill_rows(2, dst, src, scale, zero_points, block_size, columns, rows, is_symmetric)


def quantize_qdq_matmul_4bits(
    dst: Array, src: Array, scale: Array, zero_points: Array, block_size: int, columns: int, rows: int, is_symmetric: bool
) -> bool:
    """The same to 4 bits."""
    return _fill_rows(4, dst, src, scale, zero_points, block_size, columns, rows, is_symmetric)


def _weight(src: Array, rows: int, columns: int) -> np.ndarray:
    weight = np.asarray(src)
    if weight.dtype not in (np.float32, np.float16):
        raise TypeError(f"weights are float32 or float16, not {weight.dtype}")
    if weight.size != rows * columns:
        raise RuntimeError(f"a weight of {rows} by {columns} was said to come, it has {weight.size} elements")
    return weight.reshape(rows, columns)


def _fill_columns(
    bits: int,
    dst: Array,
    src: Array,
    scale: Array,
    zero_points: Array,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> None:
    check_shape(bits, block_size)
    codes, scales, zeros = packed_columns(_weight(src, rows, columns), bits, block_size, bool(is_symmetric))
    _fill_all((dst, scale), (codes, scales))
    if not is_symmetric:
        _fill(zero_points, zeros)


def _fill_rows(
    bits: int,
    dst: Array,
    src: Array,
    scale: Array,
    zero_points: Array,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> bool:
    """Codes of a row after the other, as the weight is; blocks lie along its columns."""
    check_shape(bits, block_size)
    codes, scales, zeros = packed_rows(_weight(src, rows, columns), bits, block_size, bool(is_symmetric))
    _fill_all((dst, scale), (codes, scales))
    if not is_symmetric:
        _fill(zero_points, zeros)
    return bool(is_symmetric)


def _fill_all(targets: Iterable[np.ndarray], values: Iterable[np.ndarray]) -> None:
    for target, array in zip(targets, values, strict=True):
        _fill(target, array)


def _fill(target: np.ndarray, values: np.ndarray) -> None:
    if target.size != values.size:
        raise RuntimeError(f"an array of {target.size} elements was given for {values.size}")
    target.reshape(-1)[...] = values.reshape(-1)
