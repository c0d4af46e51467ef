"""The whole product in a few seconds: load, type, run, look inside, save, and the demo's model does its job."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import sardonyx
from sardonyx import formats, ir, ops

EXAMPLES = Path(__file__).parent.parent / "examples"
MODEL = EXAMPLES / "shapes.onnx"


@pytest.fixture(scope="module")
def shapes() -> dict[str, object]:
    return runpy.run_path(str(EXAMPLES / "shapes.py"))


def test_the_demo_model_tells_shapes_apart(shapes):
    pictures, truth = shapes["sample"](200, seed=11)
    session = sardonyx.InferenceSession(MODEL)
    (probabilities,) = session.run(None, {"image": pictures})
    assert (probabilities.argmax(axis=1) == truth).mean() > 0.95
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["labels"].split(",") == list(shapes["LABELS"])


def test_one_line_runs_a_model(shapes):
    pictures, _ = shapes["sample"](2, seed=1)
    (expected,) = sardonyx.InferenceSession(MODEL).run(None, {"image": pictures})
    np.testing.assert_array_equal(sardonyx.run(MODEL, image=pictures), expected)


def test_inner_values_can_be_fetched():
    (features,) = sardonyx.InferenceSession(MODEL).run(["features"], {"image": np.zeros((3, 1, 32, 32), np.float32)})
    assert features.shape == (3, 512)


def test_every_value_gets_a_type_with_the_symbolic_batch():
    model = formats.load(MODEL)
    ops.infer(model)
    types = {value.name: ir.described(value.type) for value in model.graph.values()}
    assert types["c1"] == "float[N, 12, 32, 32]"
    assert types["features"] == "float[N, 512]"


def test_a_saved_model_gives_the_same_results(tmp_path):
    formats.save(formats.load(MODEL), tmp_path / "copy.onnx")
    feeds = {"image": np.random.default_rng(0).random((2, 1, 32, 32), np.float32)}
    results = [sardonyx.InferenceSession(path).run(None, feeds)[0] for path in (MODEL, tmp_path / "copy.onnx")]
    np.testing.assert_array_equal(*results)


def test_errors_name_what_was_expected_and_what_came():
    session = sardonyx.InferenceSession(MODEL)
    with pytest.raises(sardonyx.errors.InvalidArgument, match="image"):
        session.run(None, {"image": np.zeros((1, 1, 32, 31), np.float32)})
