"""Inputs with defaults: constants until a run feeds them, and then inputs as the model says."""

from __future__ import annotations

import concurrent.futures
import logging
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import sardonyx
from sardonyx.runtime.preparation.plan import all_steps

MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,3] x, float[3,2] w, float[2] b) => (float[N,2] y)
        <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0.5, -0.5}> {
        product = MatMul (x, w)
        doubled = Mul (b, b)
        y = Add (product, doubled)
    }
""").SerializeToString()
X = np.arange(12, dtype=np.float32).reshape(4, 3)
W = np.ones((3, 2), np.float32)
FEEDS = [{"x": X}, {"x": X, "w": W}, {"x": X, "b": np.array([3, 4], np.float32)}, {"x": X[:1]}, {"x": X[:0], "w": W}]


def session_with(*entries: tuple[str, str], level: int | None = None) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for entry in entries:
        options.add_session_config_entry(*entry)
    if level is not None:
        options.graph_optimization_level = sardonyx.GraphOptimizationLevel(level)
    return sardonyx.InferenceSession(MODEL, options)


def ops_of(session: sardonyx.InferenceSession) -> list[str]:
    return sorted(node.op_type for step in all_steps(session._engine.plan) for node in step.nodes)


@pytest.mark.parametrize("entries", [(), (("sardonyx.defaults_are_constants", "0"),)], ids=["constants", "inputs"])
def test_any_feeds_give_what_they_give_in_onnxruntime(entries):
    ours, peer = session_with(*entries), onnxruntime.InferenceSession(MODEL)
    assert [one.name for one in ours.get_overridable_initializers()] == ["w", "b"]
    assert [str(one) for one in ours.get_overridable_initializers()] == [
        str(one) for one in peer.get_overridable_initializers()
    ]
    assert [one.name for one in ours.get_inputs()] == ["x"]
    for feeds in (*FEEDS, *FEEDS):
        np.testing.assert_allclose(ours.run(None, feeds)[0], peer.run(None, feeds)[0], rtol=1e-6)


def test_what_follows_from_defaults_is_computed_beforehand():
    assert "Mul" not in ops_of(session_with())
    assert "Mul" in ops_of(session_with(("sardonyx.defaults_are_constants", "0")))
    assert "Mul" in ops_of(session_with(level=0))


def test_names_and_types_of_feeds_are_checked_as_ever():
    session = session_with()
    with pytest.raises(sardonyx.capi.onnxruntime_pybind11_state.InvalidArgument, match="Invalid input name: v"):
        session.run(None, {"x": X, "w": W, "v": W})
    with pytest.raises(sardonyx.capi.onnxruntime_pybind11_state.InvalidArgument, match="Unexpected input data type"):
        session.run(None, {"x": X, "w": W.astype(np.float64)})
    with pytest.raises(sardonyx.capi.onnxruntime_pybind11_state.InvalidArgument, match="Got invalid dimensions"):
        session.run(None, {"x": X, "w": W[:2]})


def test_bound_inputs_replace_defaults():
    session = session_with()
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    first = binding.copy_outputs_to_cpu()[0]
    binding.bind_cpu_input("w", W)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(first, session.run(None, {"x": X})[0])
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], session.run(None, {"x": X, "w": W})[0])


def test_threads_may_replace_defaults_at_the_same_time():
    session = session_with()
    expected = [session_with(("sardonyx.defaults_are_constants", "0")).run(None, feeds)[0] for feeds in FEEDS]
    with concurrent.futures.ThreadPoolExecutor(8) as workers:
        found = list(workers.map(lambda n: session.run(None, FEEDS[n % len(FEEDS)])[0], range(200)))
    for number, array in enumerate(found):
        np.testing.assert_array_equal(array, expected[number % len(FEEDS)])


def test_a_saved_model_has_its_inputs(tmp_path: Path):
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    sardonyx.InferenceSession(MODEL, options)
    saved = sardonyx.InferenceSession(options.optimized_model_filepath)
    assert [one.name for one in saved.get_overridable_initializers()] == ["w", "b"]
    np.testing.assert_allclose(saved.run(None, FEEDS[1])[0], session_with().run(None, FEEDS[1])[0])


def test_no_warning_is_given(caplog):
    with caplog.at_level(logging.WARNING):
        session_with().run(None, FEEDS[1])
    assert caplog.records == []
