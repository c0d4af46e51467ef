"""Names and what they mean in graphs inside graphs: readers look names up in a Scope, writers get them from ScopedNames."""

from __future__ import annotations

from sardonyx.errors import Fail, InvalidGraph
from sardonyx.ir.cloning import unique_name
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.startup.records import dataclass, field

MAX_DEPTH = 64
"""How deep graphs may nest; protobuf's own parser stops at about half of it."""


@dataclass
class Scope:
    """The names of one graph while it is read, and the scope around it. An inner name hides an outer one."""

    outer: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)
    later: set[str] = field(default_factory=set)
    """Outputs of nodes that have not been read yet."""
    is_sorted: bool = True
    depth: int = 0

    @staticmethod
    def inside(outer: Scope | None, graph_name: str) -> Scope:
        """A scope for a graph inside the one of `outer`, or for an outermost one."""
        depth = outer.depth + 1 if outer is not None else 0
        if depth > MAX_DEPTH:
            raise Fail(f"Graph '{graph_name}' is nested deeper than {MAX_DEPTH} levels.")
        return Scope(outer, depth=depth)

    def define(self, name: str) -> Value:
        """A new value, which must be the first of this name here."""
        if name in self.values:
            raise Fail(f"This is an invalid model. Error: Duplicate definition of name ({name}).")
        value = self.values[name] = Value(name)
        return value

    def define_later(self, name: str) -> None:
        """A new value whose node is still to come."""
        self.define(name)
        self.later.add(name)

    def find(self, name: str) -> Value | None:
        """The innermost value of that name."""
        scope: Scope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                if name in scope.later:
                    scope.is_sorted = False
                return value
            scope = scope.outer
        return None

    def find_output(self, name: str, graph: Graph, opset: int) -> Value | None:
        """The value that is the graph's output `name`.

        One of an outer graph goes through an Identity, so that each graph's outputs are its own.
        """
        value = self.find(name)
        if value is None or name in self.values:
            return value
        own = self.define(unique_name(f"{name}/returned", lambda wanted: self.find(wanted) is not None))
        graph.append(Node("Identity", [value], [own], version=opset))
        return own


@dataclass
class ScopedNames:
    """Names of values in one graph while it is written. What has none gets one, and an inner value does not hide an outer one."""

    outer: ScopedNames | None = None
    names: dict[Value, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @staticmethod
    def of(graph: Graph, outer: ScopedNames | None = None) -> ScopedNames:
        """The names of all values of `graph`. Those of an outermost graph's inputs and outputs are its interface and stay."""
        names = ScopedNames(outer)
        for value in (*graph.inputs, *graph.outputs):
            names._assign(value, keep=outer is None and bool(value.name))
        for value in graph.initializers.values():
            names._assign(value)
        for node in graph.nodes:
            for value in node.outputs:
                names._assign(value)
        return names

    @staticmethod
    def of_node(node: Node) -> ScopedNames:
        """For a node by itself: what it and its subgraphs use is called as it calls itself."""
        names = ScopedNames()
        for value in (*node.inputs, *node.outputs, *node.implicit_inputs()):
            if value is not None:
                names.names[value] = value.name
                names.taken.add(value.name)
        return names

    def _assign(self, value: Value, keep: bool = False) -> None:
        if value in self.names:
            return
        if not value.name and not value.uses and not value.is_graph_output:
            self.names[value] = ""
            return
        name = value.name if keep else unique_name(value.name or "value", self._is_taken)
        self.names[value] = name
        self.taken.add(name)

    def _is_taken(self, name: str) -> bool:
        scope: ScopedNames | None = self
        while scope is not None:
            if name in scope.taken:
                return True
            scope = scope.outer
        return False

    def __getitem__(self, value: Value) -> str:
        scope: ScopedNames | None = self
        while scope is not None:
            if value in scope.names:
                return scope.names[value]
            scope = scope.outer
        raise InvalidGraph(f"{value.name!r} is used where it is not known.")
