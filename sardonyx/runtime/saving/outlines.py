"""Outlines: models of which nothing is left but programs, as words that JSON can hold. Nearly all remembered models are such.

Reading one takes a tenth of what the ORT format takes, and none of its modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx import dtypes
from sardonyx.ir import Dim, Graph, Model, Node, TensorType, Type, Value, dim, released_on_failure
from sardonyx.providers.native.aot.opening import DOMAIN, OP_TYPE, is_context

Words = list[Any]

ABOUT = ("opsets", "ir_version", "producer_name", "producer_version", "domain", "model_version", "metadata")
"""What a model says of itself, by the names that `Model` has."""


def outline_of(model: Model) -> Words | None:
    """The words for a model; None if it has something that these cannot say."""
    graph, nodes = model.graph, list(model.graph.nodes)
    values = [*graph.inputs, *(value for node in nodes for value in node.outputs)]
    names = {value.name for value in values}
    is_plain = (
        all(map(is_context, nodes))
        and not (graph.initializers or model.functions)
        and all(isinstance(value.type, TensorType) and value.type.dtype for value in values)
        and all(value.name in names for node in nodes for value in node.inputs if value is not None)
        and all(value.name in names for value in graph.outputs)
    )
    if not is_plain or "" in names or len(names) != len(values):
        return None
    words = [_node_words(node) for node in nodes]
    if None in words:
        return None
    about = {name: getattr(model, name) for name in ABOUT}
    inputs = [_value_words(value) for value in graph.inputs]
    return [about, inputs, words, [value.name for value in graph.outputs]]


def _node_words(node: Node) -> Words | None:
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    if None in node.inputs or not all(type(value) in (int, str) for value in attributes.values()):
        return None
    inputs = [value.name for value in node.inputs if value is not None]
    return [node.name, node.version, inputs, list(map(_value_words, node.outputs)), attributes]


def _value_words(value: Value) -> Words:
    assert isinstance(value.type, TensorType) and value.type.dtype is not None
    shape = value.type.shape
    return [value.name, value.type.dtype.code, None if shape is None else list(map(_size_words, shape))]


def _size_words(size: Dim) -> int | str:
    if isinstance(size, int):
        return size
    return "" if any(symbol.is_anonymous for symbol in dim.symbols(size)) else str(size)


def model_of(words: Words) -> Model:
    """The model of an outline. Words that are none raise KeyError, TypeError or ValueError."""
    about, inputs, nodes, outputs = words
    with released_on_failure(Graph()) as graph:
        values: dict[str, Value] = {}
        for described in inputs:
            graph.add_input(_value(described, values))
        for name, version, operands, results, attributes in nodes:
            made = [_value(described, values) for described in results]
            taken = [values[operand] for operand in operands]
            graph.append(Node(OP_TYPE, taken, made, attributes, domain=DOMAIN, version=version, name=name))
        graph.outputs.extend(values[name] for name in outputs)
        return Model(graph, **{name: about[name] for name in ABOUT})


def _value(described: Sequence[Any], values: dict[str, Value]) -> Value:
    name, code, shape = described
    kind: Type = TensorType(dtypes.from_code(code), None if shape is None else tuple(map(_size, shape)))
    return values.setdefault(name, Value(name, kind))


def _size(word: int | str) -> Dim:
    return word if isinstance(word, int) else dim.named(word)
