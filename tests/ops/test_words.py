"""Attributes whose words the spec lists: another word is refused when a session is made, whoever would compute the node."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx import errors, ops
from sardonyx.ir import Kind
from sardonyx.ops import schemas
from sardonyx.ops.words import VOCABULARIES

DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
FREE = {"default_string", "locale"}
"""Texts that have a default and may be any."""
ELSEWHERE = {
    ("CastMap", "cast_to"),
    ("CastMap", "map_form"),
    ("GRU", "direction"),
    ("LSTM", "direction"),
    ("RNN", "direction"),
}
"""Refused by the inference of the op, which reads the word."""


def signatures():
    ops.load_families()
    for domain in DOMAINS:
        for op in VOCABULARIES:
            for version in schemas.versions(domain, op):
                signature = schemas.find(domain, op, version)
                if signature is not None:
                    yield domain, op, version, signature


SPELLED = [
    (d, op, v, name) for d, op, v, signature in signatures() for name in VOCABULARIES[op] if name in signature.attributes
]


@pytest.mark.parametrize(("domain", "op", "version", "attribute"), SPELLED)
def test_an_unknown_word_is_refused_when_the_session_is_made(domain, op, version, attribute):
    signature = schemas.find(domain, op, version)
    required = {
        name: {Kind.INT: 1, Kind.INTS: [1], Kind.STRING: "x", Kind.FLOAT: 1.0, Kind.FLOATS: [1.0]}[one.kind]
        for name, one in signature.attributes.items()
        if one.required
    }
    names = [f"input{number}" for number in range(signature.min_inputs)]
    outputs = [f"output{number}" for number in range(max(1, signature.min_outputs))]
    node = helper.make_node(op, names, outputs, domain=domain, **{**required, attribute: "nonsense"})
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
    graph = helper.make_graph([node], "words", inputs, [helper.make_empty_tensor_value_info(name) for name in outputs])
    opsets = [helper.make_opsetid(domain, version), *([helper.make_opsetid("", 21)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(errors.Fail, match=f"{attribute} is 'nonsense', expected one of"):
        sardonyx.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_default_words_are_known():
    for _, op, version, signature in signatures():
        for name, words in VOCABULARIES[op].items():
            definition = signature.attributes.get(name)
            assert definition is None or definition.default in (None, *words), (op, version, name)


def test_every_attribute_with_a_default_word_is_checked():
    import onnx.defs

    unchecked = {
        (schema.name, name)
        for schema in onnx.defs.get_all_schemas_with_history()
        for name, attribute in schema.attributes.items()
        if schema.domain in DOMAINS and attribute.type.name == "STRING" and attribute.default_value.s and name not in FREE
        if name not in VOCABULARIES.get(schema.name, {})
    }
    assert unchecked == ELSEWHERE
