"""The programs that measure errors against float64: models in float64, figures of models and of layers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks import accuracy, accuracy_layers
from benchmarks.double import Unconvertible, in_float64

TEXT = """<ir_version: 10, opset_import: ["" : 19]>
g (float[2, 3] x, int64[2] n) => (float[2, 3] y, bool[2, 3] p) <float[3] w = {0.1, 0.2, 0.3}, float[2] scales = {1.0, 1.0}> {
    half = Cast <to = 10> (x)
    wide = Cast <to = 1> (half)
    c = Constant <value_float = 0.7> ()
    filled = ConstantOfShape (n)
    sum = Add (wide, w)
    product = Mul (sum, c)
    shifted = Add (product, filled)
    p = Greater (shifted, wide)
    y = Resize <mode = "nearest"> (shifted, , scales)
}"""


def text_model() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def test_all_floats_of_a_model_become_float64() -> None:
    model = in_float64(text_model())
    x = np.random.default_rng(0).standard_normal((2, 3))
    feeds = {"x": x, "n": np.array([2, 3])}
    y, p = ReferenceEvaluator(model).run(None, feeds)
    wanted = (x + np.float32([0.1, 0.2, 0.3]).astype(np.float64)) * np.float64(np.float32(0.7))
    assert y.dtype == np.float64 and p.dtype == np.bool_
    np.testing.assert_allclose(y, wanted, rtol=1e-15)
    assert (
        accuracy.open_session("sardonyx", model.SerializeToString(), {"native": "0"}, plain=True).run(None, feeds)[0].dtype
        == "f8"
    )


def test_a_model_stays_what_it_was() -> None:
    model = text_model()
    before = model.SerializeToString()
    in_float64(model)
    assert model.SerializeToString() == before


def test_bodies_are_converted_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 19]>
    g (bool c, float x) => (float y) {
        y = If (c) <then_branch = t () => (float a) { a = Constant <value = float {0.5}> () },
                    else_branch = e () => (float b) { b = Neg (x) }>
    }"""
    model = in_float64(onnx.parser.parse_model(text))
    for choice, wanted in ((True, 0.5), (False, -3.0)):
        (y,) = ReferenceEvaluator(model).run(None, {"c": np.array(choice), "x": np.array(3.0)})
        assert y.dtype == np.float64 and y == wanted


@pytest.mark.parametrize("op, reason", [("DynamicQuantizeLinear", "quantized"), ("RandomNormalLike", "random")])
def test_what_has_no_float64_is_refused(op: str, reason: str) -> None:
    outputs = ["y", "s", "z"] if op == "DynamicQuantizeLinear" else ["y"]
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node(op, ["x"], outputs)], "g", [value("x", 1, [2])], [value("y", 1, None)])
    with pytest.raises(Unconvertible, match=reason):
        in_float64(helper.make_model(graph))


def network(path: Path) -> Path:
    """A convolution that is transformed, and one of floats of their own."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((32, 3, 3, 3)), "v": random.standard_normal((32, 32, 3, 3))}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["t"], pads=[1] * 4),
            helper.make_node("Relu", ["t"], ["u"]),
            helper.make_node("Conv", ["u", "v"], ["y"], pads=[1] * 4, name="second"),
        ],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_models_are_measured_beside_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network(tmp_path / "network.onnx")
    quantized = text_model()
    quantized.graph.node.append(helper.make_node("DynamicQuantizeLinear", ["y"], ["q", "s", "z"]))
    onnx.save(quantized, tmp_path / "quantized.onnx")
    assert accuracy.main([str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    (row,) = found["models"]
    assert row["model"] == "network" and 0 < row["ours"] < 1e-5 and 0 < row["theirs"] < 1e-5
    assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"]) == pytest.approx(found["summary"]["worst"])
    assert found["skipped"][0]["model"] == "quantized" and "[1/2]" in printed.err
    assert accuracy.main([str(tmp_path), "--only", "network", "--accuracy", "exact"]) == 0
    assert "1 models: the geometric mean" in capsys.readouterr().out


def test_errors_are_relative_and_not_below_rounding() -> None:
    exact = np.array([3.0, -4.0, np.inf])
    assert accuracy.error(np.float32([3.0, -4.0, 0.0]), exact) == 2.0**-24
    assert accuracy.error(np.float32([3.5, -4.0, 0.0]), exact) == pytest.approx(0.1)
    assert accuracy.error(np.float32([np.nan, -4.0, 0.0]), exact) == np.inf


def test_layers_that_are_transformed_are_measured(tmp_path: Path) -> None:
    ratios = dict(accuracy_layers.layer_ratios(network(tmp_path / "network.onnx")))
    assert list(ratios) == ["second"] and 0 < ratios["second"] < accuracy_layers.PROMISED
    assert accuracy_layers.main([str(tmp_path)]) == 0
