"""Weights quantized in blocks into arrays of the caller, as the original's compiled module does it."""

from __future__ import annotations

import numpy as np

from sardonyx.quantization.matmul_bnb4_quantizer import bnb4_blocks
from sardonyx.quantization.weight_only.blocks import Blocks, check_shape, pack, pack_zero_points, round_to_nearest

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


def _blocks(bits: int, src: Array, block_size: int, columns: int, rows: int, symmetric: bool) -> Blocks:
    check_shape(bits, block_size)
    return round_to_nearest(np.ascontiguousarray(_weight(src, rows, columns).T), bits, block_size, bool(symmetric))


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
    blocks = _blocks(bits, src, block_size, columns, rows, is_symmetric)
    _fill(dst, pack(blocks.codes, bits))
    _fill(scale, blocks.scales)
    if blocks.zero_points is not None:
        _fill(zero_points, pack_zero_points(blocks.zero_points, bits))


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
    blocks = _blocks(bits, src, block_size, columns, rows, is_symmetric)
    middle = np.uint8(2 ** (bits - 1) if is_symmetric else 0)
    codes = blocks.flat_codes().T - middle & np.uint8(2**bits - 1)
    _fill(dst, pack(_whole_bytes(codes.ravel(), bits), bits))
    _fill(scale, blocks.scales.T)
    if blocks.zero_points is not None:
        _fill(zero_points, pack(_whole_bytes(blocks.zero_points.T.ravel(), bits), bits))
    return bool(is_symmetric)


def _whole_bytes(codes: np.ndarray, bits: int) -> np.ndarray:
    return np.pad(codes, (0, -codes.size % (8 // bits)))


def _fill(target: np.ndarray, values: np.ndarray) -> None:
    if target.size != values.size:
        raise RuntimeError(f"an array of {target.size} elements was given for {values.size}")
    target.reshape(-1)[...] = values.reshape(-1)
