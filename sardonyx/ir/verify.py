"""Whether a graph is in order: `verify` is called by tests after every change, and by whoever does not trust what it was given."""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.errors import InvalidGraph
from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.model import Function, Model
from sardonyx.ir.tensor import SparseTensor, Tensor
from sardonyx.ir.types import MapType, OpaqueType, OptionalType, SequenceType, SparseTensorType, TensorType
from sardonyx.startup.records import dataclass, field

_TYPES = (TensorType, SparseTensorType, SequenceType, MapType, OptionalType, OpaqueType)
_PYTHON_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.FLOAT: (float, int),
    Kind.INT: (int,),
    Kind.STRING: (str, bytes),
    Kind.TENSOR: (Tensor,),
    Kind.GRAPH: (Graph,),
    Kind.SPARSE_TENSOR: (SparseTensor,),
    Kind.TYPE_PROTO: _TYPES,
}
_LISTS = {
    Kind.FLOATS: Kind.FLOAT,
    Kind.INTS: Kind.INT,
    Kind.STRINGS: Kind.STRING,
    Kind.TENSORS: Kind.TENSOR,
    Kind.GRAPHS: Kind.GRAPH,
    Kind.SPARSE_TENSORS: Kind.SPARSE_TENSOR,
    Kind.TYPE_PROTOS: Kind.TYPE_PROTO,
}


@dataclass
class _Scope:
    """What the nodes of one graph may use: values made so far, here and around."""

    graph: Graph
    outer: _Scope | None = None
    in_function: bool = False
    known: set[Value] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def sees(self, value: Value) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if value in scope.known:
                return True
            scope = scope.outer
        return False


def verify(what: Model | Function | Graph) -> None:
    """Raise InvalidGraph, naming the place, if links, names, order or attributes are not in order."""
    if isinstance(what, Model):
        _verify_graph(_Scope(what.graph))
        for key, function in what.functions.items():
            if function.key != key:
                raise InvalidGraph(f"Function {function.key} is filed under {key}.")
            verify(function)
    elif isinstance(what, Function):
        _verify_graph(_Scope(what.graph, in_function=True))
    else:
        _verify_graph(_Scope(what, _scope_around(what), in_function=True))


def _scope_around(graph: Graph) -> _Scope | None:
    """For a graph by itself that is inside others: all that it may see of them."""
    if graph.parent is None or graph.parent.graph is None:
        return None
    around = graph.parent.graph
    scope = _Scope(around, _scope_around(around))
    scope.known.update(value for value in around.values() if value.producer is not graph.parent)
    return scope


def _verify_graph(scope: _Scope) -> None:
    graph = scope.graph
    for value in graph.inputs:
        if not value.is_input:
            raise InvalidGraph(_place(graph, f"input {value.name!r} does not know that it is one"))
        if value.producer is not None:
            raise InvalidGraph(_place(graph, f"input {value.name!r} is produced by {value.producer}"))
        _define(scope, value)
    for name, value in graph.initializers.items():
        _verify_initializer(scope, name, value)
    count = 0
    previous: Node | None = None
    for node in graph.nodes:
        if node.graph is not graph or node._previous is not previous:
            raise InvalidGraph(_place(graph, f"{node} is not linked to its neighbours"))
        _verify_node(scope, node)
        count, previous = count + 1, node
    if count != len(graph) or graph._last is not previous:
        raise InvalidGraph(_place(graph, f"it counts {len(graph)} nodes, but has {count}"))
    for value in graph.outputs:
        is_absent = scope.in_function and not value.name and value.producer is None
        if value not in scope.known and not is_absent:
            raise InvalidGraph(_place(graph, f"output {value.name!r} does not exist in the graph"))
    for value in scope.known:
        _verify_uses(graph, value)


def _verify_initializer(scope: _Scope, name: str, value: Value) -> None:
    if value.name != name:
        raise InvalidGraph(_place(scope.graph, f"initializer {value.name!r} is filed under {name!r}"))
    if value.constant is None:
        raise InvalidGraph(_place(scope.graph, f"initializer {name!r} has no data"))
    if value.producer is not None:
        raise InvalidGraph(_place(scope.graph, f"initializer {name!r} is produced by {value.producer}"))
    if value not in scope.known:
        if value.is_input:
            raise InvalidGraph(_place(scope.graph, f"initializer {name!r} takes itself for an input"))
        _define(scope, value)


def _define(scope: _Scope, value: Value) -> None:
    if value.graph is not scope.graph:
        raise InvalidGraph(_place(scope.graph, f"{value.name!r} does not know its graph"))
    if value in scope.known or (value.name and value.name in scope.names):
        raise InvalidGraph(_place(scope.graph, f"Duplicate definition of name ({value.name})"))
    if not value.name and value.producer is None:
        raise InvalidGraph(_place(scope.graph, "an input or initializer has no name"))
    scope.known.add(value)
    scope.names.add(value.name)


def _verify_node(scope: _Scope, node: Node) -> None:
    for position, value in enumerate(node.inputs):
        if value is None:
            continue
        if (node, position) not in value.uses:
            raise InvalidGraph(f"{node}: input {value.name!r} does not know of this use.")
        if not scope.sees(value):
            raise InvalidGraph(
                f"{node}: input {value.name!r} is not known here; it comes later, or from a graph not around this one."
            )
    for name, attribute in node.attributes.items():
        _verify_attribute(scope, node, name, attribute)
    for output in node.outputs:
        if output.producer is not node:
            raise InvalidGraph(f"{node}: output {output.name!r} takes {output.producer} for its producer.")
        if not output.name and output.uses:
            raise InvalidGraph(f"{node}: an output without a name is used by {output.users[0]}.")
        _define(scope, output)


def _verify_attribute(scope: _Scope, node: Node, name: str, attribute: Attribute) -> None:
    if attribute.reference is not None:
        if not scope.in_function:
            raise InvalidGraph(
                f"{node}: attribute '{name}' refers to '{attribute.reference}', which is possible inside a function only."
            )
        return
    single = _LISTS.get(attribute.kind, attribute.kind)
    values = attribute.value if attribute.kind in _LISTS else [attribute.value]
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, _PYTHON_TYPES[single]) for value in values):
        raise InvalidGraph(f"{node}: attribute '{name}' is of kind {attribute.kind.name}, but holds {attribute.value!r}.")
    if single is Kind.GRAPH:
        for graph in values:
            if graph.parent is not node:
                raise InvalidGraph(f"{node}: graph {graph.name!r} in attribute '{name}' takes {graph.parent} for its node.")
            _verify_graph(_Scope(graph, scope, scope.in_function))


def _verify_uses(graph: Graph, value: Value) -> None:
    for node, position in value.uses:
        if position >= len(node.inputs) or node.inputs[position] is not value:
            raise InvalidGraph(_place(graph, f"{value.name!r} believes to be input {position} of {node}, but is not"))
        if node.graph is None or not _is_inside(node.graph, graph):
            raise InvalidGraph(_place(graph, f"{value.name!r} is used by {node}, which is not in this graph or one inside it"))


def _is_inside(inner: Graph, outer: Graph) -> bool:
    return any(graph is outer for graph in _chain(inner))


def _chain(graph: Graph | None) -> Iterable[Graph]:
    while graph is not None:
        yield graph
        graph = graph.parent.graph if graph.parent is not None else None


def _place(graph: Graph, fault: str) -> str:
    return f"Graph {graph.name!r}: {fault}."
