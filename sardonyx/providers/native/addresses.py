"""Where an array's elements lie. NumPy's own ways to ask make an object each time; a run on a small model would feel that."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

_DATA_POINTER = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Where an array object holds its data pointer: right behind the two words of every Python object."""


def _slowly(array: np.ndarray) -> int:
    return array.ctypes.data


def _quickly(array: np.ndarray) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA_POINTER).value


def _choose() -> Callable[[np.ndarray], int]:
    """The quick way where it answers as NumPy does: other interpreters lay out objects in other ways."""
    samples: list[np.ndarray] = [np.empty(3), np.arange(10)[4:], np.zeros((2, 3), np.int8).T, np.empty(0)]
    try:
        same = all(_quickly(one) == _slowly(one) for one in samples)
    except (ValueError, OverflowError):
        same = False
    return _quickly if same else _slowly


address_of: Callable[[np.ndarray], int] = _choose()
