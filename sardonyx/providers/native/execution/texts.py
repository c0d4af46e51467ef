"""Programs that take or give strings: what `compiled` does, with strings read once on the way in and made once on the way out."""

from __future__ import annotations

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
        "_shape",
        "_start",
        "_words",
        "_bytes",
        "_counts",
        "_counted",
        "_recent",
        "_constants",
        "_address",
        "_enter",
        "_leave",
    )

    def __init__(self, constants: _Known, pairs: int):
        self._constants = constants
        self._start = constants.size
        self.words = np.zeros(MEMORY_WORDS, np.int64)
        self.references: list[np.ndarray] = []
        """To the strings of each input that has some."""
        self._shape: ShapeWords | None = None
        """What these references are for."""
        self._words: Any = self.words.data
        self._address = self.words.ctypes.data
        counts = np.zeros(max(pairs, 1), np.int64)
        self._counts: Any = counts.data
        self._counted: Sequence[np.ndarray] = ()
        """The arrays whose sizes the counts are."""
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

    def clear(self) -> None:
        """Have no strings but the constants."""
        self._words[USED] = self._start

    def read(self, shape: ShapeWords, objects: Sequence[np.ndarray]) -> bool:
        """Have references to the strings of arrays; whether all could be read. `shape` stands for the shapes of all inputs."""
        words = self._words
        if shape is not self._shape:
            self._shape, self.references = shape, [np.empty(array.shape, np.int64) for array in objects]
        pairs = self._paired(objects, self.references)
        words[USED] = self._start
        try:
            self._enter(self._address)
            needed = words[NEEDED]
            if len(self._bytes) < needed <= _most_bytes():
                self.make_room(2 * needed)
                words[USED] = self._start
                self._enter(self._address)
                needed = words[NEEDED]
        except (TypeError, UnicodeEncodeError):  # what NumPy has to say about such objects
            return False
        del pairs  # which must live until here
        return 0 <= needed <= len(self._bytes)

    def _paired(self, objects: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Tell which arrays there are: objects and references in turns. Whoever gets them must hold them until they are used."""
        words, counts = self._words, self._counts
        if len(references) == 1:
            pairs: tuple[np.ndarray, ...] = (objects[0], references[0])
        else:
            pairs = tuple([array for pair in zip(objects, references) for array in pair])
        words[PAIRS] = id(pairs)
        if self._counted is not references:
            self._counted, words[PAIR_COUNT] = references, len(references)
            for number, array in enumerate(references):
                counts[number] = array.size
        return pairs

    def make(self, places: Sequence[int], outputs: list[np.ndarray]) -> None:
        """Put strings in the place of outputs that are references."""
        if len(places) == 1 and self._take_known(places[0], outputs):
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
        reference = outputs[place]
        text = self._constants.by_reference.get(reference.item()) if reference.size == 1 else None
        if text is None:
            return False
        outputs[place] = array = _empty(reference.shape, object)
        array.fill(text)
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


class TextProgram(CompiledProgram):
    """Runs a program on arrays, among them some of strings. `alone` gives the fast path of a program of one node, if that has one."""

    takes_destinations = False

    def __init__(self, texts: ProgramTexts, *arguments: Any, alone: Callable[[], FastPath | None] | None = None):
        super().__init__(*arguments)
        self.texts = texts
        self._known = _Known(texts.constants)
        self._inputs, self._outputs = texts.inputs, texts.outputs
        self._first = len(texts.inputs) if list(texts.inputs) == list(range(len(texts.inputs))) else 0
        """How many inputs are strings if these are the first ones; 0 if others stand before them."""
        self._alone = alone if texts.outputs else None
        self._memories: list[_Memory] = []
        self.sharing = NO_SHARING

    def _results(self, shape: ShapeWords, arrays: Sequence[np.ndarray]) -> list[Any] | None:
        """Where strings come out, a few of them through one node are not worth the way into the program and out of it."""
        if self._alone is not None and sum([array.size for array in arrays]) <= FEW and self._are_strings(arrays):
            alone = self._alone()
            if alone is not None:
                outputs = alone(list(arrays))
                return None if outputs is None else list(outputs)
            self._alone = None
        return super()._results(shape, arrays)

    def _are_strings(self, arrays: Sequence[np.ndarray]) -> bool:
        for place in self._inputs:
            for text in arrays[place].flat:
                if text.__class__ is not str:
                    return False
        return True

    @property
    def is_quicker_by_nodes(self) -> bool:
        return self._alone is not None and self._alone() is not None

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
        if not self._inputs:
            memory.clear()
            return self._run_plainly(shape, (*arrays, memory.words), outputs, stop, times)
        count = self._first
        objects = arrays[:count] if count else [arrays[place] for place in self._inputs]
        if not memory.read(shape, objects):
            return WRONG
        if count:
            seen = (*memory.references, *arrays[count:], memory.words)
        else:
            replaced = dict(zip(self._inputs, memory.references))
            seen = (*(replaced.get(place, array) for place, array in enumerate(arrays)), memory.words)
        return self._run_plainly(shape, seen, outputs, stop, times)

    _run_plainly = CompiledProgram._run_once

    def shrink(self) -> None:
        super().shrink()
        self._memories.clear()
