"""Where random ops get their seeds: a node has one of its own, or takes the next of the process.

A seed starts NumPy's legacy generator, because the ONNX suite's expected Dropout masks come from it. Generated code has the same one
(`native/kernels/random/`), and counts the seeds of the process in the same memory.
"""

from __future__ import annotations

import os

import numpy as np

from sardonyx.startup.locks import Lock

GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The numbers of SplitMix64, which makes seeds of a key and a count."""
_LARGEST = 2**64 - 1

KEY, DRAWN, DRAWN_NATIVELY = range(3)
words = np.array([int.from_bytes(os.urandom(8), "little"), 0, 0], np.uint64)
"""The key of the process, and how many seeds were made of it: here, and by generated code, which adds without this module's lock."""
_lock = Lock()


def set_seed(seed: int) -> None:
    """Make all random ops without a seed of their own repeatable from here on."""
    with _lock:
        words[KEY], words[DRAWN], words[DRAWN_NATIVELY] = seed & _LARGEST, 0, 0


def generator(seed: float | None = None) -> np.random.RandomState:
    """A generator for one run of one node. The same seed always gives the same numbers."""
    return np.random.RandomState(_next_seed() if seed is None else int(seed) & 0xFFFFFFFF)


def _next_seed() -> int:
    with _lock:
        key, drawn, drawn_natively = map(int, words)
        words[DRAWN] = (drawn + 1) & _LARGEST
    mixed = (key + (drawn + drawn_natively + 1) * GOLDEN) & _LARGEST
    mixed = ((mixed ^ (mixed >> 30)) * FIRST_FACTOR) & _LARGEST
    mixed = ((mixed ^ (mixed >> 27)) * SECOND_FACTOR) & _LARGEST
    return (mixed ^ (mixed >> 31)) >> 32
