"""Compiled data on its way between a context model and a program that stores it elsewhere: what the functions for that are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.errors import Fail
from sardonyx.runtime.api import arguments


class OrtEpContextData:
    """Compiled data to be stored, while a function that was set for it is being called."""

    __slots__ = ("_data",)

    def __init__(self, data: memoryview):
        self._data = data

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return len(self._data)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A part of the data."""
        offset = arguments.integer(offset, "read", bits=64)
        end = self.size if length is None else offset + arguments.integer(length, "read", bits=64)
        if not 0 <= offset <= end <= self.size:
            raise RuntimeError(f"the data has {self.size} bytes; {offset} to {end} is not inside")
        return bytes(self._data[offset:end])


class OrtEpContextDataBuffer:
    """Where stored data is to be put, while a function that was set for it is being called."""

    __slots__ = ("_data", "_max_size")

    def __init__(self, max_size: int):
        self._max_size = max_size
        self._data: np.ndarray | None = None

    @property
    def max_size(self) -> int:
        """How many bytes may be allocated."""
        return self._max_size

    @property
    def is_allocated(self) -> bool:
        """Whether `allocate` was called."""
        return self._data is not None

    @property
    def size(self) -> int:
        """How many bytes were allocated."""
        return 0 if self._data is None else len(self._data)

    def allocate(self, size: int) -> None:
        """Make room, once."""
        size = arguments.integer(size, "allocate", bits=64)
        if self._data is not None:
            raise RuntimeError("the buffer is allocated already")
        if not 0 <= size <= self._max_size:
            raise RuntimeError(f"{size} bytes are wanted, at most {self._max_size} are allowed")
        self._data = np.empty(size, np.uint8)

    def write(self, data: Any, offset: int = 0) -> None:
        """Put in a part of the data."""
        offset = arguments.integer(offset, "write", bits=64)
        source = memoryview(data).cast("B")
        if self._data is None:
            raise RuntimeError("the buffer is not allocated")
        if not 0 <= offset <= offset + len(source) <= self.size:
            raise RuntimeError(f"the buffer has {self.size} bytes; {offset} to {offset + len(source)} is not inside")
        self._data[offset : offset + len(source)] = source

    @property
    def data(self) -> memoryview:
        """What was put in."""
        if self._data is None:
            raise Fail("The function that reads EPContext data did not allocate its buffer.")
        return self._data.data


WriteContextData = Callable[[str, OrtEpContextData], None]
ReadContextData = Callable[[str, OrtEpContextDataBuffer], None]
