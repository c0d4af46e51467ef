"""Outlines of remembered models: words that JSON holds, and the same model again; what they cannot say has none."""

from __future__ import annotations

import json

import pytest

from sardonyx import dtypes
from sardonyx.ir import Attribute, Graph, Model, Node, SequenceType, TensorType, Value, dim
from sardonyx.providers.native.aot.opening import DOMAIN, OP_TYPE, SOURCE
from sardonyx.runtime.saving.outlines import model_of, outline_of

N = dim.symbol("N")


def context(inputs: list[Value], outputs: list[Value], **attributes: object) -> Node:
    named = {"source": SOURCE, "main_context": 1, "partition_name": "first", **attributes}
    words = {name: Attribute.of(value) for name, value in named.items()}
    return Node(OP_TYPE, inputs, outputs, words, domain=DOMAIN, version=1, name="made")


def model_with(type: object, **attributes: object) -> Model:
    x, t, y = (Value(name, TensorType(dtypes.float32, (N, 4, N * 2 + 1, dim.fresh()))) for name in "xty")
    x.type = type
    graph = Graph("g")
    graph.add_input(x)
    graph.append(context([x], [t], **attributes))
    graph.append(context([t, x], [y], partition_name="second", main_context=0))
    graph.outputs.append(y)
    return Model(graph, {"": 21, DOMAIN: 1}, 9, producer_name="me", model_version=7, metadata={"author": "somebody"})


def described(model: Model) -> list[object]:
    graph = model.graph
    nodes = [
        (node.name, node.op_id, node.version, [value and value.name for value in node.inputs], list(node.attributes.items()))
        for node in graph.nodes
    ]
    named = [(value.name, str(value.type)) for node in graph.nodes for value in node.outputs if value.name != "t"]
    about = (model.opsets, model.ir_version, model.producer_name, model.model_version, model.metadata)
    return [
        about,
        nodes,
        named,
        [(value.name, str(value.type)) for value in graph.inputs],
        [value.name for value in graph.outputs],
    ]


def test_a_model_comes_back_as_it_was() -> None:
    model = model_with(TensorType(dtypes.int64, (N, 2)))
    known = TensorType(dtypes.float32, (N, 4, N * 2 + 1))
    for value in model.graph.outputs:
        value.type = known  # a size without a name is another one each time
    again = model_of(json.loads(json.dumps(outline_of(model))))
    assert described(again) == described(model)
    (t,) = next(iter(again.graph.nodes)).outputs
    assert isinstance(t.type, TensorType) and t.type.shape is not None and dim.is_anonymous(t.type.shape[3])


def test_what_words_cannot_say_has_no_outline() -> None:
    plain = TensorType(dtypes.int64, (N, 2))
    assert outline_of(model_with(plain)) is not None
    assert outline_of(model_with(SequenceType(plain))) is None
    assert outline_of(model_with(TensorType(None))) is None
    assert outline_of(model_with(plain, notes=b"\xff")) is None
    assert outline_of(model_with(plain, source="another")) is None
    other = model_with(plain)
    other.graph.append(Node("Relu", [other.graph.inputs[0]], ["z"]))
    assert outline_of(other) is None


@pytest.mark.parametrize("place", range(4))
def test_words_that_are_none_are_refused(place: int) -> None:
    words = json.loads(json.dumps(outline_of(model_with(TensorType(dtypes.int64, (N, 2))))))
    for wrong in (None, 3, ["nobody"], [[1, 2]], {}):
        damaged = [*words[:place], wrong, *words[place + 1 :]]
        if damaged[place] in ({}, []) and place in (1, 2, 3):
            continue  # an empty list is one
        with pytest.raises((KeyError, TypeError, ValueError)):
            model_of(damaged)
