"""Whole quantizations: onnxruntime runs what we write, accuracy holds, and bad input is refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx import quantization
from sardonyx.quantization import CalibrationMethod, QuantFormat, QuantType, models, quantize_dynamic, quantize_static
from tests.quantization.small import Feeds, batches, mlp, model, named, normal


def run(path: Path, feed: dict[str, np.ndarray], runtime: Any = sardonyx) -> np.ndarray:
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)[0]


def decibels(expected: np.ndarray, got: np.ndarray) -> float:
    return float(20 * np.log10(np.linalg.norm(expected) / np.linalg.norm(expected - got)))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


WAYS = {
    "qdq": {"activation_type": QuantType.QUInt8},
    "qdq by channel": {"activation_type": QuantType.QUInt8, "per_channel": True},
    "signed": {"activation_type": QuantType.QInt8},
    "operators": {"activation_type": QuantType.QUInt8, "quant_format": QuantFormat.QOperator},
    "percentile": {"activation_type": QuantType.QUInt8, "calibrate_method": CalibrationMethod.Percentile},
    "16 bits": {"activation_type": QuantType.QUInt16},
    "4-bit weights": {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt4, "extra_options": {"BlockSize": 16}},
}


@pytest.mark.parametrize("way", WAYS)
def test_static_models_run_in_onnxruntime_and_stay_near_the_float_model(way: str, rng, tmp_path) -> None:
    float_model = mlp(rng)
    feeds = batches(rng, "x", 6, 32)
    onnx.save(float_model, tmp_path / "float.onnx")
    quantize_static(float_model, tmp_path / "quantized.onnx", Feeds(feeds), **WAYS[way])
    expected = run(tmp_path / "float.onnx", feeds[-1])
    ours, theirs = (run(tmp_path / "quantized.onnx", feeds[-1], runtime) for runtime in (sardonyx, onnxruntime))
    least = 15 if way == "4-bit weights" else 24
    assert decibels(expected, ours) > least
    assert decibels(expected, theirs) > least


@pytest.mark.parametrize("options", [{}, {"weight_type": QuantType.QUInt8}, {"per_channel": True}, {"reduce_range": True}])
def test_dynamic_models_run_in_onnxruntime_and_stay_near_the_float_model(options, rng, tmp_path) -> None:
    float_model, feed = mlp(rng), {"x": normal(rng, 5, 32)}
    onnx.save(float_model, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "quantized.onnx", **options)
    expected = run(tmp_path / "float.onnx", feed)
    for runtime in (sardonyx, onnxruntime):
        assert decibels(expected, run(tmp_path / "quantized.onnx", feed, runtime)) > 26


def test_signed_dynamic_activations_are_computed_in_the_graph(rng, tmp_path) -> None:
    from sardonyx.quantization.onnx_quantizer import ONNXQuantizer

    float_model, feed = mlp(rng), {"x": normal(rng, 5, 32)}
    onnx.save(float_model, tmp_path / "float.onnx")
    mode = quantization.QuantizationMode.IntegerOps
    int8 = QuantType.QInt8
    quantizer = ONNXQuantizer(float_model, False, False, mode, False, int8, int8, None, [], [], ["MatMul"], {})
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(tmp_path / "quantized.onnx")
    expected = run(tmp_path / "float.onnx", feed)
    for runtime in (sardonyx, onnxruntime):
        assert decibels(expected, run(tmp_path / "quantized.onnx", feed, runtime)) > 26
        zeros = run(tmp_path / "quantized.onnx", {"x": np.zeros((1, 32), np.float32)}, runtime)
        assert np.isfinite(zeros).all()


def test_inner_graphs_read_dequantized_values_of_the_graph_around(rng, tmp_path) -> None:
    text = """
    outer (float[2, 8] x, bool flag) => (float[2, 8] y)
    {
        a = MatMul(x, w)
        b = If (flag) <
            then_branch = yes () => (float[2, 8] t) { t = Abs(a) },
            else_branch = no () => (float[2, 8] e) { e = Neg(a) }
        >
        y = Sub(b, x)
    }
    """
    float_model = named(model(text, w=normal(rng, 8, 8)))
    feeds = [{"x": normal(rng, 2, 8), "flag": np.array(flag)} for flag in (True, False)]
    onnx.save(float_model, tmp_path / "float.onnx")
    quantize_static(
        float_model, tmp_path / "q.onnx", Feeds(feeds), quant_format=QuantFormat.QOperator, activation_type=QuantType.QUInt8
    )
    for feed in feeds:
        assert decibels(run(tmp_path / "float.onnx", feed), run(tmp_path / "q.onnx", feed, onnxruntime)) > 25


def test_bias_that_is_also_added_gets_codes_of_its_own(rng, tmp_path) -> None:
    text = "g (float[N, 6] x) => (float[N, 6] y) { a = Add(x, b) y = Gemm(a, w, b) }"
    float_model = model(text, w=normal(rng, 6, 6), b=normal(rng, 6))
    feeds = batches(rng, "x", 4, 6)
    onnx.save(float_model, tmp_path / "float.onnx")
    for quant_format in QuantFormat:
        quantize_static(
            float_model, tmp_path / "q.onnx", Feeds(feeds), quant_format=quant_format, activation_type=QuantType.QUInt8
        )
        assert decibels(run(tmp_path / "float.onnx", feeds[0]), run(tmp_path / "q.onnx", feeds[0], onnxruntime)) > 25


GLYPHS = (
    "0110100110010110 0010011000100111 0110000100101111 1110001100011110 1001111100010001 "
    "1111111000011110 0110111010010110 1111000100100100 0110011010010110 0110100101110001"
)


def pictures(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten glyphs of 4 × 4, enlarged, moved, with noise."""
    labels = rng.integers(0, 10, count)
    shapes = np.array([[int(bit) for bit in glyph] for glyph in GLYPHS.split()]).reshape(10, 4, 4)
    images = np.zeros((count, 1, 12, 12), np.float32)
    for image, label, (row, column) in zip(images, labels, rng.integers(0, 3, (count, 2))):
        image[0, row : row + 8, column : column + 8] = shapes[label].repeat(2, 0).repeat(2, 1)
    return images + normal(rng, *images.shape, scale=0.2), labels


def fitted_classifier(rng: np.random.Generator) -> onnx.ModelProto:
    """Two convolutions of random filters, and a readout that is fitted to pictures by least squares."""
    text = """
    net (float[N, 1, 12, 12] x) => (float[N, 10] y)
    {
        c1 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w1, b1)
        r1 = Relu(c1)
        c2 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]>(r1, w2, b2)
        r2 = Relu(c2)
        flat = Flatten(r2)
        y = Gemm(flat, w3, b3)
    }
    """
    weights = {"w1": normal(rng, 16, 1, 3, 3, scale=0.5), "b1": normal(rng, 16, scale=0.3)}
    weights |= {"w2": normal(rng, 24, 16, 3, 3, scale=0.12), "b2": normal(rng, 24, scale=0.1)}
    features = model(
        text.replace("=> (float[N, 10] y)", "=> (float[N, 864] flat)").replace("y = Gemm(flat, w3, b3)", ""), **weights
    )
    images, labels = pictures(rng, 3000)
    session = sardonyx.InferenceSession(features.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.hstack([session.run(None, {"x": images})[0], np.ones((len(images), 1), np.float32)]).astype(np.float64)
    readout = np.linalg.solve(rows.T @ rows + 30.0 * np.eye(rows.shape[1]), rows.T @ np.eye(10)[labels]).astype(np.float32)
    return model(text, **weights, w3=readout[:-1], b3=readout[-1])


@pytest.mark.parametrize("quant_format", QuantFormat)
def test_int8_loses_at_most_half_a_point_on_a_fitted_task(quant_format, rng, tmp_path) -> None:
    float_model = fitted_classifier(rng)
    samples = [{"x": pictures(rng, 50)[0]} for _ in range(4)]
    images, labels = pictures(rng, 2000)
    onnx.save(float_model, tmp_path / "float.onnx")
    quantize_static(
        float_model,
        tmp_path / "q.onnx",
        Feeds(samples),
        quant_format=quant_format,
        activation_type=QuantType.QUInt8,
        per_channel=True,
    )
    right = {}
    for name, runtime in (("float", sardonyx), ("q", sardonyx), ("q", onnxruntime)):
        scores = run(tmp_path / f"{name}.onnx", {"x": images}, runtime)
        right[name, runtime.__name__] = float((scores.argmax(1) == labels).mean() * 100)
    assert right["float", "sardonyx"] > 95
    assert min(right["q", "sardonyx"], right["q", "onnxruntime"]) >= right["float", "sardonyx"] - 0.5


def test_a_model_that_no_message_holds_is_written_with_its_tensors_beside_it(rng, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(models, "MODEL_SIZE_THRESHOLD", 4096)
    float_model = mlp(rng)
    onnx.save_model(float_model, tmp_path / "float.onnx", save_as_external_data=True, location="float.data", size_threshold=0)
    feeds = batches(rng, "x", 4, 32)
    quantize_static(tmp_path / "float.onnx", tmp_path / "q.onnx", Feeds(feeds), activation_type=QuantType.QUInt8)
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "d.onnx")
    for name in ("q", "d"):
        assert (tmp_path / f"{name}.onnx.data").exists() or (tmp_path / f"{name}.onnx").stat().st_size < 8192
        assert decibels(run(tmp_path / "float.onnx", feeds[0]), run(tmp_path / f"{name}.onnx", feeds[0], onnxruntime)) > 25


def test_shapes_are_inferred_without_large_tensors(rng) -> None:
    proto = mlp(rng)
    before = {tensor.name: tensor.SerializeToString() for tensor in proto.graph.initializer}
    models.infer_shapes(proto)
    assert {value.name for value in proto.graph.value_info} == {"a", "b", "c"}
    assert {tensor.name: tensor.SerializeToString() for tensor in proto.graph.initializer} == before


def test_what_users_pass_is_not_changed(rng, tmp_path) -> None:
    proto = mlp(rng)
    before = proto.SerializeToString()
    quantize_static(proto, tmp_path / "q.onnx", Feeds(batches(rng, "x", 4, 32)))
    quantize_dynamic(proto, tmp_path / "d.onnx")
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ([], "no data"),
        ([{"z": np.zeros((1, 32), np.float32)}], "gives z; the model's inputs are x"),
        ([{"x": np.full((1, 32), np.nan, np.float32)}], "NaN"),
    ],
)
def test_calibration_data_that_cannot_be_used_is_refused(feeds, message, rng, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        quantize_static(mlp(rng), tmp_path / "q.onnx", Feeds(feeds))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan])
def test_scales_that_are_not_above_zero_are_refused(scale, rng, tmp_path) -> None:
    override = {"a": [{"scale": np.array(scale, np.float32), "zero_point": np.array(3, np.uint8)}]}
    with pytest.raises(ValueError, match="scale of 'a'"):
        quantize_static(
            mlp(rng),
            tmp_path / "q.onnx",
            Feeds(batches(rng, "x", 2, 32)),
            activation_type=QuantType.QUInt8,
            extra_options={"TensorQuantOverrides": override},
        )


def test_weights_with_nan_are_refused(rng, tmp_path) -> None:
    proto = mlp(rng)
    bad = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    bad[0, 0] = np.nan
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(bad, "w1"))
    with pytest.raises(ValueError, match="'w1' holds NaN"):
        quantize_dynamic(proto, tmp_path / "d.onnx")


def test_a_handler_of_another_package_is_used(rng, tmp_path, monkeypatch) -> None:
    from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase
    from sardonyx.quantization.registry import QDQRegistry

    monkeypatch.setitem(QDQRegistry, "Tanh", QDQOperatorBase)
    text = "g (float[N, 6] x) => (float[N, 6] y) { y = Tanh(x) }"
    quantize_static(model(text), tmp_path / "q.onnx", Feeds(batches(rng, "x", 4, 6)), activation_type=QuantType.QUInt8)
    ops = [node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node]
    assert ops == ["QuantizeLinear", "DequantizeLinear", "Tanh", "QuantizeLinear", "DequantizeLinear"]


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_sardonyx_does_not_load_quantization() -> None:
    assert in_a_new_process("import sys, sardonyx; print('sardonyx.quantization' in sys.modules)") == "False"


def test_programs_that_import_onnxruntime_get_ours() -> None:
    code = """
import sardonyx
sardonyx.install_as_onnxruntime()
from onnxruntime.quantization import quantize_dynamic, QuantType
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.registry import IntegerOpsRegistry
from onnxruntime.quantization.calibrate import create_calibrator
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
import onnxruntime.quantization.preprocess
print(quantize_dynamic.__module__, SymbolicShapeInference.__module__)
"""
    assert in_a_new_process(code) == "sardonyx.quantization.quantize sardonyx.tools.symbolic_shape_infer"
