"""Arrays across libraries without a copy: the DLPack protocol for OrtValues, also for the types that NumPy does not pass on itself.

Layout of the structures: https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType

CPU_DEVICE = (1, 0)

_CODES: dict[ElementType, int] = {
    dtypes.bfloat16: 4,
    dtypes.float8e4m3fn: 10,
    dtypes.float8e4m3fnuz: 11,
    dtypes.float8e5m2: 12,
    dtypes.float8e5m2fnuz: 13,
    dtypes.float8e8m0: 14,
}
"""DLPack's type codes of what NumPy knows through ml_dtypes only. They travel as unsigned integers with the code changed."""
UNSIGNED = 1
_TYPES = {code: element for element, code in _CODES.items()}


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_VERSIONED_OFFSET = 32
"""In a versioned capsule the tensor stands behind the version, the manager's context, the deleter and the flags."""


def _tensor_of(capsule: Any) -> _Tensor:
    """The tensor inside a capsule that nobody has consumed yet."""
    for name, offset in ((b"dltensor", 0), (b"dltensor_versioned", _VERSIONED_OFFSET)):
        if ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), name):
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            return _Tensor.from_address(get(capsule, name) + offset)
    raise TypeError("from_dlpack expected a valid DLPack capsule named 'dltensor'")


def to_capsule(array: np.ndarray, **keywords: Any) -> Any:
    """A capsule that shares the memory of `array`."""
    element = dtypes.from_numpy(array.dtype)
    if element not in _CODES:
        return array.__dlpack__(**keywords)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**keywords)
    _tensor_of(capsule).dtype.code = _CODES[element]
    return capsule


class _Producer:
    """A capsule in the form that NumPy takes."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE


def from_producer(data: Any, is_bool: bool = False) -> np.ndarray:
    """An array over the memory of a capsule or of an object that makes one."""
    array = (
        data.view()
        if isinstance(data, np.ndarray)
        else _from_capsule(data.__dlpack__() if hasattr(data, "__dlpack__") else data)
    )
    if not array.flags.c_contiguous:
        raise RuntimeError("ORT only supports contiguous tensor for now.")
    return array.view(np.bool_) if is_bool else array


def _from_capsule(capsule: Any) -> np.ndarray:
    tensor = _tensor_of(capsule)
    if tensor.device_type != CPU_DEVICE[0]:
        raise RuntimeError(
            f"Only tensors in the CPU's memory can be shared; this one's DLPack device type is {tensor.device_type}"
        )
    element = _TYPES.get(tensor.dtype.code)
    if element is not None:
        tensor.dtype.code = UNSIGNED
    array = np.from_dlpack(_Producer(capsule))
    if not array.flags.writeable and array.flags.c_contiguous:
        array = _writeable(array)
    return array if element is None else array.view(element.numpy)


def _writeable(array: np.ndarray) -> np.ndarray:
    """NumPy marks what comes in plain capsules as read-only because they cannot say; the original lets it be written."""
    if not array.size:
        return np.empty(array.shape, array.dtype)
    buffer = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    shared: np.ndarray = np.frombuffer(memoryview(buffer), dtype=array.dtype).reshape(array.shape)
    buffer._owner = array  # type: ignore[attr-defined]  # the memory lives as long as the array that came in
    return shared


def is_uint8(capsule: Any) -> bool:
    """Whether a capsule holds unsigned bytes, which some libraries use for truth values."""
    kind = _tensor_of(capsule).dtype
    return kind.code == UNSIGNED and kind.bits == 8


def at_address(address: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array over memory that somebody else owns and keeps alive."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(buffer), dtype=dtype).reshape(shape)
