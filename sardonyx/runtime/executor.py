"""Running a plan: a frame of values per call, one step after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sardonyx.errors import BY_CODE, Fail, KernelError
from sardonyx.ir import Node, Type
from sardonyx.runtime.plan import ABSENT, Plan, Step

CODED = tuple(BY_CODE.values())


class Profiler(Protocol):
    """Gets told about every step while profiling is on."""

    def step(self, step: Step, start_ns: int, end_ns: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...


class Run:
    """One call of `execute`: who may stop it and who watches it."""

    __slots__ = ("terminated", "profiler")

    def __init__(self, terminated: Callable[[], bool] | None, profiler: Profiler | None):
        self.terminated = terminated
        self.profiler = profiler

    def frame(self, plan: Plan, frame: list[Any]) -> list[Any]:
        """Run all steps on a frame whose inputs are in place; returns the outputs."""
        for step in plan.steps:
            if self.terminated is not None and self.terminated():
                raise Fail("Exiting due to terminate flag being set to true.")
            inputs = [None if slot == ABSENT else frame[slot] for slot in step.inputs]
            outputs = self._call(step, inputs, frame)
            for slot, value in zip(step.outputs, outputs, strict=False):
                if slot != ABSENT:
                    frame[slot] = value
            for slot in step.released:
                frame[slot] = None
        return [frame[slot] for slot in plan.outputs]

    def _call(self, step: Step, inputs: Sequence[Any], frame: list[Any]) -> Sequence[Any]:
        start = time.perf_counter_ns() if self.profiler is not None else 0
        try:
            if step.bodies:
                outputs = step.call(inputs, {name: Body(self, plan, frame) for name, plan in step.bodies.items()})
            else:
                outputs = step.call(inputs)
        except CODED as error:
            error.add_note(f"inside {_place(step.node)}")
            raise
        except Exception as error:
            raise _failure(step, inputs, error) from error
        if self.profiler is not None:
            self.profiler.step(step, start, time.perf_counter_ns(), inputs, outputs)
        return outputs


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
) -> list[Any]:
    """Run a plan on values by input name. `output_names` may name any value of the graph; None means the graph's outputs."""
    if output_names is not None:
        plan = plan.fetching(output_names)
    frame = list(plan.template)
    for name, value in feeds.items():
        frame[plan.slots[name]] = value
    with np.errstate(all="ignore"):
        return Run(terminated, profiler).frame(plan, frame)


def _failure(step: Step, inputs: Sequence[Any], error: Exception) -> Exception:
    """The exception that a user sees when a kernel fails: which node, its operands, where it stands."""
    kind = error.kind if isinstance(error, KernelError) else Fail
    reason = str(error) if isinstance(error, KernelError) else f"{type(error).__name__}: {error}"
    operands = ", ".join(
        f"{value.name}: {_described(given)}"
        for value, given in zip(step.node.inputs, inputs, strict=False)
        if value is not None
    )
    return kind(
        f"Non-zero status code returned while running {step.node.op_type} node. Name:'{step.node.name}' "
        f"Status Message: {reason} (inputs {operands or 'none'}; in {_place(step.node)})"
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
