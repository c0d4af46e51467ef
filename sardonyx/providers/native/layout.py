"""The arguments of a program's steps as words of memory: what is fixed, what a run's sizes decide, what its addresses decide."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.jit import Jit
from sardonyx.compiler.pool import GRAIN, KERNEL, STEP_WORDS, TOTAL
from sardonyx.ir import Dim, TensorType, Value, dim
from sardonyx.providers.base import LARGEST_BYTES
from sardonyx.providers.native.memory import ALIGNMENT, assign_slots
from sardonyx.providers.native.program import Argument, At, Buffer, Program
from sardonyx.providers.native.sizes import ShapeMismatch, Shapes, Sizes

PIECES_PER_THREAD = 4
"""Into how many pieces per thread a step is cut, if its grain allows: what evens out threads that are not equally quick."""


class Shape:
    """All that depends on the shapes of the inputs: step and argument words, and the shapes of the outputs."""

    __slots__ = ("steps", "arguments", "outputs", "arena", "outside")

    def __init__(
        self,
        steps: np.ndarray,
        arguments: np.ndarray,
        outputs: list[tuple[int, ...]],
        arena: int,
        outside: list[tuple[int, int, int]],
    ):
        self.steps = steps
        self.arguments = arguments
        """Places in the arena are relative to its beginning."""
        self.outputs = outputs
        self.arena = arena
        """How many bytes the arena needs."""
        self.outside = outside
        """Arguments that are addresses of inputs, outputs and the status: word, which one, offset."""


class Layout:
    """Where each argument of a program stands. Made once; `shape` gives the words for the shapes of a run."""

    def __init__(self, program: Program, sizes: Sizes, jit: Jit, threads: int):
        self.program = program
        self.threads = threads
        steps = program.steps
        slots = assign_slots(steps)
        self.workspace: Dim = sum((dim.maximum(*sizes_of_slot) for sizes_of_slot in slots), start=0)
        """Bytes of the arena, for plans of memory."""
        self._slot_sizes = [[sizes(size) for size in sizes_of_slot] for sizes_of_slot in slots]
        self._kernels = np.array(jit.addresses([step.kernel for step in steps]), np.int64)
        self._items = np.array([sizes(step.items) for step in steps], np.int64)
        self._grains = np.array([sizes(step.grain) for step in steps], np.int64)
        self._work = [(sizes(step.flops), sizes(step.traffic)) for step in steps]
        self._output_shapes = [[sizes(size) for size in _dims(value)] for value in program.outputs]
        for left, right in program.conditions:
            sizes.require(left, right)
        counts = [len(step.arguments) for step in steps]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)[: len(steps)]
        """The first argument word of each step."""
        self._fixed = np.zeros(sum(counts), np.int64)
        self._numbers: list[tuple[int, int]] = []
        self._arena: list[tuple[int, int]] = []
        self._outside: list[tuple[int, int]] = []
        self._kept: list[np.ndarray] = []
        for place, argument in enumerate(argument for step in steps for argument in step.arguments):
            self._place(place, argument, sizes)
        self._number_places, self._number_indices = _columns(self._numbers)
        self.arena_places, self._arena_slots = _columns(self._arena)
        self._sizes = sizes.compile()

    def _place(self, place: int, argument: Argument, sizes: Sizes) -> None:
        """Note of what kind an argument word is."""
        if isinstance(argument, At):
            if not (isinstance(argument.offset, int) and argument.offset == 0):
                self._numbers.append((place, sizes(argument.offset)))
            argument = argument.buffer
        if isinstance(argument, Buffer):
            self._place_buffer(place, argument)
        elif isinstance(argument, float):
            self._fixed[place] = struct.unpack("<q", struct.pack("<d", argument))[0]
        else:
            self._numbers.append((place, sizes(argument)))

    def _place_buffer(self, place: int, buffer: Buffer) -> None:
        if buffer.kind == "arena":
            self._arena.append((place, buffer.index))
        elif buffer.kind == "constant":
            assert buffer.array is not None
            self._fixed[place] = buffer.array.ctypes.data
            self._kept.append(buffer.array)
        else:
            inputs, outputs = len(self.program.inputs), len(self.program.outputs)
            first = {"input": 0, "output": inputs, "status": inputs + outputs}[buffer.kind]
            self._outside.append((place, first + buffer.index))

    def shape(self, shapes: Shapes) -> Shape:
        """The words for these shapes of the inputs; ShapeMismatch if the program is not for them."""
        numbers = self._sizes(shapes)
        outputs = [tuple([numbers[size] for size in sizes]) for sizes in self._output_shapes]
        if any(min(shape, default=0) < 0 or math.prod(shape) > LARGEST_BYTES for shape in outputs):
            raise ShapeMismatch(shapes)  # NumPy says what is wrong
        words = np.array(numbers, np.int64)
        offsets, end = [0], 0
        for sizes in self._slot_sizes:
            end += -(-max(numbers[size] for size in sizes) // ALIGNMENT) * ALIGNMENT
            offsets.append(end)
        if end > LARGEST_BYTES:
            raise ShapeMismatch(shapes)
        arguments = self._fixed.copy()
        np.add.at(arguments, self._number_places, words[self._number_indices])
        outside = [(place, which, int(arguments[place])) for place, which in self._outside]
        arguments[self.arena_places] += np.array(offsets, np.int64)[self._arena_slots]
        return Shape(self._step_words(words), arguments, outputs, end, outside)

    def _step_words(self, words: np.ndarray) -> np.ndarray:
        items, grains = words[self._items], words[self._grains]
        steps = np.zeros((len(self._kernels), STEP_WORDS), np.int64)
        steps[:, KERNEL] = self._kernels
        steps[:, TOTAL] = items
        steps[:, GRAIN] = np.maximum(np.maximum(grains, 1), -(-items // (self.threads * PIECES_PER_THREAD)))
        return steps

    def work(self, shapes: Shapes) -> list[tuple[int, int]]:
        """Arithmetic operations and bytes of each step."""
        numbers = self._sizes(shapes)
        return [(numbers[flops], numbers[traffic]) for flops, traffic in self._work]


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0].copy(), found[:, 1].copy()


def _dims(value: Value) -> Sequence[Dim]:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    return value.type.shape
