"""ONNX's Gradient op: it is replaced by the nodes that compute it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.errors import Fail
from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ir.cloning import Cloner
from sardonyx.ops.gradients.backward import Backward, Expand
from sardonyx.ops.gradients.builder import TypedBuilder


def expand_gradient(op: TypedBuilder, node: Node, expand: Expand) -> None:
    """Replace a Gradient node of the builder's graph by nodes that compute it."""
    graph = op.graph
    names = [*node.attribute("xs", []), *node.attribute("zs", [])]
    values = _named(graph, node, [*names, node.attribute("y")])
    y, independent = values[node.attribute("y")], [values[name] for name in names]
    value_of: dict[Value, Value | None] = dict(zip(independent, node.inputs, strict=False))
    nodes = _between(independent, y)
    if any(mine is not theirs for mine, theirs in value_of.items()):
        nodes, y = _copied(op, nodes, y, value_of)
    sources = [value_of[value] for value in independent[: len(node.attribute("xs", []))]]
    gradients = Backward(op, [value for value in sources if value is not None], expand).run(nodes, {y: op.filled(1, y)})
    for output, source in zip(node.outputs, sources, strict=False):
        assert source is not None
        edit.replace_all_uses(output, gradients.get(source) or op.zeros(source))
    graph.remove(node)


def _named(graph: Graph, node: Node, names: Sequence[str]) -> dict[str, Value]:
    values = {value.name: value for value in graph.values()}
    for name in names:
        if name not in values:
            raise Fail(f"{node}: there is no value named {name!r} in its graph")
    return values


def _between(sources: Sequence[Value], y: Value) -> list[Node]:
    """The nodes on the way from `sources` to `y`, in order."""
    stop, stack = set(sources), [y]
    path: dict[Node, None] = {}
    while stack:
        value = stack.pop()
        if value in stop or value.producer is None or value.producer in path:
            continue
        path[value.producer] = None
        stack.extend(edit.operands(value.producer))
    graph = y.graph
    return [] if graph is None else [node for node in graph.nodes if node in path]


def _copied(op: TypedBuilder, nodes: Sequence[Node], y: Value, value_of: dict[Value, Value | None]) -> tuple[list[Node], Value]:
    """The same nodes over other operands."""
    cloner = Cloner(dict(value_of), value_name=op.unique, node_name=op.unique)
    copies = [op.add(cloner.node(node)) for node in nodes]
    return copies, cloner.values.get(y, y) or y
