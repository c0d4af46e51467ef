"""Models that are written read back as they were, in one file or with their weights beside it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper

from sardonyx import formats, ir
from sardonyx.errors import Fail, InvalidArgument, InvalidGraph
from sardonyx.formats.onnx import saving
from sardonyx.formats.onnx.writer import write_model, write_node
from sardonyx.ir import edit
from sardonyx.ir.verify import verify
from tests.formats.building import info, model_of, relu, tensor
from tests.formats.random_models import models
from tests.ir.comparing import assert_same_model

MODELS = sorted((Path(__file__).parent.parent / "models").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_survives_being_written(path: Path, tmp_path: Path) -> None:
    model = formats.load(path)
    again = formats.load(write_model(model))
    verify(again)
    assert_same_model(model, again)
    formats.save(model, tmp_path / "m.onnx")
    assert_same_model(model, formats.load(tmp_path / "m.onnx"))
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(models())
def test_random_models_survive_being_written(model: ir.Model) -> None:
    verify(model)
    again = formats.load(write_model(model).SerializeToString())
    verify(again)
    assert_same_model(model, again)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(models())
def test_random_models_can_be_cloned(model: ir.Model) -> None:
    copy = edit.clone_model(model)
    verify(copy)
    verify(model)
    assert_same_model(model, copy)
    edit.remove_unused(copy.graph)
    verify(copy)
    verify(model)


def weights_model(**sizes: int) -> ir.Model:
    rng = np.random.default_rng(0)
    initializers = [tensor(name, rng.standard_normal(size).astype(np.float32)) for name, size in sizes.items()]
    return formats.load(model_of([relu()], initializers=initializers))


def test_weights_in_one_file_beside_the_model(tmp_path):
    model = weights_model(small=4, a=300, b=400_000, c=301)
    formats.save(model, tmp_path / "m.onnx", external_data="m.data")
    assert sorted(os.listdir(tmp_path)) == ["m.data", "m.onnx"]
    again = formats.load(tmp_path / "m.onnx")
    found = {name: value.constant.external for name, value in again.graph.initializers.items()}
    assert found["small"] is None
    assert (found["a"].offset, found["a"].length) == (0, 1200)
    assert found["b"].offset % 4096 == 0 and found["c"].offset % 64 == 0
    assert_same_model(model, again)
    loaded = onnx.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(loaded.graph.initializer[2]), model.graph.initializers["b"].constant.numpy()
    )


def test_no_file_of_a_tensor_is_a_device_of_windows(tmp_path):
    graph = ir.Graph("g")
    names = ["CON", "nul", "com1", "aux.x", "../up", "..", "a", "A"]
    for number, name in enumerate(names):
        graph.add_initializer(name, ir.Tensor.of(np.full(300, number, np.float32), name))
    formats.save(ir.Model(graph, {"": 17}, ir_version=8), tmp_path / "m.onnx", external_data="per-tensor")
    files = sorted(path.name.lower() for path in tmp_path.iterdir() if path.name != "m.onnx")
    assert len(set(files)) == len(names)
    assert not any(name.split(".")[0] in ("con", "nul", "com1", "aux") for name in files)


def test_a_file_per_tensor(tmp_path):
    model = weights_model(**{"layer/0:w": 300, "layer_0_w": 300, "LAYER_0_W": 300, "..": 300, "m.onnx": 300})
    formats.save(model, tmp_path / "m.onnx", external_data="per-tensor")
    assert len({name.casefold() for name in os.listdir(tmp_path)}) == 6
    assert_same_model(model, formats.load(tmp_path / "m.onnx"))


def test_the_threshold_says_what_goes_out(tmp_path):
    model = weights_model(a=10, b=11)
    formats.save(model, tmp_path / "m.onnx", external_data="m.data", size_threshold=44)
    again = formats.load(tmp_path / "m.onnx")
    assert [value.constant.external is None for value in again.graph.initializers.values()] == [True, False]


def test_saving_over_the_files_that_a_model_came_from(tmp_path):
    formats.save(weights_model(a=5000), tmp_path / "m.onnx", external_data="m.data")
    model = formats.load(tmp_path / "m.onnx")
    formats.save(model, tmp_path / "m.onnx", external_data="m.data")
    formats.save(model, tmp_path / "m.onnx")
    assert_same_model(model, formats.load(tmp_path / "m.onnx"))


def test_nothing_remains_of_a_failed_save(tmp_path):
    model = weights_model(a=300)
    formats.save(model, tmp_path / "m.onnx", external_data="m.data")
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    broken = weights_model(a=300, b=300)
    broken.graph.initializers["b"].constant = ir.Tensor(broken.graph.initializers["b"].constant.dtype, (300,), fail)
    for external_data in ("m.data", None, "per-tensor"):
        with pytest.raises(Fail, match="no data"):
            formats.save(broken, tmp_path / "m.onnx", external_data=external_data)
    (tmp_path / "a.bin").unlink()  # whole tensors of the per-tensor form are complete files already
    assert before == {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}


def fail() -> np.ndarray:
    raise Fail("no data")


@pytest.mark.parametrize("name", ["/tmp/w", "../w", "", "m.onnx", "a/.."])
def test_weights_stay_in_the_folder_of_the_model(tmp_path, name):
    with pytest.raises(InvalidArgument, match="external_data must name a file"):
        formats.save(weights_model(a=300), tmp_path / "m.onnx", external_data=name)


def test_more_than_two_gigabytes_need_external_data(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MAX_MESSAGE", 1000)
    with pytest.raises(Fail, match="more than the 2 GB .* external_data"):
        formats.save(weights_model(a=300), tmp_path / "m.onnx")
    formats.save(weights_model(a=300), tmp_path / "m.onnx", external_data="m.data")


def test_ort_files_need_somebody_who_knows_ops(tmp_path):
    with pytest.raises(Fail, match="sardonyx convert"):
        formats.save(weights_model(), tmp_path / "m.ort")


def test_an_absent_model_version_stays_absent():
    assert not write_model(formats.load(model_of([relu()]))).HasField("model_version")


def test_initializers_of_ir_3_are_listed_among_the_inputs():
    w = tensor("w", np.ones(2, np.float32))
    model = formats.load(model_of([relu()], [info("x"), info("w")], initializers=[w], ir_version=3))
    proto = write_model(model)
    assert [one.name for one in proto.graph.input] == ["x", "w"]
    assert_same_model(model, formats.load(proto))


def test_values_without_a_name_get_one():
    graph = ir.Graph("g", [ir.Value("value", ir.TensorType(None))])
    middle = graph.append(ir.Node("Relu", [graph.inputs[0]], version=17))
    last = graph.append(ir.Node("Relu", [middle.outputs[0]], version=17))
    graph.outputs.append(last.outputs[0])
    proto = write_model(ir.Model(graph, {"": 17}))
    assert [list(node.output) for node in proto.graph.node] == [["value_2"], ["value_1"]]
    assert [one.name for one in proto.graph.output] == ["value_1"]


def test_an_inner_value_does_not_hide_an_outer_one():
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["t"]), relu("t", "z")], "b", [], [info("z")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = formats.load(model_of([node], [info("x"), info("c", [], TensorProto.BOOL)]))
    graph = next(next(iter(model.graph.nodes)).subgraphs)
    graph.append(ir.Node("Abs", [model.graph.inputs[0]], ["x"], version=17))  # legal here, where links count
    again = formats.load(write_model(model))
    inner = list(next(next(iter(again.graph.nodes)).subgraphs).nodes)
    assert inner[0].inputs[0] is again.graph.inputs[0] and inner[2].inputs[0] is again.graph.inputs[0]


def test_domains_that_nodes_need_are_imported():
    model = formats.load(model_of([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]))
    assert [(one.domain, one.version) for one in write_model(model).opset_import] == [("", 17), ("com.microsoft", 1)]


def test_nodes_of_another_version_are_written_only_if_that_means_the_same():
    model = formats.load(model_of([relu(name="r")]))
    (node,) = model.graph.nodes
    node.version = 14
    write_model(model)
    node.version = 13
    with pytest.raises(Fail, match="Relu 'r' is written for opset 13 .* the model imports 17"):
        write_model(model)


def test_what_does_not_fit_an_attribute_is_named():
    model = formats.load(model_of([relu(name="r")]))
    next(iter(model.graph.nodes)).attributes["big"] = ir.Attribute(ir.Kind.INT, 2**70)
    with pytest.raises(InvalidGraph, match="Relu 'r': attribute 'big' cannot be written as INT"):
        write_model(model)


def test_a_node_can_be_written_alone():
    branch = helper.make_graph([relu("x", "z")], "b", [], [info("z")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = formats.load(model_of([node], [info("x"), info("c", [], TensorProto.BOOL)]))
    proto = write_node(next(iter(model.graph.nodes)))
    assert proto.attribute[0].g.node[0].input == ["x"] and proto.output == ["y"]
