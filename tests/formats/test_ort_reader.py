"""ORT format files -> models -> sessions: files of onnxruntime, its verdicts on edited ones, sources, options, versions."""

from __future__ import annotations

import gc
import io
import logging
import shutil

import numpy as np
import pytest

import sardonyx
from sardonyx import errors, formats
from sardonyx.errors import Fail, InvalidGraph, InvalidProtobuf, NoSuchFile
from sardonyx.formats.onnx.writer import write_model
from sardonyx.formats.ort.reader import read_model
from sardonyx.ir.verify import verify
from tests.formats.ort_files import (
    FILES,
    NAMES,
    REPLAY,
    Tree,
    changed,
    contents,
    edited,
    node_of,
    session_of,
    value_of,
)
from tests.formats.ort_fixtures import HERE, MANIFEST, MODELS, assert_gives_expected

MUTANTS = MANIFEST["mutants"]


# --- files of onnxruntime


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize(("model", "file"), FILES, ids=NAMES)
def test_sessions_compute_what_onnxruntime_computed(model, file, native):
    assert_gives_expected(model, session_of(HERE / "models" / file["file"], native=native))


@pytest.mark.parametrize(("model", "file"), FILES, ids=NAMES)
def test_models_are_sound_and_have_the_ops_that_the_file_has(model, file):
    loaded = formats.load(HERE / "models" / file["file"])
    verify(loaded)
    assert {node.op_type for node in loaded.graph.all_nodes()} == {op.split(":")[1] for op in file["ops"]}
    assert loaded.ort_version == 6 and loaded.stored_types


@pytest.mark.parametrize(("model", "file"), [one for one in FILES if "replayable" in one[1]], ids=str)
@pytest.mark.parametrize("native", ["0", "1"])
def test_saved_optimizations_are_made_if_asked_for(model, file, native):
    path = HERE / "models" / file["file"]
    if file["replayable"]:
        assert_gives_expected(model, session_of(path, REPLAY, native))
    else:
        with pytest.raises(Fail, match="Not enough produced nodes in the runtime optimization record"):
            session_of(path, REPLAY, native)


@pytest.mark.parametrize("item", MUTANTS, ids=lambda item: item["file"])
def test_edited_files_get_onnxruntimes_verdict(item):
    """All of them: nothing here is refused that the original takes."""
    path = HERE / "mutants" / item["file"]
    if item["loads"]:
        assert_gives_expected("basic", session_of(path))
        return
    with pytest.raises(errors.CODED) as raised:
        session_of(path)
    words = {word for word in item["message"].replace(".", " ").split() if word.islower() and len(word) > 5}
    assert words & set(str(raised.value).replace(".", " ").split()), str(raised.value)


def test_all_that_the_file_says_of_itself_is_kept():
    model = read_model(contents("basic.noopt"))
    assert (model.producer_name, model.domain, model.model_version, model.doc) == (
        "sardonyx-fixtures",
        "org.sardonyx.test",
        7,
        "model doc",
    )
    assert model.metadata == {"alpha": "1", "beta": "two"} and model.graph.doc == "graph doc"
    assert read_model(contents("conv_relu.noopt")).model_version is None
    assert model.stored_types == {
        ":Add:14": {"T": [(0, 0), (0, 1), (1, 0)]},
        ":Mul:14": {"T": [(0, 0), (0, 1), (1, 0)]},
    }


def test_nodes_have_the_opset_that_the_model_imports():
    model = read_model(contents("basic.noopt"))
    assert {node.version for node in model.graph.nodes} == {17}


def test_values_of_outer_graphs_are_the_same_values_inside():
    model = read_model(contents("nested_loop_if.noopt"))
    loop = next(node for node in model.graph.all_nodes() if node.op_type == "Loop")
    inside = {id(value) for graph in loop.subgraphs for value in graph.captured()}
    assert inside & {id(value) for value in model.graph.values()}


def test_initializers_among_the_inputs_can_be_fed():
    model = read_model(contents("overridable_initializer.noopt"))
    assert any(value.constant is not None for value in model.graph.inputs)
    old = read_model(edited("overridable_initializer.noopt", changed("model", ir_version=3)))
    assert not any(value.constant is not None for value in old.graph.inputs)


def test_sparse_initializers_stay_sparse_beside_their_dense_form():
    model = read_model(contents("sparse_initializer.noopt"))
    sparse = [value for value in model.graph.initializers.values() if value.sparse is not None]
    assert sparse and all(np.array_equal(value.constant.numpy(), value.sparse.to_dense()) for value in sparse)


def test_a_model_can_go_on_as_onnx():
    for name in ("basic.noopt", "if_edges.opt", "qdq_conv.opt", "strings_ml.opt", "sequence.noopt", "dtypes.noopt"):
        proto = write_model(read_model(contents(name)))
        assert_gives_expected(name.split(".")[0], session_of(proto.SerializeToString()))


# --- where models come from


def test_a_path_bytes_and_file_objects_are_the_same(tmp_path):
    path = HERE / "models" / "basic.noopt.ort"
    data = path.read_bytes()
    for source in (str(path), path, data, bytearray(data), memoryview(data), io.BytesIO(data)):
        assert_gives_expected("basic", session_of(source))
    for source in (path, data, io.BytesIO(data), bytearray(data)):
        assert formats.load(source).ort_version == 6


def test_the_ending_of_the_name_tells_the_format_of_a_file(tmp_path, monkeypatch):
    source = HERE / "models" / "basic.noopt.ort"
    monkeypatch.chdir(tmp_path)
    for name in ("a.ort", "b.ORT", "./.ort"):
        shutil.copy(source, name)
        assert_gives_expected("basic", session_of(name))
    shutil.copy(source, "model.bin")
    for name in ("model.bin", ".ort"):
        with pytest.raises(InvalidProtobuf):
            session_of(name)
    assert_gives_expected("basic", session_of("model.bin", {"session.load_model_format": "ORT"}))
    (tmp_path / "onnx.ort").write_bytes((MODELS / "basic.onnx").read_bytes())
    with pytest.raises(Fail, match="ORT model verification failed"):
        session_of("onnx.ort")
    assert_gives_expected("basic", session_of("onnx.ort", {"session.load_model_format": "ONNX"}))


@pytest.mark.parametrize("asked", ["ONNX", "ort", "x"])
def test_any_other_format_that_is_asked_for_is_onnx(asked):
    key = {"session.load_model_format": asked}
    with pytest.raises(InvalidProtobuf, match="Failed to load model because protobuf parsing failed"):
        session_of(contents("basic.noopt"), key)
    with pytest.raises(InvalidProtobuf, match="Load model from .* failed:Protobuf parsing failed"):
        session_of(HERE / "models" / "basic.noopt.ort", key)


def test_onnx_bytes_are_not_ort_even_if_the_option_says_so():
    data = (MODELS / "basic.onnx").read_bytes()
    with pytest.raises(Fail, match="ORT model verification failed"):
        session_of(data, {"session.load_model_format": "ORT"})


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(NoSuchFile, match="File doesn't exist"):
        session_of(tmp_path / "none.ort")
    (tmp_path / "empty.ort").touch()
    with pytest.raises(Fail, match="ORT model verification failed"):
        session_of(tmp_path / "empty.ort")
    (tmp_path / "folder.ort").mkdir()
    with pytest.raises(Fail, match="Load model from"):
        session_of(tmp_path / "folder.ort")
    with pytest.raises(Fail, match="Load model from"):
        formats.load("a\0.ort")


# --- options


@pytest.mark.parametrize("mapped", ["0", "1"])
@pytest.mark.parametrize("directly", ["0", "1"])
@pytest.mark.parametrize("initializers", ["0", "1"])
def test_how_bytes_are_held_changes_no_result(mapped, directly, initializers):
    config = {
        "session.use_memory_mapped_ort_model": mapped,
        "session.use_ort_model_bytes_directly": directly,
        "session.use_ort_model_bytes_for_initializers": initializers,
    }
    for source in (HERE / "models" / "matmul_gemm.noopt.ort", contents("matmul_gemm.noopt")):
        assert_gives_expected("matmul_gemm", session_of(source, config))


def test_weights_are_views_of_what_was_given():
    data = bytearray(contents("external_data.noopt"))
    held = read_model(data, directly=True).graph.initializers["Wb"].constant.numpy()
    copied = read_model(data).graph.initializers["Wb"].constant.numpy()
    at = bytes(data).index(copied.tobytes())
    data[at : at + 4] = np.float32(42).tobytes()
    assert held.flat[0] == 42 and copied.flat[0] != 42 and not held.flags.writeable


def test_a_mapped_file_stays_open_as_long_as_a_weight_is_used(tmp_path):
    shutil.copy(HERE / "models" / "external_data.noopt.ort", tmp_path / "m.ort")
    tensor = read_model(tmp_path / "m.ort", mapped=True).graph.initializers["Wb"].constant
    (tmp_path / "m.ort").unlink()
    gc.collect()
    assert tensor.numpy().shape == (16, 16) and np.isfinite(tensor.numpy()).all()


def test_initializers_can_be_given_and_external_ones_there_are_none():
    value = sardonyx.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    session = session_of(contents("basic.noopt"), add_initializer=("W", value))
    x = np.full((2, 3), 2, np.float32)
    assert not np.array_equal(session.run(None, {"X": x})[0], session_of(contents("basic.noopt")).run(None, {"X": x})[0])
    with pytest.raises(Fail, match="replace non-external initializer"):
        session_of(contents("basic.noopt"), add_external_initializers=(["W"], [value]))
    with pytest.raises(Fail, match="Failed to find existing initializer with name V"):
        session_of(contents("basic.noopt"), add_external_initializers=(["V"], [value]))
    session_of(contents("basic.noopt"), add_external_initializers_from_files_in_memory=(["f"], [b"abcd"], [4]))


def test_free_dimensions_can_be_fixed_by_name_and_by_denotation():
    session = session_of(contents("symbolic_shapes.noopt"), add_free_dimension_override_by_name=("N", 5))
    assert session.get_inputs()[0].shape == [5, None, 3]

    def denote(tree: Tree) -> None:
        value_of(tree, "X")["type"]["value"]["shape"]["dim"][0]["denotation"] = "DATA_BATCH"

    data = edited("symbolic_shapes.noopt", denote)
    session = session_of(data, add_free_dimension_override_by_denotation=("DATA_BATCH", 4))
    assert session.get_inputs()[0].shape == [4, None, 3]


def test_nothing_is_optimized():
    """The file was optimized when it was made, as far as whoever made it wanted."""
    session = session_of(contents("conv_relu.noopt"))
    assert session.explain().endswith("What the optimizer did\n  done: nothing\n  refused: nothing")
    assert [node.op_type for node in session._sess._model.graph.nodes] == ["Conv", "Relu", "GlobalAveragePool"]
    session = session_of(contents("conv_relu.rtopt"), REPLAY)
    assert "ConvActivationFusion at Conv 'conv'" in session.explain()
    assert [node.op_type for node in session._sess._model.graph.nodes] == ["FusedConv", "GlobalAveragePool"]


def test_any_value_can_be_fetched():
    session = session_of(contents("conv_relu.noopt"), native="1")
    x = np.ones((1, 2, 5, 5), np.float32)
    assert session.run(["c"], {"X": x})[0].shape == (1, 3, 5, 5)


# --- versions


@pytest.mark.parametrize("version", ["0", "1", "2", "3", "4", "-1", "x", "", "6x", " 6", "9" * 20])
@pytest.mark.parametrize("resolver", [True, False])
def test_versions_before_the_fifth_need_no_type_strings(version, resolver):
    def edit(tree: Tree) -> None:
        tree["ort_version"] = version
        if not resolver:
            del tree["kernel_type_str_resolver"]

    assert_gives_expected("basic", session_of(edited("basic.noopt", edit)))


@pytest.mark.parametrize("version", ["5", "6", "06"])
def test_later_versions_need_them(version):
    assert_gives_expected("basic", session_of(edited("basic.noopt", changed(ort_version=version))))
    with pytest.raises(Fail, match="Failed to find op_id: :Add:14"):
        session_of(edited("basic.noopt", changed(ort_version=version, kernel_type_str_resolver=None)))


@pytest.mark.parametrize("version", ["7", "007", "1000"])
def test_versions_of_the_future_are_refused(version):
    with pytest.raises(Fail, match=rf"The ORT format model version \[{version}\] is not supported"):
        session_of(edited("basic.noopt", changed(ort_version=version)))


def test_saved_optimizations_of_old_versions_are_ignored_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        model = read_model(edited("conv_relu.rtopt", changed(ort_version="4")))
    assert model.saved_optimizations == [] and "ignored" in caplog.text


def test_an_opset_of_the_future_is_taken_for_ops_that_we_know_and_refused_for_others():
    future = changed("model", "opset_import", 0, version=99)
    assert_gives_expected("basic", session_of(edited("basic.noopt", future)))

    def newer(tree: Tree) -> None:
        future(tree)
        node_of(tree)["since_version"] = 98

    with pytest.raises(InvalidGraph, match="No Op registered for Add with domain_version of 99"):
        session_of(edited("basic.noopt", newer))
