"""Texts become numbers where only their identity counts: encoders look for numbers then, classifiers answer with them, and both compile."""

from __future__ import annotations

from typing import Any

from sardonyx import dtypes
from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.reading import operand
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.passes.building import TypingBuilder
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import dtype_of
from sardonyx.startup.records import dataclass, field

DOMAIN = "ai.onnx.ml"
FIRST_MAP = 2
"""Version 1 of LabelEncoder maps between strings and their places in a list."""
CLASSIFIERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}


def number_texts(graph: Graph, rewriting: Rewriting) -> bool:
    """Number categories before they are moved about and encoded, and classes until they are answers."""
    labels = [node for node in graph.nodes if _has_named_classes(node)]
    for node in labels:
        _number_classes(node, graph, rewriting)
    encoders = [node for node in graph.nodes if _looks_for_texts(node)]
    changed = bool(labels)
    for source in dict.fromkeys(map(_source_of, encoders)):
        followers = _Followers()
        if source is not None and followers.follow(source, graph):
            _number_categories(source, followers, graph, rewriting)
            changed = True
    return changed


def _builder(graph: Graph, before: Node, rewriting: Rewriting, version: int) -> TypingBuilder:
    opsets = {**rewriting.model.opsets, DOMAIN: version}
    return TypingBuilder(graph, before, opsets, before.name or before.op_type, rewriting.driver)


def _encoder(version: int, texts: list[str], back: bool = False) -> dict[str, Any]:
    """The attributes of a LabelEncoder from texts to their numbers, or back; texts that are not there are -1."""
    if version < FIRST_MAP:
        return {"classes_strings": texts}
    if back:
        return {"keys_int64s": list(range(len(texts))), "values_strings": texts}
    return {"keys_strings": texts, "values_int64s": list(range(len(texts))), "default_int64": -1}


# --- categories


def _looks_for_texts(node: Node) -> bool:
    return (node.domain, node.op_type) == (DOMAIN, "OneHotEncoder") and bool(operand(node, "cats_strings"))


def _is_move(node: Node) -> bool:
    return facts_of(node).moves


def _source_of(node: Node) -> Value | None:
    """The texts that are moved about before they reach a node."""
    value = node.inputs[0]
    while value is not None and value.producer is not None and _is_move(value.producer):
        value = value.producer.inputs[0]
    return value if value is not None and dtype_of(value) is dtypes.string and not value.is_constant else None


@dataclass
class _Followers:
    """Nodes through which texts go, and those that look at them."""

    moves: list[Node] = field(default_factory=list)
    encoders: list[Node] = field(default_factory=list)

    def follow(self, value: Value, graph: Graph) -> bool:
        """Find them; False if somebody else wants to see the texts."""
        for node in dict.fromkeys(value.users):
            if node.graph is not graph or list(node.inputs).count(value) != 1 or node.inputs[0] is not value:
                return False
            if _looks_for_texts(node):
                self.encoders.append(node)
            elif _is_move(node) and not any(output.is_graph_output for output in node.outputs):
                self.moves.append(node)
                if not all(self.follow(output, graph) for output in node.outputs):
                    return False
            else:
                return False
        return True


def _number_categories(source: Value, users: _Followers, graph: Graph, rewriting: Rewriting) -> None:
    version = users.encoders[0].version
    texts = list(dict.fromkeys(text for node in users.encoders for text in operand(node, "cats_strings")))
    numbers = {text: number for number, text in enumerate(texts)}
    followers = {*users.moves, *users.encoders}
    ordered = [node for node in graph.nodes if node in followers]
    op = _builder(graph, ordered[0], rewriting, version)
    moved = {source: op.node("LabelEncoder", source, domain=DOMAIN, **_encoder(version, texts))}
    for node in ordered:
        op.before, data = node, node.inputs[0]
        assert data is not None
        if node in users.moves:
            outputs = [Value(op.unique(node.op_type)) for _ in node.outputs]
            inputs = [moved[data], *node.inputs[1:]]
            op.add(Node(node.op_type, inputs, outputs, node.attributes, version=node.version, name=outputs[0].name))
            moved.update(zip(node.outputs, outputs))
            continue
        categories = [numbers[text] for text in operand(node, "cats_strings")]
        encoded = op.node("OneHotEncoder", moved[data], domain=DOMAIN, cats_int64s=categories, zeros=operand(node, "zeros"))
        edit.replace_all_uses(node.outputs[0], encoded)
        rewriting.journal.add("CategoryNumbering", node)
    for node in reversed(ordered):
        graph.remove(node)


# --- classes


def _has_named_classes(node: Node) -> bool:
    """Whether a classifier answers with texts, and each answer is one of a list of them."""
    if node.domain != DOMAIN or node.op_type not in CLASSIFIERS or not node.outputs[0].name:
        return False
    count = len(operand(node, "classlabels_strings") or ())
    scored = node.op_type != "LinearClassifier" or len(operand(node, "intercepts") or ()) == count
    return count == 2 or (count > 2 and scored)


def _number_classes(node: Node, graph: Graph, rewriting: Rewriting) -> None:
    texts = list(operand(node, "classlabels_strings"))
    op = _builder(graph, node, rewriting, node.version)
    attributes = {name: attribute.value for name, attribute in node.attributes.items() if name != "classlabels_strings"}
    attributes[CLASSIFIERS[node.op_type]] = list(range(len(texts)))
    label, *scores = op.node(node.op_type, *node.inputs, domain=DOMAIN, outputs=2, **attributes)
    answer = op.node("LabelEncoder", label, domain=DOMAIN, **_encoder(node.version, texts, back=True))
    for old, new in zip(node.outputs, (answer, *scores)):
        edit.replace_all_uses(old, new)
    rewriting.journal.add("CategoryNumbering", node)
    graph.remove(node)
