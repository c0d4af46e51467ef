"""A program ready to run: kernels compiled, arguments laid out, one native call per run. Any number of threads may call one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.compiler.jit import Jit
from sardonyx.compiler.pool import ARGUMENTS, TICKS, pool
from sardonyx.compiler.roofline import roofline
from sardonyx.ir import TensorType, Value
from sardonyx.providers.native.addresses import address_of
from sardonyx.providers.native.layout import Layout, Shape
from sardonyx.providers.native.memory import ALIGNMENT
from sardonyx.providers.native.outputs import Outputs
from sardonyx.providers.native.program import Program
from sardonyx.providers.native.sizes import ShapeMismatch, Shapes, Sizes

MAX_SHAPES = 64
"""How many sets of input shapes keep their words; others are computed anew."""

Fallback = Callable[[Sequence[Any]], Sequence[Any]]


class _State:
    """Memory of one run at a time."""

    __slots__ = ("arena", "base", "steps", "arguments", "words", "shape", "steps_address", "status", "status_address")

    def __init__(self) -> None:
        self.arena = np.empty(0, np.uint8)
        self.base = 0
        self.steps = np.empty(0, np.int64)
        self.arguments = np.empty(0, np.int64)
        self.words: Any = self.arguments.data
        self.shape: Shape | None = None
        self.steps_address = 0
        self.status = np.zeros(1, np.int64)
        self.status_address = self.status.ctypes.data


@dataclass(frozen=True)
class StepTime:
    """How long a step took in a timed run, and what it had to do."""

    label: str
    """The ops that it computed."""
    kernel: str
    seconds: float
    flops: int
    traffic: int
    """Bytes that had to be read and written."""
    share: float
    """Part of the machine's limit: of its arithmetic or of its memory, whichever is nearer."""


class CompiledProgram:
    """Runs a program on arrays.

    What is not of the form that it was compiled for goes to `fallback`: shapes that contradict the model's, and runs in which a kernel
    has set the status word because of bad data.
    """

    takes_stop = True

    def __init__(self, program: Program, sizes: Sizes, jit: Jit, threads: int, fallback: Fallback):
        self.program = program
        self.jit = jit
        self.threads = threads
        self._fallback = fallback
        self._stop = np.zeros(1, np.int64)
        self._stop_address = self._stop.ctypes.data
        self._memory = Outputs()
        self._shapes: dict[Shapes, Shape] = {}
        self._idle: list[_State] = []
        self._output_types = [_numpy_type(value) for value in program.outputs]
        self.layout = Layout(program, sizes, jit, threads)
        self.workspace = self.layout.workspace

    def __call__(self, inputs: Sequence[Any], stop: int = 0) -> Sequence[Any]:
        """One run. `stop` is the address of a word that another thread may set to leave out the rest."""
        arrays = [array if _is_readable(array) else np.array(array, order="C") for array in inputs]
        shapes = tuple([array.shape for array in arrays])
        shape = self._shapes.get(shapes)
        if shape is None:
            try:
                shape = self._remember(shapes)
            except ShapeMismatch:
                return self._fallback(inputs)
        outputs = [self._memory.empty(size, type) for size, type in zip(shape.outputs, self._output_types)]
        failed = self._run(shape, [*arrays, *outputs], stop)
        return self._fallback(inputs) if failed else outputs

    def _remember(self, shapes: Shapes) -> Shape:
        shape = self.layout.shape(shapes)
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        self._shapes[shapes] = shape
        return shape

    def run_known(self, arrays: list[np.ndarray]) -> Sequence[Any] | None:
        """One run on arrays without gaps whose shapes have run before; None for others."""
        shape = self._shapes.get(tuple([array.shape for array in arrays]))
        if shape is None:
            return None
        outputs = [self._memory.empty(size, type) for size, type in zip(shape.outputs, self._output_types)]
        return None if self._run(shape, [*arrays, *outputs], 0) else outputs

    def _run(self, shape: Shape, arrays: list[np.ndarray], stop: int, times: list[int] | None = None) -> bool:
        """Run on memory that nobody else uses at this moment; whether a kernel has set the status word."""
        try:
            state = self._idle.pop()
        except IndexError:
            state = _State()
        if state.shape is not shape:
            self._prepare(state, shape)
        addresses = [address_of(array) for array in arrays]
        addresses.append(state.status_address)
        words = state.words
        for place, which, offset in shape.outside:
            words[place] = addresses[which] + offset
        threads = pool()
        if self.threads > 1:
            threads.arrange()
        call = threads.run if times is None else threads.run_timed
        call(state.steps_address, len(shape.steps), threads.address, self.threads, stop or self._stop_address)
        if times is not None:
            times.extend(state.steps[:, TICKS].tolist())
        failed = bool(state.status[0])
        if failed:
            state.status[0] = 0
        self._idle.append(state)
        return failed

    def _prepare(self, state: _State, shape: Shape) -> None:
        """Lay out a run's memory for other shapes."""
        if state.arena.nbytes < shape.arena + ALIGNMENT:
            state.arena = np.empty(shape.arena + ALIGNMENT, np.uint8)
            state.base = -(-state.arena.ctypes.data // ALIGNMENT) * ALIGNMENT
        state.arguments = shape.arguments.copy()
        state.arguments[self.layout.arena_places] += state.base
        state.words = state.arguments.data
        state.steps = shape.steps.copy()
        state.steps[:, ARGUMENTS] = state.arguments.ctypes.data + 8 * self.layout.starts
        state.steps_address = state.steps.ctypes.data
        state.shape = shape

    def profiled(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], list[StepTime]]:
        """One run, and how long each step took; no times if NumPy had to compute it."""
        arrays = [np.ascontiguousarray(array) for array in inputs]
        shapes = tuple([array.shape for array in arrays])
        try:
            shape = self._remember(shapes)
        except ShapeMismatch:
            return self._fallback(inputs), []
        outputs = [self._memory.empty(size, type) for size, type in zip(shape.outputs, self._output_types)]
        ticks: list[int] = []
        if self._run(shape, [*arrays, *outputs], 0, ticks):
            return self._fallback(inputs), []
        limits = roofline(self.threads)
        times = []
        for step, spent, (flops, traffic) in zip(self.program.steps, ticks, self.layout.work(shapes), strict=True):
            seconds = spent / limits.ticks
            share = limits.share(seconds, flops, traffic)
            times.append(StepTime(step.label, step.kernel.title, seconds, flops, traffic, share))
        return outputs, times


def _is_readable(array: Any) -> bool:
    """Whether generated code can read an array as it is."""
    return array.__class__ is np.ndarray and array.flags.c_contiguous and array.flags.aligned


def _numpy_type(value: Value) -> np.dtype[Any]:
    assert isinstance(value.type, TensorType) and value.type.dtype is not None
    return np.dtype(value.type.dtype.numpy)
