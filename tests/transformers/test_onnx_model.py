"""OnnxModel answers and changes as onnxruntime's does, on a graph with dead parts, constants of both kinds and a body."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.transformers.onnx_model import OnnxModel

theirs = importlib.import_module("onnxruntime.transformers.onnx_model")

TEXT = """
<ir_version: 8, opset_import: ["": 13]>
main (float[n, 2] x, bool flag, int64[n] ids) => (float[n, 2] y, float[n, 2] z)
<float[2, 2] w0 = {1, 2, 3, 4}, float[2, 2] w1 = {1, 2, 3, 4}, float[2] b = {5, 6}, float[2] unused = {7, 8}> {
    [add] total = Add(product, b)
    [first] product = MatMul(x, w0)
    [two] two = Constant <value = float {2}> ()
    [dead] dead = Transpose <perm = [1, 0]> (total)
    [lost] lost = Constant <value_float = 3.0> ()
    [scale] scaled = Mul(total, two)
    [second] again = MatMul(scaled, w1)
    [up] wide = Cast <to = 11> (again)
    [down] narrow = Cast <to = 1> (wide)
    [skip] y = Add(narrow, x)
    [branch] z = If (flag) <
        then_branch = yes () => (float[n, 2] t) { [inner] t = Add(total, b) },
        else_branch = no () => (float[n, 2] e) <float[2] v = {1, 1}> { [other] e = Mul(total, v) }
    >
}
"""
FEEDS = {"x": np.array([[1, -2], [3, 4]], np.float32), "flag": np.array(True)}


def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(TEXT)
    for tensor in made.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # as raw bytes
    return made


def named(one, name):
    return next(node for node in one.nodes() if node.name == name)


def names(nodes):
    return None if nodes is None else [None if node is None else node.name for node in nodes]


QUESTIONS = {
    "readers": lambda one: {name: names(nodes) for name, nodes in one.input_name_to_nodes().items()},
    "makers": lambda one: {name: node.name for name, node in one.output_name_to_node().items()},
    "main graph": lambda one: [*one.input_name_to_nodes(True), *one.output_name_to_node(exclude_subgraphs=True)],
    "graphs": lambda one: [graph.name for graph in one.graphs()],
    "graph of a node": lambda one: [one.get_graph_by_node(named(one, name)).name for name in ("add", "inner", "other")],
    "names": lambda one: [sorted(one.get_graphs_input_names()), sorted(one.get_graphs_output_names())],
    "opset": lambda one: one.get_opset_version(),
    "ops": lambda one: dict(one.get_operator_statistics(include_domain=True)),
    "children": lambda one: [names(one.get_children(named(one, name))) for name in ("add", "first", "skip")],
    "parents": lambda one: [names(one.get_parents(named(one, name))) for name in ("skip", "scale", "first")],
    "parent": lambda one: names(one.get_parent(named(one, "scale"), index) for index in range(3)),
    "path": lambda one: names(one.match_parent_path(named(one, "skip"), ["Cast", "Cast", "MatMul", "Mul"], [0, 0, 0, 0])),
    "no path": lambda one: one.match_parent_path(named(one, "skip"), ["Cast", "MatMul"], [0, 0]),
    "child path": lambda one: names(one.match_child_path(named(one, "first"), ["Add", "Mul", "MatMul"])),
    "first child": lambda one: [one.find_first_child_by_type(named(one, "add"), op) is None for op in ("Cast", "Gemm")],
    "first parent": lambda one: one.find_first_parent_by_type(named(one, "skip"), "MatMul").name,
    "between": lambda one: names(one.get_parent_subgraph_nodes(named(one, "skip"), [named(one, "add")])),
    "after": lambda one: names(one.get_children_subgraph_nodes(named(one, "add"), [named(one, "up")])),
    "constants": lambda one: [np.asarray(one.get_constant_value(name)).tolist() for name in ("two", "b", "v")],
    "constant input": lambda one: one.find_constant_input(named(one, "scale"), 2.0),
    "no constant input": lambda one: one.find_constant_input(named(one, "scale"), 2.5),
    "shapes": lambda one: [one.get_shape(name) for name in ("x", "w0", "nothing")],
    "types": lambda one: [one.get_dtype(name) for name in ("ids", "w0", "nothing")],
    "attribute": lambda one: [one.get_node_attribute(named(one, "up"), name) for name in ("to", "of")],
    "new names": lambda one: [one.create_node_name(*words) for words in (("Foo",), ("Foo",), ("Foo", "Bar_"))],
    "same values": lambda one: one.has_same_value(one.get_initializer("w0"), one.get_initializer("w1")),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_as_onnxruntime_does(question):
    assert QUESTIONS[question](OnnxModel(model())) == QUESTIONS[question](theirs.OnnxModel(model()))


EDITS = {
    "sort": lambda one: [one.remove_node(named(one, "branch")), one.topological_sort()],
    "sort by names": lambda one: [one.remove_node(named(one, "branch")), one.topological_sort(is_deterministic=True)],
    "update": lambda one: one.update_graph(),
    "update inputs": lambda one: one.update_graph(allow_remove_graph_inputs=True),
    "unused constants": lambda one: one.remove_unused_constant(),
    "duplicates": lambda one: one.remove_duplicated_initializer({}),
    "casts": lambda one: one.remove_cascaded_cast_nodes(),
    "input type": lambda one: one.change_graph_input_type(one.find_graph_input("x"), TensorProto.DOUBLE),
    "output name": lambda one: one.rename_graph_output("y", "new"),
    "other input": lambda one: one.replace_input_of_all_nodes("total", "product"),
    "remove": lambda one: one.remove_nodes([named(one, "dead"), named(one, "lost")]),
    "add": lambda one: one.add_nodes([helper.make_node("Neg", ["x"], ["minus"], name="neg")], {"neg": "yes"}),
    "add a weight": lambda one: one.add_initializer(numpy_helper.from_array(np.ones(1), "new")),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edits_leave_the_graph_that_onnxruntime_leaves(edit):
    ours, other = OnnxModel(model()), theirs.OnnxModel(model())
    EDITS[edit](ours)
    EDITS[edit](other)
    assert ours.model == other.model


def test_pruning_keeps_what_outputs_need_and_results_stay():
    wanted = sardonyx.InferenceSession(model()).run(None, FEEDS | {"ids": np.zeros(2, np.int64)})
    for outputs in (None, ["z"]):
        pruned = OnnxModel(model())
        pruned.prune_graph(outputs)
        assert not {"dead", "lost"} & {node.name for node in pruned.nodes()}
        assert [value.name for value in pruned.model.graph.input] == ["x", "flag"]
        results = sardonyx.InferenceSession(pruned.model).run(None, FEEDS)
        np.testing.assert_array_equal(results[-1], wanted[-1])
    assert [node.name for node in pruned.graph().node] == ["add", "first", "branch"]


def test_an_output_of_another_type_and_prefixed_names_leave_the_model_whole():
    changed = OnnxModel(model())
    changed.change_graph_output_type(changed.find_graph_output("y"), TensorProto.DOUBLE)
    changed.add_prefix_to_names("p/")
    changed.topological_sort()
    onnx.checker.check_model(changed.model, full_check=True)
    feeds = FEEDS | {"ids": np.zeros(2, np.int64)}
    old, new = (sardonyx.InferenceSession(one).run(None, feeds) for one in (model(), changed.model))
    assert new[0].dtype == np.float64
    for before, after in zip(old, new, strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_cast_that_cuts_is_not_skipped():
    cut = OnnxModel(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 13]> g (float[n] x) => (float[n] y)'
            "{ whole = Cast <to = 7> (x) y = Cast <to = 1> (whole) }"
        )
    )
    cut.remove_cascaded_cast_nodes()
    assert [node.input[0] for node in cut.nodes()] == ["x", "whole"]


def test_a_cycle_is_told():
    looped = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[n] x) => (float[n] y) { y = Add(x, z) z = Neg(y) }'
    )
    with pytest.raises(RuntimeError, match="not a DAG"):
        OnnxModel(looped).topological_sort()


@pytest.mark.parametrize("is_one_file", [True, False])
def test_weights_go_into_files_beside_the_model(tmp_path, is_one_file):
    path = tmp_path / "sub" / "model.onnx"
    OnnxModel(model()).save_model_to_file(path, True, is_one_file, size_threshold=0)
    raw = onnx.load(path, load_external_data=False)
    assert all(tensor.data_location == TensorProto.EXTERNAL for tensor in raw.graph.initializer)
    assert len(list(path.parent.iterdir())) == (2 if is_one_file else 1 + len(raw.graph.initializer))
    session = sardonyx.InferenceSession(path)
    feeds = FEEDS | {"ids": np.zeros(2, np.int64)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], sardonyx.InferenceSession(model()).run(None, feeds)[0])
    if not is_one_file:
        with pytest.raises(RuntimeError, match="is not empty"):
            OnnxModel(model()).save_model_to_file(path, True, False)


@pytest.mark.parametrize("kind", [OnnxModel, ONNXModel], ids=["transformers", "quantization"])
def test_a_model_that_is_saved_twice_keeps_its_weights(tmp_path, kind):
    path, wide = tmp_path / "model.onnx", np.arange(4096, dtype=np.float32)
    graph = onnx.parser.parse_graph("g (float[4096] x) => (float[4096] y) { c = Constant() y = Sum(x, w, c) }")
    graph.initializer.append(numpy_helper.from_array(wide, "w"))
    graph.node[0].attribute.append(helper.make_attribute("value", numpy_helper.from_array(wide, "inner")))
    whole = kind(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    for _ in range(2):
        whole.save_model_to_file(path, True)
        for results in (sardonyx.InferenceSession(path), sardonyx.InferenceSession(whole.model.SerializeToString())):
            np.testing.assert_array_equal(results.run(None, {"x": wide})[0], 3 * wide)
    assert path.with_name("model.onnx.data").stat().st_size == wide.nbytes  # written anew, not appended to


def test_weights_that_were_not_loaded_stay_in_their_file(tmp_path):
    path = tmp_path / "model.onnx"
    OnnxModel(model()).save_model_to_file(path, True, size_threshold=0)
    before = onnx.load(path)
    OnnxModel(onnx.load(path, load_external_data=False)).save_model_to_file(path, True)
    assert [*onnx.load(path).graph.initializer] == [*before.graph.initializer]


def test_shapes_are_told_for_given_sizes():
    shapes = OnnxModel(model()).infer_runtime_shape({"n": 7}, update=True)
    assert shapes is not None
    assert shapes.get_edge_shape("again") == [7, 2] and shapes.compare_shape("again", "total")
