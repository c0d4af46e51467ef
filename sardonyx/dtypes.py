"""Element types of tensors: their ONNX number, their name in type strings and their NumPy dtype.

Everybody imports this module; it imports nothing of ours. Types beyond NumPy's own are those of `ml_dtypes`, which is imported when one of
them is wanted.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


class ElementType:
    """One element type. There is exactly one object per type, so `is` and `==` agree."""

    __slots__ = ("name", "code", "numpy", "bits", "_beyond")
    numpy: np.dtype

    def __init__(self, name: str, code: int, numpy_dtype: Any, bits: int):
        """`numpy_dtype` is a NumPy type, or the name of one that `ml_dtypes` has."""
        self.name = name
        self.code = code
        self.bits = bits
        self._beyond = numpy_dtype if isinstance(numpy_dtype, str) else ""
        _BY_CODE[code] = _BY_NAME[name] = self
        if not self._beyond:
            self.numpy = np.dtype(numpy_dtype)
            _BY_NUMPY[self.numpy] = self

    def __getattr__(self, name: str) -> Any:
        """`numpy`, where it is still to be found out."""
        if name != "numpy" or not self._beyond:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        import ml_dtypes

        self.numpy = np.dtype(getattr(ml_dtypes, self._beyond))
        return _BY_NUMPY.setdefault(self.numpy, self).numpy

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return from_code, (self.code,)

    @property
    def is_packed(self) -> bool:
        """Several elements share one byte in files (never in arrays)."""
        return self.bits < 8

    def stored_bytes(self, count: int) -> int:
        """How many bytes `count` elements take in a file."""
        return (count * self.bits + 7) // 8


_BY_CODE: dict[int, ElementType] = {}
_BY_NAME: dict[str, ElementType] = {}
_BY_NUMPY: dict[np.dtype, ElementType] = {}

float32 = ElementType("float", 1, np.float32, 32)
uint8 = ElementType("uint8", 2, np.uint8, 8)
int8 = ElementType("int8", 3, np.int8, 8)
uint16 = ElementType("uint16", 4, np.uint16, 16)
int16 = ElementType("int16", 5, np.int16, 16)
int32 = ElementType("int32", 6, np.int32, 32)
int64 = ElementType("int64", 7, np.int64, 64)
string = ElementType("string", 8, object, 64)
bool_ = ElementType("bool", 9, np.bool_, 8)
float16 = ElementType("float16", 10, np.float16, 16)
float64 = ElementType("double", 11, np.float64, 64)
uint32 = ElementType("uint32", 12, np.uint32, 32)
uint64 = ElementType("uint64", 13, np.uint64, 64)
complex64 = ElementType("complex64", 14, np.complex64, 64)
complex128 = ElementType("complex128", 15, np.complex128, 128)
bfloat16 = ElementType("bfloat16", 16, "bfloat16", 16)
float8e4m3fn = ElementType("float8e4m3fn", 17, "float8_e4m3fn", 8)
float8e4m3fnuz = ElementType("float8e4m3fnuz", 18, "float8_e4m3fnuz", 8)
float8e5m2 = ElementType("float8e5m2", 19, "float8_e5m2", 8)
float8e5m2fnuz = ElementType("float8e5m2fnuz", 20, "float8_e5m2fnuz", 8)
uint4 = ElementType("uint4", 21, "uint4", 4)
int4 = ElementType("int4", 22, "int4", 4)
float4e2m1 = ElementType("float4e2m1", 23, "float4_e2m1fn", 4)
float8e8m0 = ElementType("float8e8m0", 24, "float8_e8m0fnu", 8)
uint2 = ElementType("uint2", 25, "uint2", 2)
int2 = ElementType("int2", 26, "int2", 2)
float6e2m3 = ElementType("float6e2m3", 27, "float6_e2m3fn", 6)
float6e3m2 = ElementType("float6e3m2", 28, "float6_e3m2fn", 6)

ALL = frozenset(_BY_CODE.values())
_BEYOND = [element for element in ALL if element._beyond]
FLOAT8 = frozenset({float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float8e8m0})
FLOAT6 = frozenset({float6e2m3, float6e3m2})
SMALL_FLOATS = FLOAT8 | FLOAT6 | {float4e2m1}
HALVES = frozenset({float16, bfloat16})
"""Types whose arithmetic is done in float32, rounded once at the end."""
WIDENED = HALVES | SMALL_FLOATS
FLOATS = frozenset({float32, float64, float16, bfloat16})
SIGNED = frozenset({int2, int4, int8, int16, int32, int64})
UNSIGNED = frozenset({uint2, uint4, uint8, uint16, uint32, uint64})
INTS = SIGNED | UNSIGNED
SUB_BYTE_INTS = frozenset({int2, int4, uint2, uint4})
COMPLEX = frozenset({complex64, complex128})
NUMERIC = FLOATS | INTS


def from_code(code: int) -> ElementType:
    """The type of a TensorProto.DataType number; KeyError if there is none."""
    return _BY_CODE[code]


def from_name(name: str) -> ElementType:
    """The type called `name` inside type strings ("float", "int64", …); KeyError if there is none."""
    return _BY_NAME[name]


def from_numpy(dtype: np.dtype | type) -> ElementType:
    """The type that arrays of `dtype` hold; any text dtype is string; KeyError if there is none."""
    dtype = np.dtype(dtype)
    if dtype not in _BY_NUMPY and "ml_dtypes" in sys.modules:
        for element in _BEYOND:
            element.numpy  # noqa: B018 - which makes it known
    if dtype.kind in "OUSTV" and dtype not in _BY_NUMPY:
        return string
    known = _BY_NUMPY.get(dtype)
    return known if known is not None else _BY_NUMPY[dtype.newbyteorder("=")]
