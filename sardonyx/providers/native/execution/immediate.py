"""Kernels that run outside of programs: what packs weights and what looks at their content while a model is prepared calls this."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import numpy as np

from sardonyx.compiler.pool import ARGUMENTS, GRAIN, KERNEL, STEP_WORDS, TOTAL, available_threads, pool
from sardonyx.providers.native.program.arguments import Arguments, Declaration
from sardonyx.providers.native.program.steps import Argument, Buffer
from sardonyx.settings import HURRY
from sardonyx.startup import later

if TYPE_CHECKING:
    from sardonyx.compiler.jit import Functions, Jit
    from sardonyx.providers.native.program.kernel import DeclaredKernel


def memory_of(array: np.ndarray) -> Buffer:
    """An array as a kernel that runs now is given it."""
    return Buffer("array", array.nbytes, array=array)


def numbers_of(declaration: Declaration, title: str, arguments: Arguments) -> np.ndarray:
    """The words of a kernel's record as they lie in memory; arrays are `memory_of` them, and must live until it has run."""
    return np.array([_number(word) for word in declaration.words(title, arguments)], np.int64)


def _number(word: Argument) -> int:
    if isinstance(word, float):
        return int(np.float64(word).view(np.int64))
    if isinstance(word, Buffer) and word.array is not None:
        return word.array.ctypes.data
    assert isinstance(word, int)
    return word


def run_step(address: int, numbers: np.ndarray, items: int, grain: int, threads: int) -> None:
    """Run the kernel that lies at an address, with its arguments in memory."""
    step = np.zeros(STEP_WORDS, np.int64)
    step[[KERNEL, ARGUMENTS, TOTAL, GRAIN]] = address, numbers.ctypes.data, items, grain
    pool().run(step, threads)


def _loaded(kernel: DeclaredKernel) -> Functions:
    """The code of a kernel. What is compiled in a hurry for the first time is compiled well later, for the next model."""
    from sardonyx.compiler.jit import jit  # what runs code of a file does without

    compiler = jit()
    if not HURRY.is_on(os.environ):
        return compiler.load([kernel])
    functions, hurried = compiler.load_in_a_hurry([kernel])
    if hurried:
        later.put_off(kernel.symbol, functools.partial(_improve, compiler, kernel))
    return functions


def _improve(compiler: Jit, kernel: DeclaredKernel) -> None:
    if not later.is_ending() or compiler.cache.folder is not None:
        compiler.improved([kernel], later.is_time)


def run_now(kernel: DeclaredKernel, arguments: Arguments, items: int, grain: int = 1) -> None:
    """Run a kernel on its record, in which arrays are `memory_of` them, on all threads that there are."""
    words = numbers_of(kernel.declaration, kernel.title, arguments)
    functions = _loaded(kernel)  # held until it has run
    threads = pool().ensure(available_threads()) if items > grain else 1
    run_step(functions.addresses[0], words, items, grain, threads)
