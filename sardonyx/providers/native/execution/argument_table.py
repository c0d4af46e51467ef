"""The arguments of a program's steps as words of memory: what is fixed, what a run's sizes decide, what its addresses decide."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.arrays import TUPLE_ITEMS, WORD
from sardonyx.compiler.pool import GRAIN, JUMP, KERNEL, STEP_WORDS, TOTAL
from sardonyx.dtypes import ElementType
from sardonyx.providers import memory_limit
from sardonyx.providers.arena import ALIGNMENT, Placement
from sardonyx.providers.memory_limit import LARGEST_BYTES, LARGEST_NUMBER
from sardonyx.providers.native.execution.memory import Workspace
from sardonyx.providers.native.execution.outputs import OutputShapes
from sardonyx.providers.native.program.parts import Batch, entries_at_once
from sardonyx.providers.native.program.settled import SCRATCH
from sardonyx.providers.native.program.size_terms import depends
from sardonyx.providers.native.program.sizes import ShapeMismatch, Shapes, SizeFunction, SizeRules
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass

PIECES_PER_THREAD = 4
"""Into how many pieces per thread a step is cut, if its grain allows. Threads are not equally quick, and pieces even that out."""
PIECE_FLOPS, PIECE_TRAFFIC = 1 << 29, 1 << 27
"""The most arithmetic operations and bytes of a piece, if the grain allows: a run can be stopped between two pieces."""
SHORT_PIECES, SHORT_FLOPS, SHORT_TRAFFIC = 12, 4_000_000, 2_000_000
"""Up to so many pieces, arithmetic operations and bytes, shared work is done before sleeping threads are awake, which takes tens of
microseconds."""
GROWTH = 8
"""Buffers that have grown by at most this fraction (one part in so many) get room to grow by as much again."""
FIRST_CAPACITY, FIRST_BYTES = 256, 1 << 20
"""How large a size that runs settle may be, and a buffer of such a size, until one is larger."""
POSSIBLE_SIZES = "sizes must be 0 or more, and values no larger than memory can be"


@dataclass(frozen=True)
class Room:
    """What there is room for where runs settle sizes. It becomes more when a run has found it too small."""

    capacities: Sequence[int]
    """How large sizes may become."""
    lengths: Sequence[int]
    """How long buffers are at least."""


class ShapeWords:
    """What one set of input shapes decides: step words, argument words, and the shapes of the outputs."""

    __slots__ = (
        "steps",
        "arguments",
        "outputs",
        "arena",
        "places",
        "width",
        "is_quiet",
        "parts",
        "given",
        "table",
        "loose",
        "room",
    )

    def __init__(
        self,
        steps: np.ndarray,
        arguments: np.ndarray,
        outputs: OutputShapes,
        arena: int,
        places: np.ndarray,
        threads: int,
        is_quiet: bool,
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
        """How many threads can take part: one if no step is worth sharing."""
        self.is_quiet = is_quiet
        """Whether it is too short to wake threads for it."""
        self.parts = parts
        """How often the steps run: once for each part of the batch, with argument words of its own."""
        self.given: Shapes = ()
        """The shapes of the inputs, where a run settles sizes."""
        self.table: np.ndarray | None = None
        """The words by which a run settles sizes."""
        self.room: Room | None = None
        """What there is room for, where a run settles sizes."""
        self.loose: Sequence[int] = ()
        """Places in the arena of outputs whose sizes a run settles."""


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
    jumps: np.ndarray
    """Of each step: how many steps further on, or back, it may let the run go on; 0 for the next one."""
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
    run: np.ndarray
    """Argument words that are addresses of what a run has by itself, and of what: argument words, steps, table of sizes."""
    loose: np.ndarray
    """Outputs whose sizes runs settle, and the buffers of the arena in which they lie."""
    buffers: Sequence[int]
    """The sizes of the arena's buffers."""
    workspace: Workspace
    outputs: Sequence[Sequence[int]]
    """The shapes of the outputs."""
    types: Sequence[ElementType]
    """The element types of the outputs."""
    batch: Batch | None = None
    """The batch along which the program may be cut into parts."""
    shared: Sequence[tuple[int, int]] = ()
    """Inputs and outputs that may be one memory."""


class ArgumentTable:
    """Knows where each argument of a program stands among the words. It is made once; `words_for` gives the words for the shapes of a run.

    `kernels` and `constants` are the addresses of the program's kernels and constants, `kept` whatever keeps these there.
    """

    def __init__(self, tables: Tables, kernels: Sequence[int], constants: Sequence[int], kept: object, threads: int):
        self.tables = tables
        self.threads = threads
        self._kernels = np.array(kernels, np.int64)[tables.kernels]
        self._output_types = [np.dtype(type.numpy) for type in tables.types]
        self.starts = (np.cumsum(tables.counts) - tables.counts).astype(np.int64)
        """The first argument word of each step."""
        self._fixed = tables.fixed.copy()
        self._fixed[tables.constants[:, 0]] = np.array(constants, np.int64)[tables.constants[:, 1]]
        self._kept = kept
        sizes, buffers = len(tables.rules.numbers), len(tables.buffers)
        self._numbers, self._arena = (np.full(len(tables.fixed), sizes + buffers) for _ in range(2))
        """For each argument word: which size, and which place in the arena, is added; sizes come first, then places, then a 0."""
        self._numbers[tables.numbers[:, 0]] = tables.numbers[:, 1]
        self._arena[tables.arena[:, 0]] = sizes + tables.arena[:, 1]
        self.arena_words = np.ascontiguousarray(tables.arena[:, 0])
        """Arguments that are places in the arena."""
        self._outside = np.ascontiguousarray(tables.outside[:, 0])
        self._outside_places = np.stack([self._outside, TUPLE_ITEMS + WORD * tables.outside[:, 1], self._outside], axis=1)
        self._steps = np.zeros((len(self._kernels), STEP_WORDS), np.int64)
        self._steps[:, KERNEL], self._steps[:, JUMP] = self._kernels, tables.jumps
        self._has_loops = bool((tables.jumps < 0).any())
        self.workspace = tables.workspace
        self.workspace.threads = threads
        self._placed: tuple[Sequence[int], Placement] | None = None
        """The lengths of buffers that places were found for, and these."""
        told, calls = len(tables.rules.places), dict[int, bool]()
        open_symbols = range(told, len(tables.rules.symbols))
        self._is_open = [depends(tables.rules.numbers[size], open_symbols, calls) for size in tables.buffers]
        """Which buffers are as large as runs tell."""
        self.room = Room([FIRST_CAPACITY] * (len(tables.rules.symbols) - told), [0] * buffers)
        self.first_size = SCRATCH + 2 * len(self.room.capacities) + buffers
        """Where the sizes begin in the table of a run."""

    def use(self, kernels: Sequence[int], kept: object) -> None:
        """Have other code of the same kernels from now on. Runs that are under way have the old one, which stays for them."""
        self._kernels, self._kept = np.array(kernels, np.int64)[self.tables.kernels], (self._kept, kept)
        steps = self._steps.copy()
        steps[:, KERNEL] = self._kernels
        self._steps = steps

    def is_of_code_in_use(self, shape: ShapeWords) -> bool:
        """Whether words are those of the code that is used now."""
        return bool(np.array_equal(shape.steps[: len(self._steps), KERNEL], self._steps[:, KERNEL]))

    @cached_property
    def _sizes(self) -> SizeFunction:
        return self.tables.rules.function()

    def words_for(self, shapes: Shapes) -> ShapeWords:
        """The words for these shapes of the inputs; ShapeMismatch if the program is not for them."""
        numbers = self._sizes(shapes, self.threads, self.room.capacities)
        whole, batch = self._whole(shapes, numbers), self.tables.batch
        if batch is None:
            return whole
        count = batch.count(shapes)
        flops = sum(numbers[flops] for flops in self.tables.work[:, 0].tolist())
        at_once = entries_at_once(count, whole.arena, flops, batch.weights)
        return whole if at_once >= count else self._in_parts(batch, shapes, at_once, whole.outputs)

    def _in_parts(self, batch: Batch, shapes: Shapes, at_once: int, outputs: OutputShapes) -> ShapeWords:
        """The words for all parts of a batch, one part after the other."""
        count = batch.count(shapes)
        sizes = [min(at_once, count - start) for start in range(0, count, at_once)]
        parts = {size: batch.part(shapes, size) for size in set(sizes)}
        wholes = {size: self._whole(part, self._sizes(part, self.threads)) for size, part in parts.items()}
        arrays = zip((*shapes, *outputs.shapes), batch.elements, strict=True)
        entry = np.array([math.prod(shape[1:]) * bytes for shape, bytes in arrays], np.int64)[self.tables.outside[:, 1]]
        places = []
        for number, size in enumerate(sizes):
            moved = wholes[size].places.copy()
            moved[:, 0] += number * len(self._fixed)
            moved[:, 2] += number * at_once * entry
            places.append(moved)
        steps, arguments = (np.concatenate([getattr(wholes[size], name) for size in sizes]) for name in ("steps", "arguments"))
        arena = max(whole.arena for whole in wholes.values())
        return ShapeWords(steps, arguments, outputs, arena, np.concatenate(places), self.threads, False, len(sizes))

    def in_all_parts(self, places: np.ndarray, shape: ShapeWords) -> np.ndarray:
        """Places among the argument words of one part, as places among those of all parts."""
        if shape.parts == 1:
            return places
        return np.add.outer(np.arange(shape.parts) * len(self._fixed), places).reshape(-1)

    def _whole(self, shapes: Shapes, numbers: Sequence[int]) -> ShapeWords:
        tables = self.tables
        outputs = [tuple([numbers[size] for size in sizes]) for sizes in tables.outputs]
        for output in tables.loose[:, 0].tolist():
            outputs[output] = (0,)  # stands in for it until its size is known
        capacities = self.room.capacities
        lengths = [numbers[size] for size in tables.buffers]
        lengths = self._roomy(lengths) if capacities else lengths
        if not self._are_possible(outputs, lengths, numbers):
            raise ShapeMismatch(POSSIBLE_SIZES, shapes)  # NumPy says what is wrong
        placement = self._places(lengths)
        if placement.size > memory_limit.largest_bytes():
            raise ShapeMismatch(POSSIBLE_SIZES, shapes)
        words = np.array([*numbers, *placement.offsets, 0], np.int64)
        arguments, places = words[self._numbers], self._outside_places.copy()
        if np.abs(arguments).max(initial=0) > LARGEST_BYTES:  # kernels multiply such numbers in 64 bits
            raise ShapeMismatch(POSSIBLE_SIZES, shapes)
        arguments += words[self._arena]
        arguments += self._fixed
        places[:, 2] = arguments[self._outside]
        output_shapes = OutputShapes(outputs, self._output_types)
        steps, is_quiet = self._step_words(words)
        shape = ShapeWords(steps, arguments, output_shapes, placement.size, places, self.threads, is_quiet)
        if capacities:
            pairs = [word for capacity in capacities for word in (capacity, 0)]
            shape.given, shape.table = shapes, np.array([0] * SCRATCH + pairs + lengths + list(numbers), np.int64)
            shape.room = self.room
            shape.loose = [placement.offsets[buffer] for buffer in self.tables.loose[:, 1].tolist()]
        return shape

    def _roomy(self, lengths: Sequence[int]) -> list[int]:
        """Lengths of buffers. Those that runs tell are as long as runs have needed, and some more at first."""
        rows = zip(lengths, self.room.lengths, self._is_open)
        return [max(needed, min(length, FIRST_BYTES)) if is_open else length for length, needed, is_open in rows]

    def grow(self, shape: ShapeWords, table: np.ndarray) -> None:
        """Make more room, at least what a run would have needed. Another run may have done so meanwhile."""
        assert shape.table is not None
        room, start = self.room, self.first_size - len(self._is_open)
        needed = table[SCRATCH + 1 : start : 2].tolist()
        capacities = [max(before, 2 * more) for before, more in zip(room.capacities, needed)]
        had, wanted = (words[start : self.first_size].tolist() for words in (shape.table, table))
        lengths = [
            max(length, self._with_growth(more)) if more > before else length
            for length, before, more in zip(room.lengths, had, wanted)
        ]
        self.room = Room(capacities, lengths)

    def _with_growth(self, length: int) -> int:
        """Room for what may come next. Where turns of a loop make it larger, each time is a run in vain."""
        return 2 * length if self._has_loops else length + length // GROWTH

    def settled(self, table: np.ndarray, output: int) -> tuple[int, ...]:
        """The shape of an output after a run."""
        return tuple([int(table[self.first_size + number]) for number in self.tables.outputs[output]])

    def _are_possible(self, outputs: Sequence[tuple[int, ...]], lengths: Sequence[int], numbers: Sequence[int]) -> bool:
        """Whether results and buffers can be had, and all numbers fit their words."""
        if any(min(shape, default=0) < 0 for shape in outputs) or min(lengths, default=0) < 0:
            return False
        sizes = [math.prod(shape) * type.itemsize for shape, type in zip(outputs, self._output_types)]
        is_had = max([*sizes, *lengths], default=0) <= memory_limit.largest_bytes()
        return is_had and max(map(abs, numbers), default=0) <= LARGEST_NUMBER

    def _places(self, lengths: Sequence[int]) -> Placement:
        """Where the buffers lie in the arena.

        Finding places takes longer than a small model runs. A decoder has new lengths with every token: they find room in the places
        of the last ones, or get some to grow into.
        """
        if self._placed is not None:
            before, placement = self._placed
            if 4 * sum(lengths) >= 3 * sum(before):
                if all(map(operator.le, lengths, before)):
                    return placement
                if all(length <= old + old // GROWTH + ALIGNMENT for length, old in zip(lengths, before)):
                    lengths = [old if length == old else length + length // GROWTH for length, old in zip(lengths, before)]
        placement = self.workspace.place(lengths)
        self._placed = lengths, placement
        return placement

    def _step_words(self, words: np.ndarray) -> tuple[np.ndarray, bool]:
        """The words of the steps, and whether those that are worth sharing are short work."""
        items, grains, steps = words[self.tables.items], np.maximum(words[self.tables.grains], 1), self._steps.copy()
        flops, traffic = words[self.tables.work].T
        shares = self.threads * PIECES_PER_THREAD if self.threads > 1 else 1
        pieces = np.maximum(shares, np.maximum(flops // PIECE_FLOPS, traffic // PIECE_TRAFFIC))
        steps[:, TOTAL], steps[:, GRAIN] = items, np.maximum(grains, -(-items // pieces))
        shared = items > steps[:, GRAIN]
        if self._has_loops or (items[shared] // grains[shared]).sum() >= SHORT_PIECES:
            return steps, False
        flops, traffic = flops[shared], traffic[shared]
        is_told = ((flops > 0) | (traffic > 0)).all()
        return steps, bool(is_told and flops.sum() < SHORT_FLOPS and traffic.sum() < SHORT_TRAFFIC)

    def work(self, shapes: Shapes) -> list[tuple[int, int]]:
        """Arithmetic operations and bytes of each step; none of one that these shapes leave nothing to do."""
        numbers = self._sizes(shapes, self.threads, self.room.capacities)
        pairs = zip(self.tables.items.tolist(), self.tables.work.tolist())
        return [(numbers[flops], numbers[traffic]) if numbers[items] else (0, 0) for items, (flops, traffic) in pairs]
