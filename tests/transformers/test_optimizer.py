"""`optimize_model` fuses what the options leave, for onnxruntime too, and results stay."""

from __future__ import annotations

import argparse
import importlib

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from sardonyx.transformers import optimizer
from sardonyx.transformers.fusion_options import AttentionMaskFormat, FusionOptions

theirs = importlib.import_module("onnxruntime.transformers.fusion_options")

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
block (float[batch, length, 8] x, int64[batch, length] ids) => (float[batch, length, 8] y)
<float[1] two = {1.41421356}, float[1] one = {1}, float[1] half = {0.5}> {
    rows = Gather(table, ids)
    start = Add(x, rows)
    normal = LayerNormalization <axis = -1> (start, scale, offset)
    wide = MatMul(normal, w0)
    biased = Add(wide, b0)
    divided = Div(biased, two)
    error = Erf(divided)
    raised = Add(error, one)
    product = Mul(biased, raised)
    active = Mul(product, half)
    narrow = MatMul(active, w1)
    shifted = Add(narrow, b1)
    skip = Add(shifted, normal)
    y = LayerNormalization <axis = -1> (skip, scale, offset)
}
"""
SHAPES = {"table": (5, 8), "scale": (8,), "offset": (8,), "w0": (8, 16), "b0": (16,), "w1": (16, 8), "b1": (8,)}
FEEDS = {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(2, 3, 8), "ids": np.array([[0, 1, 2], [3, 4, 0]])}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    made, rng = onnx.parser.parse_model(TEXT), np.random.default_rng(3)
    for name, shape in SHAPES.items():
        made.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return made


@pytest.fixture(scope="module")
def wanted(model):
    return results(model)


def results(model: onnx.ModelProto) -> np.ndarray:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, FEEDS)[0]


@pytest.mark.parametrize(
    ("switched_off", "counts"),
    [
        ((), {"SkipLayerNormalization": 2, "BiasGelu": 1, "LayerNormalization": 0}),
        (("enable_skip_layer_norm",), {"SkipLayerNormalization": 0, "LayerNormalization": 2}),
        (("enable_gelu",), {"Gelu": 0, "BiasGelu": 0, "SkipLayerNormalization": 2}),
        (("enable_bias_gelu",), {"Gelu": 1, "BiasGelu": 0}),
    ],
)
def test_what_the_options_leave_is_fused_and_onnxruntime_runs_it(model, wanted, switched_off, counts):
    options = FusionOptions("bert")
    for name in switched_off:
        setattr(options, name, False)
    before = model.SerializeToString()
    made = optimizer.optimize_model(model, "bert", 2, 8, options)
    assert model.SerializeToString() == before
    assert {op: made.get_fused_operator_statistics()[op] for op in counts} == counts
    assert [value.name for value in made.model.graph.input] == ["x", "ids"]
    np.testing.assert_allclose(results(made.model), wanted, rtol=1e-4, atol=1e-5)


def test_the_approximation_of_gelu_is_asked_for(model, wanted):
    options = FusionOptions("bert")
    options.enable_gelu_approximation = True
    made = optimizer.optimize_model(model, optimization_options=options)
    assert made.get_fused_operator_statistics()["FastGelu"] == 1
    np.testing.assert_allclose(results(made.model), wanted, rtol=1e-2, atol=1e-2)


def test_a_model_of_an_unknown_type_stays(model, caplog):
    made = optimizer.optimize_model(model, "nonsense")
    assert made.model == model and "nonsense" in caplog.text


def test_wrong_numbers_are_refused(model):
    with pytest.raises(AssertionError):
        optimizer.optimize_model(model, opt_level=7)
    with pytest.raises(AssertionError):
        optimizer.optimize_model(model, "bert", 3, 8)


def test_the_script_writes_a_model_of_float16(model, wanted, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    words = ["--input", str(tmp_path / "model.onnx"), "--output", str(tmp_path / "new.onnx"), "--float16", "--input_int32"]
    optimizer.main([*words, "--disable_skip_layer_norm"])
    new = onnx.load(tmp_path / "new.onnx")
    ops = {node.op_type for node in new.graph.node}
    assert "BiasGelu" in ops and "SkipLayerNormalization" not in ops
    feeds = FEEDS | {"ids": FEEDS["ids"].astype(np.int32)}
    (y,) = onnxruntime.InferenceSession(new.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(y, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("level", [1, 2, 99])
def test_a_session_writes_its_model(model, wanted, tmp_path, level):
    path = optimizer.optimize_by_onnxruntime(model, optimized_model_path=str(tmp_path / "o.onnx"), opt_level=level)
    assert path == str(tmp_path / "o.onnx")
    assert optimizer.get_fusion_statistics(path)["SkipLayerNormalization"] == (2 if level > 1 else 0)
    np.testing.assert_allclose(results(onnx.load(path)), wanted, rtol=1e-4, atol=1e-5)
    only = optimizer.optimize_model(model, opt_level=level, only_onnxruntime=True)
    assert only.get_operator_statistics() == optimizer.OnnxModel(onnx.load(path)).get_operator_statistics()


@pytest.mark.parametrize("model_type", list(optimizer.MODEL_TYPES))
def test_options_are_those_of_onnxruntime(model_type):
    def plain(module):
        options = module.FusionOptions(model_type)
        return {name: value for name, value in vars(options).items() if isinstance(value, (bool, int, type(None)))}

    assert plain(importlib.import_module("sardonyx.transformers.fusion_options")) == plain(theirs)


def test_the_command_line_sets_options():
    def parsed(module, words):
        parser = argparse.ArgumentParser()
        parser.add_argument("--model_type", default="unet")
        module.FusionOptions.add_arguments(parser)
        return vars(module.FusionOptions.parse(parser.parse_args(words)))

    ours = importlib.import_module("sardonyx.transformers.fusion_options")
    for words in ([], ["--disable_gelu", "--disable_group_norm"], ["--no_attention_mask"], ["--use_mask_index"]):
        wanted = {name: value for name, value in parsed(theirs, words).items() if not isinstance(value, theirs.Enum)}
        assert {name: parsed(ours, words)[name] for name in wanted} == wanted


def test_masks_come_in_formats():
    options = FusionOptions("bert")
    formats = [options.attention_mask_format]
    for change in (options.use_raw_attention_mask, options.disable_attention_mask):
        change()
        formats.append(options.attention_mask_format)
    wanted = [AttentionMaskFormat.MaskIndexEnd, AttentionMaskFormat.AttentionMask, AttentionMaskFormat.NoMask]
    assert formats == wanted


def fused_without_mask(input: str, bias: str) -> onnx.ModelProto:
    """Attention with something added to its scores, optimized with masks switched off."""
    made = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    block (float[batch, length, 8] x, {input}) => (float[batch, length, 8] y)
    <float[1] one = {{1}}, float[1] low = {{-10000}}, int64[2] axes = {{1, 2}}> {{
        {bias}
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x, , , bias)
    }}""")
    options = FusionOptions("bert")
    options.disable_attention_mask()
    return optimizer.optimize_model(made, "bert", 2, 8, options).model


def attention(x: np.ndarray, heads: int) -> np.ndarray:
    """Each position looks at all."""
    split = x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    weights = np.exp(split @ split.swapaxes(2, 3) / np.sqrt(split.shape[-1]))
    return (weights / weights.sum(axis=-1, keepdims=True) @ split).swapaxes(1, 2).reshape(x.shape)


def test_a_mask_that_is_switched_off_leaves_the_graph():
    mask = """shape = Shape(x)
        zeros = ConstantOfShape(shape)
        none = ReduceSum(zeros)
        wide = Unsqueeze(attention_mask, axes)
        present = Add(wide, none)
        absent = Sub(one, present)
        bias = Mul(absent, low)"""
    made = fused_without_mask("float[batch, length] attention_mask", mask)
    assert [value.name for value in made.graph.input] == ["x"]
    got = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": FEEDS["x"]})[0]
    np.testing.assert_allclose(got, attention(FEEDS["x"], 2), rtol=1e-5, atol=1e-6)


def test_a_type_of_model_without_masks_keeps_those_that_a_model_has():
    made = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    block (float[batch, length, 8] x, float[batch, 1, length, length] attention_mask) => (float[batch, length, 8] y) {
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x, , , attention_mask)
    }""")
    for model_type in ("qwen3", "vit"):
        assert FusionOptions(model_type).attention_mask_format == AttentionMaskFormat.NoMask
        kept = optimizer.optimize_model(made, model_type, 2, 8).model
        assert [value.name for value in kept.graph.input] == ["x", "attention_mask"]


def test_what_else_is_added_to_scores_stays():
    made = fused_without_mask("float[batch, 2, length, length] distances", "bias = Identity(distances)")
    assert [value.name for value in made.graph.input] == ["x", "distances"]
