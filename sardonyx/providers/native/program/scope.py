"""What is known of values and nodes while those of one graph are lowered. A graph inside a node has a scope of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.ir import Graph, Node, Value
from sardonyx.providers.native.program.held import HeldSequence
from sardonyx.providers.native.program.sizes import Sizes
from sardonyx.providers.native.program.steps import Buffer, Program
from sardonyx.providers.native.program.values import bytes_of, dims
from sardonyx.providers.native.program.views import View, contiguous_view
from sardonyx.startup.records import dataclass, field

if TYPE_CHECKING:
    from sardonyx.providers.native.program.expression import Operation


@dataclass(frozen=True)
class Delayed:
    """What elementwise operations are to make of another value, which is in memory. The one node that reads it does so on the way."""

    source: Value
    operations: Sequence[Operation]


@dataclass
class Scope:
    """Nodes and what has become of their values so far."""

    members: set[Node]
    """The nodes of the graph, and those that stand for composed ones."""
    wanted: set[Value]
    """Values that somebody reads when all nodes are done."""
    places: dict[Value, Buffer] = field(default_factory=dict)
    """Where values are wanted."""
    views: dict[Value, View] = field(default_factory=dict)
    joints: dict[Node, View] = field(default_factory=dict)
    """Results of Concat nodes whose parts are written right into them."""
    packed_views: dict[Hashable, Any] = field(default_factory=dict)
    """Views of what steps pack in each run, for other steps that need the same."""
    pending: dict[Value, Node] = field(default_factory=dict)
    """Elementwise nodes whose values nobody has needed yet."""
    held: dict[Value, set[Value]] = field(default_factory=dict)
    """Values of full size that wait in memory for a pending one."""
    delayed: dict[Value, Delayed] = field(default_factory=dict)
    expansions: dict[Value, Any] = field(default_factory=dict)
    """Values that are computed by the one convolution that reads them, with what `conv.fused` needs to do so."""
    absorbed: set[Node] = field(default_factory=set)
    """Nodes that a kernel before them has taken along."""
    divisors: set[Value] = field(default_factory=set)
    """Those that a step looks at."""
    sequences: dict[Value, HeldSequence] = field(default_factory=dict)
    contents: dict[Value, Value | None] = field(default_factory=dict)
    """What optional values have in them, None for nothing."""

    def inner(self, graph: Graph, places: Mapping[Value, Buffer]) -> Scope:
        """That of a graph inside a node: what is in memory is known there, what is pending is not."""
        return Scope(
            set(graph.nodes),
            set(graph.outputs),
            dict(places),
            dict(self.views),
            dict(self.joints),
            dict(self.packed_views),
            divisors=set(self.divisors),
            sequences=dict(self.sequences),
            contents=dict(self.contents),
        )


def outermost(program: Program, nodes: Iterable[Node], sizes: Sizes) -> Scope:
    """That of a program's own nodes, in which inputs and outputs have their places."""
    scope = Scope(set(nodes), set(program.outputs))
    for index, value in enumerate(program.inputs):
        scope.views[value] = contiguous_view(value, Buffer(value.name, bytes_of(value), "input", index))
    for index, value in enumerate(program.outputs):
        scope.places[value] = _place_of(program, value, index, sizes)
    return scope


def _place_of(program: Program, value: Value, index: int, sizes: Sizes) -> Buffer:
    """Where an output of the program is to be; in the arena if only a run tells how large it is."""
    if sizes.data_sizes_in(dims(value)):
        return program.loose.setdefault(index, Buffer(value.name, bytes_of(value)))
    return Buffer(value.name, bytes_of(value), "output", index)
