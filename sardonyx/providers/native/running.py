"""Kernels that run while a model is prepared, not in a run of it: what packs weights and what looks at their content calls this."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.jit import Kernel, jit
from sardonyx.compiler.pool import ARGUMENTS, GRAIN, KERNEL, STEP_WORDS, TOTAL, available_threads, pool


def run_now(kernel: Kernel, arrays: Sequence[np.ndarray], numbers: Sequence[int], items: int, grain: int = 1) -> None:
    """Run a kernel on arrays and sizes, on all threads that there are."""
    workers = pool()
    arguments = np.array([*(array.ctypes.data for array in arrays), *numbers], np.int64)
    step = np.zeros(STEP_WORDS, np.int64)
    functions = jit().load([kernel])  # held until it has run
    step[[KERNEL, ARGUMENTS, TOTAL, GRAIN]] = functions.addresses[0], arguments.ctypes.data, items, grain
    workers.run(step, workers.ensure(available_threads()) if items > grain else 1)
