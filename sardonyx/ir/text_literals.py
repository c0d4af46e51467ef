"""Elements of tensors <-> literals of ONNX's text form. The parser and the printer call these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import packing

_BITS = dtypes.HALVES | dtypes.FLOAT8 | dtypes.FLOAT6
"""Types whose elements are written as bit patterns."""


def make_array(literals: Sequence[Any], dtype: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    """The array that literals mean; ValueError says what is wrong with them.

    As in TensorProto's fields, integers stand for bit patterns of narrow floats, and one may hold several 4- or 2-bit elements.
    """
    count = math.prod(shape)
    if any(isinstance(literal, str) is not (dtype is dtypes.string) for literal in literals):
        raise ValueError(f"elements of type {dtype}")
    packed = dtype.stored_bytes(count) if dtype.bits in (2, 4) else count
    wanted = 2 * count if dtype in dtypes.COMPLEX else count
    if len(literals) not in (wanted, packed):
        raise ValueError(f"{wanted} elements, not {len(literals)}")
    has_decimals = any(isinstance(literal, float) for literal in literals)
    if has_decimals and (dtype in dtypes.INTS or dtype is dtypes.bool_):
        raise ValueError("whole numbers")
    try:
        return _array(literals, dtype, count, has_decimals).reshape(shape)
    except OverflowError:
        raise ValueError(f"numbers that fit {dtype}") from None


def _array(literals: Sequence[Any], dtype: ElementType, count: int, has_decimals: bool) -> np.ndarray:
    if dtype is dtypes.string:
        array = np.empty(count, object)
        array[:] = literals
        return array
    if dtype in dtypes.COMPLEX:
        return _numbers(literals, np.float32 if dtype is dtypes.complex64 else np.float64).view(dtype.numpy)
    if dtype in dtypes.WIDENED and has_decimals:
        with np.errstate(over="ignore"):
            return _numbers(literals, np.float32).astype(dtype.numpy)
    if dtype.bits in (2, 4) and len(literals) != count:
        return packing.decode((np.array(literals, np.int64) & 0xFF).astype(np.uint8).data, dtype, (count,))
    if dtype in _BITS or dtype.bits in (2, 4):
        return packing.from_bits((np.array(literals, np.int64) & 0xFFFF).astype(np.uint16), dtype)
    return _numbers(literals, dtype.numpy)


def _numbers(literals: Sequence[Any], numpy_dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array(literals, numpy_dtype)


def literals(array: np.ndarray, dtype: ElementType, readable: bool = False) -> Iterable[str]:
    """Literals that `make_array` and the onnx package's parser read; `readable` gives decimals where that needs bit patterns."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype is dtypes.string:
        return (quoted(text) for text in flat)
    if dtype in dtypes.COMPLEX:
        return (_decimal(part) for part in flat.view(np.float32 if dtype is dtypes.complex64 else np.float64))
    if dtype in dtypes.WIDENED and readable:
        return (_decimal(number) for number in flat.astype(np.float32))
    if dtype.bits in (2, 4) and not readable:
        return map(str, packing.encode(flat, dtype))
    if dtype in _BITS:
        return map(str, packing.to_bits(flat, dtype).tolist())
    if dtype in (dtypes.float32, dtypes.float64):
        return (_decimal(number) for number in flat)
    return (str(int(number)) for number in flat)


def _decimal(number: Any) -> str:
    """The shortest text that reads as the same number."""
    return "nan" if np.isnan(number) else str(number)


def decimal(value: float) -> str:
    """An attribute's number, which files hold as float32."""
    with np.errstate(over="ignore"):
        return _decimal(np.float32(value))


def as_float32(value: float) -> float:
    """An attribute's number as it will be read from a file."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def quoted(text: str) -> str:
    """The text in quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
