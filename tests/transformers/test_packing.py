"""Models that compute no padding give the same for all tokens that are none; onnxruntime runs what they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.transformers import convert_to_packing_mode
from sardonyx.transformers.convert_to_packing_mode import PackingAttention, PackingMode, PackingMultiHeadAttention
from sardonyx.transformers.onnx_model import OnnxModel

WIDTH, HEADS, LENGTH = 8, 2, 6
MS = {"domain": "com.microsoft"}


class Builder:
    """Nodes and weights of a small encoder of two layers."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.nodes, self.weights = [], []

    def weight(self, *shape):
        return self.constant((self.rng.normal(size=shape) / 2).astype(np.float32))

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op, inputs, output=None, **options):
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"n{len(self.nodes)}", **options))
        return output

    def attention(self, states, lengths, bias):
        inputs = [states, self.weight(WIDTH, 3 * WIDTH), self.weight(3 * WIDTH), lengths, "", bias]
        return self.add("Attention", inputs, num_heads=HEADS, scale=0.3, **MS)

    def heads(self, states, lengths, bias):
        projected = [self.add("MatMul", [states, self.weight(WIDTH, WIDTH)]) for _ in range(3)]
        projected[0] = self.add("Add", [projected[0], self.weight(WIDTH)])
        inputs = [*projected, self.weight(3 * WIDTH), lengths, bias]
        return self.add("MultiHeadAttention", inputs, num_heads=HEADS, scale=0.3, **MS)

    def layer(self, states, lengths, bias, kind):
        gamma, beta = self.weight(WIDTH), self.weight(WIDTH)
        mixed = self.add("MatMul", [getattr(self, kind)(states, lengths, bias), self.weight(WIDTH, WIDTH)])
        states = self.add("SkipLayerNormalization", [mixed, states, gamma, beta], **MS)
        wide = self.add("BiasGelu", [self.add("MatMul", [states, self.weight(WIDTH, 12)]), self.weight(12)], **MS)
        narrow = self.add("Add", [self.add("MatMul", [wide, self.weight(12, WIDTH)]), states])
        return self.add("LayerNormalization", [narrow, gamma, beta], axis=2)


def encoder(kind: str, bias: bool = False) -> onnx.ModelProto:
    build = Builder()
    counts = build.add("ReduceSum", ["mask", build.constant(np.array([1]))], keepdims=0)
    lengths = build.add("Cast", [counts], to=onnx.TensorProto.INT32)
    states = build.add("Gather", [build.weight(20, WIDTH), "words"])
    for _ in range(2):
        states = build.layer(states, lengths, "bias" if bias else "", kind)
    build.add("Identity", [states], "states")
    first = build.add("Gather", [states, build.constant(np.array(0))], axis=1)
    build.add("MatMul", [first, build.weight(WIDTH, 3)], "classes")
    words = [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", LENGTH]) for name in ("words", "mask")]
    extra = [helper.make_tensor_value_info("bias", onnx.TensorProto.FLOAT, [1, HEADS, LENGTH, LENGTH])] if bias else []
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("states", "classes")]
    graph = helper.make_graph(build.nodes, "encoder", [*words, *extra], outputs, build.weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8
    )


def feeds(bias: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    mask = (np.arange(LENGTH) < np.array([[4], [6], [1]])).astype(np.int64)
    extra = {"bias": rng.normal(size=(1, HEADS, LENGTH, LENGTH)).astype(np.float32)} if bias else {}
    return {"words": rng.integers(0, 20, mask.shape), "mask": mask, **extra}


@pytest.mark.parametrize("kind", ["attention", "heads"])
@pytest.mark.parametrize("bias", [False, True])
def test_tokens_have_the_same_states(kind: str, bias: bool) -> None:
    model = encoder(kind, bias)
    given = feeds(bias)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    packed = OnnxModel(model)
    PackingMode(packed).convert()
    counts = packed.get_operator_statistics()
    op = {"attention": "PackedAttention", "heads": "PackedMultiHeadAttention"}[kind]
    assert counts[f"com.microsoft:{op}" if f"com.microsoft:{op}" in counts else op] == 2
    assert len(packed.get_nodes_by_op_type("RemovePadding")) == 1
    assert len(packed.get_nodes_by_op_type("RestorePadding")) == 2  # for an output, and for the first token of each row
    session = sardonyx.InferenceSession(packed.model.SerializeToString())
    states, classes = session.run(None, given)
    is_token = given["mask"].astype(bool)
    np.testing.assert_allclose(states[is_token], wanted[0][is_token], atol=2e-5)
    np.testing.assert_allclose(classes, wanted[1], atol=2e-5)
    assert not states[~is_token].any() and states.shape == wanted[0].shape
    (inner,) = session.run([packed.get_nodes_by_op_type(op)[0].output[0]], given)
    assert inner.shape == (11, WIDTH)  # 4 + 6 + 1 tokens


def refused(model: onnx.ModelProto, caplog, packing=PackingMode) -> str:
    before = model.SerializeToString()
    packing(OnnxModel(model)).convert()
    assert model.SerializeToString() == before
    return caplog.text


def changed(kind: str, op: str, change) -> onnx.ModelProto:
    model = encoder(kind)
    change(next(node for node in model.graph.node if node.op_type == op))
    return model


def test_what_cannot_be_packed_is_left_alone(caplog) -> None:
    causal = changed("attention", "Attention", lambda node: node.attribute.append(helper.make_attribute("unidirectional", 1)))
    assert "n3 is causal" in refused(causal, caplog)
    unmasked = changed("attention", "Attention", lambda node: node.input.__setitem__(3, ""))
    assert "expected one mask" in refused(unmasked, caplog)
    raw = encoder("heads")
    for node in raw.graph.node:
        node.input[:] = ["mask" if name == "v1" else name for name in node.input]
    assert "expected the lengths of rows" in refused(raw, caplog)
    assert "there is none" in refused(encoder("heads"), caplog, PackingAttention)
    assert "there is none" in refused(encoder("attention"), caplog, PackingMultiHeadAttention)
    between = encoder("attention")
    node = next(node for node in between.graph.node if node.op_type == "LayerNormalization")
    reversing = helper.make_node("ReverseSequence", ["ends", "counts"], list(node.output), time_axis=1, batch_axis=0)
    count = helper.make_node("Cast", ["v1"], ["counts"], to=onnx.TensorProto.INT64)
    node.output[0] = "ends"
    between.graph.node.extend([count, reversing])
    assert "reads what is not made of tokens alone" in refused_sorted(between, caplog)


def refused_sorted(model: onnx.ModelProto, caplog) -> str:
    before = len(model.graph.node)
    PackingMode(OnnxModel(model)).convert()
    assert len(model.graph.node) == before and not any("Packed" in node.op_type for node in model.graph.node)
    return caplog.text


def test_a_node_without_bias_gets_one_of_zeros() -> None:
    """onnxruntime crashes on such nodes, so its model has zeros."""
    model, zeros = encoder("attention"), encoder("attention")
    for node, other in zip(model.graph.node, zeros.graph.node, strict=True):
        if node.op_type == "Attention":
            weight = next(tensor for tensor in zeros.graph.initializer if tensor.name == other.input[2])
            weight.CopyFrom(numpy_helper.from_array(np.zeros(3 * WIDTH, np.float32), weight.name))
            node.input[2] = ""
    wanted = onnxruntime.InferenceSession(zeros.SerializeToString()).run(["classes"], feeds())
    packed = OnnxModel(model)
    PackingMode(packed).convert()
    got = sardonyx.InferenceSession(packed.model.SerializeToString()).run(["classes"], feeds())
    np.testing.assert_allclose(got, wanted, atol=2e-5)


def test_the_program_writes_a_file(tmp_path: Path) -> None:
    onnx.save(encoder("attention"), tmp_path / "model.onnx")
    target = tmp_path / "packed.onnx"
    convert_to_packing_mode.main(
        ["--input", str(tmp_path / "model.onnx"), "--output", str(target), "--use_external_data_format"]
    )
    ops = [node.op_type for node in onnx.load(target).graph.node]
    assert ops.count("PackedAttention") == 2 and "Attention" not in ops
