"""`sardonyx quantize` and `sardonyx compare` as a user calls them."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import sardonyx
from tests.quantization.small import mlp, named, normal
from tests.quantization.small import model as small_model


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    onnx.save(named(mlp(rng)), tmp_path / "float.onnx")
    np.savez(tmp_path / "data.npz", **{f"{index}/x": normal(rng, 6, 32) for index in range(3)})
    return tmp_path


WAYS = [
    [],
    ["--dynamic", "--per-channel"],
    ["--static", "--data", "data.npz"],
    ["--static", "--data", "data.npz", "--format", "qoperator", "--calibration", "percentile"],
    ["--weights", "4"],
    ["--weights", "4", "--algorithm", "k-quant", "--symmetric"],
    ["--weights", "4", "--algorithm", "gptq", "--data", "data.npz"],
]


def call(main, files, *arguments: str) -> int:
    return main([str(files / text) if text.endswith((".onnx", ".npz")) else text for text in arguments])


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_quantized_model_is_written_and_compared(way, files, capsys) -> None:
    from sardonyx.cli import main

    assert call(main, files, "quantize", "float.onnx", "-o", "q.onnx", *way) == 0
    assert "before" in capsys.readouterr().out
    assert call(main, files, "compare", "float.onnx", "q.onnx", "--data", "data.npz", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"][0]["ratio"] > 15


def test_layers_to_leave_in_float_are_printed(files, capsys) -> None:
    from sardonyx.cli import main

    assert call(main, files, "quantize", "float.onnx", "-o", "q.onnx", "--static", "--data", "data.npz", "--no-preprocess") == 0
    arguments = ["compare", "float.onnx", "q.onnx", "--data", "data.npz", "--suggest", "--wanted", "55"]
    assert call(main, files, *arguments) == 0
    assert "--exclude matmul_" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["quantize", "float.onnx", "-o", "q.onnx", "--static"],
        ["quantize", "float.onnx", "-o", "q.onnx", "--algorithm", "hqq"],
        ["quantize", "float.onnx", "-o", "q.onnx", "--static", "--data", "none.npz"],
        ["quantize", "float.onnx", "-o", "float.onnx"],
        ["quantize", "none.onnx", "-o", "q.onnx"],
        ["compare", "float.onnx", "none.onnx", "--data", "data.npz"],
    ],
    ids=" ".join,
)
def test_command_lines_that_cannot_be_are_refused(arguments, files, capsys) -> None:
    from sardonyx.cli import main

    assert call(main, files, *arguments) == 2
    assert capsys.readouterr().err


NOTHING = {
    "--dynamic": "no op of those that are quantized",
    "--weights 4": "no MatMul or Gather with constant weights",
    "--static --data data.npz --exclude y": "no op of those that are quantized outside of --exclude",
}


@pytest.mark.parametrize("way", NOTHING)
def test_a_model_with_nothing_to_quantize_is_said_to_be_so_and_not_written(way, files, capsys) -> None:
    from sardonyx.cli import main

    onnx.save(named(small_model("plain (float[6,32] x) => (float[6,32] y) { y = Sin(x) }")), files / "plain.onnx")
    (files / "out.onnx").write_bytes(b"older")
    assert call(main, files, "quantize", "plain.onnx", "-o", "out.onnx", *way.split()) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "nothing to quantize" in said and NOTHING[way] in said
    assert (files / "out.onnx").read_bytes() == b"older"


def test_tensors_beside_a_quantized_model_are_found_by_it(files) -> None:
    from sardonyx.cli import main

    assert call(main, files, "quantize", "float.onnx", "-o", "small.onnx", "--external") == 0
    (found,) = sardonyx.InferenceSession(files / "small.onnx").run(None, {"x": np.ones((6, 32), np.float32)})[:1]
    assert np.isfinite(found).all()
