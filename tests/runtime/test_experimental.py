"""Ops that ONNX had for trial until opset 9: what they compute, beside onnxruntime and a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx as ort
from sardonyx.errors import InvalidGraph
from tests.formats.building import info, model_of, tensor

X = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)
LARGEST_OPSET = 9


def spread(axes: tuple[int, ...]) -> np.ndarray:
    return (X - X.mean(axes, keepdims=True)) / X.std(axes, keepdims=True)


def across(axes: tuple[int, ...]) -> np.ndarray:
    return X - X.mean(axes, keepdims=True)


CASES: list[tuple[str, dict[str, Any], np.ndarray]] = [
    ("Affine", {"alpha": 2.0, "beta": 1.0}, 2 * X + 1),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": 3.0}, 2 * np.log1p(np.exp(3 * X))),
    ("ScaledTanh", {"alpha": 1.7, "beta": 0.6}, 1.7 * np.tanh(0.6 * X)),
    ("Scale", {"scale": 2.5}, 2.5 * X),
    ("Scale", {}, X),
    ("ImageScaler", {"scale": 0.5, "bias": [1.0, 2.0, 3.0]}, 0.5 * X + np.arange(1, 4).reshape(3, 1, 1)),
    ("ImageScaler", {"bias": [1.0, 2.0, 3.0]}, X + np.arange(1, 4).reshape(3, 1, 1)),
    ("Crop", {"border": [1, 2, 3, 1]}, X[:, :, 2:4, 1:3]),
    ("Crop", {"border": [0, 0, 0, 0]}, X),
    ("Crop", {"border": [1, 2, 0, 0], "scale": [2, 4]}, X[:, :, 2:4, 1:5]),
    ("ThresholdedRelu", {}, np.where(X > 1, X, 0)),
    ("ThresholdedRelu", {"alpha": 0.25}, np.where(X > 0.25, X, 0)),
    ("MeanVarianceNormalization", {}, spread((0, 2, 3))),
    ("MeanVarianceNormalization", {"across_channels": 1}, spread((0, 1, 2, 3))),
    ("MeanVarianceNormalization", {"normalize_variance": 0}, across((0, 2, 3))),
    ("MeanVarianceNormalization", {"normalize_variance": 0, "across_channels": 1}, across((0, 1, 2, 3))),
]


def model(op: str, attributes: dict[str, Any], opset: int = 8, inputs: Any = ("x",), weights: Any = ()) -> onnx.ModelProto:
    node = helper.make_node(op, list(inputs), ["y"], name="n", **attributes)
    return model_of([node], [info("x", (None, 3, None, None))], [info("y", None)], weights, opsets=(("", opset),), ir_version=4)


def run(runtime: Any, proto: onnx.ModelProto) -> np.ndarray:
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": X})
    return np.asarray(result)


@pytest.mark.parametrize(
    ("op", "attributes", "expected"), CASES, ids=lambda value: str(value)[:40] if not isinstance(value, np.ndarray) else ""
)
def test_the_formula_holds_as_in_onnxruntime(op: str, attributes: dict[str, Any], expected: np.ndarray) -> None:
    import onnxruntime

    proto = model(op, attributes)
    for got in (run(ort, proto), run(onnxruntime, proto)):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("integers", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("starts", "ends", "axes", "expected"),
    [([1], [3], [3], X[..., 1:3]), ([-2, 1], [100, 2], [3, 0], X[1:2, ..., -2:]), ([0, 1], [1, 3], None, X[:1, 1:3])],
    ids=["one axis", "two", "the first axes"],
)
def test_bounds_that_are_operands_cut(integers: type, starts: Any, ends: Any, axes: Any, expected: np.ndarray) -> None:
    import onnxruntime

    bounds = {"starts": starts, "ends": ends, **({} if axes is None else {"axes": axes})}
    weights = [tensor(name, np.array(numbers, integers)) for name, numbers in bounds.items()]
    proto = model("DynamicSlice", {}, LARGEST_OPSET, ["x", *bounds], weights)
    for runtime in (ort, onnxruntime):
        np.testing.assert_array_equal(run(runtime, proto), expected)


def test_they_are_told_of_once_each(caplog: pytest.LogCaptureFixture) -> None:
    ort.InferenceSession(model("Affine", {"alpha": 2.0}).SerializeToString())
    (text,) = [record.getMessage() for record in caplog.records]
    assert text == "Affine 'n' is an experimental op that ONNX has no more; it is computed by ops of the standard."


def test_they_stand_in_branches_too() -> None:
    then = helper.make_graph([helper.make_node("Scale", ["x"], ["t"], scale=3.0)], "t", [], [info("t", None)])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "o", [], [info("o", None)])
    proto = model("If", {"then_branch": then, "else_branch": other}, LARGEST_OPSET, ["c"], [tensor("c", np.True_)])
    np.testing.assert_allclose(run(ort, proto), 3 * X)


def test_saved_models_have_the_ops_that_the_standard_kept(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    ort.InferenceSession(model("ScaledTanh", {"alpha": 2.0, "beta": 1.0}).SerializeToString(), options)
    saved = onnx.load(tmp_path / "saved.onnx")
    assert {node.op_type for node in saved.graph.node} == {"Tanh", "Mul"}
    onnx.checker.check_model(saved)
    np.testing.assert_allclose(run(ort, saved), 2 * np.tanh(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "attributes", "text"),
    [
        ("ScaledTanh", {"alpha": 1.0}, "Required attribute 'beta' is missing"),
        ("Crop", {}, "Required attribute 'border' is missing"),
        ("Crop", {"border": [1, 2]}, "In Node, Crop 'n', Error not enough values to unpack"),
        ("Affine", {"gamma": 1.0}, "In Node, Affine 'n', Error Unrecognized attribute: gamma"),
    ],
)
def test_what_they_cannot_mean_is_refused(op: str, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidGraph, match=text):
        ort.InferenceSession(model(op, attributes).SerializeToString())


def test_later_opsets_do_not_have_them() -> None:
    with pytest.raises(InvalidGraph, match="No Op registered for Affine"):
        ort.InferenceSession(model("Affine", {}, LARGEST_OPSET + 1).SerializeToString())


@pytest.mark.parametrize("op", ["Affine", "Relu", "ThresholdedRelu"])
@pytest.mark.parametrize("opset", [-(2**63), -5, -1])
def test_there_are_no_opsets_below_zero(op: str, opset: int) -> None:
    with pytest.raises(InvalidGraph, match=f"No Op registered for {op}"):
        ort.InferenceSession(model(op, {}, opset).SerializeToString())
