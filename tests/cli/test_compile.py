"""`sardonyx compile`: what it writes and says, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.settings import ALLOW_COMPILED_CODE_VARIABLE
from tests.cli.conftest import Result

Call = Callable[..., Result]


def test_a_compiled_model_runs_and_sizes_are_told(affine: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    result = call("compile", affine)
    target = affine.with_name("affine_ctx.onnx")
    assert result.code == 0, result.err
    assert "affine_ctx.onnx.bin" in result.out and "kernels" in result.out and "session.allow_compiled_code" in result.out
    monkeypatch.setenv(ALLOW_COMPILED_CODE_VARIABLE, "1")
    session = sardonyx.InferenceSession(target)
    assert session._engine._compiled is not None
    wanted = sardonyx.InferenceSession(affine).run(None, {"x": np.ones((2, 3), np.float32)})[0]
    assert np.array_equal(session.run(None, {"x": np.ones((2, 3), np.float32)})[0], wanted)


def test_json_and_embedding(affine: Path, call: Call, tmp_path: Path) -> None:
    result = call("compile", affine, "-o", tmp_path / "out.onnx", "--embed", "--json")
    assert result.code == 0, result.err
    found = result.json
    assert found["payload"] is None and found["programs"] == 1 and found["left"] == {}
    assert found["payload_bytes"] >= found["code_bytes"] + found["constant_bytes"] > 0
    assert found["model_bytes"] == (tmp_path / "out.onnx").stat().st_size > found["payload_bytes"]
    (node,) = onnx.load(tmp_path / "out.onnx").graph.node
    assert node.op_type == "EPContext"


def test_nothing_is_overwritten_without_force(affine: Path, call: Call) -> None:
    assert call("compile", affine).code == 0
    again = call("compile", affine)
    assert again.code == 2 and "--force" in again.err
    assert call("compile", affine, "--force").code == 0


def test_wrong_uses_are_told(affine: Path, call: Call, tmp_path: Path) -> None:
    same = call("compile", affine, "-o", affine)
    assert same.code == 2 and "is the model itself" in same.err
    other = call("compile", affine, "-o", tmp_path / "out.bin")
    assert other.code == 2 and "a .onnx or .ort file" in other.err
    absent = call("compile", tmp_path / "none.onnx")
    assert absent.code == 1 and "does not exist" in absent.err
    nowhere = call("compile", affine, "-o", tmp_path / "none" / "out.onnx")
    assert nowhere.code == 1 and "No such file" in nowhere.err


def test_a_compiled_model_is_compiled_anew_from_its_source(affine: Path, call: Call, tmp_path: Path) -> None:
    assert call("compile", affine).code == 0
    again = call("compile", affine.with_name("affine_ctx.onnx"), "-o", tmp_path / "x.onnx")
    assert again.code == 0 and again.err == ""
    (node,) = onnx.load(tmp_path / "x.onnx").graph.node
    assert {"onnx_model_filename": b"affine.onnx"}.items() <= {one.name: one.s for one in node.attribute}.items()
    affine.unlink()
    without = call("compile", affine.with_name("affine_ctx.onnx"), "-o", tmp_path / "y.onnx")
    assert without.code == 1 and "is not there" in without.err


def test_a_model_without_native_code_is_told(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = '<ir_version: 9, opset_import: ["": 20]> g (string[N] x) => (string[N] y) { y = Identity(x) }'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    result = call("compile", path)
    assert result.code == 1 and "Unable to compile any nodes" in result.err
