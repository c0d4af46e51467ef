"""Nodes that no provider computes as they are: replaced by the body that the op's definition gives for them."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.errors import Fail
from sardonyx.ir import Graph, Model, Node, edit
from sardonyx.ops import functions
from sardonyx.ops.derivatives import expand_gradient
from sardonyx.ops.inference import Driver
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.providers.provider import ExecutionProvider

MAX_ROUNDS = 32
"""Bodies may use ops that have bodies; none of ONNX's goes deeper than a few levels."""


def expand_functions(model: Model, providers: Sequence[ExecutionProvider]) -> None:
    """Expand, in the main graph and all graphs inside it, each node that has no kernel but a body."""
    driver = Driver(model, evaluate)
    names = edit.Names(model.graph)
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        _expand_graph(graph, providers, driver, names)
        pending.extend(inner for node in graph.nodes for inner in node.subgraphs)


def _expand_graph(graph: Graph, providers: Sequence[ExecutionProvider], driver: Driver, names: edit.Names) -> None:
    for _ in range(MAX_ROUNDS):
        changed = False
        for node in list(graph.nodes):
            made = _expand(graph, node, providers, names)
            for new in made:
                driver.node(new)
            changed = changed or bool(made)
        if not changed:
            return
    raise Fail(f"function bodies in graph '{graph.name}' unfold without end")


def _expand(graph: Graph, node: Node, providers: Sequence[ExecutionProvider], names: edit.Names) -> list[Node]:
    if node.op_type == "Gradient" and node.domain == "ai.onnx.preview.training":
        return expand_gradient(graph, node)
    if any(True for provider in providers for _ in provider.get_capability(graph, [node])):
        return []
    body = functions.body_of(node)
    return [] if body is None else edit.inline_call(graph, node, body, names)
