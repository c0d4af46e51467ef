"""Where random ops get their numbers: the generator of a node's own seed, or one drawn from the process-wide seed.

NumPy's legacy generator is used because the ONNX suite's expected Dropout masks come from it.
"""

from __future__ import annotations

import numpy as np

from sardonyx.startup.locks import Lock

_lock = Lock()
_process: np.random.RandomState | None = None
"""Made when it is first asked: NumPy takes its time to import generators."""


def set_seed(seed: int) -> None:
    """Make all random ops without a seed of their own repeatable from here on."""
    global _process
    with _lock:
        _process = np.random.RandomState(seed & 0xFFFFFFFF)


def generator(seed: float | None = None) -> np.random.RandomState:
    """A generator for one run of one node. The same seed always gives the same numbers."""
    if seed is not None:
        return np.random.RandomState(int(seed) & 0xFFFFFFFF)
    global _process
    with _lock:
        if _process is None:
            _process = np.random.RandomState()
        return np.random.RandomState(_process.randint(0, 2**32, dtype=np.uint32))
