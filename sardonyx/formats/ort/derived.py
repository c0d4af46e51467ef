"""What an ORT file says besides the model itself, so that a runtime without op signatures can load it: who feeds whom, how actual
inputs fall on formal ones, what graphs inside a node take from outside, and what the type strings of each op stand for.

`writer` calls these functions. What an op is, formats do not know: whoever saves hands them `Definitions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sardonyx import ir
from sardonyx.formats.ort.tables import ArgType
from sardonyx.startup.records import dataclass, field

TypeStrings = Mapping[str, Sequence[Sequence[int]]]
"""For each type string of an op the arguments that it stands for: pairs of `ArgType` and formal position, in the order of lookup."""


@dataclass(frozen=True)
class Definition:
    """The op of a node as far as files tell it: the version in which it came to be, its type strings, defaults of its attributes."""

    domain: str
    name: str
    since_version: int
    type_strings: TypeStrings
    defaults: Mapping[str, ir.Attribute] = field(default_factory=dict)

    @property
    def op_id(self) -> str:
        return f"{self.domain}:{self.name}:{self.since_version}"

    @property
    def formal_inputs(self) -> int:
        """How many inputs the op declares; each of them stands behind one of the type strings."""
        positions = (at for arguments in self.type_strings.values() for side, at in arguments if side == ArgType.INPUT)
        return max(positions, default=-1) + 1


class Definitions(Protocol):
    """Knows ops."""

    def of(self, node: ir.Node) -> Definition:
        """The op of a node; raises if nobody knows it."""
        ...

    def of_id(self, op_id: str) -> Definition | None:
        """The op that `domain:op_type:since_version` names, None if nobody knows it."""
        ...


Edge = tuple[int, int, int]
"""The other node's slot, the position among the producer's outputs, the position among the consumer's inputs."""


def input_arg_counts(count: int, formal_inputs: int) -> list[int]:
    """How many of a node's `count` inputs belong to each formal one: all that is left to the last, which may be variadic."""
    if not formal_inputs:
        return []
    before = formal_inputs - 1
    return [1 if position < count else 0 for position in range(before)] + [max(count - before, 0)]


def edges(nodes: Mapping[ir.Node, int]) -> dict[ir.Node, tuple[list[Edge], list[Edge]]]:
    """Edges into and out of each node of one graph, whose slots `nodes` gives. Implicit inputs count on after the others."""
    incoming: dict[ir.Node, list[Edge]] = {node: [] for node in nodes}
    outgoing: dict[ir.Node, list[Edge]] = {node: [] for node in nodes}
    positions = {output: at for node in nodes for at, output in enumerate(node.outputs)}
    for node, slot in nodes.items():
        for at, value in enumerate((*node.inputs, *node.implicit_inputs())):
            producer = None if value is None else value.producer
            if value is not None and producer is not None and producer in nodes:
                incoming[node].append((nodes[producer], positions[value], at))
                outgoing[producer].append((slot, positions[value], at))
    return {node: (sorted(incoming[node]), sorted(outgoing[node])) for node in nodes}


def resolver(definitions: Iterable[Definition]) -> dict[str, Any]:
    """The KernelTypeStrResolver of a model: an entry for each op version, sorted as readers that search want it."""
    known = {definition.op_id: definition.type_strings for definition in definitions}
    return {
        "op_kernel_type_str_args": [
            {
                "op_id": op_id,
                "kernel_type_str_args": [
                    {"kernel_type_str": key, "args": [{"arg_type": int(side), "index": at} for side, at in arguments]}
                    for key, arguments in sorted(strings.items(), key=_by_bytes)
                ],
            }
            for op_id, strings in sorted(known.items(), key=_by_bytes)
        ]
    }


def _by_bytes(item: tuple[str, Any]) -> bytes:
    return item[0].encode("utf-8", "surrogateescape")
