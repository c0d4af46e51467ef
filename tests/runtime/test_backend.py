"""The ONNX backend interface, the example models, and the stock test harness of ONNX on top of both."""

from __future__ import annotations

import unittest
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest

import sardonyx
import sardonyx.backend
import sardonyx.datasets
from sardonyx.backend.backend import OnnxRuntimeBackend
from tests.runtime import models
from tests.runtime.side_by_side import assert_same

X = np.ones((2, 3), np.float32)


def test_models_of_all_kinds_can_be_prepared() -> None:
    proto = onnx.load_model_from_string(models.DOUBLE)
    session = sardonyx.InferenceSession(models.DOUBLE)
    for model in (models.DOUBLE, proto, session, sardonyx.backend.prepare(models.DOUBLE)):
        np.testing.assert_array_equal(sardonyx.backend.prepare(model).run(X)[0], X + X)
    np.testing.assert_array_equal(sardonyx.backend.run(proto, [X])[0], X + X)
    prepared = sardonyx.backend.prepare(models.DOUBLE)
    assert sardonyx.backend.prepare(prepared) is prepared


@pytest.mark.parametrize(
    "arguments",
    [{"device": "CPU"}, {"device": "GPU"}, {"intra_op_num_threads": 1}, {"optimized_model_filepath": "x"}, {"unknown": 1}],
    ids=str,
)
def test_options_of_prepare(arguments: dict[str, Any]) -> None:
    assert_same(lambda ort: ort.backend.prepare(models.DOUBLE, **arguments).run(X))


@pytest.mark.parametrize("arguments", [{"log_severity_level": 3}, {"terminate": True}, {"unknown": 1}], ids=str)
def test_options_of_run(arguments: dict[str, Any]) -> None:
    assert_same(lambda ort: ort.backend.prepare(models.DOUBLE).run(X, **arguments))


def test_a_single_value_needs_a_single_input() -> None:
    model = models.parsed("g (float x, float y) => (float z) { z = Add(x, y) }")
    assert_same(lambda ort: ort.backend.prepare(model).run(np.float32(1)))


def test_devices() -> None:
    for device in ("CPU", "GPU", "cpu", "CPU-GPU"):
        assert_same(lambda ort, device=device: ort.backend.supports_device(device))
        assert_same(lambda ort, device=device: ort.backend.is_compatible(models.DOUBLE, device))


def test_single_nodes_are_not_run() -> None:
    with pytest.raises(NotImplementedError):
        OnnxRuntimeBackend.run_node(None, None)


@pytest.mark.slow
def test_the_stock_harness_runs_on_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of its cases overflow while they are made
        cases = onnx.backend.test.BackendTest(OnnxRuntimeBackend, __name__).include(
            r"test_(relu|add_bcast|identity_sequence)_cpu"
        )
    result = unittest.TestResult()
    for name, kind in cases.test_cases.items():
        if name == "OnnxBackendNodeModelTest":
            unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    assert result.wasSuccessful(), result.failures + result.errors
    assert result.testsRun - len(result.skipped) == 3


# --- example models


@pytest.mark.parametrize("name", ["mul_1.onnx", "sigmoid.onnx", "logreg_iris.onnx"])
def test_examples_have_the_inputs_and_outputs_of_the_original(name: str) -> None:
    def described(ort: Any) -> list[str]:
        session = ort.InferenceSession(ort.datasets.get_example(name))
        return [str(arg) for arg in (*session.get_inputs(), *session.get_outputs())]

    assert_same(described)


def test_examples_run_the_same_on_both() -> None:
    path = sardonyx.datasets.get_example("logreg_iris.onnx")
    x = np.array([[5.0, 3.4], [5.9, 2.7], [6.6, 3.0]], np.float32)
    assert_same(lambda ort: ort.InferenceSession(path).run(None, {"float_input": x})[0])
    path = sardonyx.datasets.get_example("mul_1.onnx")
    assert_same(lambda ort: ort.InferenceSession(path).run(None, {"X": np.ones((3, 2), np.float32)}))


def test_examples_are_what_their_script_makes() -> None:
    from sardonyx.datasets import models as makers

    for make in (makers.mul_1, makers.sigmoid, makers.logreg_iris):
        assert onnx.load(sardonyx.datasets.get_example(f"{make.__name__}.onnx")) == make()


def test_unknown_examples() -> None:
    assert_same(lambda ort: ort.datasets.get_example("nope"))
