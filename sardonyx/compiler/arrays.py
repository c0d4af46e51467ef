"""How generated code finds the elements of NumPy's arrays: a tuple of arrays is one address, and the code looks into the objects.

To ask an array for its address in Python makes an object each time; a run on a small model would feel that.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

WORD = 8
ARRAY_DATA = object.__basicsize__
"""Where an array object holds the address of its elements: right behind what every Python object has."""
TUPLE_ITEMS = tuple.__basicsize__
"""Where a tuple holds its items, which are pointers to objects."""

Arrays = tuple[np.ndarray, ...]


def imitation_of(arrays: Arrays) -> np.ndarray:
    """Memory in which a tuple of arrays is laid out so, for interpreters that have other objects."""
    count, first, size = len(arrays), TUPLE_ITEMS // WORD, ARRAY_DATA // WORD + 1
    objects = first + count + size * np.arange(count)
    memory = np.zeros(first + count + size * count, np.int64)
    memory[first : first + count] = memory.ctypes.data + WORD * objects
    memory[objects + size - 1] = [array.ctypes.data for array in arrays]
    return memory


def seen_at(address: int, count: int) -> list[int]:
    """Where generated code finds the elements of the arrays of a tuple."""
    items = [ctypes.c_size_t.from_address(address + TUPLE_ITEMS + WORD * index).value for index in range(count)]
    return [ctypes.c_size_t.from_address(item + ARRAY_DATA).value for item in items]


def _are_objects_open() -> bool:
    samples: Arrays = (np.empty(3), np.arange(10)[4:], np.zeros((2, 3), np.int8).T, np.empty(0))
    return sys.implementation.name == "cpython" and seen_at(id(samples), 4) == [sample.ctypes.data for sample in samples]


OBJECTS_ARE_OPEN = _are_objects_open()
"""Whether `id` is the address of an object, and tuples and arrays are laid out as said above."""
