"""What a run does, decided before the first one: steps in order, the slot of every value, when each is given up.

A plan never changes; a run copies its `template` into a frame of its own, so any number of threads may use one plan.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sardonyx.ir import Graph, Model, Node, Value
from sardonyx.providers.provider import ExecutionProvider, element_type
from sardonyx.providers.steps import StepCall, as_call
from sardonyx.runtime.api.enums import ExecutionOrder
from sardonyx.runtime.preparation.copies import insert_copies
from sardonyx.runtime.preparation.memory import DEFAULT_OPTIONS, Kind, MemoryOptions, MemoryPlan, plan_memory
from sardonyx.runtime.preparation.order import arrange
from sardonyx.runtime.preparation.partition import Assigned, Assignment, partition_graphs
from sardonyx.runtime.preparation.providers import CPU_PROVIDER
from sardonyx.startup.records import dataclass, replace

ABSENT = -1
"""Slot of an optional input that a node leaves out, and of an output that nobody wants."""


@dataclass(frozen=True)
class Step:
    """One call: where its operands lie, where its results go, and which slots are free afterwards."""

    index: int
    nodes: Sequence[Node]
    provider: ExecutionProvider
    call: StepCall
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: Mapping[str, Plan]
    captured: tuple[int, ...]
    """Slots that the bodies read."""
    compiled: bool = False
    """Whether the provider compiled the nodes into one call, rather than binding a kernel."""
    released: tuple[int, ...] = ()
    overwrites: int | None = None
    """Position of the operand over which the call may write its result."""
    overlaid: tuple[tuple[int, int, bool], ...] = ()
    """Results that a compiled cluster may write over operands: positions of operand and result, and whether a cluster made the operand."""
    copied: tuple[int, ...] = ()
    """Slots of results to copy if they are views, so that what they are views of can go."""
    reason: str = ""
    """Why no provider before has the node, as far as they tell."""

    @property
    def node(self) -> Node:
        return self.nodes[0]

    @property
    def in_numpy(self) -> bool:
        """Whether NumPy computes it."""
        return not self.compiled and self.provider.name == CPU_PROVIDER


@dataclass(frozen=True)
class Plan:
    """A graph ready to run."""

    graph: Graph
    steps: Sequence[Step]
    slots: Mapping[str, int]
    """Slot of each value of the graph by its name."""
    values: Sequence[Value]
    """The value of each slot."""
    template: Sequence[Any]
    """A frame before the run: constants in place, None elsewhere."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    memory: MemoryPlan
    captures: tuple[tuple[Value, int], ...] = ()
    """Values of the surrounding graph that this one reads, and their slots here."""
    capture_slots: tuple[tuple[int, int], ...] = ()
    """The same values as pairs: slot there, slot here."""
    model: Model | None = None
    """What the graph is part of, if it goes with the plan."""

    def fetching(self, names: Sequence[str]) -> Plan:
        """The same plan for other outputs, which may be any values of the graph; steps that they don't need are left out."""
        outputs = tuple(self.slots[name] for name in names)
        needed, steps = set(outputs), []
        for step in reversed(self.steps):
            if needed & set(step.outputs):
                needed.update(step.inputs, step.captured)
                steps.append(step)
        kept = _with_releases(list(reversed(steps)), set(outputs), self.template)
        existing = {*self.inputs, *(slot for _, slot in self.captures)}
        memory = plan_memory(kept, self.values, existing, outputs, self.memory.options)
        return replace(self, outputs=outputs, steps=_with_memory(kept, self.values, memory), memory=memory)


@dataclass(frozen=True)
class PlanOptions:
    """What a session's options say about plans."""

    order: ExecutionOrder = ExecutionOrder.DEFAULT
    shapes_first: bool = False
    """Whether Shape and Size come right after what they read."""
    memory: MemoryOptions = DEFAULT_OPTIONS


DEFAULT_PLAN = PlanOptions()


def make_plan(
    graph: Graph,
    providers: Sequence[ExecutionProvider],
    options: PlanOptions = DEFAULT_PLAN,
    assigned: Assigned | None = None,
) -> Plan:
    """Bind the kernels of a typed graph and everything inside it, and fix order, slots and memory.

    `assigned` says who runs what; without it the graph is partitioned here.
    """
    if assigned is None:
        assigned = insert_copies(partition_graphs(graph, providers))
    builder = _Builder(graph, assigned, options)
    ordered = arrange(graph, assigned[graph], options.order, shapes_first=options.shapes_first)
    steps = [builder.step(index, assignment) for index, assignment in enumerate(ordered)]
    outputs = tuple(builder.slot(value) for value in graph.outputs)
    inputs = tuple(builder.slot(value) for value in graph.inputs)
    captures = tuple((value, builder.slots[value]) for value in builder.captured)
    values = list(builder.slots)
    steps = _with_releases(steps, set(outputs), builder.template)
    memory = plan_memory(steps, values, {*inputs, *(slot for _, slot in captures)}, outputs, options.memory)
    return Plan(
        graph=graph,
        steps=_with_memory(steps, values, memory),
        slots={value.name: slot for value, slot in builder.slots.items() if value.name},
        values=values,
        template=tuple(builder.template),
        inputs=inputs,
        outputs=outputs,
        memory=memory,
        captures=captures,
    )


def all_steps(plan: Plan) -> Iterator[Step]:
    """The steps of a plan, then those of the plans inside it."""
    pending = [plan]
    while pending:
        plan = pending.pop(0)
        yield from plan.steps
        pending.extend(body for step in plan.steps for body in step.bodies.values())


def compiled_steps(plan: Plan) -> list[Step]:
    """The steps that a provider has compiled."""
    return [step for step in all_steps(plan) if step.compiled]


def numpy_steps(plan: Plan) -> list[Step]:
    """The steps that NumPy computes; their `reason` says why, where somebody has told."""
    return [step for step in all_steps(plan) if step.in_numpy]


def shrink(plan: Plan) -> None:
    """Give back what compiled clusters keep between runs."""
    for step in all_steps(plan):
        step.call.shrink()


class _Builder:
    """Gives out slots while steps are made."""

    def __init__(self, graph: Graph, assigned: Assigned, options: PlanOptions):
        self.assigned = assigned
        self.options = options
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
        slot = self.slots.get(value)
        return self._new(value) if slot is None else slot

    def step(self, index: int, assignment: Assignment) -> Step:
        provider, node, cluster = assignment.provider, assignment.nodes[0], assignment.cluster
        if cluster is not None:
            call = as_call(assignment.call or provider.compile(cluster))
            inputs = tuple(self.slot(value) for value in cluster.inputs)
            outputs = tuple(self.slot(value) for value in cluster.outputs)
            return Step(index, cluster.nodes, provider, call, inputs, outputs, {}, (), compiled=True)
        bodies = {
            name: self._body(node, name) for name, attribute in node.attributes.items() if isinstance(attribute.value, Graph)
        }
        return Step(
            index,
            assignment.nodes,
            provider,
            as_call(assignment.call or provider.bind_kernel(node)),
            tuple(self.slot(value) for value in node.inputs),
            tuple(self.slot(value) if value.name else ABSENT for value in node.outputs),
            bodies,
            tuple(sorted({outer for body in bodies.values() for outer, _ in body.capture_slots})),
            reason=assignment.reason,
        )

    def _body(self, node: Node, name: str) -> Plan:
        plan = make_plan(node.attributes[name].value, (), self.options, self.assigned)
        return replace(plan, capture_slots=tuple((self.slot(value), inner) for value, inner in plan.captures))


def _with_releases(steps: Sequence[Step], kept: Iterable[int], template: Sequence[Any]) -> list[Step]:
    """Let each step give up the slots that no later one reads. Constants stay."""
    alive = set(kept) | {ABSENT} | {slot for slot, value in enumerate(template) if value is not None}
    result = []
    for step in reversed(steps):
        touched = {*step.inputs, *step.captured, *step.outputs}
        released = tuple(sorted(touched - alive))
        alive |= touched
        result.append(replace(step, released=released, overwrites=None, overlaid=(), copied=()))
    return result[::-1]


def _with_memory(steps: Sequence[Step], values: Sequence[Value], memory: MemoryPlan) -> list[Step]:
    """Tell each step which operand its kernel may overwrite, if the kernel takes `out`, and which results to copy."""
    source = {
        allocation.slot: allocation.source
        for allocation in memory.allocations
        if allocation.kind is Kind.REUSE and allocation.source is not None
    }
    compiled = {slot for step in steps if step.compiled for slot in step.outputs}
    result = []
    for step in steps:
        slot = source.get(step.outputs[0]) if step.outputs and step.call.takes_out else None
        same = slot is not None and element_type(values[slot]) is element_type(values[step.outputs[0]])
        overwrites = step.inputs.index(slot) if slot is not None and same else None
        overlaid = tuple(_overlaid(step, source, compiled)) if step.compiled else ()
        copied = tuple(slot for slot in step.outputs if slot in memory.copied)
        is_special = copied or overlaid or overwrites is not None
        result.append(replace(step, overwrites=overwrites, overlaid=overlaid, copied=copied) if is_special else step)
    return result


def _overlaid(step: Step, source: Mapping[int, int], compiled: Container[int]) -> Iterator[tuple[int, int, bool]]:
    """Positions of operands and of the results that lie in their memory, and whether a compiled cluster made the operand."""
    for position, slot in enumerate(step.outputs):
        if slot in source:
            yield step.inputs.index(source[slot]), position, source[slot] in compiled
