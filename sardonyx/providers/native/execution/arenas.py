"""Arenas that several programs share because they run one after the other, as forward and backward of a training step do."""

from __future__ import annotations

import numpy as np

NO_ARENA = np.empty(0, np.uint8)
"""What the state of a program has while it borrows nothing."""


class Arenas:
    """Lends arenas. There are as many as runs at the same time, each as large as the largest run that it was lent to."""

    def __init__(self) -> None:
        self._idle: list[np.ndarray] = []

    def lend(self, size: int) -> np.ndarray:
        """At least `size` bytes that nobody else uses. What is in them is undefined."""
        try:
            arena = self._idle.pop()
        except IndexError:
            arena = NO_ARENA
        return arena if arena.nbytes >= size else np.empty(size, np.uint8)

    def take_back(self, arena: np.ndarray) -> None:
        self._idle.append(arena)

    def shrink(self) -> None:
        """Let go of memory that waits for another run."""
        self._idle.clear()

    @property
    def nbytes(self) -> int:
        """How much memory waits for another run."""
        return sum(arena.nbytes for arena in self._idle)
