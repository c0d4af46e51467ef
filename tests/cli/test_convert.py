"""`sardonyx convert`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx import formats
from sardonyx.formats.ort.decoding import decode
from sardonyx.optimizer import levels
from sardonyx.optimizer.pipeline import Level, Stage
from sardonyx.runtime.saving.required_operators import RequiredOperators
from tests.formats import ort_fixtures
from tests.formats.ort_fixtures import MODELS


def computed(path: Path) -> list[float]:
    session = sardonyx.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return result.reshape(-1).tolist()


def ops_of(path: Path) -> list[str]:
    return [node.op_type for node in formats.load(path).graph.all_nodes()]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with models in it, one of them deeper, and other files."""
    root = tmp_path / "models"
    (root / "deep" / "er").mkdir(parents=True)
    shutil.copy(MODELS / "basic.onnx", root / "one.onnx")
    shutil.copy(MODELS / "if_edges.onnx", root / "deep" / "er" / "two.ONNX")
    (root / "deep" / "notes.txt").write_text("no model")
    return root


def test_there_and_back(affine, call, tmp_path):
    assert call("convert", affine, tmp_path / "m.ort").code == 0
    assert (tmp_path / "m.ort").read_bytes()[4:8] == b"ORTM"
    assert call("convert", tmp_path / "m.ort", tmp_path / "again.onnx").code == 0
    onnx.checker.check_model(str(tmp_path / "again.onnx"))
    assert computed(tmp_path / "m.ort") == computed(tmp_path / "again.onnx") == computed(affine)


def test_without_a_target_the_model_goes_beside_its_source(affine, call):
    result = call("convert", affine, "--json")
    (model,) = result.json["models"]
    assert model["target"] == str(affine.with_suffix(".ort")) and Path(model["target"]).exists()
    assert model["nodes"] == 1 and model["bytes"] == affine.with_suffix(".ort").stat().st_size


def test_onnxruntime_computes_the_same(affine, call, tmp_path):
    import onnxruntime

    call("convert", affine, tmp_path / "m.ort")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.ort"), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert result.reshape(-1).tolist() == computed(affine)


def test_directories_keep_their_tree(tree, call, tmp_path):
    result = call("convert", tree, tmp_path / "out")
    assert result.code == 0, result.err
    found = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert found == ["deep/er/two.ort", "one.ort"]
    assert call("convert", tmp_path / "out", tmp_path / "back", "--to", "onnx").code == 0
    session = sardonyx.InferenceSession(str(tmp_path / "back" / "deep" / "er" / "two.onnx"), providers=["CPUExecutionProvider"])
    ort_fixtures.assert_gives_expected("if_edges", session)


def test_a_directory_without_a_target_is_converted_in_place(tree, call):
    assert call("convert", tree).code == 0
    assert (tree / "one.ort").exists() and (tree / "deep" / "er" / "two.ort").exists()


def test_several_models_go_into_a_directory(affine, tree, call, tmp_path):
    result = call("convert", affine, tree, tmp_path / "all", "--json")
    assert result.code == 0 and len(result.json["models"]) == 3
    assert (tmp_path / "all" / "affine.ort").exists() and (tmp_path / "all" / "one.ort").exists()


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "layout", "all"])
def test_levels(affine, call, tmp_path, level):
    call("convert", affine, tmp_path / "m.ort", "--optimize", level)
    assert ops_of(tmp_path / "m.ort") == (["MatMul", "Add"] if level == "disable" else ["Gemm"])
    assert computed(tmp_path / "m.ort") == computed(affine)


def test_records_are_kept_instead_of_fusing(call, tmp_path):
    call("convert", MODELS / "conv_relu.onnx", tmp_path / "m.ort", "--runtime-optimizations")
    assert "runtime_optimizations" in decode((tmp_path / "m.ort").read_bytes())["model"]["graph"]
    assert "FusedConv" not in ops_of(tmp_path / "m.ort")
    call("convert", MODELS / "conv_relu.onnx", tmp_path / "fused.ort")
    assert "FusedConv" in ops_of(tmp_path / "fused.ort")


def test_ops_stay_if_it_need_not_be_portable(call, tmp_path):
    call("convert", MODELS / "fp16_casts.onnx", tmp_path / "m.ort", "--not-portable", "--optimize", "disable")
    assert "Cast" not in ops_of(tmp_path / "m.ort")
    call("convert", MODELS / "fp16_casts.onnx", tmp_path / "portable.ort", "--optimize", "disable")
    assert "Cast" in ops_of(tmp_path / "portable.ort")


def test_weights_beside_an_onnx_model(call, tmp_path):
    call("convert", MODELS / "matmul_gemm.onnx", tmp_path / "m.ort")
    result = call("convert", tmp_path / "m.ort", tmp_path / "m.onnx", "--external-data", "--json")
    assert result.code == 0
    size = (tmp_path / "m.onnx").stat().st_size + (
        (tmp_path / "m.data").stat().st_size if (tmp_path / "m.data").exists() else 0
    )
    assert result.json["models"][0]["bytes"] == size
    result = call("convert", tmp_path / "m.ort", tmp_path / "n.onnx", "--external-data", "weights.bin")
    assert result.code == 0
    session = sardonyx.InferenceSession(str(tmp_path / "n.onnx"), providers=["CPUExecutionProvider"])
    ort_fixtures.assert_gives_expected("matmul_gemm", session)


def test_nothing_is_overwritten_unasked(affine, call, tmp_path):
    target = tmp_path / "m.ort"
    target.write_bytes(b"mine")
    result = call("convert", affine, target)
    assert result.code == 2 and "there already" in result.err and target.read_bytes() == b"mine"
    assert call("convert", affine, target, "--force").code == 0 and target.read_bytes()[4:8] == b"ORTM"


def test_lists_of_what_the_models_need(affine, tree, call, tmp_path):
    lists = [tmp_path / "ops.config", tmp_path / "trim.txt"]
    result = call("convert", affine, tree, tmp_path / "out", "--required-ops", lists[0], "--types", "--trim", lists[1])
    assert result.code == 0 and "wrote" in result.out
    needed = RequiredOperators.parse(lists[0].read_text())
    assert needed.operators["", 16] == {"If"} and needed.types
    trimmed = lists[1].read_text()
    assert "op :If:16\n" in trimmed and "keep sardonyx/providers/cpu/control.py\n" in trimmed
    assert "drop sardonyx/providers/cpu/image.py\n" in trimmed
    assert call("convert", affine, "--required-ops", lists[0], "--no-models").code == 2
    assert call("convert", affine, "--required-ops", lists[0], "--no-models", "--force").code == 0
    assert not affine.with_suffix(".ort").exists()
    assert not RequiredOperators.parse(lists[0].read_text()).types


def test_one_bad_model_does_not_stop_the_others(tree, call, tmp_path):
    (tree / "bad.onnx").write_bytes(b"\x08\x07\xff\xff\xff")
    result = call("convert", tree, tmp_path / "out", "--json")
    assert result.code == 1
    errors = {Path(one["source"]).name: one["error"] for one in result.json["models"]}
    assert errors["bad.onnx"] and not errors["one.onnx"]
    assert "bad.onnx" in result.err and (tmp_path / "out" / "one.ort").exists() and not (tmp_path / "out" / "bad.ort").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere.onnx"], "no such file"),
        (["{model}", "m.txt"], "must end in .onnx or .ort"),
        (["{model}", "{model}"], "overwrite itself"),
        (["{model}", "{model}", "m.ort"], "m.ort is one file"),
        (["{model}", "{model}", "out"], "would both become"),
        (["{empty}"], "no .onnx file in it"),
        (["{model}", "m.ort", "--external-data"], "goes with .onnx"),
        (["{model}", "m.onnx", "--save-prepacked"], "goes with --external-data"),
        (["{model}", "m.ort", "--types"], "goes with --required-ops"),
        (["{model}", "--no-models"], "goes with --required-ops or --trim"),
        (["{model}", "{other}", "out", "--to", "onnx", "--external-data", "w.bin"], "would both become out/w.bin"),
        (["{model}", "m.onnx", "--external-data", "m.onnx"], "would both become m.onnx"),
        (["{model}", "m.onnx", "--external-data", "there.bin"], "is there already"),
        (["{model}", "m.ort", "--required-ops", "list", "--trim", "list"], "would both become list"),
        (["{model}", "m.ort", "--trim", "m.ort"], "would both become m.ort"),
    ],
)
def test_what_cannot_be_is_said(affine, call, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.bin").write_bytes(b"")
    other = tmp_path / "other.onnx"
    other.write_bytes(affine.read_bytes())
    before = sorted(tmp_path.rglob("*"))
    names = {"model": affine, "other": other, "empty": tmp_path / "empty"}
    result = call("convert", *(argument.format(**names) for argument in arguments))
    assert result.code == 2 and reason in result.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stage_of_the_optimizer_that_fails_is_left_out(affine, call, tmp_path, monkeypatch):
    def fail(graph, context):
        raise ValueError("broken")

    broken = Stage("Broken", run=fail)
    monkeypatch.setitem(levels.LEVELS, Level.BASIC, [broken, *levels.LEVELS[Level.BASIC]])
    assert call("convert", affine, tmp_path / "m.ort").code == 0
    assert computed(tmp_path / "m.ort") == computed(affine)


def test_an_unknown_op_is_named(branching, call, tmp_path):
    result = call("convert", branching, tmp_path / "m.ort")
    assert result.code == 1 and "NoSuchOp" in result.err and not (tmp_path / "m.ort").exists()


def test_packed_weights_are_saved_beside_the_model(call, tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> g (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, w) }'
    )
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    plain, packed = tmp_path / "plain.onnx", tmp_path / "packed.onnx"
    assert call("convert", tmp_path / "m.onnx", plain, "--external-data").code == 0
    result = call("convert", tmp_path / "m.onnx", packed, "--external-data", "--save-prepacked")
    assert result.code == 0, result.err
    (stored,) = onnx.load(packed, load_external_data=False).graph.initializer
    assert any(entry.key.startswith("prepacked") for entry in stored.external_data)
    feeds = {"x": np.ones((2, 64), np.float32)}
    results = [
        sardonyx.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)[0] for path in (plain, packed)
    ]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
