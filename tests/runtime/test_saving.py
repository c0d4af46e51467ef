"""Sessions that save their model in the ORT format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx as rt
from sardonyx import formats
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.ort.decoding import decode
from sardonyx.ops import load_families, schemas
from sardonyx.optimizer.pipeline import Level
from sardonyx.providers.matching import arguments_of
from sardonyx.runtime.saving import files as saving
from tests.formats import ort_fixtures
from tests.formats.ort_fixtures import MODELS

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
CPU = ["CPUExecutionProvider"]


def options(path: Path | None = None, level: str = "ORT_ENABLE_ALL", **entries: str) -> Any:
    made = rt.SessionOptions()
    made.log_severity_level = 4
    made.graph_optimization_level = getattr(rt.GraphOptimizationLevel, level)
    if path is not None:
        made.optimized_model_filepath = str(path)
    for key, value in entries.items():
        made.add_session_config_entry(key.replace("__", "."), value)
    return made


def ops_of(path: Path) -> list[str]:
    return [node.op_type for node in formats.load(path).graph.all_nodes()]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "name", ["conv_relu", "fp16_casts", "matmul_gemm", "nested_loop_if", "qdq_conv", "strings_ml", "zipmap"]
)
def test_a_saved_model_gives_the_same_in_both_runtimes(name: str, level: str, tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "saved.ort"
    session = rt.InferenceSession(str(MODELS / f"{name}.onnx"), options(path, level), providers=CPU)
    ort_fixtures.assert_gives_expected(name, session)
    for runtime in (rt, onnxruntime):
        ort_fixtures.assert_gives_expected(name, runtime.InferenceSession(str(path), providers=CPU))


def test_what_is_compiled_is_saved_as_nodes(tmp_path: Path) -> None:
    path = tmp_path / "saved.ort"
    rt.InferenceSession(str(MODELS / "matmul_gemm.onnx"), options(path, "ORT_DISABLE_ALL"), providers=CPU)
    nodes = decode(path.read_bytes())["model"]["graph"]["nodes"]
    assert [node["op_type"] for node in nodes] == ["MatMul", "Add", "Relu", "Gemm"]
    assert {node["execution_provider_type"] for node in nodes} == {"CPUExecutionProvider"}


def test_a_session_goes_on_after_saving_and_saves_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first.ort", tmp_path / "second.ort"
    rt.InferenceSession(str(MODELS / "basic.onnx"), options(first), providers=CPU)
    session = rt.InferenceSession(str(first), options(second), providers=CPU)
    ort_fixtures.assert_gives_expected("basic", session)
    once, twice = (ort_fixtures.comparable(decode(path.read_bytes())) for path in (first, second))
    assert once == twice


def test_an_ort_model_is_saved_as_onnx(tmp_path: Path) -> None:
    first, second = tmp_path / "first.ort", tmp_path / "second.onnx"
    rt.InferenceSession(str(MODELS / "if_edges.onnx"), options(first), providers=CPU)
    rt.InferenceSession(str(first), options(second), providers=CPU)
    ort_fixtures.assert_gives_expected("if_edges", rt.InferenceSession(str(second), providers=CPU))


@pytest.mark.parametrize(
    ("name", "asked", "is_ort"),
    [("m.ort", "", True), ("m.ORT", "", True), ("m.bin", "ORT", True), ("m.ort", "ONNX", False), ("m.onnx", "", False)],
)
def test_the_setting_counts_more_than_the_name(name: str, asked: str, is_ort: bool, tmp_path: Path) -> None:
    entries = {"session__save_model_format": asked} if asked else {}
    rt.InferenceSession(str(MODELS / "basic.onnx"), options(tmp_path / name, **entries), providers=CPU)
    assert ((tmp_path / name).read_bytes()[4:8] == b"ORTM") == is_ort


def test_saving_records_needs_an_ort_file(tmp_path: Path) -> None:
    style = {"optimization__minimal_build_optimizations": "save"}
    for path in (None, tmp_path / "m.onnx"):
        with pytest.raises(InvalidArgument, match="'save' is only valid when saving an ORT format model"):
            rt.InferenceSession(str(MODELS / "conv_relu.onnx"), options(path, **style), providers=CPU)
    rt.InferenceSession(str(MODELS / "conv_relu.onnx"), options(tmp_path / "m.ort", **style), providers=CPU)
    model = formats.load(tmp_path / "m.ort")
    assert list(model.saved_optimizations[0].by_optimizer) == ["ConvActivationFusion"]
    assert "FusedConv" not in ops_of(tmp_path / "m.ort")


def test_apply_needs_no_file() -> None:
    style = {"optimization__minimal_build_optimizations": "apply"}
    session = rt.InferenceSession(str(MODELS / "conv_relu.onnx"), options(**style), providers=CPU)
    ort_fixtures.assert_gives_expected("conv_relu", session)


def test_saved_records_are_replayed_by_both_runtimes(tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "m.ort"
    save, replay = {"optimization__minimal_build_optimizations": "save"}, "session.enable_saved_runtime_optimizations"
    rt.InferenceSession(str(MODELS / "qdq_matmul.onnx"), options(path, **save), providers=CPU)
    for runtime in (rt, onnxruntime):
        again = runtime.SessionOptions()
        again.add_session_config_entry(replay, "1")
        again.optimized_model_filepath = str(tmp_path / f"{runtime.__name__}.ort")
        session = runtime.InferenceSession(str(path), again, providers=CPU)
        assert "QLinearMatMul" in ops_of(tmp_path / f"{runtime.__name__}.ort")
        ort_fixtures.assert_gives_expected("qdq_matmul", session)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="Failed to save ORT format model to file: .*nowhere"):
        rt.InferenceSession(str(MODELS / "basic.onnx"), options(tmp_path / "nowhere" / "m.ort"), providers=CPU)


def test_denotations_of_sizes_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    rt.InferenceSession(str(MODELS / "symbolic_shapes.onnx"), options(path), providers=CPU)
    value = formats.load(path).graph.inputs[0]
    assert value.denotation is not None
    word, sizes = value.denotation
    assert word == "TENSOR" and sizes[0] == "DATA_BATCH"


def test_saving_keeps_no_weight_in_memory(tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> g (float[2] x) => (float[2] y) { y = Add(x, w) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    loaded = formats.load(tmp_path / "m.onnx")
    saving.make_savable(loaded, Level.DISABLE_ALL)
    weight = loaded.graph.initializers["w"].constant
    assert weight is not None
    was_loaded = weight.is_loaded
    saving.save_ort(loaded, tmp_path / "m.ort")
    assert weight.is_loaded == was_loaded
    (stored,) = decode((tmp_path / "m.ort").read_bytes())["model"]["graph"]["initializers"]
    assert np.frombuffer(stored["raw_data"], np.float32).tolist() == [1, 1]


def test_type_strings_of_all_ops_are_those_of_onnxruntime() -> None:
    load_families()
    stored = json.loads((ort_fixtures.HERE / "kernel_type_strings.json").read_text())
    known = 0
    for op_id, want in stored.items():
        domain, name, version = op_id.split(":")
        signature = schemas.versions(domain, name).get(int(version))
        if signature is not None:
            known += 1
            found = {key: [[int(side), at] for side, at in pairs] for key, pairs in arguments_of(signature).items()}
            assert found == want, op_id
    assert known > 750
