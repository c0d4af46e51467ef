"""SmoothQuant: the model means the same, and outliers cost less."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.quantization import QuantType, quantize_static
from sardonyx.quantization.smooth_quant import smooth_model
from tests.quantization.small import Feeds, model, normal


def outlying(rng: np.random.Generator) -> onnx.ModelProto:
    """A LayerNormalization whose scale makes two channels a hundred times larger than the others."""
    scale = np.ones(16, np.float32)
    scale[[3, 9]] = 100.0
    text = "g (float[N, 16] x) => (float[N, 8] y) { n = LayerNormalization(x, s, b) y = MatMul(n, w) }"
    weight = normal(rng, 16, 8)
    weight[[3, 9]] *= 0.01
    return model(text, s=scale, b=np.zeros(16, np.float32), w=weight)


def run(proto, feed):
    return sardonyx.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)[0]


@pytest.mark.parametrize("folding", [True, False])
def test_a_smoothed_model_computes_the_same(folding) -> None:
    rng = np.random.default_rng(2)
    proto = outlying(rng)
    feeds = [{"x": normal(rng, 32, 16)} for _ in range(3)]
    smoothed = smooth_model(proto, Feeds(feeds), alpha=0.5, folding=folding)
    assert len(smoothed.graph.node) == (2 if folding else 3)
    assert np.allclose(run(proto, feeds[0]), run(smoothed, feeds[0]), rtol=1e-4, atol=1e-4)


def test_values_of_many_products_are_smoothed() -> None:
    rng = np.random.default_rng(3)
    text = "g (float[N, 8] x) => (float[N, 8] y) { a = MatMul(x, v) r = Relu(a) b = MatMul(r, w) t = Tanh(b) y = MatMul(t, u) }"
    proto = model(text, **{name: normal(rng, 8, 8) for name in "vwu"})
    feeds = [{"x": normal(rng, 32, 8) * 3}]
    smoothed = smooth_model(proto, Feeds(feeds), folding=False)
    products = [node for node in smoothed.graph.node if node.op_type == "MatMul"]
    assert [node.input[0] for node in products] == ["x_smooth_output", "r_smooth_output", "t_smooth_output"]
    assert np.allclose(run(proto, feeds[0]), run(smoothed, feeds[0]), rtol=1e-4, atol=1e-4)


def test_outliers_cost_less_after_smoothing(tmp_path) -> None:
    rng = np.random.default_rng(2)
    proto = outlying(rng)
    feeds = [{"x": normal(rng, 32, 16)} for _ in range(3)]
    errors = []
    for options in ({}, {"SmoothQuant": True}):
        quantize_static(
            proto,
            tmp_path / "q.onnx",
            Feeds(feeds),
            op_types_to_quantize=["MatMul"],
            activation_type=QuantType.QUInt8,
            extra_options=options,
        )
        quantized = onnx.load(tmp_path / "q.onnx")
        errors.append(np.abs(run(quantized, feeds[0]) - run(proto, feeds[0])).mean())
    assert errors[1] < 0.3 * errors[0]
