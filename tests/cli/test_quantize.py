"""`sardonyx quantize` and `sardonyx compare` as a user calls them."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from tests.quantization.small import mlp, named, normal


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
