"""Quantized convolutions with channels last: onnxruntime's NhwcTransformer, for models that are saved for it.

Its 8-bit kernels read channels last, ours any order alike, so the stage runs only where a config entry asks for it. A convolution
gets a Transpose on either side; most of these cancel, and pools in between follow.
"""

from __future__ import annotations

from sardonyx.dtypes import int8, uint8
from sardonyx.ir import Graph, Node, Value
from sardonyx.ops.reading import given_attributes, operand
from sardonyx.optimizer.passes.building import TypingBuilder, replace_value
from sardonyx.optimizer.passes.transpose import optimize_transposes
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import dtype_of, has_one_output, rank_of

NAME = "NhwcTransformer"
CONTRIB = "com.microsoft"
POOLS = frozenset({("", "MaxPool"), (CONTRIB, "QLinearAveragePool"), (CONTRIB, "QLinearGlobalAveragePool")})


def convolve_channels_last(graph: Graph, rewriting: Rewriting) -> bool:
    """Let quantized convolutions, and the pools after them, read channels last."""
    convolutions = [node for node in graph.nodes if _is_convolution(node)]
    for node in convolutions:
        _put_last(graph, rewriting, node, "QLinearConv")
    if not convolutions:
        return False
    optimize_transposes(graph, rewriting)
    while _follow(graph, rewriting):  # ends: each time there are fewer pools with channels first
        optimize_transposes(graph, rewriting)
    return True


def _is_convolution(node: Node) -> bool:
    if node.op_type != "QLinearConv" or node.domain not in ("", CONTRIB) or operand(node, "channels_last"):
        return False
    return (_rank(node) or 0) > 2


def _rank(node: Node) -> int | None:
    return None if node.inputs[0] is None else rank_of(node.inputs[0])


def _follow(graph: Graph, rewriting: Rewriting) -> bool:
    """Move Transposes from before pools to behind them, where there is less to move."""
    changed = False
    for node in list(graph.nodes):
        if (node.domain, node.op_type) in POOLS and _reads_transposed(node) and _is_quantized_pool(node):
            _put_last(graph, rewriting, node, "NhwcMaxPool" if node.op_type == "MaxPool" else node.op_type)
            changed = True
    return changed


def _is_quantized_pool(node: Node) -> bool:
    """Whether onnxruntime has the pool with channels last: that of maxima for 8 bits, and without their positions."""
    data = node.inputs[0]
    if data is None or operand(node, "channels_last"):
        return False
    return node.op_type != "MaxPool" or (dtype_of(data) in (int8, uint8) and has_one_output(node))


def _reads_transposed(node: Node) -> bool:
    """Whether a Transpose that puts channels first was made for this node alone."""
    data, rank = node.inputs[0], _rank(node)
    turn = None if data is None else data.producer
    if data is None or turn is None or rank is None or turn.domain or turn.op_type != "Transpose":
        return False
    return len(data.uses) == 1 and not data.is_graph_output and operand(turn, "perm") == _to_first(rank)


def _put_last(graph: Graph, rewriting: Rewriting, node: Node, op_type: str) -> None:
    """Write a node with channels last, between two Transposes."""
    opsets = rewriting.model.opsets if node.domain else {**rewriting.model.opsets, "": node.version}
    op = TypingBuilder(graph, node, opsets, node.name or NAME, rewriting.driver)
    rank = _rank(node)
    assert rank is not None
    attributes = given_attributes(node) | ({} if op_type == "NhwcMaxPool" else {"channels_last": 1})
    attributes.pop("storage_order", None)  # of positions, which nobody uses
    turned: Value = op.Transpose(node.inputs[0], perm=_to_last(rank))
    result: Value = op.node(op_type, turned, *node.inputs[1:], domain=CONTRIB, **attributes)
    replace_value(node.outputs[0], op.Transpose(result, perm=_to_first(rank)))
    graph.remove(node)
    rewriting.journal.add(NAME, node)


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _to_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]
