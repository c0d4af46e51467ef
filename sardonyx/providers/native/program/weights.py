"""Memory for packed weights: a few large pieces, which the system gives in huge pages, instead of one allocation for each weight.

A lowerer has one; the pieces live as long as some weight in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64
FIRST_PIECE_BYTES = 1 << 20
LARGEST_PIECE_BYTES = 64 << 20
"""Each piece is twice the one before it, up to this. Small models ask for little: who limits address space counts what is never written,
too.
"""


class WeightMemory:
    """Hands out arrays that begin at a cache line."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)
        self._next_bytes = FIRST_PIECE_BYTES

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array with nothing in it yet."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size > LARGEST_PIECE_BYTES:
            return aligned_empty(shape, dtype)
        if size > len(self._left):
            self._begin_piece(size)
        piece = self._left[:size]
        self._left = self._left[-(-size // ALIGNMENT) * ALIGNMENT :]
        return piece.view(dtype).reshape(shape)

    def _begin_piece(self, least: int) -> None:
        while self._next_bytes < least:
            self._next_bytes *= 2
        self._left = aligned_empty([self._next_bytes], np.uint8)
        self._next_bytes = min(2 * self._next_bytes, LARGEST_PIECE_BYTES)


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of its own that begins at a cache line."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
