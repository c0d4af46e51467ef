"""Less memory for more time: backward computes values of forward again, in place of waiting for them. Steps on files call it.

Which ones, says a configuration of onnxruntime's memory optimizer: texts `name:strategy:count`, in a JSON file or with commas between.
The name has the ops of a subgraph in order, each with a plus behind it; `candidates` finds the subgraphs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from sardonyx.errors import InvalidArgument
from sardonyx.ir import Model, Node, Value, edit
from sardonyx.ir.cloning import Cloner
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.inference import infer
from sardonyx.startup.records import dataclass
from sardonyx.training.crossing import CHEAP, Crossing, Halves, halves_of

DEAR = CHEAP | {"LayerNormalization", "LogSoftmax", "MatMul", "RMSNormalization", "SimplifiedLayerNormalization", "Softmax"}
"""What may be computed again if the probe says 1: onnxruntime's advanced list."""
DOMAINS = ("", CONTRIB)
"""Of whose ops these are the names."""
OFF, RECOMPUTE, COMPROMISE = 0, 1, 2
"""Strategies. With a compromise a subgraph may also begin at values that nobody keeps, if they are at most half as large."""
ALL = -1
LARGEST = 64
"""Nodes of the largest subgraph: what takes more is not cheap, and to look for it would take longer than the model is long."""


@dataclass(frozen=True)
class Candidate:
    """A value that waits for backward, and the nodes that would compute it again, in order."""

    value: Value
    nodes: Sequence[Node]
    is_compromise: bool

    @property
    def name(self) -> str:
        """As configurations call it."""
        return "".join(f"{node.op_type}+" for node in self.nodes)


def recompute(model: Model, config: str, probe: str = "0:0") -> list[Candidate]:
    """Change a training model as a configuration says; returns what backward computes again now."""
    wanted = read_config(config)
    if not wanted:
        return []
    infer(model)
    halves = halves_of(model)
    found = candidates(model, halves, DEAR if probe.partition(":")[0] == "1" else CHEAP)
    names = [candidate.name for candidate in found]
    unknown = next((name for name in wanted if name not in names), None)
    if unknown is not None:
        there = ", ".join(dict.fromkeys(names)) or "none"
        raise InvalidArgument(f"the model has no subgraph {unknown!r} that backward could compute again; there are {there}")
    chosen = chosen_of(found, wanted)
    if chosen:
        _compute_again(model, halves, chosen)
    return chosen


def read_config(config: str) -> dict[str, tuple[int, int]]:
    """Strategy and count by the name of a subgraph."""
    wanted = {}
    for text in _texts(config):
        name, *numbers = str(text).strip().split(":")
        if not name.endswith("+") or len(numbers) != 2 or not all(number.removeprefix("-").isdecimal() for number in numbers):
            raise InvalidArgument(f"a memory optimizer takes texts such as 'Relu+:1:-1', not {text!r}")
        strategy, count = map(int, numbers)
        if strategy not in (OFF, RECOMPUTE, COMPROMISE) or count < ALL:
            raise InvalidArgument(
                f"{text!r}: the strategy is 0, 1 or 2, and the count is not negative, or -1 for all subgraphs"
            )
        wanted[name] = strategy, count
    return wanted


def _texts(config: str) -> Sequence[object]:
    if not config.endswith(".json"):
        return [text for text in config.split(",") if text.strip()]
    if not os.path.exists(config):
        raise InvalidArgument(f"there is no file {config!r}, which the memory optimizer was to read")
    with open(config, encoding="utf-8") as file:
        try:
            texts = json.load(file)
        except ValueError as error:
            raise InvalidArgument(f"{config}: no JSON: {error}") from error
    if not isinstance(texts, list):
        raise InvalidArgument(f"{config}: it must hold a list of texts such as 'Relu+:1:-1'")
    return texts


def candidates(model: Model, halves: Halves, allowed: Collection[str] = CHEAP) -> list[Candidate]:
    """The values that wait for backward and can be computed again from others that do, or from inputs, in the order of forward."""
    graph = model.graph
    kept = {*graph.inputs, *graph.initializers.values(), *(part.value for part in halves.crossing)}
    order = {node: position for position, node in enumerate(halves.forward)}
    outermost = {*halves.forward, *halves.backward}
    found = []
    for part in halves.crossing:
        if any(user not in outermost for user, _ in part.value.uses):  # a graph inside of a node reads it
            continue
        nodes, borders = _walk_up(part.value, kept, allowed)
        is_fair = 2 * sum(Crossing(value, False).bytes({}) for value in borders) <= part.bytes({})
        if nodes and is_fair:
            found.append(Candidate(part.value, sorted(nodes, key=order.__getitem__), bool(borders)))
    return found


def _walk_up(value: Value, kept: Collection[Value], allowed: Collection[str]) -> tuple[set[Node], set[Value]]:
    """The nodes that compute a value from kept ones, and the values that these nodes need besides."""
    nodes: set[Node] = set()
    borders: set[Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        producer = current.producer
        if producer is None or producer in nodes or (current in kept and current is not value):
            continue
        if producer.op_type not in allowed or producer.domain not in DOMAINS:
            if current is value:
                return set(), set()
            borders.add(current)
            continue
        nodes.add(producer)
        if len(nodes) > LARGEST:
            return set(), set()
        stack.extend(edit.operands(producer))
    return nodes, borders


class Named(Protocol):
    """What may be computed again, as configurations see it."""

    @property
    def name(self) -> str: ...

    @property
    def is_compromise(self) -> bool: ...


Choice = TypeVar("Choice", bound=Named)


def chosen_of(found: Sequence[Choice], wanted: Mapping[str, tuple[int, int]]) -> list[Choice]:
    """Those that a configuration asks for, as many of each name as it says."""
    taken = dict.fromkeys(wanted, 0)
    chosen = []
    for candidate in found:
        strategy, count = wanted.get(candidate.name, (OFF, 0))
        is_allowed = strategy == COMPROMISE or (strategy == RECOMPUTE and not candidate.is_compromise)
        if is_allowed and (count == ALL or taken[candidate.name] < count):
            taken[candidate.name] += 1
            chosen.append(candidate)
    return chosen


def _compute_again(model: Model, halves: Halves, chosen: Sequence[Candidate]) -> None:
    """Copy nodes of forward before the first reader in backward. What one copy computes, those behind it read."""
    position = {node: number for number, node in enumerate(halves.backward)}
    nodes_of = {candidate.value: candidate.nodes for candidate in chosen}
    order = {node: number for number, node in enumerate(halves.forward)}
    readers = {value: [user for user, _ in value.uses if user in position] for value in nodes_of}
    copied: set[Node] = set()
    later = list(halves.backward)
    cloner = Cloner(value_name=_again, node_name=_again)
    for value in sorted(nodes_of, key=lambda one: min(position[user] for user in readers[one])):
        first = min(readers[value], key=position.__getitem__)
        for node in sorted(_with_what_they_read(nodes_of[value], nodes_of, copied), key=order.__getitem__):
            copy = cloner.node(node)
            edit.insert_before(first, [copy])
            later.append(copy)
            copied.add(node)
        _read_copy(value, cloner.values[value], readers[value])
    for node in later:
        node.metadata[edit.LATER] = "1"


def _with_what_they_read(
    nodes: Iterable[Node], nodes_of: Mapping[Value, Sequence[Node]], copied: Collection[Node]
) -> set[Node]:
    """Nodes that are not copied yet, with those of values among their operands that are not kept any more either."""
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found and node not in copied:
            found.add(node)
            stack.extend(other for value in edit.operands(node) for other in nodes_of.get(value, ()))
    return found


def _read_copy(value: Value, copy: Value | None, readers: Iterable[Node]) -> None:
    for reader in readers:
        for place, operand in enumerate(reader.inputs):
            if operand is value:
                reader.set_input(place, copy)


def _again(name: str) -> str:
    return f"{name}_recompute"
