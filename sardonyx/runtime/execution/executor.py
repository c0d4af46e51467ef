"""Running a plan: a frame of values per call, one step after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from sardonyx.errors import CODED, Fail, KernelError, NodeFailed
from sardonyx.ir import Node, Type
from sardonyx.providers.termination import TERMINATED, heard
from sardonyx.runtime.execution.shares import TimeShares
from sardonyx.runtime.preparation.plan import ABSENT, Plan, Step

Destinations = Mapping[int, np.ndarray]
"""Memory by slot that compiled steps are to write their results into."""


class Profiler(Protocol):
    """Gets told about every step while profiling is on."""

    def step(self, step: Step, start_ns: int, end_ns: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...

    def kernels(self, step: Step, start_ns: int, times: Sequence[Any]) -> None: ...


class Run:
    """One call of `execute`: who may stop it and who watches it."""

    __slots__ = ("terminated", "profiler", "shares", "stop")

    def __init__(
        self,
        terminated: Callable[[], bool] | None,
        profiler: Profiler | None,
        stop: int = 0,
        shares: TimeShares | None = None,
    ):
        self.terminated = terminated
        self.profiler = profiler
        self.shares = shares
        """Measures the steps, if that is asked for."""
        self.stop = stop
        """Address of a word by which native code sees that it shall stop; 0 if nobody can say so."""

    def frame(self, plan: Plan, frame: list[Any], destinations: Destinations | None = None) -> list[Any]:
        """Run all steps on a frame whose inputs are in place; returns the outputs, some of them perhaps in `destinations`."""
        if not plan.steps:  # the body of a Loop would go on for ever
            self._check_terminated()
        call = self._call if self.shares is None else self._measured_call
        for step in plan.steps:
            self._check_terminated()
            inputs = [None if slot == ABSENT else frame[slot] for slot in step.inputs]
            _store(frame, step.outputs, call(step, inputs, frame, destinations))
            for slot in step.copied:
                frame[slot] = _compact(frame[slot])
            for slot in step.released:
                frame[slot] = None
        return [frame[slot] for slot in plan.outputs]

    def _check_terminated(self) -> None:
        if self.terminated is not None and self.terminated():
            raise Fail(TERMINATED)

    def _measured_call(
        self, step: Step, inputs: Sequence[Any], frame: list[Any], destinations: Destinations | None
    ) -> Sequence[Any]:
        assert self.shares is not None
        with self.shares.measure(step):
            return self._call(step, inputs, frame, destinations)

    def _call(self, step: Step, inputs: Sequence[Any], frame: list[Any], destinations: Destinations | None) -> Sequence[Any]:
        start = time.perf_counter_ns() if self.profiler is not None else 0
        try:
            if self.profiler is not None and step.compiled:
                outputs, kernels = step.call.run_timed(inputs)
                self.profiler.kernels(step, start, kernels)
            elif destinations and step.call.takes_destinations and not destinations.keys().isdisjoint(step.outputs):
                outputs = step.call.run_with(inputs, self.stop, [destinations.get(slot) for slot in step.outputs])
                self._check_terminated()
            elif step.overlaid and (over := _overlaid(step, inputs)):
                outputs = step.call.run_with(inputs, self.stop, over=over)
                self._check_terminated()
            elif self.stop and step.call.takes_stop:
                outputs = step.call.run_with(inputs, self.stop)
                self._check_terminated()
            elif step.bodies:
                bodies = {name: Body(self, plan, frame) for name, plan in step.bodies.items()}
                outputs = step.call.run_with_bodies(inputs, bodies)
            elif step.overwrites is not None and _may_overwrite(inputs, step.overwrites):
                outputs = step.call.run_into(inputs, inputs[step.overwrites])
            else:
                outputs = step.call(inputs)
        except Exception as error:
            _explain(step.node, inputs, error)
        if self.profiler is not None:
            self.profiler.step(step, start, time.perf_counter_ns(), inputs, outputs)
        return outputs


def _store(frame: list[Any], slots: Sequence[int], values: Sequence[Any]) -> None:
    """Put results into their slots; by itself, so that no variable of the run's loop holds on to one of them."""
    for slot, value in zip(slots, values, strict=False):
        if slot != ABSENT:
            frame[slot] = value


def _compact(value: Any) -> Any:
    """A view as an array of its own."""
    return value if type(value) is not np.ndarray or value.base is None else value.copy()


def _references(inputs: Sequence[Any], position: int) -> int:
    operand = inputs[position]
    return getrefcount(operand)


def _sole_references() -> int:
    """How many references `_references` sees of an operand that only a frame and the list of inputs hold; interpreters differ."""
    frame = [np.empty(1)]
    return _references([frame[0]], 0)


getrefcount: Callable[[Any], int] = getattr(sys, "getrefcount", lambda _: 0)
SOLE_REFERENCES = _sole_references() or -1


def _overlaid(step: Step, inputs: Sequence[Any]) -> list[tuple[int, int]]:
    """The operands that a compiled cluster may overwrite in this run, and the results that it writes there; the plan has proposed them."""
    return [(source, result) for source, result, is_lent in step.overlaid if _is_sole(inputs, source, is_lent)]


def _may_overwrite(inputs: Sequence[Any], position: int) -> bool:
    """Whether the run is the only holder of an operand that its plan would overwrite.

    The plan knows what kernels declare; the number of references knows everything: views, sequences, what a caller fetched. The
    other operands must leave the result's shape and layout as they would be without overwriting.
    """
    if not _is_sole(inputs, position):
        return False
    overwritten = inputs[position]
    return all(other is None or other is overwritten or _fits(other, overwritten.shape, overwritten.dtype) for other in inputs)


def _is_sole(inputs: Sequence[Any], position: int, is_lent: bool = False) -> bool:
    """Whether an operand is an array without gaps that nobody else holds, nor a view of it.

    It must own its memory, or have got it from a compiled cluster, which gives out blocks that it uses again.
    """
    if _references(inputs, position) != SOLE_REFERENCES:
        return False
    overwritten = inputs[position]
    if type(overwritten) is not np.ndarray or not (
        overwritten.base is None or (is_lent and not isinstance(overwritten.base, np.ndarray))
    ):
        return False
    return overwritten.flags.c_contiguous and overwritten.flags.writeable


def _fits(operand: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    if type(operand) is not np.ndarray or operand.dtype != dtype or not operand.flags.c_contiguous:
        return False
    own = operand.shape
    return own == shape or (
        len(own) <= len(shape) and all(length in (1, size) for length, size in zip(own[::-1], shape[::-1], strict=False))
    )


class Body:
    """A subgraph as its node's kernel calls it. Its types tell what a Loop that never ran it would have collected."""

    __slots__ = ("_run", "_plan", "_outer")

    def __init__(self, run: Run, plan: Plan, outer: list[Any]):
        self._run = run
        self._plan = plan
        self._outer = outer

    @property
    def input_types(self) -> list[Type | None]:
        return [value.type for value in self._plan.graph.inputs]

    @property
    def output_types(self) -> list[Type | None]:
        return [value.type for value in self._plan.graph.outputs]

    def __call__(self, *arguments: Any) -> list[Any]:
        plan = self._plan
        frame = list(plan.template)
        for there, here in plan.capture_slots:
            frame[here] = self._outer[there]
        if len(arguments) != len(plan.inputs):
            raise KernelError(f"graph {plan.graph.name!r} takes {len(plan.inputs)} inputs, not {len(arguments)}")
        for slot, value in zip(plan.inputs, arguments, strict=True):
            frame[slot] = value
        return self._run.frame(plan, frame)


def execute(
    plan: Plan,
    feeds: Mapping[str, Any],
    output_names: Sequence[str] | None = None,
    *,
    terminated: Callable[[], bool] | None = None,
    profiler: Profiler | None = None,
    stop: int = 0,
    destinations: Destinations | None = None,
    shares: TimeShares | None = None,
) -> list[Any]:
    """Run a plan on values by input name. `output_names` may name any value of the graph; None means the graph's outputs."""
    if output_names is not None:
        plan = plan.fetching(output_names)
    frame = list(plan.template)
    for name, value in feeds.items():
        frame[plan.slots[name]] = value
    with np.errstate(all="ignore"), heard(terminated):
        return Run(terminated, profiler, stop, shares).frame(plan, frame, destinations)


def _explain(node: Node, inputs: Sequence[Any], error: Exception) -> NoReturn:
    """Raise what a step raised as an exception that a user can read; of a step of many nodes, one knows which failed."""
    if isinstance(error, NodeFailed) and isinstance(error.__cause__, Exception):
        node, inputs, error = error.node, error.inputs, error.__cause__
    if isinstance(error, CODED):
        error.add_note(f"inside {_place(node)}")
        raise error
    raise _failure(node, inputs, error) from error


def _failure(node: Node, inputs: Sequence[Any], error: Exception) -> Exception:
    """The exception that a user sees when a kernel fails: which node, its operands, where it stands."""
    kind = error.kind if isinstance(error, KernelError) else Fail
    reason = str(error) if isinstance(error, KernelError) else f"{type(error).__name__}: {error}"
    operands = ", ".join(
        f"{value.name}: {_described(operand)}" for value, operand in zip(node.inputs, inputs, strict=False) if value is not None
    )
    return kind(
        f"Non-zero status code returned while running {node.op_type} node. Name:'{node.name}' "
        f"Status Message: {reason} (inputs {operands or 'none'}; in {_place(node)})"
    )


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return type(value).__name__


def _place(node: Node) -> str:
    """Where a node stands: from the main graph through the nodes around it."""
    path = [str(node)]
    graph = node.graph
    while graph is not None and graph.parent is not None:
        path.append(str(graph.parent))
        graph = graph.parent.graph
    name = graph.name if graph is not None else ""
    return f"graph '{name}': " + " > ".join(reversed(path))
