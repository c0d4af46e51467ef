"""Preferred layout: nodes that a provider wants with channels last are moved there, between Transposes that are then pushed outward.

`prepare` calls `prefer_layouts` before partition. A moved node keeps op and attributes, stands in the domain com.ms.internal.nhwc, and has
its first input and output in the order NHWC; all others, a convolution's weights among them, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.errors import EPFail
from sardonyx.ir import Graph, Node, TensorType, Value, edit
from sardonyx.ops.facts import Operands
from sardonyx.ops.schemas import NHWC_DOMAIN
from sardonyx.ops.table import facts_of
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.preparation.partition import Assigned, claim

OPSETS = range(7, 28)


def prefer_layouts(graph: Graph, providers: Sequence[ExecutionProvider]) -> list[Node]:
    """Move what providers would take and want with channels last; returns the moved nodes."""
    if not any(provider.preferred_layout == "NHWC" for provider in providers):
        return []
    owner = claim(graph, providers).owner
    moved = [
        node
        for node, assignment in owner.items()
        if assignment.provider.preferred_layout == "NHWC" and assignment.provider.wants_channels_last(node) and _can_move(node)
    ]
    for node in moved:
        _wrap(node)
    for inner in edit.all_graphs(graph):
        _push_down(inner)
    return moved


def check_moved(moved: Sequence[Node], assigned: Assigned) -> None:
    """Refuse a provider that had a node moved for it and then does not take it."""
    owner = {
        node: assignment.provider
        for assignments in assigned.values()
        for assignment in assignments
        for node in assignment.nodes
    }
    for node in moved:
        provider = owner.get(node)
        if provider is None or provider.preferred_layout != "NHWC":
            raise EPFail(f"{node} was moved to the layout NHWC for a provider that does not take it there")


def _can_move(node: Node) -> bool:
    """Whether a node may be moved. MaxPool's indices depend on the layout, so a MaxPool that outputs them stays."""
    image = node.inputs[0] if node.inputs else None
    return (
        not node.domain
        and facts_of(node).has_layout
        and node.version in OPSETS
        and image is not None
        and _rank(image) >= 3
        and _rank(node.outputs[0]) == _rank(image)
        and not (node.op_type == "MaxPool" and any(output.name for output in node.outputs[1:]))
    )


def _rank(value: Value) -> int:
    return len(value.type.shape) if isinstance(value.type, TensorType) and value.type.shape is not None else 0


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _to_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _permuted(value: Value, perm: Sequence[int]) -> Value:
    """A new value for the same content with other axes."""
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    return Value(f"{value.name}_nhwc", TensorType(value.type.dtype, tuple(value.type.shape[axis] for axis in perm)))


def _wrap(node: Node) -> None:
    """Put a node between two Transposes and give it channels last."""
    image = node.inputs[0]
    assert image is not None and node.graph is not None
    perm, version = _to_last(_rank(image)), edit.opset_of(node.graph)
    there = Node("Transpose", [image], [_permuted(image, perm)], {"perm": perm}, version=version)
    node.graph.insert_before(node, there)
    node.set_input(0, there.outputs[0])
    _give_back(node)
    node.domain = NHWC_DOMAIN


def _give_back(node: Node) -> None:
    """Let a node make its first output with channels last, and add a Transpose that restores the former order."""
    assert node.graph is not None
    rank = _rank(node.outputs[0])
    output = edit.replace_output(node, 0, _permuted(node.outputs[0], _to_last(rank)))
    back = Node("Transpose", [node.outputs[0]], [output], {"perm": _to_first(rank)}, version=edit.opset_of(node.graph))
    node.graph.insert_after(node, back)


# --- pushing Transposes down, until they meet their opposite or leave


def _push_down(graph: Graph) -> None:
    for node in list(graph.nodes):
        if facts_of(node).elementwise is not Operands.NONE:
            _pass_through(node)
        elif _transposes(node, _to_last):
            source = _source(node.inputs[0])
            if source is not None:
                edit.replace_all_uses(node.outputs[0], source)
    for node in reversed(list(graph.nodes)):
        if node.op_type == "Transpose" and not node.domain and not node.outputs[0].uses and not node.outputs[0].is_graph_output:
            graph.remove(node)


def _pass_through(node: Node) -> None:
    """Let an elementwise node read the values before their Transposes, if its other operands are single numbers."""
    sources = [_source(value) for value in node.inputs]
    others = [value for value, source in zip(node.inputs, sources, strict=True) if value is not None and source is None]
    ranks = {_rank(source) for source in sources if source is not None}
    if ranks != {_rank(node.outputs[0])} or not all(map(_is_number, others)):
        return
    for position, source in enumerate(sources):
        if source is not None:
            node.set_input(position, source)
    _give_back(node)


def _is_number(value: Value) -> bool:
    return value.is_constant and value.constant is not None and value.constant.size == 1 and _rank(value) <= 1


def _source(value: Value | None) -> Value | None:
    """What stands before the Transpose that gives this value back with channels first."""
    producer = None if value is None else value.producer
    return producer.inputs[0] if producer is not None and _transposes(producer, _to_first) else None


def _transposes(node: Node, order: Callable[[int], list[int]]) -> bool:
    return (
        node.op_type == "Transpose"
        and not node.domain
        and _rank(node.outputs[0]) >= 3
        and node.attribute("perm") == order(_rank(node.outputs[0]))
    )
