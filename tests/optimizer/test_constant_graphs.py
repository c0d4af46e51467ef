"""Sessions of models made of constants are created at every level, and compute what onnxruntime computes without optimization."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sardonyx
from tests.optimizer.constant_graphs import models

LEVELS = (0, 1, 2, 3, 99)
FEEDS = {"x": np.float32([3, -4]), "z": np.float32([0.5, 0])}


def outputs(runtime: ModuleType, model: onnx.ModelProto, level: int, condition: bool) -> list[np.ndarray]:
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel(level)
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    feeds = {name: array for name, array in {**FEEDS, "c": np.array(condition)}.items() if name in names}
    return session.run(None, feeds)


def check(model: onnx.ModelProto, condition: bool = True) -> None:
    expected = outputs(onnxruntime, model, 0, condition)
    for level in LEVELS:
        for got, wanted in zip(outputs(sardonyx, model, level, condition), expected, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=f"level {level}")


@pytest.mark.parametrize(
    "body",
    [
        "(float[2] x) => (float[2] a, float[2] b) <float[4] w = {1, 2, 3, 4}> { a, b = Split<num_outputs=2>(w) }",
        "(float[2] x) => (float[2] a, float[2] b) <float[2] w = {1, 2}> { a = Identity(w) b = Neg(w) }",
        "(float[2] x) => (float[2] a, float[2] b) <float[2] w = {1, 2}> { a = Neg(w) b = Neg(w) }",
        "(float[2] x) => (int64[1] a, int64[1] b, float[2] c) { a = Shape(x) b = Size(x) c = Identity(x) }",
    ],
)
def test_several_outputs_that_are_constant_are_folded_once(body):
    check(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {body}'))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(models(), st.booleans())
def test_graphs_of_constants_compute_the_same_at_every_level(model, condition):
    check(model, condition)
