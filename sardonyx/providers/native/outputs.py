"""Memory for a program's outputs. Large ones are used again once the caller has let go of them.

Fresh memory comes from the system in pages that it fills with zeros first: for a large result that takes as long as computing it.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LARGE_BYTES = 1 << 20
ALIGNMENT = 64
KEPT_BLOCKS = 2
"""How many blocks of one size wait for another run."""
KEPT_SIZES = 8


_empty: Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray] = np.empty


class Forms:
    """Shapes and types of a program's outputs."""

    __slots__ = ("shapes", "types", "sizes", "large")

    def __init__(self, shapes: Sequence[tuple[int, ...]], types: Sequence[np.dtype[Any]]):
        self.shapes = shapes
        self.types = types
        self.sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, types)]
        self.large = any(size >= LARGE_BYTES for size in self.sizes)


class Outputs:
    """Gives out arrays of one program's results."""

    def __init__(self) -> None:
        self._free: dict[int, list[Any]] = {}

    def empty(self, forms: Forms) -> list[np.ndarray]:
        """New arrays; the memory of large ones comes back here when nothing refers to it any more, views included."""
        if not forms.large:
            return list(map(_empty, forms.shapes, forms.types))
        return [
            self._large(shape, dtype, size) if size >= LARGE_BYTES else np.empty(shape, dtype)
            for shape, dtype, size in zip(forms.shapes, forms.types, forms.sizes)
        ]

    def _large(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> np.ndarray:
        blocks = self._blocks(size)
        try:
            block = blocks.pop()
        except IndexError:
            block = (ctypes.c_char * (size + ALIGNMENT))()
        # the base is no NumPy array, so a view of this array refers to this array, and keeps it alive
        array: np.ndarray = np.ndarray(shape, dtype, buffer=block, offset=-ctypes.addressof(block) % ALIGNMENT)
        weakref.finalize(array, _give_back, blocks, block).atexit = False
        return array

    def _blocks(self, size: int) -> list[Any]:
        found = self._free.get(size)
        if found is None:
            if len(self._free) >= KEPT_SIZES:
                self._free.clear()
            found = self._free.setdefault(size, [])
        return found


def _give_back(blocks: list[Any], block: Any) -> None:
    if len(blocks) < KEPT_BLOCKS:
        blocks.append(block)
