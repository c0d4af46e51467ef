"""Nodes that are replaced by nodes which functions here write: ONNX's Gradient op, and ops that gradients are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.errors import Fail
from sardonyx.ir import Node, Value, edit
from sardonyx.ops.gradients.arguments import NodeArguments
from sardonyx.ops.gradients.backward import Expand
from sardonyx.ops.gradients.builder import TypedBuilder
from sardonyx.ops.gradients.gradient_op import expand_gradient
from sardonyx.ops.gradients.table import bodies

WRONG_NODES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What functions of bodies raise for nodes that no inference has refused."""


def replace(node: Node, infer: Callable[[Node], None], expand: Expand) -> list[Node]:
    """Put nodes that compute the same in place of a node; returns them, with their types. None if nobody can write them."""
    graph = node.graph
    assert graph is not None
    if node.op_type == "Gradient":
        op = TypedBuilder(graph, infer, node, {other.domain: other.version for other in graph.nodes}, node.name or "gradient")
        expand_gradient(op, node, expand)
        return op.made
    function = bodies.function_of(node)
    if function is None:
        return []
    op = TypedBuilder(graph, infer, node, prefix=node.name or node.op_type)
    try:
        results = NodeArguments(op, node).call(function)
    except WRONG_NODES as error:
        raise Fail(f"{node} cannot be computed: its operands and attributes do not go together ({error})") from error
    _put(op, node, results if isinstance(results, (tuple, list)) else (results,))
    return op.made


def _put(op: TypedBuilder, node: Node, results: Sequence[Value | None]) -> None:
    """Let the new nodes make the outputs of the old one, which stay the same values, and remove it."""
    made, adopted = set(op.made), set()
    for output, result in zip(node.outputs, results, strict=False):
        if result is None or not (output.name or output.uses):
            continue
        if result.producer not in made or result in adopted:
            result = op.Identity(result)
        edit.adopt(output, result)
        adopted.add(output)
    op.graph.unlink(node)
    edit.discard([node])
