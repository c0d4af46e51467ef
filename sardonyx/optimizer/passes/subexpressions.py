"""Common subexpressions: nodes that compute the same from the same values become one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from sardonyx.ir import Attribute, Graph, Node, Tensor, edit
from sardonyx.ops import schemas
from sardonyx.optimizer.rewriting import Rewriting

KEPT = frozenset({"DequantizeLinear", "EPContext"})
"""Never merged: each consumer of a quantized value keeps a DequantizeLinear of its own."""


def eliminate_common_subexpressions(graph: Graph, rewriting: Rewriting) -> bool:
    """Value numbering over op, operands and attributes, in order."""
    alike: dict[Hashable, Node] = {}
    seen: dict[Hashable, Node] = {}
    compared: set[Hashable] = set()
    changed = False
    for node in graph.nodes:
        key = (node.op_type, *map(id, node.inputs))
        if alike.setdefault(key, node) is node:
            continue  # few nodes have a twin, and of tree ensembles attributes are long: no more is asked of most
        if key not in compared:
            compared.add(key)
            seen[key, _details(alike[key])] = alike[key]
        details = _details(node)
        first = node if details is None else seen.setdefault((key, details), node)
        if first is node or not _covers(first, node):
            continue
        for old, new in zip(list(node.outputs), first.outputs, strict=False):
            if old.name:
                edit.replace_all_uses(old, new)
        graph.remove(node)
        rewriting.journal.add("CommonSubexpressionElimination", node)
        changed = True
    return changed


def _covers(first: Node, other: Node) -> bool:
    """Whether `first` has all outputs that `other` has, and no output of the graph would be an output twice."""
    if len(first.outputs) < len(other.outputs):
        return False
    pairs = zip(first.outputs, other.outputs, strict=False)
    return all(
        not theirs.name or (mine.name and not (mine.is_graph_output and theirs.is_graph_output)) for mine, theirs in pairs
    )


def _details(node: Node) -> Hashable | None:
    """What tells nodes of the same op and operands apart, None for one that is never merged."""
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None or not signature.deterministic or node.op_type in KEPT or any(True for _ in node.subgraphs):
        return None
    attributes = sorted((name, _attribute(attribute)) for name, attribute in node.attributes.items())
    return node.domain, node.version, tuple(attributes), _types(node), edit.LATER in node.metadata


def _types(node: Node) -> tuple[str, ...]:
    return tuple(str(output.type) for output in node.outputs)


def _attribute(attribute: Attribute) -> Hashable:
    return attribute.kind.value, _hashable(attribute.value)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, Tensor):
        array = value.numpy()
        return value.dtype.name, value.shape, repr(array.tolist()) if array.dtype == object else array.tobytes()
    if isinstance(value, (int, float, str, bytes)):
        return repr(value)
    return id(value)
