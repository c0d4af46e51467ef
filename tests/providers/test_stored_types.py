"""Type strings that come with a model: kernels are matched by them, and they must be all that the model needs."""

from __future__ import annotations

import pytest

import sardonyx
from sardonyx import dtypes, ops
from sardonyx.errors import Fail
from sardonyx.ir import Model, Node, TensorType, Value
from sardonyx.ir.text import parse_model
from sardonyx.providers.kernel_search import constraint_types
from sardonyx.providers.matching import SCHEMAS, OpId, resolver_of

TEXT = '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { t = Add (x, x) y = Identity (t) }'
SUM = {":Add:14": {"T": [(0, 0), (0, 1), (1, 0)]}}
BUILT_IN = {
    "": {
        "DequantizeLinear": (10, 13, 19, 21, 23, 24, 25),
        "QuantizeLinear": (10, 13, 19, 21, 23, 24, 25),
        "Identity": (1, 13, 14, 16, 19, 21, 23, 24, 25),
        "Squeeze": (1, 11, 13, 21, 23, 24, 25),
        "Unsqueeze": (1, 11, 13, 21, 23, 24, 25),
        "Transpose": (1, 13, 21, 23, 24, 25),
        "Gather": (1, 11, 13),
    },
    "com.microsoft": dict.fromkeys(("DequantizeLinear", "QuantizeLinear", "NhwcFusedConv", "NhwcMaxPool", "QLinearConv"), (1,)),
}


def model(stored: dict[str, dict[str, list[tuple[int, int]]]] | None) -> Model:
    ops.load_families()
    made = parse_model(TEXT)
    made.stored_types = stored
    return made


def test_a_model_without_type_strings_asks_the_signatures():
    assert resolver_of(model(None)) is None


def test_all_ops_of_a_model_must_be_there():
    with pytest.raises(Fail, match="Failed to find op_id: :Add:14"):
        resolver_of(model({}))
    assert resolver_of(model(SUM)) is not None  # Identity is known to everybody


def test_what_is_known_to_everybody_are_51_ops_as_their_signatures_have_them():
    resolver = resolver_of(model(SUM))
    known = [OpId(domain, name, since) for domain, table in BUILT_IN.items() for name, all in table.items() for since in all]
    assert len(known) == 51 and set(resolver.table) == {*known, OpId("", "Add", 14)}
    for op in known:
        if op.name != "NhwcFusedConv":  # which is onnxruntime's alone
            assert dict(resolver.arguments(op)) == dict(SCHEMAS.arguments(op)), op


def test_stored_type_strings_count_more_than_what_is_known_to_everybody():
    resolver = resolver_of(model({**SUM, ":Identity:16": {"V": [(1, 0)]}}))
    assert dict(resolver.arguments(OpId("", "Identity", 16))) == {"V": [(1, 0)]}


def test_kernels_are_matched_by_the_stored_arguments():
    node = Node("Cast", [Value("x", TensorType(dtypes.float32))], [Value("y", TensorType(dtypes.int64))], {"to": 7}, version=17)
    assert constraint_types(node) == {"T1": dtypes.float32, "T2": dtypes.int64}
    resolver = resolver_of(model({**SUM, ":Cast:13": {"T1": [(1, 0)], "T2": [(0, 0)]}}))
    assert constraint_types(node, resolver) == {"T1": dtypes.int64, "T2": dtypes.float32}


def test_a_type_string_that_an_entry_lacks_is_an_error():
    node = Node("Cast", [Value("x", TensorType(dtypes.float32))], [Value("y", TensorType(dtypes.int64))], {"to": 7}, version=17)
    with pytest.raises(Fail, match="Failed to find the type string 'T2'"):
        constraint_types(node, resolver_of(model({**SUM, ":Cast:13": {"T1": [(0, 0)]}})))


def test_ops_that_were_not_in_the_file_ask_their_signatures():
    node = Node("Neg", [Value("x", TensorType(dtypes.float32))], [Value("y", TensorType(dtypes.float32))], version=17)
    assert constraint_types(node, resolver_of(model(SUM))) == {"T": dtypes.float32}


def test_sessions_of_models_in_memory_need_no_type_strings():
    from sardonyx.formats.onnx.writer import write_model

    session = sardonyx.InferenceSession(write_model(model(None)).SerializeToString())
    assert all(provider.resolver is None for provider in session._sess.providers)
