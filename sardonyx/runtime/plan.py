"""What a run does, decided before the first one: steps in order, the slot of every value, when each is given up.

A plan never changes; a run copies its `template` into a frame of its own, so any number of threads may use one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sardonyx.ir import Graph, Node, Value
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.partition import Assignment, partition

Call = Callable[..., Sequence[Any]]
ABSENT = -1
"""Slot of an optional input that a node leaves out, and of an output that nobody wants."""


@dataclass(frozen=True)
class Step:
    """One call: where its operands lie, where its results go, and which slots are free afterwards."""

    index: int
    nodes: Sequence[Node]
    provider: ExecutionProvider
    call: Call
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: Mapping[str, Plan]
    captured: tuple[int, ...]
    """Slots that the bodies read."""
    released: tuple[int, ...] = ()

    @property
    def node(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True)
class Plan:
    """A graph ready to run."""

    graph: Graph
    steps: Sequence[Step]
    slots: Mapping[str, int]
    """Slot of each value of the graph by its name."""
    template: Sequence[Any]
    """A frame before the run: constants in place, None elsewhere."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captures: tuple[tuple[Value, int], ...] = ()
    """Values of the surrounding graph that this one reads, and their slots here."""
    capture_slots: tuple[tuple[int, int], ...] = field(default=())
    """The same as (slot there, slot here)."""

    def fetching(self, names: Sequence[str]) -> Plan:
        """The same plan for other outputs, which may be any values of the graph; steps that they don't need are left out."""
        outputs = tuple(self.slots[name] for name in names)
        needed, steps = set(outputs), []
        for step in reversed(self.steps):
            if needed & set(step.outputs):
                needed.update(step.inputs, step.captured)
                steps.append(step)
        return replace(self, outputs=outputs, steps=_with_releases(list(reversed(steps)), set(outputs), self.template))


def make_plan(graph: Graph, providers: Sequence[ExecutionProvider]) -> Plan:
    """Partition a typed graph and everything inside it, bind kernels, compile clusters, and fix the order and the slots."""
    builder = _Builder(graph, providers)
    steps = [builder.step(index, assignment) for index, assignment in enumerate(partition(graph, providers))]
    outputs = tuple(builder.slot(value) for value in graph.outputs)
    return Plan(
        graph=graph,
        steps=_with_releases(steps, set(outputs), builder.template),
        slots={value.name: slot for value, slot in builder.slots.items() if value.name},
        template=tuple(builder.template),
        inputs=tuple(builder.slot(value) for value in graph.inputs),
        outputs=outputs,
        captures=tuple((value, builder.slots[value]) for value in builder.captured),
    )


class _Builder:
    """Gives out slots while steps are made."""

    def __init__(self, graph: Graph, providers: Sequence[ExecutionProvider]):
        self.providers = providers
        self.slots: dict[Value, int] = {}
        self.template: list[Any] = []
        self.captured: list[Value] = []
        for value in graph.inputs:
            self._new(value)
        for value in graph.captured():
            if not value.is_constant:
                self.captured.append(value)
                self._new(value)

    def _new(self, value: Value) -> int:
        self.slots[value] = len(self.template)
        self.template.append(value.constant.numpy() if value.constant is not None else None)
        return self.slots[value]

    def slot(self, value: Value | None) -> int:
        if value is None:
            return ABSENT
        found = self.slots.get(value)
        return self._new(value) if found is None else found

    def step(self, index: int, assignment: Assignment) -> Step:
        provider, node, cluster = assignment.provider, assignment.nodes[0], assignment.cluster
        if cluster is not None:
            call = provider.compile(cluster)
            inputs = tuple(self.slot(value) for value in cluster.inputs)
            outputs = tuple(self.slot(value) for value in cluster.outputs)
            return Step(index, cluster.nodes, provider, call, inputs, outputs, {}, ())
        bodies = {
            name: self._body(node, name) for name, attribute in node.attributes.items() if isinstance(attribute.value, Graph)
        }
        return Step(
            index,
            assignment.nodes,
            provider,
            provider.bind_kernel(node),
            tuple(self.slot(value) for value in node.inputs),
            tuple(self.slot(value) if value.name else ABSENT for value in node.outputs),
            bodies,
            tuple(sorted({outer for body in bodies.values() for outer, _ in body.capture_slots})),
        )

    def _body(self, node: Node, name: str) -> Plan:
        plan = make_plan(node.attributes[name].value, self.providers)
        return replace(plan, capture_slots=tuple((self.slot(value), inner) for value, inner in plan.captures))


def _with_releases(steps: Sequence[Step], kept: Iterable[int], template: Sequence[Any]) -> list[Step]:
    """Let each step give up the slots that no later one reads. Constants stay."""
    alive = set(kept) | {ABSENT} | {slot for slot, value in enumerate(template) if value is not None}
    result = []
    for step in reversed(steps):
        touched = {*step.inputs, *step.captured, *step.outputs}
        released = tuple(sorted(touched - alive))
        alive |= touched
        result.append(replace(step, released=released))
    return result[::-1]
