"""Real models split across two providers: ResNet-50 and BERT of the corpus, partly with OpenVINO, give the outputs of onnxruntime."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import sardonyx

pytestmark = pytest.mark.slow

DIRECTORY = Path(os.environ.get("SARDONYX_CORPUS") or "nowhere").resolve()
NAME = "OpenVINOExecutionProvider"


@pytest.mark.skipif(not os.environ.get("SARDONYX_CORPUS"), reason="SARDONYX_CORPUS is not set: it names a directory of models")
@pytest.mark.parametrize(("model", "left"), [("resnet50", "Add;MaxPool"), ("bert_base", "Softmax;Erf")])
def test_a_split_model_gives_the_outputs_of_onnxruntime(model: str, left: str) -> None:
    pytest.importorskip("openvino", reason="the package openvino is not installed")
    peer = pytest.importorskip("onnxruntime", reason="onnxruntime is the second opinion here")
    path = str(DIRECTORY / f"{model}.onnx")
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = sardonyx.InferenceSession(path, options, providers=[(NAME, {"disabled_ops": left}), "CPUExecutionProvider"])
    parts = session.get_provider_graph_assignment_info()
    assert {part.ep_name for part in parts} == {NAME, "CPUExecutionProvider"}
    assert sum(len(part.get_nodes()) for part in parts if part.ep_name == NAME) > 100

    random = np.random.default_rng(0)
    feeds = {}
    for given in session.get_inputs():
        shape = [size if isinstance(size, int) else 2 for size in given.shape]
        is_float = given.type == "tensor(float)"
        feeds[given.name] = random.standard_normal(shape).astype(np.float32) if is_float else random.integers(0, 2, shape)
    expected = peer.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    for mine, theirs in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * np.abs(theirs).max(), rtol=0)
