"""Nodes that are replaced by nodes which functions here write: ONNX's Gradient op, and ops that gradients are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.errors import Fail, InferenceError
from sardonyx.ir import Node, Value, edit
from sardonyx.ops.gradients.arguments import NodeArguments
from sardonyx.ops.gradients.backward import Expand
from sardonyx.ops.gradients.builder import TypedBuilder, UnknownType
from sardonyx.ops.gradients.gradient_op import expand_gradient
from sardonyx.ops.gradients.table import bodies

NEEDS_TYPES = "is an op of training, which can only be computed where the model tells the types and ranks of all operands"
WRONG_NODES = (ArithmeticError, AttributeError, InferenceError, LookupError, TypeError, ValueError)
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
    except Exception as error:
        _take_back(op)
        if isinstance(error, UnknownType):
            raise Fail(f"{node} {NEEDS_TYPES} ({error.message})") from error
        if isinstance(error, WRONG_NODES):
            raise Fail(f"{node} cannot be computed: its operands and attributes do not go together ({error})") from error
        raise
    _put(op, node, results if isinstance(results, (tuple, list)) else (results,))
    return op.made


def _take_back(op: TypedBuilder) -> None:
    """Remove what was written before it turned out that the rest cannot be."""
    for node in reversed(op.made):
        op.graph.unlink(node)
    edit.discard(op.made)


def _put(op: TypedBuilder, node: Node, results: Sequence[Value | None]) -> None:
    """Let the new nodes make the outputs of the old one, which stay the same values, and remove it."""
    made, adopted = set(op.made), set()
    for output, result in zip(node.outputs, results, strict=False):
        if result is None or not (output.name or output.uses):
            continue
        if result.producer not in made or result in adopted:
            result = op.Identity(result)
        found = result.type
        edit.adopt(output, result)
        output.inferred = None if found == output.type else found  # whoever plans memory for the one checks the other
        adopted.add(output)
    op.graph.unlink(node)
    edit.discard([node])
