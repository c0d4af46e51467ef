"""Optimized models are files like any others: onnxruntime runs what we save, and we run what it saves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from benchmarks.networks import NETWORKS, Network

LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
FOREIGN_LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")
"""At higher levels onnxruntime's files are bound to the machine, as it warns itself."""


def save(runtime, network: Network, level: str, path: Path) -> None:
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    runtime.InferenceSession(network.model, options, providers=["CPUExecutionProvider"])


def outputs(runtime, model, feeds) -> list[np.ndarray]:
    return runtime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)


def assert_close(got, want) -> None:
    for mine, theirs in zip(got, want, strict=True):
        scale = np.abs(theirs).max(initial=0)
        rtol, atol = (1e-4, 1e-5) if theirs.dtype == np.float32 else (1e-2, 1e-2)  # half precision is rounded in other places
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol * scale)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NETWORKS)
def test_onnxruntime_runs_what_we_save(name, level, tmp_path):
    network, path = NETWORKS[name](), tmp_path / "ours.onnx"
    save(sardonyx, network, level, path)
    want = outputs(onnxruntime, network.model, network.feeds)
    assert_close(outputs(onnxruntime, str(path), network.feeds), want)
    assert_close(outputs(sardonyx, str(path), network.feeds), want)


@pytest.mark.parametrize("level", FOREIGN_LEVELS)
@pytest.mark.parametrize("name", NETWORKS)
def test_we_run_what_onnxruntime_saves(name, level, tmp_path):
    network, path = NETWORKS[name](), tmp_path / "theirs.onnx"
    save(onnxruntime, network, level, path)
    assert_close(outputs(sardonyx, str(path), network.feeds), outputs(onnxruntime, network.model, network.feeds))


def test_fusions_are_in_the_saved_file(tmp_path):
    network, path = NETWORKS["transformer"](), tmp_path / "ours.onnx"
    save(sardonyx, network, "ORT_ENABLE_EXTENDED", path)
    model = onnx.load(path)
    ops = {node.op_type for node in model.graph.node}
    assert "MultiHeadAttention" in ops and "Softmax" not in ops
    assert "com.microsoft" in {entry.domain for entry in model.opset_import}
