"""Models that break the rules: each raises the class and says the place that users of onnxruntime know."""

from __future__ import annotations

import os
import stat

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sardonyx import errors, formats
from sardonyx.errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from sardonyx.formats.onnx import wire
from tests.formats.building import add, info, model_of, relu, tensor
from tests.garbage import left_behind


def refused(proto: onnx.ModelProto, error: type[Exception] | tuple[type[Exception], ...], text: str) -> None:
    with pytest.raises(error, match=text):
        formats.load(proto)


# --- files and bytes


def test_a_missing_file_is_no_such_file(tmp_path):
    path = tmp_path / "none.onnx"
    with pytest.raises(NoSuchFile) as caught:
        formats.load(path)
    assert str(caught.value) == (
        f"[ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model from {path} failed:Load model {path} failed. File doesn't exist"
    )


def test_a_folder_is_no_protobuf(tmp_path):
    with pytest.raises(InvalidProtobuf, match=f"Load model from {tmp_path} failed:Protobuf parsing failed."):
        formats.load(tmp_path)


def test_an_empty_file_has_no_graph(tmp_path):
    (tmp_path / "e.onnx").write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"Load model from .*e.onnx failed:No graph was found in the protobuf\."):
        formats.load(tmp_path / "e.onnx")
    with pytest.raises(InvalidArgument) as caught:
        formats.load(b"")
    assert caught.value.message == "No graph was found in the protobuf."


@pytest.mark.parametrize("data", [b"not a model", b"\xff" * 50, b"\x3a\xff\xff\xff\xff\x0f", b"\x0b", b"\0\0\0\0"])
def test_bytes_that_are_no_protobuf(data, tmp_path):
    with pytest.raises(InvalidProtobuf, match="Failed to load model because protobuf parsing failed"):
        formats.load(data)
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(InvalidProtobuf, match="Load model from .*failed:Protobuf parsing failed"):
        formats.load(tmp_path / "m.onnx")


def test_every_truncation_is_refused_or_still_a_model():
    data = model_of([relu(name="n")], initializers=[tensor("w", np.ones(300, np.float32))]).SerializeToString()
    for length in range(0, len(data), 7):
        try:
            formats.load(data[:length])
        except tuple(errors.BY_CODE.values()):
            pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_nobody_waits(tmp_path):
    os.mkfifo(tmp_path / "p.onnx")
    assert stat.S_ISFIFO(os.stat(tmp_path / "p.onnx").st_mode)
    with pytest.raises(Fail, match="not a regular file"):
        formats.load(tmp_path / "p.onnx")


def test_a_path_with_a_null_byte_is_refused():
    with pytest.raises(Fail, match="null byte"):
        formats.load("a\0b")


def test_what_is_no_source_is_a_type_error():
    with pytest.raises(TypeError, match="not int"):
        formats.load(5)


def nested(levels: int) -> onnx.ModelProto:
    """If in If in If …"""
    proto = model_of([], [info("x"), info("c", [], TensorProto.BOOL)])
    graph, name = proto.graph, "y"
    for _ in range(levels):
        node = graph.node.add(op_type="If", input=["c"], output=[name])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        name = "z"
        graph.output.add(name=name)
    graph.node.append(relu("x", name))
    return proto


def test_deep_nesting_ends_in_an_exception():
    refused(nested(300), InvalidProtobuf, "parsing failed")
    data = b""
    for _ in range(300):
        data = wire._length_delimited(1, wire._length_delimited(5, wire._length_delimited(6, data)))
    with pytest.raises(InvalidProtobuf, match="parsing failed"):
        formats.load(wire._length_delimited(7, data))


def test_nesting_is_limited_even_if_protobuf_lets_it_pass(monkeypatch):
    from sardonyx.formats.onnx import reader

    monkeypatch.setattr(reader, "_parse_proto", reader._Parsed)
    refused(nested(300), Fail, "nested deeper than 64 levels")


def test_nesting_as_deep_as_protobuf_lets_pass_is_read():
    assert len(formats.load(nested(25).SerializeToString()).graph) == 1


def test_types_cannot_nest_without_end(monkeypatch):
    from sardonyx.formats.onnx import reader

    monkeypatch.setattr(reader, "_parse_proto", reader._Parsed)
    type = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    for _ in range(40):
        type = helper.make_sequence_type_proto(type)
    refused(model_of([relu()], [helper.make_value_info("x", type)]), Fail, "Type of 'x' is nested deeper than 32 levels")


def test_names_that_are_no_utf8_are_refused():
    node = helper.make_node("qq1", ["qq2"], ["y"], name="qq3", doc_string="qq4", domain="qq5", qq6=1)
    proto = model_of([node], [info("qq2", ["qq7"])], opsets=(("", 17), ("qq5", 1)))
    proto.producer_name, proto.graph.name = "qq8", "qq9"
    proto.graph.initializer.append(TensorProto(name="qq0", data_type=1, dims=[0]))
    data = proto.SerializeToString()
    formats.load(data)
    start = data.find(b"qq")
    while start >= 0:
        with pytest.raises(tuple(errors.BY_CODE.values())):
            formats.load(data[:start] + b"\xff\xfe" + data[start + 2 :])
        start = data.find(b"qq", start + 1)


# --- versions


def test_a_model_without_ir_version():
    proto = model_of([relu()])
    proto.ClearField("ir_version")
    refused(proto, Fail, "Missing model IR version")


def test_an_ir_version_of_the_future():
    refused(model_of([relu()], ir_version=99), Fail, "Unsupported model IR version: 99, max supported IR version")


def test_a_model_without_opsets():
    refused(model_of([relu()], opsets=()), Fail, "Missing opset in the model")


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_an_opset_of_the_future(domain):
    text = rf"\*guarantees\* support .* Opset 99 is under development .* domain {domain or 'ai.onnx'} is till opset"
    refused(model_of([relu()], opsets=[("", 17)] * bool(domain) + [(domain, 99)]), Fail, text)


def test_a_domain_that_is_not_imported():
    node = helper.make_node("Foo", ["x"], ["y"], domain="my.dom", name="n")
    refused(model_of([node]), InvalidGraph, "In Node, my.dom::Foo 'n', Error No opset import for domain 'my.dom'")


def test_a_domain_that_a_function_does_not_import():
    function = helper.make_function("my", "F", ["a"], ["b"], [relu("a", "b")], [])
    call = helper.make_node("F", ["x"], ["y"], domain="my")
    refused(
        model_of([call], opsets=(("", 17), ("my", 1)), functions=[function]),
        Fail,
        "No opset registered for domain ai.onnx in function F",
    )


# --- names and links


def test_a_cycle():
    refused(model_of([add("x", "z"), relu("y", "z")]), Fail, "This is an invalid model. Error: the graph is not acyclic.")
    refused(model_of([add("x", "y")]), Fail, "not acyclic")


def test_a_cycle_through_a_subgraph():
    branch = helper.make_graph([relu("y", "z")], "b", [], [info("z")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    refused(model_of([node], [info("x"), info("c", [], TensorProto.BOOL)]), Fail, "not acyclic")


@pytest.mark.parametrize(
    "proto",
    [
        model_of([relu(), relu()]),
        model_of([helper.make_node("Split", ["x"], ["y", "y"])]),
        model_of([relu("x", "x")], outputs=[info("x")]),
        model_of([relu()], initializers=[tensor("y", np.ones(2, np.float32))]),
        model_of([relu()], initializers=[tensor("w", np.ones(2, np.float32)), tensor("w", np.ones(3, np.float32))]),
        model_of([relu()], [info("x"), info("x")]),
    ],
    ids=["two nodes", "one node", "input", "initializer", "two initializers", "two inputs"],
)
def test_a_name_that_is_defined_twice(proto):
    refused(proto, Fail, r"Duplicate definition of name \((x|y|w)\)")


def test_two_nodes_of_one_name():
    refused(model_of([relu(name="n"), relu("x", "z", name="n")]), Fail, r"two nodes with same node name \(n\)")


def test_an_input_that_nobody_produces():
    text = "Invalid model. Node input 'q' is not a graph input, initializer, or output of a previous node. It is of Add 'n'"
    refused(model_of([add("x", "q", name="n")]), InvalidArgument, text)


def test_a_sibling_scope_is_not_seen():
    one = helper.make_graph([relu("x", "inner")], "one", [], [info("inner")])
    two = helper.make_graph([relu("inner", "z")], "two", [], [info("z")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=two)
    refused(model_of([node], [info("x"), info("c", [], TensorProto.BOOL)]), InvalidArgument, "Node input 'inner'")


def test_an_output_that_nobody_produces():
    refused(model_of([relu()], outputs=[info("zz")]), Fail, r"Graph output \(zz\) does not exist in the graph")


def test_a_refused_model_leaves_nothing_to_the_collector():
    branch = helper.make_graph([add("x", "v", "z")], "b", [], [info("z")], [tensor("v", np.ones(2, np.float32))])
    nodes = [add("x", "w"), helper.make_node("If", ["c"], ["u"], then_branch=branch, else_branch=branch)]
    weights = [tensor("w", np.ones(2, np.float32)), tensor("c", np.True_)]
    no_output = model_of(nodes, outputs=[info("zz")], initializers=weights)
    no_operand = model_of([*nodes, add("u", "zz", "last")], initializers=weights)
    no_function = model_of(nodes, initializers=weights, functions=[onnx.FunctionProto()])
    for proto in (no_output, no_operand, no_function):
        assert not left_behind(lambda proto=proto: refused(proto, errors.CODED, "nvalid model"))


def test_things_without_a_name():
    refused(model_of([relu()], [info("x"), info("")]), InvalidGraph, "A graph input has no name")
    refused(model_of([helper.make_node("", ["x"], ["y"], name="n")]), InvalidGraph, "'n', Error it has no op_type")
    refused(model_of([relu()], outputs=[info("")]), Fail, r"Graph output \(\)")


def test_functions_are_checked_too():
    opsets, imports = (("", 17), ("my", 1)), [helper.make_opsetid("", 17)]
    call = helper.make_node("F", ["x"], ["y"], domain="my")
    for nodes, error, text in (
        ([relu("q", "b")], InvalidArgument, "Node input 'q'"),
        ([relu("a", "c")], Fail, r"Output \(b\) of function F"),
        ([relu("a", "b"), relu("a", "b")], Fail, r"Duplicate definition of name \(b\)"),
    ):
        function = helper.make_function("my", "F", ["a"], ["b"], nodes, imports)
        refused(model_of([call], opsets=opsets, functions=[function]), error, text)
    function = helper.make_function("my", "F", ["a"], ["b"], [relu("a", "b")], imports)
    refused(model_of([call], opsets=opsets, functions=[function, function]), Fail, "Duplicate definition of function")
    function.name = ""
    refused(model_of([call], opsets=opsets, functions=[function]), InvalidGraph, "A function has no name")


# --- types and attributes


def test_an_input_without_type():
    proto = model_of([relu()])
    proto.graph.input[0].ClearField("type")
    refused(proto, Fail, r"Model input \(x\) does not have type information")
    proto = model_of([relu()])
    proto.graph.input[0].type.tensor_type.elem_type = 0
    refused(proto, Fail, r"Model input \(x\) does not have type information")


def test_an_unknown_element_type():
    proto = model_of([relu()])
    proto.graph.input[0].type.tensor_type.elem_type = 77
    refused(proto, InvalidArgument, "Invalid tensor data type 77 of 'x'")


def test_a_map_whose_key_is_no_key():
    type = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    type.map_type.key_type = TensorProto.FLOAT
    refused(
        model_of([relu()], [helper.make_value_info("x", type)]), InvalidArgument, "float cannot be the key type of the map 'x'"
    )


def test_an_initializer_that_contradicts_its_input():
    w = tensor("w", np.ones(2, np.float32))
    ints = model_of([add("x", "w")], [info("x"), info("w", (2,), TensorProto.INT64)], initializers=[w])
    refused(ints, Fail, r"Data in initializer 'w' has element type tensor\(float\) but usage .* expects tensor\(int64\)")
    longer = model_of([add("x", "w")], [info("x"), info("w", (3,))], initializers=[w])
    refused(longer, Fail, r"Shape of initializer w does not match. \{3\} != \{2\}")


def attribute_model(**fields) -> onnx.ModelProto:
    node = relu(name="n")
    node.attribute.append(onnx.AttributeProto(**fields))
    return model_of([node])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "alpha", "f": 1.0, "type": 2}, "'n', Error type field and data field mismatch in attribute alpha"),
        ({"name": "alpha", "f": 1.0, "i": 2, "type": 2}, "mismatch in attribute alpha"),
        ({"name": "alpha", "f": 1.0}, "Field 'type' of attribute 'alpha' is required but missing"),
        ({"name": "alpha", "type": 4}, "Its type is TENSOR, its data absent"),
        ({"name": "alpha", "type": 5}, "Its type is GRAPH, its data absent"),
        ({"name": "", "type": 2}, "an attribute has no name"),
        ({"name": "alpha", "type": 1, "ref_attr_name": "q"}, "refers to 'q', which is possible inside a function only"),
    ],
    ids=range(7),
)
def test_attributes_of_the_wrong_kind(fields, text):
    refused(attribute_model(**fields), InvalidGraph, text)


def test_an_attribute_that_comes_twice():
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5, name="n")
    node.attribute.append(node.attribute[0])
    refused(model_of([node]), InvalidGraph, "LeakyRelu 'n', Error Attribute 'alpha' appeared multiple times")


def test_a_bomb_in_an_attribute():
    proto = attribute_model(name="value", type=4, t=TensorProto(data_type=1, dims=[2**40]))
    refused(proto, Fail, "Data of attribute 'value' of Relu 'n' does not fit its dims")


def test_a_bomb_in_an_initializer_takes_no_memory():
    bomb = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40])
    refused(model_of([add("x", "w")], initializers=[bomb]), Fail, "Data of initializer: w does not fit its dims")


def test_malformed_wire_data_makes_no_skeleton():
    good = model_of([relu()], initializers=[tensor("w", np.ones(1000, np.float32))]).SerializeToString()
    assert wire.skeleton(memoryview(good)) is not None
    for bad in (good[:-1], good + b"\xff", good + b"\x0b", good + b"\x00\x00", good + b"\xff" * 11):
        assert wire.skeleton(memoryview(bad)) is None
