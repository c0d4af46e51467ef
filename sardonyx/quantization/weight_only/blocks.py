"""Codes of weights in blocks along one axis, and how they are packed.

Everywhere here a weight is (rows, columns) with blocks along the columns: MatMulNBits has one row for each output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Blocks:
    """Codes 0 … 2^bits − 1 as (rows, blocks, block size), scales and zero points as (rows, blocks); columns may end inside a block.

    A weight is (code − zero point) · scale. `zero_points` are integers, floats, or None for 2^(bits−1).
    """

    codes: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
    bits: int
    columns: int

    @property
    def block_size(self) -> int:
        return self.codes.shape[2]

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    def flat_codes(self) -> np.ndarray:
        """Codes as (rows, columns)."""
        return self.codes.reshape(self.rows, -1)[:, : self.columns]

    def dequantized(self) -> np.ndarray:
        """What the codes mean, as (rows, columns)."""
        zero = 2 ** (self.bits - 1) if self.zero_points is None else self.zero_points[:, :, None].astype(np.float32)
        weights = (self.codes.astype(np.float32) - zero) * self.scales[:, :, None].astype(np.float32)
        return weights.reshape(self.rows, -1)[:, : self.columns]


def check_shape(bits: int, block_size: int) -> None:
    """Refuse numbers of bits and sizes of blocks that no op takes."""
    if bits not in (2, 4, 8):
        raise ValueError(f"weights have 2, 4 or 8 bits, got {bits}")
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"a block holds a power of two of weights, 16 at least, got {block_size}")


def in_blocks(weight: np.ndarray, block_size: int, fill: float = 0.0) -> np.ndarray:
    """A weight as float32 (rows, blocks, block size), filled up at the end of each row."""
    rows, columns = weight.shape
    blocks = -(-columns // block_size)
    padded = np.full((rows, blocks * block_size), fill, dtype=np.float32)
    padded[:, :columns] = weight
    return padded.reshape(rows, blocks, block_size)


def round_away(values: np.ndarray) -> np.ndarray:
    """To the nearest integer, halves away from 0, as the C function does."""
    return np.trunc(values + np.copysign(np.float32(0.5), values))


def round_to_nearest(weight: np.ndarray, bits: int, block_size: int, symmetric: bool) -> Blocks:
    """Scales from the extremes of each block: symmetric around 2^(bits−1), or from the lowest value to the highest."""
    values = in_blocks(weight, block_size)
    scales, zero_points = _symmetric(values, bits) if symmetric else _asymmetric(values, bits)
    stored = scales.astype(weight.dtype)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)
    top = 2**bits - 1
    codes = np.clip(round_away(values * inverse[:, :, None] + zero_points[:, :, None]), 0, top).astype(np.uint8)
    _fill_padding(codes, weight.shape[1], 8 // bits)
    return Blocks(codes, stored, None if symmetric else zero_points.astype(np.uint8), bits, weight.shape[1])


def _symmetric(values: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The value of largest magnitude gets the code 0: below the middle there is one code more than above."""
    middle = 2 ** (bits - 1)
    where = np.abs(values).argmax(axis=2)
    extreme = np.take_along_axis(values, where[:, :, None], axis=2)[:, :, 0]
    scales = extreme / np.float32(-middle)
    return scales, np.full(scales.shape, middle, dtype=np.float32)


def _asymmetric(values: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.minimum(values.min(axis=2), 0), np.maximum(values.max(axis=2), 0)
    top = np.float32(2**bits - 1)
    scales = (high - low) / top
    zero = np.divide(-low, scales, out=np.zeros_like(scales), where=scales != 0)
    return scales, np.clip(round_away(zero), 0, top)


def _fill_padding(codes: np.ndarray, columns: int, per_byte: int) -> None:
    """What nobody reads, as onnxruntime leaves it: the last byte repeats the one before, and zeros follow."""
    flat = codes.reshape(len(codes), -1)
    used = -(-columns // per_byte) * per_byte
    block_start = (columns - 1) // codes.shape[2] * codes.shape[2]
    for column in range(columns, used):
        if column - per_byte >= block_start:
            flat[:, column] = flat[:, column - per_byte]
    flat[:, used:] = 0


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of the last axis packed into bytes, the first in the lowest bits; the axis fills whole bytes."""
    per_byte = 8 // bits
    shifts = (np.arange(per_byte) * bits).astype(np.uint8)
    grouped = codes.astype(np.uint8).reshape(*codes.shape[:-1], -1, per_byte)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1).astype(np.uint8)


def pack_zero_points(zero_points: np.ndarray, bits: int) -> np.ndarray:
    """Zero points (rows, blocks) packed row by row; what is left of the last byte holds the middle."""
    per_byte = 8 // bits
    missing = -zero_points.shape[1] % per_byte
    padded = np.pad(zero_points.astype(np.uint8), ((0, 0), (0, missing)), constant_values=2 ** (bits - 1))
    return pack(padded, bits)


Packed = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Codes, scales and zero points."""


def packed_columns(weight: np.ndarray, bits: int, block_size: int, symmetric: bool) -> Packed:
    """A weight (rows, columns) in blocks along its rows, as MatMulNBits takes it: (columns, blocks, bytes); zero points are 0 without."""
    blocks = round_to_nearest(np.ascontiguousarray(weight.T), bits, block_size, symmetric)
    unused = np.zeros((blocks.rows, -(-blocks.scales.shape[1] * bits // 8)), np.uint8)
    zero_points = unused if blocks.zero_points is None else pack_zero_points(blocks.zero_points, bits)
    return pack(blocks.codes, bits), blocks.scales, zero_points


def packed_rows(weight: np.ndarray, bits: int, block_size: int, symmetric: bool) -> Packed:
    """The same as DequantizeLinear takes it: codes of a row after the other, which have a sign where there are no zero points."""
    blocks = round_to_nearest(np.ascontiguousarray(weight.T), bits, block_size, symmetric)
    middle = np.uint8(2 ** (bits - 1) if symmetric else 0)
    codes = blocks.flat_codes().T - middle & np.uint8(2**bits - 1)
    zero_points = np.zeros(blocks.scales.size, np.uint8) if blocks.zero_points is None else blocks.zero_points.T.ravel()
    return (
        pack(_whole_bytes(codes.ravel(), bits), bits),
        np.ascontiguousarray(blocks.scales.T),
        pack(_whole_bytes(zero_points, bits), bits),
    )


def _whole_bytes(codes: np.ndarray, bits: int) -> np.ndarray:
    return np.pad(codes, (0, -codes.size % (8 // bits)))
