"""Fusions into ops that onnxruntime computes on GPUs alone: each leaves its op, and results stay those of onnxruntime before it."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.transformers.fusion_group_norm import FusionGroupNorm
from sardonyx.transformers.onnx_model import OnnxModel

IMAGE, ROW = "batch, 8, rows, columns", "batch, length, 16"
GROUPS = (
    "g = Reshape(x, grouped) i = InstanceNormalization<epsilon=1e-6>(g, ones, zeros) s = Shape(x) r = Reshape(i, s)"
    " m = Mul(r, gamma) {0} = Add(m, beta)"
)
NORM = (
    "m = ReduceMean<axes=[1]>(x) c = Sub(x, m) p = Pow(c, two) v = ReduceMean<axes=[1]>(p) w = Add(v, tiny) d = Sqrt(w)"
    " n = Div(c, d) o = Mul(n, gamma) y = Add(o, beta)"
)
GELU = "h = com.microsoft.Gelu(b) y = Mul(a, h)"
CUT = (
    "t = Add(x, wide) s = Shape(t) size = Gather(s, last) more = Add(size, one) half = Div(more, two_i) full = Mul(half, two_i)"
    " a = Slice(t, start, half, axis) b = Slice(t, half, full, axis)"
)
LAST = "a = Transpose<perm=[0, 2, 3, 1]>({0}) y = com.microsoft.GroupNorm<activation=1, groups=4>(a, flat, flat)"
STEP = "e = GlobalAveragePool(x) f = Flatten(e) q = Gemm(f, square) u = Unsqueeze(q, two_axis) k = Unsqueeze(u, three_axis)"
TRANSPOSES = {"Transpose": 2}
CASES = {
    "bias add": (ROW, "fusion_bias_add.FusionBiasAdd", "p = MatMul(x, matrix) b = Add(p, wide) y = Add(b, x)", {"MatMul": 1, "BiasAdd": 1}),
    "gate of slices": (ROW, "fusion_biassplitgelu.FusionBiasSplitGelu", f"{CUT} {GELU}", {"BiasSplitGelu": 1}),
    "gate of a split": (
        ROW,
        "fusion_biassplitgelu.FusionBiasSplitGelu",
        f"t = Add(wide, x) a, b = Split<axis=2>(t, halves) {GELU}",
        {"BiasSplitGelu": 1},
    ),
    "product and gelu": (
        ROW,
        "fusion_gemmfastgelu.FusionGemmFastGelu",
        "p = MatMul(x, matrix) y = com.microsoft.FastGelu(p, wide)",
        {"GemmFastGelu": 1},
    ),
    "groups": (IMAGE, "fusion_group_norm.FusionGroupNorm", GROUPS.format("y"), {"GroupNorm": 1, **TRANSPOSES}),
    "groups with SiLU": (
        IMAGE,
        "fusion_group_norm.FusionGroupNorm",
        f"{GROUPS.format('z')} k = Sigmoid(z) y = Mul(z, k)",
        {"GroupNorm": 1, **TRANSPOSES},
    ),
    "sum of images": (
        IMAGE,
        "fusion_skip_group_norm.FusionSkipGroupNorm",
        f"n = Neg(x) t = Add(x, n) {LAST.format('t')}",
        {"Neg": 1, "SkipGroupNorm": 1, **TRANSPOSES},
    ),
    "sum of channels": (
        IMAGE,
        "fusion_skip_group_norm.FusionSkipGroupNorm",
        f"n = GlobalAveragePool(x) t = Add(n, x) {LAST.format('t').replace('y =', 'z =')}"
        " w = Transpose<perm=[0, 3, 1, 2]>(z) y = Add(w, t)",
        {"GlobalAveragePool": 1, "SkipGroupNorm": 1, "Transpose": 4, "Add": 1},
    ),
    "convolution": (
        IMAGE,
        "fusion_nhwc_conv.FusionNhwcConv",
        "y = Conv<kernel_shape=[3, 3], pads=[1, 0, 1, 2], strides=[2, 1], group=2>(x, filters, few)",
        {"NhwcConv": 1, **TRANSPOSES},
    ),
    "step before groups": (
        IMAGE,
        "fusion_transpose.FusionInsertTranspose",
        f"{STEP} t = Add(x, k) {LAST.format('t')}",
        {"GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1, "Unsqueeze": 2, "Transpose": 2, "Add": 1, "GroupNorm": 1},
    ),
    "norm of channels": (IMAGE, "fusion_layernorm.FusionLayerNormalizationNCHW", NORM, {"LayerNormalization": 1, **TRANSPOSES}),
}  # fmt: skip


def model_of(shape: str, body: str) -> onnx.ModelProto:
    numbers = (
        "float two = {2}, float tiny = {1e-5}, int64[3] grouped = {0, 4, -1}, int64 last = {2}, int64[1] one = {1},"
        " int64[1] two_i = {2}, int64[1] start = {0}, int64[1] axis = {-1}, int64[2] halves = {8, 8}, int64[1] two_axis = {2},"
        " int64[1] three_axis = {3}"
    )
    made = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    block (float[{shape}] x) => (float[a, b, c{", d" if shape is IMAGE else ""}] y) <{numbers}> {{ {body} }}""")
    rng = np.random.default_rng(5)
    shapes = {"gamma": (8, 1, 1), "beta": (8, 1, 1), "flat": (8,), "wide": (16,), "matrix": (16, 16), "square": (8, 8)}
    for name, size in {**shapes, "filters": (6, 4, 3, 3), "few": (6,)}.items():
        made.graph.initializer.append(numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name))
    for name, value in (("ones", 1), ("zeros", 0)):
        made.graph.initializer.append(numpy_helper.from_array(np.full(4, value, np.float32), name))
    return made


def feeds(shape: str) -> dict[str, np.ndarray]:
    sizes = (2, 8, 5, 6) if shape is IMAGE else (2, 3, 16)
    return {"x": np.random.default_rng(1).normal(size=sizes).astype(np.float32)}


def results(model: onnx.ModelProto, shape: str) -> np.ndarray:
    runtime = sardonyx if any(node.op_type in ("GroupNorm",) for node in model.graph.node) else onnxruntime
    return runtime.InferenceSession(model.SerializeToString()).run(None, feeds(shape))[0]


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_fusion_leaves_its_op_and_the_results(case):
    shape, path, body, counts = case
    module, name = path.split(".")
    model = OnnxModel(model_of(shape, body))
    wanted = results(model.model, shape)
    getattr(importlib.import_module(f"sardonyx.transformers.{module}"), name)(model).apply()
    assert model.get_operator_statistics() == counts
    got = sardonyx.InferenceSession(model.model.SerializeToString()).run(None, feeds(shape))[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_groups_stay_where_their_channels_are():
    model = OnnxModel(model_of(IMAGE, f"{GROUPS.format('z')} k = Sigmoid(z) y = Mul(z, k)"))
    wanted = results(model.model, IMAGE)
    FusionGroupNorm(model, channels_last=False).apply()
    assert model.get_operator_statistics() == {"GroupNorm": 1}
    got = sardonyx.InferenceSession(model.model.SerializeToString()).run(None, feeds(IMAGE))[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


OTHERS = {
    "a residual of another shape": (ROW, "fusion_bias_add.FusionBiasAdd", "p = MatMul(x, matrix) b = Add(p, wide) y = Add(b, two)"),
    "halves the other way": (ROW, "fusion_biassplitgelu.FusionBiasSplitGelu", f"t = Add(x, wide) b, a = Split<axis=2>(t, halves) {GELU}"),
    "instances that are scaled": (IMAGE, "fusion_group_norm.FusionGroupNorm", GROUPS.format("y").replace("g, ones", "g, zeros")),
    "norm of rows": (IMAGE, "fusion_layernorm.FusionLayerNormalizationNCHW", NORM.replace("axes=[1]", "axes=[2]")),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS.values(), ids=list(OTHERS))
def test_what_means_something_else_stays(case):
    shape, path, body = case
    module, name = path.split(".")
    model = OnnxModel(model_of(shape, body))
    before = model.get_operator_statistics()
    getattr(importlib.import_module(f"sardonyx.transformers.{module}"), name)(model).apply()
    assert model.get_operator_statistics() == before


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (0, 1)], ids=["in order", "in another", "some"])
def test_sizes_that_are_put_together_again(order):
    parts = "".join(f" g{place} = Gather(s, i{axis}) u{place} = Unsqueeze(g{place}, start)" for place, axis in enumerate(order))
    names = ", ".join(f"u{place}" for place in range(len(order)))
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[a, b, c] x) => (int64[n] y)
    <int64 i0 = {{0}}, int64 i1 = {{1}}, int64 i2 = {{2}}, int64[1] start = {{0}}> {{ s = Shape(x) {parts} y = Concat<axis=0>({names}) }}"""
    model = OnnxModel(onnx.parser.parse_model(text))
    importlib.import_module("sardonyx.transformers.fusion_shape").FusionShape(model).apply()
    assert (model.get_operator_statistics() == {"Shape": 1}) == (order == (0, 1, 2))
    got = onnxruntime.InferenceSession(model.model.SerializeToString()).run(None, {"x": np.zeros((4, 5, 6), np.float32)})[0]
    assert got.tolist() == [4 + axis for axis in order]
