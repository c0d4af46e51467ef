"""Memory for packed weights: a few large pieces, which the system gives in huge pages, instead of one allocation for each weight.

A lowerer has one; the pieces live as long as some weight in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64
PIECE_BYTES = 64 << 20
"""Memory that nothing is ever written to costs nothing: the rest of a piece is not there."""


class WeightMemory:
    """Hands out arrays that begin at a cache line."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array with nothing in it yet."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size > PIECE_BYTES:
            return aligned_empty(shape, dtype)
        if size > len(self._left):
            self._left = aligned_empty([PIECE_BYTES], np.uint8)
        piece = self._left[:size]
        self._left = self._left[-(-size // ALIGNMENT) * ALIGNMENT :]
        return piece.view(dtype).reshape(shape)


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of its own that begins at a cache line."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
