"""What a well-formed model becomes when it is read."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sardonyx import dtypes, formats, ir
from sardonyx.errors import InvalidProtobuf
from sardonyx.formats import mapping
from sardonyx.formats.onnx import wire
from sardonyx.formats.onnx.reader import read_function
from sardonyx.ir.verify import verify
from tests.formats.building import add, info, model_of, relu, tensor
from tests.ir.comparing import assert_same_model

MODELS = sorted((Path(__file__).parent.parent / "models").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_all_sources_give_the_same_model(path: Path) -> None:
    expected = formats.load(path)
    verify(expected)
    assert expected.path == path and expected.folder == path.parent
    with open(path, "rb") as file:
        sources = [str(path), path.read_bytes(), file, onnx.load(path, load_external_data=False), io.BytesIO(path.read_bytes())]
        for source in sources:
            assert_same_model(formats.load(source, folder=path.parent), expected)


def test_large_initializers_are_views_of_the_bytes_that_were_given():
    weights = np.arange(1024, dtype=np.uint8)
    data = model_of([relu()], initializers=[tensor("small", np.ones(2, np.float32)), tensor("w", weights)]).SerializeToString()
    loaded = formats.load(data).graph.initializers["w"].constant.numpy()
    np.testing.assert_array_equal(loaded, weights)
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    assert start <= loaded.__array_interface__["data"][0] < start + len(data)


def test_large_files_survive_replacement(tmp_path, monkeypatch):
    monkeypatch.setattr(mapping, "READ_BELOW", 0)
    weights = np.arange(5000, dtype=np.float64)
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of([relu()], initializers=[tensor("w", weights)]).SerializeToString())
    model = formats.load(path)
    formats.save(formats.load(model_of([relu()]).SerializeToString()), path)
    np.testing.assert_array_equal(model.graph.initializers["w"].constant.numpy(), weights)


@pytest.mark.parametrize("distinct", [700, 100_000])
def test_equal_integers_of_a_long_list_are_one_object(distinct: int) -> None:
    numbers = [number % distinct - 350 for number in range(200_000)]
    node = helper.make_node("Op", ["x"], ["y"], domain="my.ops", ids=numbers)
    (read,) = formats.load(model_of([node], opsets=(("", 17), ("my.ops", 1))).SerializeToString()).graph.nodes
    ids = read.attributes["ids"].value
    assert ids == numbers and all(type(number) is int for number in ids)
    assert (ids[600] is ids[600 + distinct]) and (len(set(map(id, ids))) == 700 or distinct > 700)


def test_data_is_fetched_when_it_is_needed():
    model = formats.load(model_of([relu()], initializers=[tensor("w", np.zeros(300, np.float32))]).SerializeToString())
    constant = model.graph.initializers["w"].constant
    assert not constant.is_loaded
    assert constant.numpy() is constant.numpy()
    assert not constant.numpy().flags.writeable and constant.numpy().flags.aligned


def test_the_skeleton_has_no_large_data_and_merges_repeated_graphs():
    first = model_of([relu()], initializers=[tensor("a", np.full(2000, 1, np.uint8)), tensor("b", np.full(3, 2, np.uint8))])
    second = model_of([], [], [], initializers=[tensor("c", np.full(3000, 3, np.uint8))])
    data = first.SerializeToString() + second.SerializeToString()[0:0] + _graph_field(second)
    skeleton = wire.skeleton(memoryview(data))
    assert skeleton is not None and len(skeleton.data) < 500
    assert sorted(skeleton.spans) == [0, 2]
    initializers = formats.load(data).graph.initializers
    assert {name: value.constant.numpy().tolist()[0] for name, value in initializers.items()} == {"a": 1, "b": 2, "c": 3}


def _graph_field(model: onnx.ModelProto) -> bytes:
    """Protobuf merges a field that comes twice."""
    return onnx.ModelProto(graph=model.graph).SerializeToString()


def test_the_last_of_two_raw_data_fields_counts():
    proto = tensor("w", np.full(2000, 1, np.uint8))
    twice = proto.SerializeToString() + TensorProto(raw_data=b"\2" * 2000).SerializeToString()
    data = model_of([relu()]).SerializeToString()
    graph = _length_delimited(5, twice)
    loaded = formats.load(data + _length_delimited(7, graph))
    assert set(loaded.graph.initializers["w"].constant.numpy().tolist()) == {2}


def _length_delimited(number: int, body: bytes) -> bytes:
    return wire._length_delimited(number, body)


@pytest.mark.skipif(sys.platform == "win32", reason="files have no holes there")
def test_a_single_file_beyond_two_gigabytes(tmp_path):
    count = 2**31 + 10
    head = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[count]).SerializeToString()
    small = model_of([relu()])
    graph = small.graph.SerializeToString()
    small.ClearField("graph")
    raw_key = wire._encoded(9 << 3 | 2) + wire._encoded(count)
    tensor_length = len(head) + len(raw_key) + count
    tensor_key = wire._encoded(5 << 3 | 2) + wire._encoded(tensor_length)
    graph_length = len(graph) + len(tensor_key) + tensor_length
    before = (
        small.SerializeToString()
        + wire._encoded(7 << 3 | 2)
        + wire._encoded(graph_length)
        + graph
        + tensor_key
        + head
        + raw_key
    )
    with open(tmp_path / "m.onnx", "wb") as file:
        file.write(before)
        file.seek(count - 1, os.SEEK_CUR)
        file.write(b"\x07")
    model = formats.load(tmp_path / "m.onnx")
    array = model.graph.initializers["w"].constant.numpy()
    assert array.shape == (count,) and (array[0], array[-1]) == (0, 7)
    assert [node.op_type for node in model.graph.nodes] == ["Relu"]


def test_an_initializer_of_ir_3_is_a_constant_and_no_input():
    w = tensor("w", np.ones(2, np.float32))
    graph = formats.load(model_of([add("x", "w")], [info("x"), info("w", ["n"])], initializers=[w], ir_version=3)).graph
    assert [value.name for value in graph.inputs] == ["x"]
    value = graph.initializers["w"]
    assert value.is_constant and not value.is_input and value.type == value.constant.type


def test_an_initializer_of_ir_4_that_is_an_input_can_be_overridden():
    w = tensor("w", np.ones(2, np.float32))
    graph = formats.load(model_of([add("x", "w")], [info("x"), info("w", ["n"])], initializers=[w], ir_version=4)).graph
    value = graph.inputs[1]
    assert value.is_input and not value.is_constant and value.constant is not None
    assert ir.described(value.type) == "float[n]"


def test_nodes_are_sorted_and_otherwise_keep_their_order():
    nodes = [
        helper.make_node("Sum", ["c", "a", "b"], ["y"]),
        relu("x", "b"),
        relu("b", "c"),
        relu("x", "a"),
    ]
    graph = formats.load(model_of(nodes)).graph
    assert [node.outputs[0].name for node in graph.nodes] == ["b", "c", "a", "y"]


def test_a_subgraph_may_need_a_node_that_comes_later_in_the_file():
    branch = helper.make_graph([relu("late", "z")], "branch", [], [info("z")])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch), relu("x", "late")]
    model = formats.load(model_of(nodes, [info("x"), info("c", [], TensorProto.BOOL)]))
    verify(model)
    assert [node.op_type for node in model.graph.nodes] == ["Relu", "If"]


def test_inner_graphs_use_outer_values_directly():
    model = formats.load(MODELS[[path.stem for path in MODELS].index("if_outer_scope")])
    (node,) = model.graph.nodes
    captured = node.implicit_inputs()
    assert captured and all(value.graph is model.graph for value in captured)


def test_an_inner_name_hides_an_outer_one():
    branch = helper.make_graph([helper.make_node("Neg", ["w"], ["x"]), relu("x", "z")], "b", [], [info("z")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    w = tensor("w", np.ones(2, np.float32))
    model = formats.load(model_of([node], [info("x"), info("c", [], TensorProto.BOOL)], initializers=[w]))
    verify(model)
    inner = list(next(next(iter(model.graph.nodes)).subgraphs).nodes)
    assert inner[1].inputs[0] is inner[0].outputs[0]


def test_an_outer_value_that_a_subgraph_returns_goes_through_an_identity():
    branch = helper.make_graph([], "b", [], [info("x")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = formats.load(model_of([node], [info("x"), info("c", [], TensorProto.BOOL)]))
    verify(model)
    for graph in next(iter(model.graph.nodes)).subgraphs:
        (identity,) = graph.nodes
        assert identity.op_type == "Identity" and identity.inputs[0] is model.graph.inputs[0]


def test_versions_come_from_the_imports():
    nodes = [
        relu("x", "a"),
        helper.make_node("Relu", ["a"], ["b"], domain="ai.onnx"),
        helper.make_node("Binarizer", ["b"], ["c"], domain="ai.onnx.ml"),
        helper.make_node("Gelu", ["c"], ["y"], domain="com.microsoft"),
    ]
    model = formats.load(model_of(nodes, opsets=(("ai.onnx", 17), ("ai.onnx.ml", 3))))
    assert [(node.domain, node.version) for node in model.graph.nodes] == [
        ("", 17),
        ("", 17),
        ("ai.onnx.ml", 3),
        ("com.microsoft", 1),
    ]
    assert model.opsets == {"": 17, "ai.onnx.ml": 3}


def test_nodes_of_functions_have_the_versions_of_their_function():
    function = helper.make_function("my", "F", ["a"], ["b"], [relu("a", "b")], [helper.make_opsetid("", 13)])
    call = helper.make_node("F", ["x"], ["y"], domain="my")
    model = formats.load(model_of([call], opsets=(("", 17), ("my", 2)), functions=[function]))
    (function,) = model.functions.values()
    assert [node.version for node in function.graph.nodes] == [13]
    assert [node.version for node in model.graph.nodes] == [2]


def test_attribute_references_are_kept_in_functions():
    node = relu("a", "b")
    node.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    proto = helper.make_function("my", "F", ["a"], ["b"], [node], [helper.make_opsetid("", 13)], attributes=["slope"])
    function = read_function(proto)
    (made,) = function.graph.nodes
    assert made.attributes["alpha"] == ir.Attribute(ir.Kind.FLOAT, None, reference="slope")
    assert function.required_attributes == ["slope"]


def test_documentation_metadata_and_annotations_are_kept():
    proto = model_of([relu(name="n", doc_string="node")], value_info=[info("y")])
    proto.doc_string, proto.graph.doc_string, proto.model_version = "model", "graph", 0
    proto.graph.input[0].doc_string = "input"
    for owner in (proto, proto.graph, proto.graph.node[0], proto.graph.input[0]):
        owner.metadata_props.add(key="k", value=type(owner).__name__)
    annotation = proto.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    model = formats.load(proto)
    (node,) = model.graph.nodes
    assert (model.doc, model.graph.doc, node.doc, model.graph.inputs[0].doc) == ("model", "graph", "node", "input")
    owners = (model, model.graph, node, model.graph.inputs[0])
    assert [owner.metadata["k"] for owner in owners] == ["ModelProto", "GraphProto", "NodeProto", "ValueInfoProto"]
    assert model.graph.quantization == {"x": {"SCALE_TENSOR": "s"}}
    assert model.model_version == 0


def test_types_of_all_kinds_are_read():
    tensor_type = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", None, 3, -1])
    types = {
        "float[n, ?, 3, ?]": tensor_type,
        "seq(float[n, ?, 3, ?])": helper.make_sequence_type_proto(tensor_type),
        "optional(float[n, ?, 3, ?])": helper.make_optional_type_proto(tensor_type),
        "map(int64, float[n, ?, 3, ?])": helper.make_map_type_proto(TensorProto.INT64, tensor_type),
        "sparse double[2]": helper.make_sparse_tensor_type_proto(TensorProto.DOUBLE, [2]),
        "string[...]": helper.make_tensor_type_proto(TensorProto.STRING, None),
    }
    inputs = [helper.make_value_info(f"v{number}", type) for number, type in enumerate(types.values())]
    graph = formats.load(model_of([relu("v0")], inputs)).graph
    texts = [ir.described(value.type) for value in graph.inputs]
    assert [_without_numbers(text) for text in texts] == list(types)


def _without_numbers(text: str) -> str:
    import re

    return re.sub(r"\?\d+", "?", text)


def test_sparse_initializers_have_a_dense_constant():
    values = tensor("s", np.array([5.0, 7.0], np.float32))
    flat = helper.make_sparse_tensor(values, tensor("", np.array([1, 5], np.int64)), [2, 3])
    values = tensor("t", np.array([5.0, 7.0], np.float32))
    pairs = helper.make_sparse_tensor(values, tensor("", np.array([[0, 1], [1, 2]], np.int64)), [2, 3])
    proto = model_of([add("s", "t")], [], sparse_initializer=[flat, pairs])
    graph = formats.load(proto).graph
    for name in ("s", "t"):
        value = graph.initializers[name]
        assert value.is_constant and value.sparse is not None and value.type == ir.TensorType(dtypes.float32, (2, 3))
        np.testing.assert_array_equal(value.constant.numpy(), [[0, 5, 0], [0, 0, 7]])


def test_attributes_of_all_kinds_are_read():
    node = helper.make_node(
        "Op", ["x"], ["y"], domain="my", f=1.5, i=3, s="text", b=b"\xff\xfe", fs=[1.5, 2.5], ints=[1, 2], ss=["a", b"\xff"]
    )
    node.attribute.append(helper.make_attribute("t", tensor("c", np.ones(2, np.int8))))
    node.attribute.append(helper.make_attribute("ts", [tensor("c", np.ones(2, np.int8))]))
    node.attribute.append(helper.make_attribute("g", helper.make_graph([relu("x", "z")], "inner", [], [info("z")])))
    node.attribute.append(helper.make_attribute("tp", helper.make_tensor_type_proto(TensorProto.INT8, [1])))
    node.attribute.append(helper.make_attribute("empty", [], attr_type=onnx.AttributeProto.STRINGS))
    sparse = helper.make_sparse_tensor(tensor("v", np.ones(1, np.float32)), tensor("", np.zeros(1, np.int64)), [4])
    node.attribute.append(helper.make_attribute("sparse", sparse))
    (read,) = formats.load(model_of([node], opsets=(("", 17), ("my", 1)))).graph.nodes
    found = {name: attribute.value for name, attribute in read.attributes.items()}
    assert (found["f"], found["i"], found["s"], found["b"]) == (1.5, 3, "text", b"\xff\xfe")
    assert (found["fs"], found["ints"], found["ss"], found["empty"]) == ([1.5, 2.5], [1, 2], ["a", b"\xff"], [])
    np.testing.assert_array_equal(found["t"].numpy(), np.ones(2, np.int8))
    assert found["ts"][0].dtype is dtypes.int8 and found["g"].parent is read
    assert found["tp"] == ir.TensorType(dtypes.int8, (1,))
    np.testing.assert_array_equal(found["sparse"].to_dense(), [1, 0, 0, 0])
    assert read.attributes["empty"].kind is ir.Kind.STRINGS


def test_the_kind_of_an_attribute_of_ir_1_is_seen_from_its_value():
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    node.attribute[0].ClearField("type")
    (read,) = formats.load(model_of([node], ir_version=1)).graph.nodes
    assert read.attributes["alpha"].kind is ir.Kind.FLOAT


def test_a_model_proto_may_change_after_it_was_loaded():
    proto = model_of([relu()], initializers=[tensor("w", np.ones(500, np.float32))])
    model = formats.load(proto)
    proto.graph.initializer[0].raw_data = bytes(2000)
    assert model.graph.initializers["w"].constant.numpy()[0] == 1


def test_long_chains_are_no_problem():
    count = 50_000
    nodes = [relu(f"v{number}", f"v{number + 1}") for number in range(count)]
    graph = formats.load(model_of(nodes[::-1], [info("v0")], [info(f"v{count}")])).graph
    assert len(graph) == count and next(iter(graph.nodes)).inputs[0] is graph.inputs[0]


def test_an_ort_format_file_under_another_name_is_told_what_its_name_should_be(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\x10\0\0\0ORTM\0\0")
    with pytest.raises(InvalidProtobuf, match=r"Load model from .*m.onnx failed:.*must end in \.ort"):
        formats.load(tmp_path / "m.onnx")


def test_marks_for_unknown_sizes_are_no_names():
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "?", "?", "-1", "*"])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [image], [])
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", None, None, None, None]))
    model = formats.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    size, *others = model.graph.inputs[0].type.shape
    assert size == ir.dim.symbol("N")
    assert len(set(others)) == 4 and all(map(ir.dim.is_anonymous, others))
