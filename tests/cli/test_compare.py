"""`sardonyx compare` with one model: another runtime, another level, NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

TEXT = """
<ir_version: 10, opset_import: ["": 21]>
g (float[N, 4] x) => (float[N, 4] y) {
    [first] a = Softmax(x)
    [second] b = Erf(a)
    [third] y = Mul(b, x)
}
"""


@pytest.fixture
def model(tmp_path):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("way", ["numpy", "disable", "onnxruntime"])
def test_a_model_is_compared_with_itself_run_in_another_way(model, call, way):
    result = call("compare", model, "--against", way, "--dim", "N=3", "--json")
    assert result.code == 0, result.err
    (output,) = result.json["outputs"]
    assert output["name"] == "y" and output["largest"] < 1e-6
    assert [layer["node"] for layer in result.json["layers"]] == ["first", "second", "third"]
    assert all(layer["ratio"] > 100 for layer in result.json["layers"])


def test_data_of_a_file_is_compared(model, call, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.full((2, 4), np.inf, np.float32))
    result = call("compare", model, "--against", "numpy", "--data", tmp_path / "data.npz")
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "--against"),
        (("--against", "no_such_runtime"), "no_such_runtime"),
        (("--against", "numpy", "--suggest"), "--suggest"),
        (("B.onnx",), "B.onnx"),
    ],
)
def test_wrong_words_are_refused(model, call, words, reason):
    result = call("compare", model, *words)
    assert result.code == 2 and reason in result.err
