"""Copies at the borders of devices: after partition, values that cross from one memory to another go through a node of their own.

The nodes are named as in onnxruntime: MemcpyToHost and MemcpyFromHost. Subgraphs copy what they capture by themselves; their inputs and
outputs are the host's, and so are those of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sardonyx.errors import EPFail
from sardonyx.ir import Graph, Node, Value
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.preparation.partition import Assigned, Assignment
from sardonyx.startup.records import replace

HOST = "cpu"
TO_HOST = "MemcpyToHost"
FROM_HOST = "MemcpyFromHost"


def is_copy(node: Node) -> bool:
    """Whether a node is one of ours and not the model's."""
    return node.op_type in (TO_HOST, FROM_HOST) and not node.domain and not node.version


def insert_copies(assigned: Assigned) -> Assigned:
    """The same assignments with copies between them where devices meet. The graphs get a node for each."""
    makers = {
        output: assignment.provider
        for assignments in assigned.values()
        for assignment in assignments
        if assignment.provider.device != HOST
        for node in assignment.nodes
        for output in node.outputs
    }
    if not makers and not any(
        assignment.provider.device != HOST for assignments in assigned.values() for assignment in assignments
    ):
        return assigned
    on_devices = list(makers.items())
    crossed = {graph: _Border(graph, makers).crossed(assignments) for graph, assignments in assigned.items()}
    for value, provider in on_devices:
        if value.name:  # by its name a value is fetched, and only what lies on the host can be
            value.name = f"{value.name}_{provider.name}"
    return crossed


class _Border:
    """The copies of one graph, each value at most once per direction and device."""

    def __init__(self, graph: Graph, makers: dict[Value, ExecutionProvider]):
        self.graph = graph
        self.makers = makers
        self.first = next(graph.nodes, None)
        self.on_host: dict[Value, Value] = {}
        self.on_device: dict[tuple[Value, str], Value] = {}
        self.copies: list[Assignment] = []

    def crossed(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        moved = [self._fed(assignment) for assignment in assignments]
        self.graph.outputs = [self._output(value) for value in self.graph.outputs]
        return [*moved, *self.copies]

    def _fed(self, assignment: Assignment) -> Assignment:
        """Give an assignment all that it reads on its own device."""
        provider, cluster = assignment.provider, assignment.cluster
        if provider.device != HOST and cluster is None and any(True for _ in assignment.nodes[0].subgraphs):
            raise EPFail(f"{provider.name} claims {assignment.nodes[0]} on {provider.device}; subgraphs run on the host")
        entering = dict.fromkeys(assignment.nodes[0].inputs if cluster is None else cluster.inputs)
        moved = {value: self._on(value, provider) for value in entering if value is not None}
        for node in assignment.nodes if cluster is None else _with_inner(assignment.nodes):
            for position, value in enumerate(node.inputs):
                if value is not None and moved.get(value, value) is not value:
                    node.set_input(position, moved[value])
        if cluster is None:
            return assignment
        return replace(assignment, cluster=replace(cluster, inputs=[moved[value] for value in cluster.inputs]))

    def _on(self, value: Value, provider: ExecutionProvider) -> Value:
        maker = self.makers.get(value)
        if (HOST if maker is None else maker.device) == provider.device:
            return value
        on_host = value if maker is None else self._to_host(value, maker)
        return on_host if provider.device == HOST else self._from_host(on_host, provider)

    def _to_host(self, value: Value, maker: ExecutionProvider) -> Value:
        if value not in self.on_host:
            self.on_host[value] = self._copy(TO_HOST, value, value.name, maker, maker.to_host)
        return self.on_host[value]

    def _from_host(self, value: Value, provider: ExecutionProvider) -> Value:
        key = value, provider.device
        if key not in self.on_device:
            copy = _Once(provider.from_host) if value.is_constant else provider.from_host
            self.on_device[key] = copied = self._copy(FROM_HOST, value, f"{value.name}_{provider.name}", provider, copy)
            self.makers[copied] = provider
        return self.on_device[key]

    def _copy(self, op_type: str, value: Value, name: str, provider: ExecutionProvider, copy: Callable[[Any], Any]) -> Value:
        result = Value(name, value.type)
        node = Node(op_type, [value], [result], name=f"{op_type}_{value.name}")
        if value.producer is not None and value.producer.graph is self.graph:
            self.graph.insert_after(value.producer, node)
        elif self.first is not None:
            self.graph.insert_before(self.first, node)
        else:
            self.graph.append(node)
        self.copies.append(Assignment(provider, [node], call=lambda inputs: [_each(copy, inputs[0])]))
        return result

    def _output(self, value: Value) -> Value:
        maker = self.makers.get(value)
        if maker is None:
            return value
        on_host = self._to_host(value, maker)
        on_host.declared = value.declared
        return on_host


def _with_inner(nodes: Sequence[Node]) -> list[Node]:
    return [*nodes, *(inner for node in nodes for graph in node.subgraphs for inner in graph.all_nodes())]


class _Once:
    """A copy of a constant: made in the first run, the same in all later ones."""

    def __init__(self, copy: Callable[[Any], Any]):
        self._copy = copy
        self._made: Any = None

    def __call__(self, array: Any) -> Any:
        if self._made is None:  # two runs at once may both copy; either copy will do
            self._made = self._copy(array)
        return self._made


def _each(copy: Callable[[Any], Any], value: Any) -> Any:
    """A copy of a tensor, of each tensor of a sequence, or of nothing."""
    if value is None:
        return None
    return [_each(copy, item) for item in value] if isinstance(value, list) else copy(value)
