"""Bytes of tensors in files <-> arrays: little-endian, narrow types packed with the low bits first.

Readers and writers of all formats come here, the text form too; `Tensor` objects call `decode` when their data is first needed.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType

LITTLE_ENDIAN_HOST = sys.byteorder == "little"


def decode(data: bytes | memoryview, dtype: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    """The array whose elements lie in `data`; a view of it where the types allow."""
    if dtype.is_packed:
        return from_bits(_unpacked(np.frombuffer(data, np.uint8), dtype.bits, math.prod(shape)), dtype).reshape(shape)
    if dtype is dtypes.bool_:
        return as_bool(np.frombuffer(data, np.uint8)).reshape(shape)
    if LITTLE_ENDIAN_HOST:
        return np.frombuffer(data, dtype.numpy).reshape(shape)
    return _byteswapped(np.frombuffer(data, np.uint8), dtype).reshape(shape)


def encode(array: np.ndarray, dtype: ElementType) -> memoryview:
    """The bytes of `array` as files hold them; without a copy where the types allow."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.is_packed:
        flat = _packed(to_bits(flat, dtype), dtype.bits)
    elif not LITTLE_ENDIAN_HOST:
        flat = _byteswapped(flat.view(np.uint8), dtype)
    return flat.view(np.uint8).data


def as_bool(numbers: np.ndarray) -> np.ndarray:
    """Any number but 0 is true; a view where the bytes are 0 and 1 already."""
    if numbers.dtype.itemsize == 1 and numbers.max(initial=0) <= 1:
        return numbers.view(np.bool_)
    return numbers != 0


def from_bits(bits: np.ndarray, dtype: ElementType) -> np.ndarray:
    """Elements from their bit patterns, one in the low bits of each unsigned integer."""
    if dtype in (dtypes.int4, dtypes.int2):
        sign = np.int8(1 << (dtype.bits - 1))
        numbers = (bits.astype(np.uint8) & ((1 << dtype.bits) - 1)).astype(np.int8)
        return ((numbers ^ sign) - sign).astype(dtype.numpy)
    if dtype.bits < 8:
        narrow = bits.astype(np.uint8) & ((1 << dtype.bits) - 1)
        return narrow.astype(dtype.numpy) if dtype in dtypes.SUB_BYTE_INTS else narrow.view(dtype.numpy)
    return bits.astype(f"u{dtype.numpy.itemsize}").view(dtype.numpy)


def to_bits(array: np.ndarray, dtype: ElementType) -> np.ndarray:
    """The bit pattern of each element in an unsigned integer of its own."""
    if dtype in dtypes.SUB_BYTE_INTS:
        return array.astype(np.int8).view(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    bits = array.view(f"u{dtype.numpy.itemsize}")
    return bits & np.uint8((1 << dtype.bits) - 1) if dtype.bits < 8 else bits


def _unpacked(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """One element per byte from a stream of `bits`-wide elements, low bits first."""
    if bits == 6:
        groups = np.zeros((-(-len(data) // 3), 3), np.uint32)
        groups.reshape(-1)[: len(data)] = data
        words = groups[:, 0] | groups[:, 1] << 8 | groups[:, 2] << 16
        shifts = np.arange(0, 24, 6, dtype=np.uint32)
        return (words[:, None] >> shifts & 0x3F).astype(np.uint8).reshape(-1)[:count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (data[:, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(-1)[:count]


def _packed(elements: np.ndarray, bits: int) -> np.ndarray:
    """The stream of `bits`-wide elements that `_unpacked` reads."""
    per_group, group_bytes = (4, 3) if bits == 6 else (8 // bits, 1)
    groups = np.zeros((-(-len(elements) // per_group), per_group), np.uint32)
    groups.reshape(-1)[: len(elements)] = elements
    words = np.bitwise_or.reduce(groups << np.arange(0, per_group * bits, bits, dtype=np.uint32), axis=1)
    stream = words[:, None] >> np.arange(0, 8 * group_bytes, 8, dtype=np.uint32) & 0xFF
    return stream.astype(np.uint8).reshape(-1)[: (len(elements) * bits + 7) // 8]


def _byteswapped(data: np.ndarray, dtype: ElementType) -> np.ndarray:
    """Elements (given as bytes) with the bytes of each number reversed; a complex one is two numbers."""
    width = dtype.numpy.itemsize // (2 if dtype in dtypes.COMPLEX else 1)
    return data.reshape(-1, width)[:, ::-1].reshape(-1).copy().view(dtype.numpy)
