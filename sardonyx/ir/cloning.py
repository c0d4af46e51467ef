"""Copies of nodes and graphs, and new names for what is in them. `ir.edit` inlines functions with it, passes unroll and specialize."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from sardonyx.errors import Fail
from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.graph import Graph, Node, Value, all_graphs
from sardonyx.ir.model import Function, Model
from sardonyx.startup.records import dataclass, field


def unique_name(wanted: str, is_taken: Callable[[str], bool]) -> str:
    """`wanted`, or that with the first number that makes it new."""
    if not is_taken(wanted):
        return wanted
    return next(name for name in (f"{wanted}_{number}" for number in itertools.count(1)) if not is_taken(name))


class Names:
    """The names of values and of nodes that a graph and all graphs inside it use; gives out new ones."""

    def __init__(self, graph: Graph | None = None):
        self.values: set[str] = set()
        self.nodes: set[str] = set()
        self._counts: dict[tuple[int, str], int] = {}
        if graph is not None:
            self.add(graph)

    def add(self, graph: Graph) -> None:
        """Take note of all names in `graph`."""
        for inner in all_graphs(graph):
            self.values.update(value.name for value in inner.values())
            self.nodes.update(node.name for node in inner.nodes)

    def value(self, wanted: str) -> str:
        """A new name for a value, `wanted` if it is free."""
        return self._new(wanted or "value", self.values)

    def node(self, wanted: str) -> str:
        """A new name for a node."""
        return self._new(wanted or "node", self.nodes)

    def _new(self, wanted: str, taken: set[str]) -> str:
        name, key = wanted, (id(taken), wanted)
        while name in taken:
            self._counts[key] = self._counts.get(key, 0) + 1
            name = f"{wanted}_{self._counts[key]}"
        taken.add(name)
        return name


def _same(name: str) -> str:
    return name


@dataclass
class Cloner:
    """Copies nodes and graphs. `values` maps what is copied or replaced; any other value of outside stays itself."""

    values: dict[Value, Value | None] = field(default_factory=dict)
    value_name: Callable[[str], str] = _same
    node_name: Callable[[str], str] = _same
    resolve: Callable[[str, Attribute], Attribute | None] | None = None
    """What an attribute that refers to one of the function around it becomes; None drops it."""
    node_limit: int = 2**62
    """How many nodes may still be made before it is too much."""

    def value(self, value: Value) -> Value:
        """A new value like `value`, without producer and uses."""
        copy = Value(self.value_name(value.name) if value.name else "", value.type, value.constant)
        copy.declared, copy.known, copy.sparse, copy.doc = value.declared, value.known, value.sparse, value.doc
        copy.metadata, copy.denotation = dict(value.metadata), value.denotation
        self.values[value] = copy
        return copy

    def node(self, node: Node, outputs: Iterable[Value] | None = None) -> Node:
        """A new node like `node`, in no graph; its outputs are new too if none are given."""
        self.node_limit -= 1
        if self.node_limit < 0:
            raise Fail(f"{node}: expanding functions gives too many nodes.")
        copy = Node(
            node.op_type,
            [None if value is None else self.values.get(value, value) for value in node.inputs],
            [self.value(value) for value in node.outputs] if outputs is None else list(outputs),
            self._attributes(node),
            domain=node.domain,
            version=node.version,
            name=self.node_name(node.name) if node.name else "",
            overload=node.overload,
        )
        copy.doc, copy.metadata = node.doc, dict(node.metadata)
        return copy

    def _attributes(self, node: Node) -> dict[str, Attribute]:
        copies = {}
        for name, attribute in node.attributes.items():
            resolved: Attribute | None = attribute
            if attribute.reference is not None and self.resolve is not None:
                resolved = self.resolve(name, attribute)
            if resolved is not None:
                copies[name] = self.attribute(resolved)
        return copies

    def attribute(self, attribute: Attribute) -> Attribute:
        """A copy; graphs in it are copied, tensors and types, which never change, are not."""
        value = attribute.value
        if attribute.kind is Kind.GRAPH and value is not None:
            value = self.graph(value)
        elif attribute.kind is Kind.GRAPHS and value is not None:
            value = [self.graph(body) for body in value]
        elif isinstance(value, list):
            value = list(value)
        return Attribute(attribute.kind, value, attribute.reference, attribute.doc)

    def graph(self, graph: Graph) -> Graph:
        """A copy with everything in it. Recursion goes as deep as graphs nest."""
        copy = Graph(graph.name, [self.value(value) for value in graph.inputs])
        copy.doc, copy.metadata = graph.doc, dict(graph.metadata)
        for value in graph.initializers.values():
            own = self.values[value] if value.is_input else self.value(value)
            assert own is not None
            own.graph = copy
            copy.initializers[own.name] = own
        for node in graph.nodes:
            copy.append(self.node(node))
        copy.outputs = [self.values.get(value, value) or value for value in graph.outputs]
        copy.quantization = {
            self._renamed(graph, name): {key: self._renamed(graph, other) for key, other in parameters.items()}
            for name, parameters in graph.quantization.items()
        }
        return copy

    def _renamed(self, graph: Graph, name: str) -> str:
        """The new name of a value that an annotation of `graph` calls `name`."""
        if self.value_name is _same:
            return name
        value_named = next((value for value in graph.values() if value.name == name), None)
        copy = self.values.get(value_named) if value_named is not None else None
        return copy.name if copy is not None else name


def clone_graph(graph: Graph, values: dict[Value, Value | None] | None = None) -> Graph:
    """A deep copy. Values of outside that `values` maps are replaced; afterwards it maps all that was copied too."""
    return Cloner(values if values is not None else {}).graph(graph)


def clone_function(function: Function) -> Function:
    return Function(
        function.domain,
        function.name,
        clone_graph(function.graph),
        dict(function.opsets),
        list(function.required_attributes),
        {name: Cloner().attribute(attribute) for name, attribute in function.default_attributes.items()},
        function.overload,
        function.doc,
        dict(function.metadata),
    )


def clone_model(model: Model) -> Model:
    """A deep copy that shares tensors only. Saved optimizations, which speak of nodes, are left out."""
    return Model(
        clone_graph(model.graph),
        dict(model.opsets),
        model.ir_version,
        {key: clone_function(function) for key, function in model.functions.items()},
        model.producer_name,
        model.producer_version,
        model.domain,
        model.model_version,
        model.doc,
        dict(model.metadata),
        model.path,
        model.folder,
        model.ort_version,
        model.stored_types,
    )
