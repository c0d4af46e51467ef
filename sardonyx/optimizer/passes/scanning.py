"""A Scan over points that computes their squared distances from other points is a CDist: no round depends on another."""

from __future__ import annotations

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import operand
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import shape_of

FIRST_WITH_AXES = 9
"""Before, a Scan had a batch."""


def find_distances(graph: Graph, rewriting: Rewriting) -> bool:
    """Replace Scans as converters of nearest neighbours write them."""
    changed = False
    for node in list(graph.nodes):
        if (node.domain, node.op_type) == ("", "Scan") and node.version >= FIRST_WITH_AXES and _has_distances(node):
            _replace(graph, node, rewriting)
            changed = True
    return changed


def _has_distances(node: Node) -> bool:
    """Whether a Scan goes over the rows of its second input, keeps the first, and sums the squares of their differences."""
    if len(node.inputs) != 2 or operand(node, "num_scan_inputs") != 1:
        return False
    ways = ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions")
    body: Graph = node.attributes["body"].value
    shapes = [shape_of(value) for value in node.inputs if value is not None]
    if any(any(operand(node, name) or ()) for name in ways) or len(body.inputs) != 2 or len(body.outputs) != 2:
        return False
    if any(shape is None or len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][1]:  # type: ignore[index]
        return False
    kept, summed = map(_origin, body.outputs)
    # what every round hands on may be read from outside as well
    return kept is body.inputs[0] and any(_is_distance(summed, points, body.inputs[1]) for points in (kept, node.inputs[0]))


def _origin(value: Value) -> Value:
    """A value without the Identities that it went through."""
    while value.producer is not None and value.producer.op_type == "Identity" and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    return value


def _is_distance(value: Value, points: Value | None, point: Value) -> bool:
    node = value.producer
    if node is None or node.domain or node.op_type != "ReduceSumSquare" or operand(node, "keepdims"):
        return False
    axes, difference = operand(node, "axes"), node.inputs[0]
    subtraction = None if difference is None else difference.producer
    if (
        axes is None
        or [axis % 2 for axis in axes] != [1]
        or subtraction is None
        or subtraction.domain
        or subtraction.op_type != "Sub"
    ):
        return False
    return {_origin(operand) for operand in subtraction.inputs if operand is not None} == {points, point}


def _replace(graph: Graph, node: Node, rewriting: Rewriting) -> None:
    op = Builder(graph, node, rewriting.model.opsets, prefix=node.name or "Scan")
    points, scanned = node.inputs
    assert points is not None
    distances = op.node("CDist", points, scanned, domain="com.microsoft", metric="sqeuclidean")
    by_point = op.Transpose(distances, perm=[1, 0])  # what follows nearly always turns it back
    for new_node in op.made:
        rewriting.driver.node(new_node)
    for old, new in zip(node.outputs, (points, by_point)):
        edit.replace_all_uses(old, new)
    rewriting.journal.add("DistanceFusion", node)
    graph.remove(node)
