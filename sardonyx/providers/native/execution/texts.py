"""Programs that take or give strings: what `compiled` does, with strings read once on the way in and made once on the way out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.arrays import OBJECTS_ARE_OPEN, Arrays
from sardonyx.compiler.texts import (
    BASE,
    CAPACITY,
    COUNTS,
    KNOWN_COUNT,
    KNOWN_OBJECTS,
    KNOWN_REFERENCES,
    LARGEST,
    MEMORY_WORDS,
    NEEDED,
    PAIR_COUNT,
    PAIRS,
    RECENT,
    RECENT_ROWS,
    SLACK,
    USED,
    crossings,
    interpreter_functions,
)
from sardonyx.providers import memory_limit
from sardonyx.providers.native.execution.argument_table import ShapeWords
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.program.settled import TEXTS_TOO_SMALL, WRONG
from sardonyx.providers.native.program.texts import ProgramTexts, TextConstants
from sardonyx.providers.steps import NO_SHARING, FastPath

CAN_HOLD_TEXTS = OBJECTS_ARE_OPEN
"""Whether generated code can read strings of this interpreter."""
_empty: Any = np.empty
FEW = 16
"""So many elements NumPy takes through one node sooner."""
FIRST_BYTES = 1 << 12
"""How much room there is for strings at first, besides constants."""


class _Memory:
    """Where the strings of one run at a time lie."""

    __slots__ = (
        "words",
        "references",
        "_shapes",
        "_words",
        "_bytes",
        "_counts",
        "_recent",
        "_constants",
        "_address",
        "_enter",
        "_leave",
    )

    def __init__(self, constants: _Known, pairs: int):
        self._constants = constants
        self.words = np.zeros(MEMORY_WORDS, np.int64)
        self.references: list[np.ndarray] = []
        """To the strings of each input that has some."""
        self._shapes: list[tuple[int, ...]] = []
        self._words: Any = self.words.data
        self._address = self.words.ctypes.data
        counts = np.zeros(max(pairs, 1), np.int64)
        self._counts: Any = counts.data
        self._enter, self._leave = crossings()
        self.words[COUNTS] = counts.ctypes.data
        self.words[KNOWN_COUNT] = len(constants.references)
        self.words[KNOWN_REFERENCES], self.words[KNOWN_OBJECTS] = (
            constants.references.ctypes.data,
            constants.objects.ctypes.data,
        )
        self._recent = np.zeros(2 * RECENT_ROWS, np.int64)
        self.words[RECENT] = self._recent.ctypes.data
        self.words[list(interpreter_functions())] = list(interpreter_functions().values())
        self.make_room(constants.size + FIRST_BYTES)

    def make_room(self, size: int) -> None:
        """Have memory of so many bytes, constants first."""
        self._bytes = np.zeros(size + SLACK, np.uint8)
        self._bytes[: self._constants.size] = self._constants.bytes
        self._words[BASE], self._words[CAPACITY] = self._bytes.ctypes.data, len(self._bytes)

    def grow(self) -> bool:
        """Have twice the memory; whether there may be so much."""
        size = 2 * len(self._bytes)
        if size <= _most_bytes():
            self.make_room(size)
        return size <= _most_bytes()

    def read(self, places: Sequence[int], arrays: Arrays) -> bool:
        """Have references to the strings of arrays; whether all could be read."""
        words, start = self._words, self._constants.size
        words[USED] = start
        if not places:
            return True
        objects = [arrays[place] for place in places]
        shapes = [array.shape for array in objects]
        if shapes != self._shapes:
            self._shapes, self.references = shapes, [np.empty(shape, np.int64) for shape in shapes]
        pairs = self._paired(objects, self.references)
        try:
            self._enter(self._address)
            if words[CAPACITY] < words[NEEDED] <= _most_bytes():
                self.make_room(2 * words[NEEDED])
                words[USED] = start
                self._enter(self._address)
        except (TypeError, UnicodeEncodeError):  # what NumPy has to say about such objects
            return False
        del pairs  # which must live until here
        return bool(0 <= words[NEEDED] <= words[CAPACITY])

    def _paired(self, objects: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Tell which arrays there are: objects and references in turns. Whoever gets them must hold them until they are used."""
        words, counts = self._words, self._counts
        pairs = tuple(itertools.chain.from_iterable(zip(objects, references)))
        for number, array in enumerate(references):
            counts[number] = array.size
        words[PAIRS], words[PAIR_COUNT] = id(pairs), len(references)
        return pairs

    def make(self, places: Sequence[int], outputs: list[np.ndarray]) -> None:
        """Put strings in the place of outputs that are references."""
        if len(places) == 1 and outputs[places[0]].size == 1 and self._take_known(places[0], outputs):
            return
        references = [outputs[place] for place in places]
        objects = [_empty(array.shape, object) for array in references]
        pairs = self._paired(objects, references)
        self._leave(self._address)
        del pairs  # which must live until here
        for place, array in zip(places, objects):
            outputs[place] = array

    def _take_known(self, place: int, outputs: list[np.ndarray]) -> bool:
        """Put one constant string, a label say, in the place of its reference; whether it is one."""
        text = self._constants.by_reference.get(outputs[place].item())
        if text is None:
            return False
        array = _empty(outputs[place].shape, object)
        array[...] = text
        outputs[place] = array
        return True


class _Known:
    """The constant strings of a program, as its memories begin."""

    def __init__(self, constants: TextConstants):
        self.bytes = np.frombuffer(constants.bytes, np.uint8)
        self.size = len(self.bytes)
        self.references, self.objects = constants.known()
        self.by_reference = {number: text for number, text in zip(self.references.tolist(), self.objects) if text is not None}


def _most_bytes() -> int:
    return min(LARGEST, memory_limit.largest_bytes() // 2)


def _nobody() -> None:
    """Stands for a program that has no fast path beside its own."""


class TextProgram(CompiledProgram):
    """Runs a program on arrays, among them some of strings. `alone` gives the fast path of a program of one node, if that has one."""

    takes_destinations = False

    def __init__(self, texts: ProgramTexts, *arguments: Any, alone: Callable[[], FastPath | None] = _nobody):
        super().__init__(*arguments)
        self.texts = texts
        self._known = _Known(texts.constants)
        self._inputs, self._outputs = texts.inputs, texts.outputs
        self._alone = alone
        self._memories: list[_Memory] = []
        self.sharing = NO_SHARING

    def _results(self, shape: ShapeWords, arrays: Sequence[np.ndarray]) -> list[Any] | None:
        """Where strings come out, a few of them through one node are not worth the way into the program and out of it."""
        if self._outputs and sum([array.size for array in arrays]) <= FEW and self._are_strings(arrays):
            alone = self._alone()
            if alone is not None:
                outputs = alone(list(arrays))
                return None if outputs is None else list(outputs)
        return super()._results(shape, arrays)

    def _are_strings(self, arrays: Sequence[np.ndarray]) -> bool:
        return all(text.__class__ is str for place in self._inputs for text in arrays[place].ravel().tolist())

    def _run_once(
        self, shape: ShapeWords, arrays: Arrays, outputs: list[np.ndarray], stop: int, times: list[int] | None
    ) -> int:
        try:
            memory = self._memories.pop()
        except IndexError:
            memory = _Memory(self._known, max(len(self._inputs), len(self._outputs)))
        status = self._run_on(memory, shape, arrays, outputs, stop, times)
        while status == TEXTS_TOO_SMALL:
            if not memory.grow():
                return WRONG
            status = self._run_on(memory, shape, arrays, outputs, stop, times)
        if self._outputs and not status:
            memory.make(self._outputs, outputs)
        self._memories.append(memory)
        return status

    def _run_on(
        self,
        memory: _Memory,
        shape: ShapeWords,
        arrays: Arrays,
        outputs: list[np.ndarray],
        stop: int,
        times: list[int] | None,
    ) -> int:
        if not memory.read(self._inputs, arrays):
            return WRONG
        seen = [*arrays, memory.words]
        for place, references in zip(self._inputs, memory.references):
            seen[place] = references
        return super()._run_once(shape, tuple(seen), outputs, stop, times)

    def shrink(self) -> None:
        super().shrink()
        self._memories.clear()
