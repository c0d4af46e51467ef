"""Into how many parts a provider that takes some ops alone cuts a graph, and which nodes it leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto

from sardonyx.tools.mobile_helpers.supported_ops import SupportedOps
from sardonyx.tools.onnx_model_utils import NodesByNode, get_producer_consumer_maps, is_fixed_size_tensor


def op_of(node: NodeProto) -> str:
    """An op as the lists name it."""
    return f"{node.domain or 'ai.onnx'}:{node.op_type}"


@dataclass
class Partition:
    """What a provider would make of some graphs."""

    groups: list[list[NodeProto]] = field(default_factory=list)
    """Nodes that it would run together."""
    node_count: int = 0
    other_ops: list[NodeProto] = field(default_factory=list)
    """Nodes that it does not take because of their ops, because sizes are open, and because inputs have too many axes."""
    open_sizes: list[NodeProto] = field(default_factory=list)
    high_ranks: list[NodeProto] = field(default_factory=list)


class Partitioner:
    """Cuts a graph and those inside of it, one by one."""

    def __init__(self, supported: SupportedOps, graph: GraphProto, needs_fixed_sizes: bool):
        self.supported = supported
        self.needs_fixed_sizes = needs_fixed_sizes
        self.producers, self.consumers = get_producer_consumer_maps(graph)
        self.graph = graph

    def parts(self) -> Iterator[Partition]:
        """What becomes of the graph, then of each one inside."""
        yield from self._parts(self.graph, {})

    def _parts(self, graph: GraphProto, around: Mapping[str, ValueInfoProto | None]) -> Iterator[Partition]:
        known: dict[str, ValueInfoProto | None] = dict(around)
        known |= {tensor.name: None for tensor in graph.initializer}
        known |= {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
        yield self._cut(graph, known)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    yield from self._parts(attribute.g, known)

    def _cut(self, graph: GraphProto, known: Mapping[str, ValueInfoProto | None]) -> Partition:
        """A part grows as long as nodes can follow that are taken; one that is not, and reads of the part, waits for its end."""
        part = Partition(node_count=len(graph.node))
        missing = {id(node): len(self.producers.of(node)) for node in graph.node}
        ready = deque(node for node in graph.node if not missing[id(node)])
        waiting: deque[NodeProto] = deque()
        group: list[NodeProto] = []
        border: set[int] = set()
        while ready or waiting:
            if not ready:
                ready, waiting = waiting, ready
                part.groups += [group] if group else []
                group, border = [], set()
                continue
            node = ready.popleft()
            reasons = self._refusals(node, known)
            if reasons and id(node) in border:
                waiting.append(node)
                continue
            for reason in reasons:
                getattr(part, reason).append(node)
            if not reasons:
                group.append(node)
                border |= {id(reader) for reader in self.consumers.of(node)}
            ready += _released(self.consumers, node, missing)
        part.groups += [group] if group else []
        return part

    def _refusals(self, node: NodeProto, known: Mapping[str, ValueInfoProto | None]) -> list[str]:
        """The lists of a partition to which a node that is not taken belongs."""
        reasons = [] if op_of(node) in self.supported.ops else ["other_ops"]
        if self.needs_fixed_sizes and not all(_is_fixed(name, known) for name in node.input):
            reasons.append("open_sizes")
        rank = _rank(node, known if self.needs_fixed_sizes else {})
        if self.supported.max_rank is not None and rank > self.supported.max_rank:
            reasons.append("high_ranks")
        return reasons


def _released(consumers: NodesByNode, node: NodeProto, missing: dict[int, int]) -> list[NodeProto]:
    """Readers of a node that wait for nothing else."""
    released = []
    for reader in consumers.of(node):
        if id(reader) in missing:
            missing[id(reader)] -= 1
            if not missing[id(reader)]:
                released.append(reader)
    return released


def _is_fixed(name: str, known: Mapping[str, ValueInfoProto | None]) -> bool:
    if not name:
        return True
    value = known.get(name)
    return name in known if value is None else is_fixed_size_tensor(value)


def _rank(node: NodeProto, known: Mapping[str, ValueInfoProto | None]) -> int:
    """How many axes the input with most of them has; a Transpose tells it where nothing else does."""
    values = [value for name in node.input if (value := known.get(name)) is not None]
    orders = [attribute.ints for attribute in node.attribute if node.op_type == "Transpose" and attribute.name == "perm"]
    ranks = [len(value.type.tensor_type.shape.dim) for value in values if value.type.HasField("tensor_type")]
    return max([*ranks, *map(len, orders)], default=0)
