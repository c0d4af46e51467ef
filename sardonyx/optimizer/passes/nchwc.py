"""Convolutions and what follows them in onnxruntime's blocked layout: its NchwcTransformer, for models that are saved for it.

A value gets a copy in blocks of channels where an op makes or needs it; borders are ReorderInput and ReorderOutput. Here the layout
gains nothing, so the stage runs only where a config entry asks for it. Which ops can follow, and how, stands in `nchwc_ops.py`.
"""

from __future__ import annotations

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.contrib.nchwc import DOMAIN
from sardonyx.ops.reading import operand
from sardonyx.optimizer.passes.building import replace_value
from sardonyx.optimizer.passes.nchwc_blocks import NAME, Blocks
from sardonyx.optimizer.passes.nchwc_ops import HANDLERS
from sardonyx.optimizer.rewriting import Rewriting

TO_CHANNELS_LAST = [0, 2, 3, 1]


def block_convolutions(graph: Graph, rewriting: Rewriting) -> bool:
    """Let convolutions, and what can follow them, work on blocks of channels."""
    return _Writer(graph, rewriting).write()


class _Writer:
    def __init__(self, graph: Graph, rewriting: Rewriting):
        self.graph = graph
        self.rewriting = rewriting
        self.blocks = Blocks(graph, rewriting)

    def write(self) -> bool:
        done = []
        for node in list(self.graph.nodes):
            handler = HANDLERS.get((node.domain, node.op_type))
            blocked = None if handler is None else handler(self.blocks, node)
            if blocked is not None:
                self.blocks.blocked[node.outputs[0]] = blocked
                self.rewriting.journal.add(NAME, node)
                done.append(node)
        for node in reversed(done):
            self._leave(node)
        edit.remove_unused(self.graph)
        return bool(done)

    def _leave(self, node: Node) -> None:
        """Remove a node whose result is in blocks now; for those who need it otherwise, it is taken out of them."""
        output = node.outputs[0]
        for user in list(output.users):
            if user.graph is self.graph and not user.domain and user.op_type == "Transpose":
                self._turn(user, output)
        if output.uses or output.is_graph_output:
            replace_value(output, self._plain(node, output))
        self.graph.remove(node)

    def _turn(self, transpose: Node, value: Value) -> None:
        if operand(transpose, "perm") == TO_CHANNELS_LAST:
            replace_value(transpose.outputs[0], self._plain(transpose, value, channels_last=1))
            self.graph.remove(transpose)

    def _plain(self, before: Node, value: Value, channels_last: int | None = None) -> Value:
        blocked, op = self.blocks.blocked[value], self.blocks.builder(before)
        result: Value = op.node(
            "ReorderOutput", blocked.value, domain=DOMAIN, channels=blocked.channels, channels_last=channels_last
        )
        return result
