"""Runs of programs on memory that is known by its addresses: no array is made for a tensor that is fed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.arrays import ARRAY_DATA
from sardonyx.providers.native.execution.compiled import CompiledProgram


class AddressedProgram:
    """A program, and arrays that stand for what it is fed: only where their elements lie is ever read of them."""

    def __init__(self, program: CompiledProgram, count: int, order: Sequence[int] | None):
        self._program = program
        self._count = count
        self._order = order
        """Where the outputs stand among those of the program, if not as they are."""
        self._idle: list[tuple[list[np.ndarray], list[Any]]] = []
        """Of runs that are over: the arrays, and the words in them that say where their elements lie."""

    def __call__(self, shapes: tuple[tuple[int, ...], ...], addresses: Sequence[int]) -> list[Any] | None:
        """The outputs for what lies at addresses without gaps, and stays there; None if the program does not take it."""
        program = self._program
        shape = program._shapes.get(shapes) or program._remember(shapes)
        if shape is None:
            return None
        try:
            arrays, words = self._idle.pop()
        except IndexError:
            arrays, words = self._stand_ins()
        for word, address in zip(words, addresses):
            word.value = address
        try:
            outputs = program._results(shape, arrays)
        except Exception:  # the way by arrays fails too, and says where
            outputs = None
        self._idle.append((arrays, words))
        return outputs if outputs is None or self._order is None else [outputs[place] for place in self._order]

    def _stand_ins(self) -> tuple[list[np.ndarray], list[Any]]:
        """Views, for an array of its own would free what its address says."""
        arrays = [np.empty(1, np.int8)[:] for _ in range(self._count)]
        return arrays, [ctypes.c_size_t.from_address(id(array) + ARRAY_DATA) for array in arrays]
