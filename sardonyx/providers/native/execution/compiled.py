"""A program ready to run: kernels compiled, arguments laid out, one native call per run. Any number of threads may call one."""

from __future__ import annotations

import logging
import math
import operator
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.compiler.arrays import OBJECTS_ARE_OPEN, Arrays, imitation_of
from sardonyx.compiler.pool import (
    ARGUMENTS,
    CALL_ARRAYS,
    CALL_COUNT,
    CALL_PLACE_COUNT,
    CALL_PLACES,
    CALL_POOL,
    CALL_QUIET,
    CALL_STATUS,
    CALL_STEPS,
    CALL_STOP,
    CALL_WIDTH,
    CALL_WORDS,
    GRAIN,
    KERNEL,
    PLACE_WORDS,
    STEP_WORDS,
    TICKS,
    TOTAL,
    Pool,
    pool,
)
from sardonyx.providers import random_state
from sardonyx.providers.arena import ALIGNMENT
from sardonyx.providers.native.execution.arenas import NO_ARENA, Arenas
from sardonyx.providers.native.execution.argument_table import ArgumentTable, ShapeWords, Tables
from sardonyx.providers.native.execution.memory import outlived_inputs
from sardonyx.providers.native.execution.outputs import Outputs, OutputShapes
from sardonyx.providers.native.program.settled import SEEDS, TOO_SMALL, UNEQUAL
from sardonyx.providers.native.program.sizes import ShapeMismatch, Shapes
from sardonyx.providers.steps import NO_SHARING, FastPath, Sharing, StepCall
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.compiler.jit import Jit
    from sardonyx.compiler.roofline import Roofline
    from sardonyx.providers.native.program.steps import Program
    from sardonyx.providers.native.program.texts import ProgramTexts

MAX_SHAPES = 64
"""How many sets of input shapes keep their words; others are computed anew."""

SHOWN_LABELS = 3
"""How many steps of a program a message names."""
BAD_DATA = "a kernel found data that it is not for"
BAD_SIZES = "sizes that the run decides are not what the model's names for them say"

logger = logging.getLogger("sardonyx.runtime")

Fallback = Callable[[Sequence[Any]], Sequence[Any]]
_shape_of = operator.attrgetter("shape")


class _State:
    """Memory of one run at a time."""

    __slots__ = ("arena", "base", "steps", "arguments", "places", "table", "call", "words", "address", "shape", "pool", "saved")

    def __init__(self) -> None:
        self.arena = NO_ARENA
        self.base = 0
        self.steps = np.empty((0, STEP_WORDS), np.int64)
        self.arguments = np.empty(0, np.int64)
        self.places = np.empty((0, PLACE_WORDS), np.int64)
        self.table = np.empty(0, np.int64)
        self.call = np.zeros(CALL_WORDS, np.int64)
        self.words: Any = self.call.data
        self.address = self.call.ctypes.data
        self.shape: ShapeWords | None = None
        self.pool: Pool | None = None
        self.saved: tuple[np.ndarray, ...] = ()
        """Arguments, steps and table as they were before a run settled sizes in them."""

    def reset(self) -> None:
        """Be ready for another run of the same shapes, after one that settled sizes."""
        for words, saved in zip((self.arguments, self.steps, self.table), self.saved):
            np.copyto(words, saved)

    @property
    def status(self) -> int:
        """The address of the status word. A kernel sets it when it cannot go on; the steps behind it do not run then."""
        return self.address + 8 * CALL_STATUS


@dataclass(frozen=True)
class StepTime:
    """How long a step took in a timed run, and what it had to do."""

    label: str
    """The ops that it computed."""
    nodes: Sequence[str]
    """The nodes of the model, where it is known from which they are."""
    kernel: str
    seconds: float
    flops: int
    traffic: int
    """Bytes that had to be read and written."""
    share: float
    """Part of the machine's limit: of its arithmetic or of its memory, whichever is nearer."""


class CompiledProgram(StepCall):
    """Runs a program on arrays.

    Some runs go to `fallback` instead: those with shapes that contradict the model's, and those in which a kernel has set the status
    word because of bad data.
    """

    takes_stop = True
    takes_destinations = True
    knows_shapes = True
    texts: ProgramTexts | None = None
    """What it has to do with strings."""

    def __init__(
        self,
        argument_table: ArgumentTable,
        labels: Sequence[tuple[str, str]],
        fallback: Fallback,
        program: Program | None = None,
        jit: Jit | None = None,
    ):
        self.argument_table = argument_table
        self.labels = labels
        """Of each step: what it computes, and its kernel."""
        self.program = program
        """What it was made from, unless it comes out of a file."""
        self.jit = jit
        self.awaits_code = False
        """Whether its code was compiled in a hurry, and better code will come."""
        self.threads = argument_table.threads
        self._fallback = fallback
        self._memory = Outputs()
        self._shapes: dict[Shapes, ShapeWords] = {}
        self._reason = ""
        """Why shapes were not taken last."""
        self._foreign: set[Shapes] = set()
        """Shapes that the program does not take. They are remembered, for a loop may bring them in each turn."""
        self._idle: list[_State] = []
        self._arenas: Arenas | None = None
        self.workspace = argument_table.workspace
        self.one_memory = argument_table.tables.shared
        self.sharing = _sharing(argument_table.tables)
        self.is_random = SEEDS in argument_table.tables.run[:, 1]

    def run_with(
        self,
        inputs: Sequence[Any],
        stop: int = 0,
        destinations: Sequence[np.ndarray | None] | None = None,
        over: Sequence[tuple[int, int]] = (),
    ) -> Sequence[Any]:
        arrays = list(map(_readable, inputs))
        shapes = tuple(map(_shape_of, arrays))
        shape = self._shapes.get(shapes) or self._remember(shapes)
        if shape is None:
            return self._left(inputs, self._reason)
        if over:
            destinations = _laid_over(shape.outputs, arrays, over)
        outputs = self._memory.empty(shape.outputs, destinations)
        if status := self._run(shape, arrays, outputs, stop):
            return self._left(inputs, BAD_SIZES if status == UNEQUAL else BAD_DATA, status == UNEQUAL)
        return outputs

    __call__ = run_with

    def _remember(self, shapes: Shapes) -> ShapeWords | None:
        """What depends on new shapes; None if the program is not for these."""
        if shapes in self._foreign:
            return None
        try:
            shape = self.argument_table.words_for(shapes)
        except ShapeMismatch as error:
            self._reason = str(error)
            if len(self._foreign) < MAX_SHAPES:
                self._foreign.add(shapes)
            return None
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        if self.argument_table.is_of_code_in_use(shape):  # other code may have come meanwhile
            self._shapes[shapes] = shape
        return shape

    def use(self, kernels: Sequence[int], kept: object) -> None:
        """Run other code of the same kernels, at these addresses, from the next run on."""
        self.argument_table.use(kernels, kept)
        self._shapes, self._idle = {}, []

    def _left(self, inputs: Sequence[Any], reason: str, has_unequal_sizes: bool = False) -> Sequence[Any]:
        """A run that is left to NumPy. Users are told once."""
        if self.refusal is None:
            self.refusal = reason
            ops = ", ".join(dict.fromkeys(label for label, _ in self.labels[:SHOWN_LABELS]))
            more = ", …" if len(self.labels) > SHOWN_LABELS else ""
            logger.warning("NumPy computes what was compiled for other runs (%s%s): %s", ops, more, reason)
        results = self._fallback(inputs)
        self.had_unequal_sizes |= has_unequal_sizes
        return results

    @property
    def can_be_stored(self) -> bool:
        """Whether a file can hold it: it does not come out of one itself."""
        return self.program is not None

    @property
    def is_quicker_by_nodes(self) -> bool:
        """Whether some runs are quicker where the nodes are known, so that a session is better made of the model itself."""
        return False

    def fast_path(self) -> FastPath:
        return self.run_known

    def fast_path_for_any_shape(self) -> Callable[[list[Any]], list[Any] | None]:
        return self.run_any

    def run_known(self, arrays: Sequence[np.ndarray]) -> list[Any] | None:
        """One run on arrays without gaps whose shapes have run before; None for others."""
        shape = self._shapes.get(tuple(map(_shape_of, arrays)))
        return None if shape is None else self._results(shape, arrays)

    def run_any(self, arrays: Sequence[np.ndarray]) -> list[Any] | None:
        """The same, of any shapes that the program is for: it knows what all sizes of its inputs must be."""
        shapes = tuple(map(_shape_of, arrays))
        shape = self._shapes.get(shapes) or self._remember(shapes)
        return None if shape is None else self._results(shape, arrays)

    def _results(self, shape: ShapeWords, arrays: Sequence[np.ndarray]) -> list[Any] | None:
        try:
            outputs = self._memory.empty(shape.outputs)
            return None if self._run(shape, arrays, outputs) else outputs
        except MemoryError:
            return None  # whoever runs it again says for which node there is no memory

    def _run(
        self,
        shape: ShapeWords,
        inputs: Sequence[np.ndarray],
        outputs: list[np.ndarray],
        stop: int = 0,
        times: list[int] | None = None,
    ) -> int:
        """Run, with more room if sizes turn out larger than there is; the status is 0 if data is as it must be."""
        arrays = (*inputs, *outputs)
        status = self._run_once(shape, arrays, outputs, stop, times)
        if status == TOO_SMALL:
            status = self._run_larger(shape, arrays, outputs, stop, times)
        return status

    def _run_larger(
        self, shape: ShapeWords, arrays: Arrays, outputs: list[np.ndarray], stop: int, times: list[int] | None
    ) -> int:
        """Run again, each time with more room, until sizes have enough of it or there is no such memory."""
        room, status = shape.room, TOO_SMALL
        while status == TOO_SMALL and room is not None and self.argument_table.room != shape.room:
            self._shapes.pop(shape.given, None)
            grown = self._remember(shape.given)
            if grown is None:  # there is no such memory; smaller runs may come again
                self._foreign.discard(shape.given)
                self.argument_table.room = room
                break
            shape = grown
            if times is not None:
                times.clear()
            status = self._run_once(shape, arrays, outputs, stop, times)
        return status

    def _run_once(
        self, shape: ShapeWords, arrays: Arrays, outputs: list[np.ndarray], stop: int, times: list[int] | None
    ) -> int:
        """Run on memory that nobody else uses at this moment; what a kernel has set the status word to."""
        try:
            state = self._idle.pop()
        except IndexError:
            state = _State()
        if self._arenas is not None:
            _borrow(state, self._arenas.lend(shape.arena + ALIGNMENT))
        threads = pool()
        if state.shape is not shape or state.pool is not threads:
            self._prepare(state, shape, threads)
        words = state.words
        if OBJECTS_ARE_OPEN:
            words[CALL_ARRAYS] = id(arrays)
        else:
            imitation = imitation_of(arrays)
            words[CALL_ARRAYS] = imitation.ctypes.data
        if stop:
            words[CALL_STOP] = stop
        if shape.width > 1:
            threads.arrange()
            if shape.is_quiet:
                words[CALL_QUIET] = threads.comes_alone()
        if times is None:
            threads.enter(state.address)
        else:
            state.steps[:, TICKS] = 0
            threads.enter_timed(state.address)
            times.extend(state.steps[:, TICKS].reshape(shape.parts, -1).sum(axis=0).tolist())
        if shape.is_quiet and shape.width > 1:
            threads.note_end()
        status: int = words[CALL_STATUS]
        if status or stop:
            state.shape = None
        if shape.table is not None:
            self._take_settled(state, shape, outputs, status)
        if self._arenas is not None:
            self._arenas.take_back(state.arena)
            state.arena = NO_ARENA
        self._idle.append(state)
        return status

    def _take_settled(self, state: _State, shape: ShapeWords, outputs: list[np.ndarray], status: int) -> None:
        """Take what a run tells that settles sizes: its results, or how much room it wants."""
        if status == TOO_SMALL:
            self.argument_table.grow(shape, state.table)
        elif not status:
            self._take_loose(state, shape, outputs)
        if state.shape is not None:
            state.reset()

    def _take_loose(self, state: _State, shape: ShapeWords, outputs: list[np.ndarray]) -> None:
        """Copy results whose sizes the run has settled out of the arena. A run that was stopped may not have settled them."""
        start = state.base - state.arena.ctypes.data
        for (output, _), offset in zip(self.argument_table.tables.loose.tolist(), shape.loose):
            sizes, dtype = self.argument_table.settled(state.table, output), outputs[output].dtype
            first = start + offset
            end = first + math.prod(sizes) * dtype.itemsize
            if end <= state.arena.nbytes:
                outputs[output] = state.arena[first:end].view(dtype).reshape(sizes).copy()

    def _prepare(self, state: _State, shape: ShapeWords, threads: Pool) -> None:
        """Lay out a run's memory for other shapes."""
        if state.arena.nbytes < shape.arena + ALIGNMENT:
            _borrow(state, np.empty(shape.arena + ALIGNMENT, np.uint8))
        if len(state.steps) != len(shape.steps):
            self._make_words(state, shape)
        argument_table, words = self.argument_table, state.words
        np.copyto(state.arguments, shape.arguments)
        state.arguments[argument_table.in_all_parts(argument_table.arena_words, shape)] += state.base
        state.arguments[argument_table.in_all_parts(argument_table.tables.status, shape)] = state.status
        if shape.table is not None:
            state.table = shape.table.copy()
        self._tell_addresses(state, shape)
        state.places[:, 2] = shape.places[:, 2]
        state.steps[:, TOTAL : GRAIN + 1] = shape.steps[:, TOTAL : GRAIN + 1]
        state.steps[:, KERNEL] = shape.steps[:, KERNEL]
        words[CALL_POOL], words[CALL_WIDTH], words[CALL_QUIET] = threads.address, shape.width, shape.is_quiet
        words[CALL_STATUS], words[CALL_STOP] = 0, state.status
        state.saved = () if shape.table is None else (state.arguments.copy(), state.steps.copy(), state.table.copy())
        state.shape, state.pool = shape, threads

    def _tell_addresses(self, state: _State, shape: ShapeWords) -> None:
        """Let the steps that settle sizes find what they change, and those that draw numbers their seeds."""
        run = self.argument_table.tables.run
        if len(run):
            addresses = [one.ctypes.data for one in (state.arguments, state.steps, state.table, random_state.words)]
            for word, number in run.tolist():
                state.arguments[self.argument_table.in_all_parts(np.array([word]), shape)] = addresses[number]

    def _make_words(self, state: _State, shape: ShapeWords) -> None:
        """Memory for the words of a run, with the addresses of some among others."""
        state.arguments, state.places, state.steps = shape.arguments.copy(), shape.places.copy(), shape.steps.copy()
        start = state.arguments.ctypes.data
        state.places[:, 0] = start + 8 * shape.places[:, 0]
        state.steps[:, ARGUMENTS] = start + 8 * self.argument_table.in_all_parts(self.argument_table.starts, shape)
        words = state.words
        words[CALL_STEPS], words[CALL_COUNT] = state.steps.ctypes.data, len(state.steps)
        words[CALL_PLACES], words[CALL_PLACE_COUNT] = state.places.ctypes.data, len(state.places)

    def share(self, arenas: Arenas) -> None:
        """Borrow the arena of each run, in place of keeping one. Nothing may run at this moment."""
        self._arenas = arenas
        self._idle.clear()

    def shrink(self) -> None:
        """Let go of memory that waits for another run."""
        self._idle.clear()
        self._memory = Outputs()
        if self._arenas is not None:
            self._arenas.shrink()

    def run_timed(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], list[StepTime]]:
        """One run, and how long each step took; no times if NumPy had to compute it."""
        arrays = list(map(_readable, inputs))
        shapes = tuple([array.shape for array in arrays])
        shape = self._shapes.get(shapes) or self._remember(shapes)
        if shape is None:
            return self._left(inputs, self._reason), []
        outputs = self._memory.empty(shape.outputs)
        ticks: list[int] = []
        started = time.perf_counter()
        if self._run(shape, arrays, outputs, times=ticks):
            return self._fallback(inputs), []
        limits = _limits(self.threads, sum(ticks) / (time.perf_counter() - started))
        times = []
        work = self.argument_table.work(shapes)
        for (label, kernel), nodes, spent, (flops, traffic) in zip(self.labels, self._nodes(), ticks, work, strict=True):
            seconds = spent / limits.ticks
            share = limits.share(seconds, flops, traffic)
            times.append(StepTime(label, nodes, kernel, seconds, flops, traffic, share))
        return outputs, times

    def _nodes(self) -> list[list[str]]:
        """The nodes of each step; nobody knows them where the program comes out of a file."""
        if self.program is None:
            return [[] for _ in self.labels]
        return [list(map(str, step.nodes)) for step in self.program.steps]


def _borrow(state: _State, arena: np.ndarray) -> None:
    """Give a state an arena; the words of its last run are of no use where that lies elsewhere."""
    base = -(-arena.ctypes.data // ALIGNMENT) * ALIGNMENT
    if base != state.base:
        state.shape = None
    state.arena, state.base = arena, base


def _sharing(tables: Tables) -> Sharing:
    """Which outputs may be written over which inputs. None may where NumPy might have to compute again from the inputs."""
    if len(tables.status):
        return NO_SHARING
    return Sharing(inplace=outlived_inputs(tables.outside, tables.counts, tables.jumps, len(tables.rules.ranks), tables.batch))


def _laid_over(outputs: OutputShapes, arrays: Sequence[np.ndarray], over: Sequence[tuple[int, int]]) -> list[np.ndarray | None]:
    """The memory of inputs as arrays of outputs that are as large."""
    overlaid: list[np.ndarray | None] = [None] * len(outputs.shapes)
    for source, result in over:
        array, shape, dtype = arrays[source], outputs.shapes[result], outputs.types[result]
        if array.nbytes == math.prod(shape) * dtype.itemsize:
            is_same = array.shape == shape and array.dtype == dtype
            overlaid[result] = array if is_same else array.reshape(-1).view(dtype).reshape(shape)
    return overlaid


def _limits(threads: int, ticks: float) -> Roofline:
    """What the machine can do; without a compiler, which would measure it, only about how many ticks a second has."""
    from sardonyx.compiler.jit import NoCompiler
    from sardonyx.compiler.roofline import Roofline, roofline

    try:
        return roofline(threads)
    except NoCompiler:
        return Roofline(math.inf, math.inf, max(ticks, 1.0))


def _readable(array: Any) -> np.ndarray:
    """An array as generated code can read it; scalars stay scalars."""
    is_readable = array.__class__ is np.ndarray and array.flags.c_contiguous and array.flags.aligned
    return array if is_readable else np.array(array, order="C")
