"""Convolutions and what follows them in onnxruntime's blocked layout: its NchwcTransformer, for models that are saved for it.

Values get a second form, in blocks of channels, where an op makes or needs it; borders are ReorderInput and ReorderOutput. Here the layout
gains nothing, so the stage runs only where a config entry asks for it. Which ops can follow, and how, stands in `nchwc_ops.py`.
"""

from __future__ import annotations

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.contrib.nchwc import DOMAIN
from sardonyx.ops.reading import operand
from sardonyx.optimizer.context import Context
from sardonyx.optimizer.passes.building import replace_value
from sardonyx.optimizer.passes.nchwc_blocks import NAME, Blocks
from sardonyx.optimizer.passes.nchwc_ops import HANDLERS

TO_CHANNELS_LAST = [0, 2, 3, 1]


def block_convolutions(graph: Graph, context: Context) -> bool:
    """Let convolutions, and what can follow them, work on blocks of channels."""
    return _Writer(graph, context).write()


class _Writer:
    def __init__(self, graph: Graph, context: Context):
        self.graph = graph
        self.context = context
        self.blocks = Blocks(graph, context)

    def write(self) -> bool:
        done = []
        for node in list(self.graph.nodes):
            handler = HANDLERS.get((node.domain, node.op_type))
            form = None if handler is None else handler(self.blocks, node)
            if form is not None:
                self.blocks.forms[node.outputs[0]] = form
                self.context.journal.add(NAME, node)
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
        form, op = self.blocks.forms[value], self.blocks.builder(before)
        result: Value = op.node("ReorderOutput", form.value, domain=DOMAIN, channels=form.channels, channels_last=channels_last)
        return result
