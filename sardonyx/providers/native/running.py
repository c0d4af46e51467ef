"""Kernels that run while a model is prepared, not in a run of it: what packs weights and what looks at their content calls this."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.jit import Kernel, jit
from sardonyx.compiler.pool import ARGUMENTS, GRAIN, KERNEL, STEP_WORDS, TOTAL, available_threads, pool
from sardonyx.providers.native.arguments import Arguments
from sardonyx.providers.native.kernel import DeclaredKernel
from sardonyx.providers.native.program import Argument, Buffer


def memory_of(array: np.ndarray) -> Buffer:
    """An array as a kernel that runs now is given it."""
    return Buffer("array", array.nbytes, array=array)


def run_now(
    kernel: Kernel, arguments: Arguments | Sequence[np.ndarray], numbers: Sequence[int] = (), items: int = 1, grain: int = 1
) -> None:
    """Run a kernel on its record, in which arrays are `memory_of` them, on all threads that there are."""
    if isinstance(arguments, Arguments):
        assert isinstance(kernel, DeclaredKernel)
        words = [_word(word) for word in kernel.declaration.words(kernel.title, arguments)]
    else:
        words = [*(array.ctypes.data for array in arguments), *numbers]
    workers = pool()
    memory = np.array(words, np.int64)
    step = np.zeros(STEP_WORDS, np.int64)
    functions = jit().load([kernel])  # held until it has run
    step[[KERNEL, ARGUMENTS, TOTAL, GRAIN]] = functions.addresses[0], memory.ctypes.data, items, grain
    workers.run(step, workers.ensure(available_threads()) if items > grain else 1)


def _word(word: Argument) -> int:
    if isinstance(word, Buffer) and word.array is not None:
        return word.array.ctypes.data
    assert isinstance(word, int)
    return word
