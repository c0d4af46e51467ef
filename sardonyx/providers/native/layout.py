"""The arguments of a program's steps as words of memory: what is fixed, what a run's sizes decide, what its addresses decide."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sardonyx.compiler.arrays import TUPLE_ITEMS, WORD
from sardonyx.compiler.pool import GRAIN, KERNEL, STEP_WORDS, TOTAL
from sardonyx.dtypes import ElementType
from sardonyx.providers.base import LARGEST_BYTES
from sardonyx.providers.native.memory import Workspace
from sardonyx.providers.native.outputs import Forms
from sardonyx.providers.native.parts import Batch, entries_at_once
from sardonyx.providers.native.sizes import ShapeMismatch, Shapes, SizeFunction, SizeRules

PIECES_PER_THREAD = 4
"""Into how many pieces per thread a step is cut, if its grain allows: what evens out threads that are not equally quick."""


class Shape:
    """All that depends on the shapes of the inputs: step and argument words, and the shapes of the outputs."""

    __slots__ = ("steps", "arguments", "outputs", "arena", "places", "width", "parts")

    def __init__(
        self,
        steps: np.ndarray,
        arguments: np.ndarray,
        outputs: Forms,
        arena: int,
        places: np.ndarray,
        threads: int,
        parts: int = 1,
    ):
        self.steps = steps
        self.arguments = arguments
        """Places in the arena are relative to its beginning."""
        self.outputs = outputs
        self.arena = arena
        """How many bytes the arena needs."""
        self.places = places
        """Arguments that are addresses of inputs and outputs: word, which one as generated code finds it, offset."""
        self.width = threads if (steps[:, TOTAL] > steps[:, GRAIN]).any() else 1
        """How many threads can have a part in it: one if no step is worth sharing."""
        self.parts = parts
        """How often the steps are gone through, each time with a part of the batch and argument words of their own."""


@dataclass(frozen=True)
class Tables:
    """A program as plain numbers, without code, constants and addresses. Sizes are the numbers of rules."""

    rules: SizeRules
    kernels: np.ndarray
    """Of each step: which kernel."""
    items: np.ndarray
    grains: np.ndarray
    work: np.ndarray
    """Of each step: arithmetic operations and bytes."""
    counts: np.ndarray
    """Of each step: how many argument words it has."""
    fixed: np.ndarray
    """All argument words of all steps, as far as they are always the same."""
    numbers: np.ndarray
    """Argument words to which a size is added, and which."""
    arena: np.ndarray
    """Argument words that are addresses in the arena, and of which of its buffers."""
    outside: np.ndarray
    """Argument words that are addresses of inputs and outputs, and of which: the outputs follow the inputs."""
    constants: np.ndarray
    """Argument words that are addresses of constants, and of which."""
    status: np.ndarray
    """Argument words that are the address of the status word."""
    buffers: Sequence[int]
    """The sizes of the arena's buffers."""
    workspace: Workspace
    outputs: Sequence[Sequence[int]]
    """The shapes of the outputs."""
    types: Sequence[ElementType]
    """The element types of the outputs."""
    batch: Batch | None = None
    """Along which the program may be cut."""


class Layout:
    """Where each argument of a program stands. Made once; `shape` gives the words for the shapes of a run.

    `kernels` and `constants` are the addresses of the program's kernels and constants, `kept` whatever keeps these there.
    """

    def __init__(self, tables: Tables, kernels: Sequence[int], constants: Sequence[int], kept: object, threads: int):
        self.tables = tables
        self.threads = threads
        self._kernels = np.array(kernels, np.int64)[tables.kernels]
        self._output_types = [np.dtype(one.numpy) for one in tables.types]
        self.starts = (np.cumsum(tables.counts) - tables.counts).astype(np.int64)
        """The first argument word of each step."""
        self._fixed = tables.fixed.copy()
        self._fixed[tables.constants[:, 0]] = np.array(constants, np.int64)[tables.constants[:, 1]]
        self._kept = kept
        self._outside_arrays = TUPLE_ITEMS + WORD * tables.outside[:, 1]
        self.workspace = tables.workspace
        self.workspace.threads = threads

    @functools.cached_property
    def _sizes(self) -> SizeFunction:
        return self.tables.rules.function()

    def shape(self, shapes: Shapes) -> Shape:
        """The words for these shapes of the inputs; ShapeMismatch if the program is not for them."""
        numbers = self._sizes(shapes, self.threads)
        whole, batch = self._whole(shapes, numbers), self.tables.batch
        if batch is None:
            return whole
        count = batch.count(shapes)
        flops = sum(numbers[flops] for flops in self.tables.work[:, 0].tolist())
        at_once = entries_at_once(count, whole.arena, flops, batch.weights)
        return whole if at_once >= count else self._in_parts(batch, shapes, at_once, whole.outputs)

    def _in_parts(self, batch: Batch, shapes: Shapes, at_once: int, outputs: Forms) -> Shape:
        """The words for all parts of a batch, one part after the other."""
        count = batch.count(shapes)
        sizes = [min(at_once, count - start) for start in range(0, count, at_once)]
        parts = {size: batch.part(shapes, size) for size in set(sizes)}
        made = {size: self._whole(part, self._sizes(part, self.threads)) for size, part in parts.items()}
        arrays = zip((*shapes, *outputs.shapes), batch.elements, strict=True)
        entry = np.array([math.prod(shape[1:]) * bytes for shape, bytes in arrays], np.int64)[self.tables.outside[:, 1]]
        places = []
        for number, size in enumerate(sizes):
            moved = made[size].places.copy()
            moved[:, 0] += number * len(self._fixed)
            moved[:, 2] += number * at_once * entry
            places.append(moved)
        steps, arguments = (np.concatenate([getattr(made[size], name) for size in sizes]) for name in ("steps", "arguments"))
        arena = max(one.arena for one in made.values())
        return Shape(steps, arguments, outputs, arena, np.concatenate(places), self.threads, len(sizes))

    def words_of(self, places: np.ndarray, shape: Shape) -> np.ndarray:
        """Places among the argument words of one part, as places among those of all parts."""
        if shape.parts == 1:
            return places
        return np.add.outer(np.arange(shape.parts) * len(self._fixed), places).reshape(-1)

    def _whole(self, shapes: Shapes, numbers: Sequence[int]) -> Shape:
        tables = self.tables
        outputs = [tuple([numbers[size] for size in sizes]) for sizes in tables.outputs]
        if any(min(shape, default=0) < 0 or math.prod(shape) > LARGEST_BYTES for shape in outputs):
            raise ShapeMismatch(shapes)  # NumPy says what is wrong
        words = np.array(numbers, np.int64)
        lengths = [numbers[size] for size in tables.buffers]
        if min(lengths, default=0) < 0 or max(lengths, default=0) > LARGEST_BYTES:
            raise ShapeMismatch(shapes)
        arena = self.workspace.place(lengths)
        if arena.size > LARGEST_BYTES:
            raise ShapeMismatch(shapes)
        arguments = self._fixed.copy()
        np.add.at(arguments, tables.numbers[:, 0], words[tables.numbers[:, 1]])
        outside = tables.outside[:, 0]
        places = np.stack([outside, self._outside_arrays, arguments[outside]], axis=1)
        arguments[tables.arena[:, 0]] += np.array(arena.offsets, np.int64)[tables.arena[:, 1]]
        forms = Forms(outputs, self._output_types)
        return Shape(self._step_words(words), arguments, forms, arena.size, places, self.threads)

    def _step_words(self, words: np.ndarray) -> np.ndarray:
        items, grains = words[self.tables.items], words[self.tables.grains]
        steps = np.zeros((len(self._kernels), STEP_WORDS), np.int64)
        steps[:, KERNEL] = self._kernels
        steps[:, TOTAL] = items
        steps[:, GRAIN] = np.maximum(np.maximum(grains, 1), -(-items // (self.threads * PIECES_PER_THREAD)))
        return steps

    def work(self, shapes: Shapes) -> list[tuple[int, int]]:
        """Arithmetic operations and bytes of each step."""
        numbers = self._sizes(shapes, self.threads)
        return [(numbers[flops], numbers[traffic]) for flops, traffic in self.tables.work.tolist()]
