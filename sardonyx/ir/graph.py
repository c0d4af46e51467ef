"""Values, nodes and graphs, linked both ways: a value knows its producer and all its uses, always.

A node of an inner graph uses a value of an outer one directly, so scopes need no names. Whoever changes a graph does it through
the methods here and the functions of `ir.edit`, which keep the links true.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.tensor import SparseTensor, Tensor
from sardonyx.ir.types import Type, described

_GRAPHS = (Kind.GRAPH, Kind.GRAPHS)

Denotation = tuple[str, tuple[str, ...]]
"""Words for a type and for each of its sizes, such as IMAGE and DATA_BATCH; empty where there is none."""


def _graphs_of(attribute: Attribute) -> list[Graph]:
    if attribute.value is None:
        return []
    return [attribute.value] if attribute.kind is Kind.GRAPH else list(attribute.value)


def _makers(values: Iterable[Value | None]) -> list[Node]:
    return [value.producer for value in values if value is not None and value.producer is not None]


class Value:
    """Something that flows: a graph input, an initializer, or an output of a node."""

    __slots__ = (
        "name",
        "type",
        "declared",
        "known",
        "inferred",
        "producer",
        "uses",
        "constant",
        "sparse",
        "graph",
        "is_input",
        "doc",
        "metadata",
        "denotation",
        "__weakref__",
    )

    def __init__(self, name: str, type: Type | None = None, constant: Tensor | None = None):
        self.name = name
        self.type = type
        self.declared: Type | None = type
        """What the model's file said of the type; inference never changes it."""
        self.inferred: Type | None = None
        """What inference found, where the type says more because the model declares it; nobody has checked that."""
        self.known: np.ndarray | None = None
        """What inference found of the content: numbers, or an object array with symbolic sizes among them."""
        self.producer: Node | None = None
        self.uses: dict[tuple[Node, int], None] = {}
        """(node, input position) pairs, in the order in which they came."""
        self.constant = constant
        self.sparse: SparseTensor | None = None
        """The initializer as the file has it, when it is sparse; `constant` is then its dense form."""
        self.graph: Graph | None = None
        self.is_input = False
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self.denotation: Denotation | None = None
        """What the file says its type and each of its sizes stand for."""

    @property
    def users(self) -> list[Node]:
        """The nodes that use this value, each once."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same in each run: an initializer that no feed can replace."""
        return self.constant is not None and not self.is_input

    @property
    def is_graph_output(self) -> bool:
        return self.graph is not None and self in self.graph.outputs

    def __repr__(self) -> str:
        return f"Value({self.name!r}, {described(self.type)})"


class Node:
    """One application of an op. `version` is the opset of `domain` that it was written for."""

    __slots__ = (
        "op_type",
        "domain",
        "version",
        "overload",
        "name",
        "attributes",
        "doc",
        "metadata",
        "graph",
        "inputs",
        "outputs",
        "_inputs",
        "_outputs",
        "_previous",
        "_next",
        "__weakref__",
    )

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Value | None] = (),
        outputs: Sequence[Value | str] = ("",),
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        version: int = 0,
        name: str = "",
        overload: str = "",
    ):
        self.op_type = op_type
        self.domain = domain
        self.version = version
        self.overload = overload
        self.name = name
        self.attributes: dict[str, Attribute] = {}
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self.graph: Graph | None = None
        self._inputs: list[Value | None] = list(inputs)
        self._outputs: list[Value] = []
        self.inputs: Sequence[Value | None] = self._inputs
        """Operands by position, None where an optional one is left out. Change them with `set_input`."""
        self.outputs: Sequence[Value] = self._outputs
        """Results by position; one that is not wanted has an empty name."""
        self._previous: Node | None = None
        self._next: Node | None = None
        for key, value in (attributes or {}).items():
            self.attributes[key] = value if isinstance(value, Attribute) else Attribute.of(value)
        for position, operand in enumerate(inputs):
            if operand is not None:
                operand.uses[self, position] = None
        for output in outputs:
            self.append_output(Value(output) if isinstance(output, str) else output)

    def append_input(self, value: Value | None) -> None:
        self._inputs.append(None)
        self.set_input(len(self._inputs) - 1, value)

    def append_output(self, value: Value) -> None:
        if value.producer is not None:
            raise ValueError(f"{value.name!r} is produced by {value.producer} already")
        value.producer = self
        value.graph = self.graph
        self._outputs.append(value)

    def set_input(self, position: int, value: Value | None) -> None:
        """Make `value` the operand at `position`."""
        old = self._inputs[position]
        if old is not None:
            del old.uses[self, position]
        self._inputs[position] = value
        if value is not None:
            value.uses[self, position] = None
        if self.graph is not None and self.graph.edited is not None:
            self.graph.edited += [self, *_makers((old, value))]

    def resize_inputs(self, count: int) -> None:
        """Drop operands from the end, or add left-out ones."""
        dropped = self._inputs[count:]
        for position, value in enumerate(dropped, count):
            if value is not None:
                del value.uses[self, position]
        del self._inputs[count:]
        self._inputs.extend([None] * (count - len(self._inputs)))
        if self.graph is not None and self.graph.edited is not None:
            self.graph.edited += [self, *_makers(dropped)]

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's value, or `default` where the node does not set it."""
        attribute = self.attributes.get(name)
        return default if attribute is None else attribute.value

    @property
    def subgraphs(self) -> Iterator[Graph]:
        """The graphs among the attributes."""
        for attribute in self.attributes.values():
            if attribute.kind in _GRAPHS:
                yield from _graphs_of(attribute)

    def implicit_inputs(self) -> list[Value]:
        """Values of the surrounding graphs that the subgraphs use."""
        captured: dict[Value, None] = {}
        for graph in self.subgraphs:
            captured.update(dict.fromkeys(graph.captured()))
        return list(captured)

    def release(self) -> None:
        """Give up all uses of values, before a node that is in no graph any more is thrown away."""
        self.resize_inputs(0)
        for output in self._outputs:
            if output.producer is self:  # else another node makes it now
                output.producer = output.graph = None
        for graph in self.subgraphs:
            graph.release()

    @property
    def op_id(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def __str__(self) -> str:
        name = self.name or next((output.name for output in self._outputs if output.name), "")
        return f"{self.op_id} '{name}'"

    def __repr__(self) -> str:
        return f"<{self}>"


class Graph:
    """Nodes in topological order with inputs, outputs and initializers."""

    def __init__(self, name: str = "", inputs: Iterable[Value] = (), outputs: Iterable[Value] = ()):
        self.name = name
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self.inputs: list[Value] = []
        self.outputs: list[Value] = list(outputs)
        self.initializers: dict[str, Value] = {}
        self.quantization: dict[str, dict[str, str]] = {}
        """Quantization annotations as the file has them: for a value's name, the names of its scale and zero point values by key."""
        self.parent: Node | None = None
        """The node whose attribute this graph is, None for a model's main graph or a function's body."""
        self.edited: list[Node] | None = None
        """Nodes that are new, or have got or lost operands or users, as that happens; None while nobody wants to know."""
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0
        for value in inputs:
            self.add_input(value)

    # --- inputs and initializers

    def add_input(self, value: Value) -> Value:
        value.graph = self
        value.is_input = True
        self.inputs.append(value)
        return value

    def add_initializer(self, name: str, tensor: Tensor) -> Value:
        """Make a constant known; an input of the same name gets it as its default."""
        value = next((known for known in self.inputs if known.name == name), None) or Value(name, tensor.type)
        value.constant = tensor
        value.type = value.type or tensor.type
        value.graph = self
        self.initializers[name] = value
        return value

    def remove_initializer(self, value: Value) -> None:
        if self.initializers.get(value.name) is value:
            del self.initializers[value.name]
        value.constant = None

    # --- nodes

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes in order; the one just given may be removed while iterating."""
        node = self._first
        while node is not None:
            following = node._next
            yield node
            node = following

    def __len__(self) -> int:
        return self._count

    def append(self, node: Node) -> Node:
        return self._link(node, self._last, None)

    def insert_before(self, anchor: Node, node: Node) -> Node:
        return self._link(node, anchor._previous, anchor)

    def insert_after(self, anchor: Node, node: Node) -> Node:
        return self._link(node, anchor, anchor._next)

    def _link(self, node: Node, previous: Node | None, following: Node | None) -> Node:
        if node.graph is not None:
            raise ValueError(f"{node} belongs to a graph already")
        node.graph, node._previous, node._next = self, previous, following
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if following is None:
            self._last = node
        else:
            following._previous = node
        for output in node.outputs:
            output.graph = self
        for graph in node.subgraphs:
            graph.parent = node
        self._count += 1
        if self.edited is not None:
            self.edited += [node, *_makers(node.inputs)]
        return node

    def unlink(self, node: Node) -> None:
        """Take a node out of the order and leave its links to values as they are."""
        if node.graph is not self:
            raise ValueError(f"{node} is not in graph {self.name!r}")
        if node._previous is None:
            self._first = node._next
        else:
            node._previous._next = node._next
        if node._next is None:
            self._last = node._previous
        else:
            node._next._previous = node._previous
        node.graph = node._previous = node._next = None
        self._count -= 1

    def remove(self, node: Node) -> None:
        """Remove a node whose outputs nobody uses."""
        for output in node.outputs:
            if output.uses or output.is_graph_output:
                raise ValueError(f"{node} cannot be removed, its output {output.name!r} is used")
        node.resize_inputs(0)
        self.unlink(node)
        node.release()

    def release(self) -> None:
        """Cut all links, before the graph is thrown away: what it holds goes with its last holder, not with the next collection."""
        self.edited = self.parent = None
        for node in list(self.nodes):
            self.unlink(node)
            node.release()
        for value in (*self.inputs, *self.initializers.values()):
            value.graph = value.constant = value.sparse = None
            value.uses.clear()  # by nodes that were not finished

    def reorder(self, nodes: Sequence[Node]) -> None:
        """Put the nodes into another order; they must be the same nodes."""
        if len(nodes) != self._count or {id(node) for node in nodes} != {id(node) for node in self.nodes}:
            raise ValueError("a new order must hold the same nodes")
        for previous, node in zip((None, *nodes), (*nodes, None), strict=True):
            if previous is not None:
                previous._next = node
            if node is not None:
                node._previous = previous
        self._first, self._last = (nodes[0], nodes[-1]) if nodes else (None, None)

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of this graph and of all graphs inside it."""
        stack = [self.nodes]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            yield node
            for attribute in node.attributes.values():
                if attribute.kind in _GRAPHS:
                    stack.extend(graph.nodes for graph in _graphs_of(attribute))

    def inner_graphs(self) -> Iterator[Graph]:
        """The graphs among the attributes of this graph's own nodes."""
        for node in self.nodes:
            for attribute in node.attributes.values():
                if attribute.kind in _GRAPHS:
                    yield from _graphs_of(attribute)

    def values(self) -> Iterator[Value]:
        """Inputs, initializers and outputs of nodes, each once."""
        seen: set[int] = set()
        for value in (*self.inputs, *self.initializers.values()):
            if id(value) not in seen:
                seen.add(id(value))
                yield value
        for node in self.nodes:
            yield from node.outputs

    def captured(self) -> list[Value]:
        """Values from outside that this graph or one inside it uses."""
        own = {id(value) for value in self.values()}
        captured: dict[Value, None] = {}
        for node in self.nodes:
            for value in (*node.inputs, *node.implicit_inputs()):
                if value is not None and id(value) not in own:
                    captured[value] = None
        for value in self.outputs:
            if id(value) not in own:
                captured[value] = None
        return list(captured)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self._count} nodes)"


def all_graphs(graph: Graph) -> Iterable[Graph]:
    """The graph and all graphs inside it."""
    stack = [graph]
    while stack:
        graph = stack.pop()
        yield graph
        stack.extend(graph.inner_graphs())


@contextlib.contextmanager
def released_on_failure(graph: Graph) -> Iterator[Graph]:
    """Throw a graph away if something fails while it is made: nobody else could."""
    try:
        yield graph
    except BaseException:
        graph.release()
        raise
