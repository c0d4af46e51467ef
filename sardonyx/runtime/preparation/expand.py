"""Nodes that no provider computes as they are: replaced by the body that the op's definition gives for them."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.errors import Fail, InvalidGraph
from sardonyx.ir import Function, Model, Node, edit
from sardonyx.ops import functions
from sardonyx.ops.inference import Driver
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.preparation import opsets
from sardonyx.runtime.preparation.partition import claim

MAX_ROUNDS = 32
"""Bodies may use ops that have bodies; none of ONNX's goes deeper than a few levels."""
WRITTEN_DOMAINS = ("ai.onnx.preview.training", "com.microsoft")
"""Where ops may have bodies that are written node by node."""
WRITTEN = ("SparseSoftmaxCrossEntropy",)
"""The ops of other domains that have such bodies, besides gradients."""


class Expansion:
    """Replaces nodes of a model by their bodies; partition calls it with nodes that nobody takes."""

    def __init__(self, model: Model, *, aligned: bool = False):
        """With `aligned`, only bodies are taken that can be written in the opsets of the model."""
        self._aligned = aligned
        self._driver = Driver(model, evaluate)
        self.infer = self._driver.node
        self._names: edit.Names | None = None
        self._model = model
        self._rounds = 0

    def __call__(self, nodes: Sequence[Node]) -> bool:
        """Expand those of the nodes that have a body; says whether there were any."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise Fail(
                f"{nodes[0]}: function bodies in graph '{self._model.graph.name}' unfold without end, "
                f"this node is {MAX_ROUNDS} bodies deep"
            )
        gradients = [node for node in nodes if node.op_type == "Gradient" and node.domain in WRITTEN_DOMAINS]
        expanded = [self.expand(node) for node in gradients or nodes]  # a gradient is that of the op, not of its body
        return bool(gradients) or any(expanded)

    def expand(self, node: Node) -> list[Node]:
        """Replace a node by its body, if it has one; returns the nodes that are there now, with their types."""
        is_written = node.domain in WRITTEN_DOMAINS or node.op_type in WRITTEN or node.op_type.endswith("Grad")
        new_nodes = self._write(node) if is_written else []
        if not new_nodes:
            new_nodes = self._inline(node)
            for new in new_nodes:
                self._driver.node(new)
        for new in new_nodes:
            edit.mark_alike(new, node)
        return new_nodes

    def _write(self, node: Node) -> list[Node]:
        """Let functions write the nodes that compute what the node does; those of gradients are known to them alone."""
        from sardonyx.ops.gradients import writing

        self._names = None
        new_nodes = writing.replace(node, self._driver.node, self.expand)
        opsets.align(new_nodes, self._model.opsets)
        return new_nodes

    def _inline(self, node: Node) -> list[Node]:
        graph = node.graph
        assert graph is not None
        body = functions.body_of(node)
        if body is None or (self._aligned and not self._fits(node, body)):
            return []
        if self._names is None:
            self._names = edit.Names(self._model.graph)
        new_nodes = edit.inline_call(graph, node, body, self._names)
        opsets.align(new_nodes, self._model.opsets)
        return new_nodes

    def _fits(self, node: Node, body: Function) -> bool:
        """Whether what a body becomes in the place of a node has types, and could be written with the model.

        Some bodies of the standard have constants of float, though their ops take double.
        """
        copies, _ = edit.instantiate(body, node)
        try:
            for copy in copies:
                self._driver.node(copy)
            return opsets.can_align(copies, self._model.opsets)
        except (Fail, InvalidGraph):
            return False
        finally:
            edit.discard(copies)


def expand_functions(model: Model, providers: Sequence[ExecutionProvider]) -> None:
    """Expand, in the main graph and all graphs inside it, each node that no provider takes but that has a body."""
    expansion = Expansion(model)
    while expansion(claim(model.graph, providers).free()):
        pass
