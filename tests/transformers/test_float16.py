"""Models in float16: the types that onnxruntime's conversion gives, and results near those of float32."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.transformers import float16
from sardonyx.transformers.onnx_model import OnnxModel

theirs = importlib.import_module("onnxruntime.transformers.float16")

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x, bool flag) => (float[n, 4] y, float[n, 2] z)
<float[4, 4] w = {1, 0, 0, 0.5, 0, 1, 0, 0, 0, 0, 1, 0, 0.25, 0, 0, 1}, float[1] low = {-0.5}, float[4] shift = {1, 2, 3, 4},
 int64[1] k = {2}> {
    [product] a = MatMul(x, w)
    [bounded] b = Max(a, low)
    [half] c = Constant <value = float {0.5}> ()
    [scaled] d = Mul(b, c)
    [shifted] e = Add(d, shift)
    [cut] f = Cast <to = 7> (e)
    [back] g = Cast <to = 1> (f)
    [largest] z, i = TopK(e, k)
    [branch] y = If (flag) <
        then_branch = yes () => (float[n, 4] t) { t = Add(g, shift) },
        else_branch = no () => (float[n, 4] o) <float[1] v = {2}> { o = Mul(g, v) }
    >
}
"""
FEEDS = {"x": np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4), "flag": np.array(False)}
WAYS = {
    "default": {},
    "same inputs and outputs": {"keep_io_types": True},
    "one output": {"keep_io_types": ["z"]},
    "all ops": {"op_block_list": []},
    "blocked ops": {"keep_io_types": True, "op_block_list": ["MatMul", "Mul"]},
    "blocked node": {"node_block_list": ["shifted"]},
    "forced weights": {"force_fp16_initializers": True},
}


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def types(converted: onnx.ModelProto) -> dict[str, object]:
    wrapped = OnnxModel(converted)
    casts = sorted(helper.get_attribute_value(node.attribute[0]) for node in wrapped.get_nodes_by_op_type("Cast"))
    weights = {tensor.name: tensor.data_type for graph in wrapped.graphs() for tensor in graph.initializer}
    values = {value.name: value.type.tensor_type.elem_type for value in (*converted.graph.input, *converted.graph.output)}
    return {"casts": casts, "weights": weights, "values": values}


@pytest.mark.parametrize("way", WAYS)
def test_types_are_those_of_onnxruntime_and_results_stay(way):
    converted = float16.convert_float_to_float16(model(), **WAYS[way])
    assert types(converted) == types(theirs.convert_float_to_float16(model(), **WAYS[way]))
    session = sardonyx.InferenceSession(converted)
    declared = {value.name: value.type for value in session.get_inputs()}
    feeds = {name: value.astype(np.float16) if "float16" in declared[name] else value for name, value in FEEDS.items()}
    for got, wanted in zip(session.run(None, feeds), sardonyx.InferenceSession(model()).run(None, FEEDS), strict=True):
        np.testing.assert_allclose(got.astype(np.float32), wanted, rtol=1e-2, atol=1e-2)


def test_a_model_class_converts_itself_and_keeps_casts_that_cut():
    converted = OnnxModel(model())
    assert not converted.use_float16()
    converted.convert_float_to_float16(keep_io_types=True)
    assert converted.use_float16() and TensorProto.INT64 in types(converted.model)["casts"]
    got, wanted = (sardonyx.InferenceSession(one).run(None, FEEDS)[0] for one in (converted.model, model()))
    np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-2)


def test_numbers_of_constants_become_tensors():
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { c = Constant <value_floats = [1.0, 2.0]> () y = Add(x, c) }
    """
    converted = float16.convert_float_to_float16(onnx.parser.parse_model(text))
    (y,) = sardonyx.InferenceSession(converted).run(None, {"x": np.ones(2, np.float16)})
    assert y.dtype == np.float16 and y.tolist() == [2, 3]


NUMBERS = np.array([0, -0.0, 1e-9, -1e-9, 1e-7, 1.5, 65504, 65520, 1e9, -1e9, np.inf, -np.inf], np.float32)


@pytest.mark.parametrize("limits", [(), (1e-4, 100.0)])
def test_numbers_out_of_range_become_the_nearest_limit(limits):
    got = float16.convert_np_to_float16(NUMBERS, *limits)
    np.testing.assert_array_equal(got.view(np.uint16), theirs.convert_np_to_float16(NUMBERS.copy(), *limits).view(np.uint16))
    assert np.isnan(float16.convert_np_to_float16(np.array([np.nan], np.float32))).all()


def test_the_largest_change_is_told():
    tensor = numpy_helper.from_array(np.array([1e-9, 70000.0, 0.1], np.float32))
    assert float16.float_to_float16_max_diff(tensor) == pytest.approx(theirs.float_to_float16_max_diff(tensor))


def test_a_model_in_a_file_is_converted(tmp_path):
    onnx.save(model(), tmp_path / "model.onnx")
    assert types(float16.convert_float_to_float16(str(tmp_path / "model.onnx"))) == types(
        float16.convert_float_to_float16(model())
    )
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_wrong_arguments_are_refused():
    for attempt in (lambda: float16.convert_float_to_float16(3), lambda: float16.convert_tensor_float_to_float16("t")):
        with pytest.raises(ValueError, match="Expected"):
            attempt()
    for limits in ({"min_positive_val": 1e-9}, {"max_finite_val": 1e6}):
        with pytest.raises(AssertionError, match="invalid"):
            float16.convert_float_to_float16(model(), **limits)


def test_a_model_whose_outputs_become_float16_opens():
    """Types that are inferred for the conversion name outputs once more."""
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Tanh(x) y = Neg(a) }"
    wrapped = OnnxModel(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'))
    wrapped.convert_float_to_float16(keep_io_types=False)
    session = sardonyx.InferenceSession(wrapped.model.SerializeToString())
    x = FEEDS["x"].astype(np.float16)
    (got,) = session.run(None, {"x": x})
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, -np.tanh(x), rtol=2e-3)
