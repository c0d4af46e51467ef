"""Fusions over the quantizers' model: each does its part, results stay, and own fusions find what they ask for."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.quantization.execution_providers.qnn.fusion_lpnorm import FusionLpNormalization
from sardonyx.quantization.execution_providers.qnn.fusion_spacetodepth import FusionSpaceToDepth
from sardonyx.quantization.execution_providers.qnn.preprocess import qnn_preprocess_model
from sardonyx.quantization.fusions import Fusion, FusionGelu, FusionLayerNormalization, ReplaceUpsampleWithResize
from sardonyx.quantization.onnx_model import ONNXModel

ERF = "d = Div(x, root) e = Erf(d) f = Add(e, one) g = Mul(x, f) y = Mul(g, half)"
NORM = (
    "m = ReduceMean<axes=[-1]>(x) c = Sub(x, m) p = Pow(c, two) v = ReduceMean<axes=[-1]>(p) w = Add(v, tiny) s = Sqrt(w)"
    " n = Div(c, s) o = Mul(n, gamma) y = Add(o, gamma)"
)
LENGTH = "n = ReduceL2<axes=[-1], keepdims=1>(x) c = Clip(n, least) s = Shape(x) e = Expand(c, s) y = Div(x, e)"
BLOCKS = (
    "a = Reshape(x, s1) b = Transpose<perm=[0, 1, 2, 4, 3, 5]>(a) c = Reshape(b, s2) d = Transpose<perm=[0, 1, 3, 2]>(c)"
    " e = Reshape(d, s3) f = Transpose<perm=[0, 2, 1, 3, 4]>(e) y = Reshape(f, s4)"
)
WEIGHTS = (
    "float one = {1}, float half = {0.5}, float root = {1.41421356}, float two = {2}, float tiny = {1e-5}, float least = {1e-12},"
    " float[6] gamma = {1, 2, 3, 4, 5, 6}, int64[6] s1 = {2, 3, 2, 2, 3, 2}, int64[4] s2 = {2, 3, 6, 4},"
    " int64[5] s3 = {2, 3, 4, 2, 3}, int64[4] s4 = {2, 12, 2, 3}"
)
IN_ROW = (
    "d = Div(x, root) e = Erf(d) f = Add(e, one) g = Mul(x, f) u = Mul(g, half)"
    " m = ReduceMean<axes=[-1]>(u) c = Sub(u, m) p = Pow(c, two) v = ReduceMean<axes=[-1]>(p) w = Add(v, tiny) s = Sqrt(w)"
    " n = Div(c, s) o = Mul(n, gamma) z = Add(o, gamma)"
    " length = ReduceL2<axes=[-1], keepdims=1>(z) divisor = Clip(length, least) y = Div(z, divisor)"
)
"""Gelu, layer normalization and division by the length, one behind the other."""
CASES = [
    (FusionGelu, ERF, "Gelu"),
    (FusionLayerNormalization, NORM, "LayerNormalization"),
    (FusionLpNormalization, LENGTH, "LpNormalization"),
    (FusionSpaceToDepth, BLOCKS, "SpaceToDepth"),
]


def model(body: str, sizes: str = "2, 3, 4, 6", opset: int = 17) -> ONNXModel:
    header = f'<ir_version: 8, opset_import: ["": {opset}]>'
    return ONNXModel(
        onnx.parser.parse_model(f"{header} main (float[{sizes}] x) => (float[a, b, c, d] y) <{WEIGHTS}> {{ {body} }}")
    )


@pytest.mark.parametrize(("fusion", "body", "op"), CASES, ids=[case[-1] for case in CASES])
def test_a_fusion_leaves_one_op_of_the_same_results(fusion, body, op):
    fused = model(body)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    wanted = ReferenceEvaluator(fused.model).run(None, {"x": x})[0]
    assert fusion(fused).apply()
    assert [node.op_type for node in fused.nodes() if node.op_type != "Constant"] == [op]
    np.testing.assert_allclose(sardonyx.InferenceSession(fused.model).run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-6)
    assert not fusion(fused).apply()


@pytest.mark.parametrize(
    ("fusion", "body"),
    [
        (FusionLpNormalization, LENGTH.replace("-1", "1")),
        (FusionLpNormalization, LENGTH.replace("least", "tiny")),
        (FusionSpaceToDepth, BLOCKS.replace("[0, 1, 2, 4, 3, 5]", "[0, 1, 2, 5, 3, 4]")),
    ],
    ids=["another axis", "a large least divisor", "another order"],
)
def test_what_means_something_else_stays(fusion, body):
    whole = model(body)
    before = whole.model.SerializeToString()
    assert not fusion(whole).apply()
    assert whole.model.SerializeToString() == before


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 9])
def test_resize_takes_the_place_of_upsample(opset, mode):
    scales = [1.0, 1.0, 2.0, 3.0]
    node = helper.make_node("Upsample", ["x"], ["y"], mode=mode)
    graph = onnx.parser.parse_graph("g (float[1, 1, 2, 3] x) => (float[1, 1, 4, 9] y) <float[4] scales = {1, 1, 2, 3}> { }")
    if opset == 9:
        node.input.append("scales")
    else:
        node.attribute.append(helper.make_attribute("scales", scales))
    graph.node.append(node)
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    wanted = sardonyx.InferenceSession(old.SerializeToString()).run(None, {"x": x})[0]
    new = ONNXModel(old)
    assert ReplaceUpsampleWithResize(new, opset).apply()
    new.set_opset_import("", 13)
    onnx.checker.check_model(new.model)
    np.testing.assert_allclose(ReferenceEvaluator(new.model).run(None, {"x": x})[0], wanted, atol=1e-6)


class DoubleNegation(Fusion):
    """Neg of Neg is its input."""

    def __init__(self, model: ONNXModel):
        super().__init__(model, "Identity", "Neg")

    def fuse(self, node, input_name_to_nodes, output_name_to_node):
        inner = self.match_parent(node, "Neg", 0, output_name_to_node)
        if inner is None or not self.is_safe_to_fuse_nodes([inner], [], {}, {}):
            return
        readers = input_name_to_nodes[inner.output[0]]
        if self.is_safe_to_fuse_nodes([inner, node], node.output, input_name_to_nodes, output_name_to_node):
            assert readers == [node]
            self.nodes_to_remove += [inner, node]
            name = self.create_unique_node_name()
            self.nodes_to_add.append(helper.make_node("Identity", [inner.input[0]], list(node.output), name))


def test_own_fusions():
    whole = model("a = Neg(x) b = Neg(a) c = Mul(b, two) d = Neg(c) e = Neg(d) y = Add(d, e)")
    fusion = DoubleNegation(whole)
    assert fusion.apply()
    kinds = sorted(node.op_type for node in whole.nodes())
    assert kinds == ["Add", "Identity", "Mul", "Neg", "Neg"]  # the second pair is read in its middle
    assert [node.name for node in whole.nodes() if node.op_type == "Identity"] == ["Identity_fused_Neg_0"]
    product = next(node for node in whole.nodes() if node.op_type == "Mul")
    assert fusion.find_constant_input(product, 2.0) == 1 and not fusion.has_constant_input(product, 3.0)
    assert fusion.is_constant_with_specified_rank("gamma", 1) is False  # unread constants are gone
    assert fusion.is_constant_with_specified_rank("two", 0)
    path = fusion.match_parent_path(product, ["Identity"], [0])
    assert [node.op_type for node in path] == ["Identity"]
    assert Fusion.tensor_shape_to_list(whole.model.graph.output[0].type.tensor_type) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("opset", [16, 17])
def test_qnn_gets_the_ops_that_it_has(tmp_path, opset, caplog):
    whole = model(IN_ROW, opset=opset)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    wanted = ReferenceEvaluator(whole.model).run(None, {"x": x})[0]
    path = tmp_path / "qnn.onnx"
    assert qnn_preprocess_model(whole.model, path, fuse_layernorm=True, inputs_to_make_channel_last=["x"])
    written = onnx.load(path)
    kinds = {node.op_type for node in written.graph.node}
    assert {"Gelu", "LpNormalization", "Transpose"} <= kinds and ("LayerNormalization" in kinds) == (opset == 17)
    assert ("came with opset 17" in caplog.text) == (opset == 16)
    assert any(value.name == "x_channel_first_0" for value in written.graph.value_info)
    moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    np.testing.assert_allclose(sardonyx.InferenceSession(path).run(None, {"x": moved})[0], wanted, rtol=1e-4, atol=1e-5)
