"""Weight-only quantization by functions: codes are as near as codes can be, written models compute what the codes mean."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.quantization.neural_compressor import util
from sardonyx.quantization.neural_compressor import weight_only as wo
from sardonyx.quantization.neural_compressor.onnx_model import ONNXModel
from sardonyx.quantization.weight_only.kquant import k_quant


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def two_products(rng: np.random.Generator) -> onnx.ModelProto:
    graph = onnx.parser.parse_graph("g (float[n, 70] x) => (float[n, 9] y) { }")
    graph.node.extend([
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ])  # fmt: skip
    for name, shape in (("w", (70, 40)), ("v", (40, 9))):
        graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("bits", [3, 4, 8])
@pytest.mark.parametrize(("scheme", "dtype"), [("asym", "int"), ("asym", "uint"), ("sym", "int"), ("sym", "uint")])
def test_codes_stand_for_what_is_near(scheme, dtype, bits, rng):
    data = rng.standard_normal((6, 64)).astype(np.float32)
    codes, scale, zero = wo.quant_tensor(data, bits, 32, scheme, dtype)
    assert codes.shape == (12, 32) and scale.shape == zero.shape == (12, 1)
    signed = scheme == "sym" and dtype == "int"
    assert codes.min() >= (-(2 ** (bits - 1)) if signed else 0) and codes.max() <= 2 ** (bits - int(signed)) - 1
    # around the middle there is a code less above than below: the far end may be a whole step off
    reach = scale * (0.501 if scheme == "asym" else 1.001)
    assert (np.abs(scale * (codes - zero) - data.reshape(12, 32)) <= reach).all()
    again = wo.qdq_tensor(data, bits, 32, scheme, dtype)
    np.testing.assert_array_equal(again, (scale * (codes - zero)).reshape(data.shape))


def test_a_group_of_equal_weights_has_a_scale():
    codes, scale, zero = wo.quant_tensor(np.zeros((1, 32), np.float32), 4, 32)
    assert scale.tolist() == [[1.0]] and not (codes - zero).any()


def test_k_quant_is_that_of_the_quantizer(rng):
    data = rng.standard_normal((16, 64)).astype(np.float32)
    blocks = k_quant(data, 4, 32)
    for values in (wo.quant_tensor_k_quant_cpu(data, 4, 32), wo.quant_tensor_k_quant_cuda(data, 4, 32)):
        codes, scale, zero = values
        np.testing.assert_array_equal((scale * (codes - zero)).reshape(16, 64).astype(np.float32), blocks.dequantized())


def test_small_pieces(rng):
    weight = rng.standard_normal((70, 4))
    padded = wo.pad_tensor(weight, 32, 3)
    assert padded.shape == (96, 4) and not padded[70:].any() and wo.pad_tensor(weight, -1, 1) is weight
    scales = wo.get_weight_scale(np.array([[1.0, -2.0, 4.0, 1.0]]), 2)
    np.testing.assert_array_equal(scales, [0.5, 1.0, 1.0, 0.25])


def meaning(model: onnx.ModelProto) -> onnx.ModelProto:
    """MatMulNBits as MatMul with the floats that its codes stand for, unpacked by hand."""
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    for node in plain.graph.node:
        if node.op_type != "MatMulNBits":
            continue
        of = {attribute.name: attribute.i for attribute in node.attribute}
        codes, scales = tensors[node.input[1]], tensors[node.input[2]]
        zeros = tensors[node.input[3]] if len(node.input) > 3 else None
        if of["bits"] == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], -1)
            zeros = None if zeros is None else np.stack([zeros & 15, zeros >> 4], axis=-1).reshape(len(zeros), -1)
        middle = 2 ** (of["bits"] - 1) if zeros is None else zeros[:, : codes.shape[1], None].astype(np.float32)
        floats = ((codes.astype(np.float32) - middle) * scales.reshape(*codes.shape[:2], 1)).reshape(of["N"], -1)[:, : of["K"]]
        plain.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(floats.T), f"{node.output[0]}_w"))
        node.CopyFrom(helper.make_node("MatMul", [node.input[0], f"{node.output[0]}_w"], list(node.output), node.name))
    return plain


ROUTES = {
    "k_quant": {"algorithm": "k_quant"},
    "rounded": {"algorithm": "rtn"},
    "symmetric": {"algorithm": "rtn", "scheme": "sym"},
    "eight bits": {"algorithm": "rtn", "num_bits": 8},
    "three bits": {"algorithm": "rtn", "num_bits": 3},
    "one group": {"algorithm": "k_quant", "group_size": 64, "accuracy_level": 1},
}


@pytest.mark.parametrize("how", ROUTES.values(), ids=list(ROUTES))
def test_written_models_compute_what_the_codes_mean(how, rng):
    model = two_products(rng)
    x = rng.standard_normal((3, 70)).astype(np.float32)
    exact = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    quantized = wo.rtn_quantize(model, **how).model
    kinds = [node.op_type for node in quantized.graph.node]
    assert kinds.count("MatMulNBits") == (0 if how.get("num_bits") == 3 else 2)
    wanted = onnxruntime.InferenceSession(meaning(quantized).SerializeToString()).run(None, {"x": x})[0]
    for runtime in (sardonyx, onnxruntime):
        got = runtime.InferenceSession(quantized.SerializeToString()).run(None, {"x": x})[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
    assert np.abs(wanted - exact).mean() < {3: 0.5, 8: 0.02}.get(how.get("num_bits", 4), 0.25) * np.abs(exact).mean()


def test_single_nodes_are_told_apart(rng):
    config = {"first": {"bits": 8, "group_size": 16, "scheme": "sym", "algorithm": "RTN"}, "second": "fp32"}
    quantized = wo.rtn_quantize(two_products(rng), config, algorithm="rtn")
    nodes = {node.output[0]: node for node in quantized.nodes()}
    assert nodes["y"].op_type == "MatMul" and len(nodes["h"].input) == 3
    assert {attribute.name: attribute.i for attribute in nodes["h"].attribute}["block_size"] == 16


class Loader:
    batch_size = 1

    def __init__(self, batches: list):
        self.batches = batches

    def __iter__(self):
        return iter([(batch, 0) for batch in self.batches])


@pytest.mark.parametrize("wrap", [lambda x: {"x": x}, lambda x: x, lambda x: [x]], ids=["by name", "alone", "in a list"])
def test_gptq_keeps_outputs_nearer_than_rounding(wrap, rng):
    model = two_products(rng)
    mix = rng.standard_normal((70, 70)).astype(np.float32) * np.geomspace(1, 0.01, 70, dtype=np.float32)
    batches = [(rng.standard_normal((40, 70)) @ mix).astype(np.float32) for _ in range(4)]
    x = (rng.standard_normal((40, 70)) @ mix).astype(np.float32)

    def error(quantized: ONNXModel) -> float:
        got, exact = (
            sardonyx.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0] for one in (quantized.model, model)
        )
        return float(np.square(got - exact).mean())

    settings = {"second": "fp32"}
    copies = [onnx.ModelProto.FromString(model.SerializeToString()) for _ in range(2)]
    rounded = wo.rtn_quantize(copies[0], settings, algorithm="rtn")
    assert error(wo.gptq_quantize(copies[1], Loader([wrap(batch) for batch in batches]), settings)) < 0.8 * error(rounded)


def test_loaders_are_read_as_far_as_they_are_asked_for(rng):
    model = ONNXModel(two_products(rng))
    batches = Loader([np.zeros((1, 70), np.float32)] * 5)
    assert len(wo.prepare_inputs(model, 3, batches, ["CPUExecutionProvider"])[0]) == 3
    assert len(wo.prepare_inputs(model, -1, batches, ["CPUExecutionProvider"])[0]) == 5
    with pytest.raises(ValueError, match="has 1 inputs, the loader gives 2"):
        wo.prepare_inputs(model, -1, Loader([{"a": 1, "b": 2}]), ["CPUExecutionProvider"])
    with pytest.raises(NotImplementedError, match="perchannel=False"):
        wo.gptq(np.ones((4, 2), np.float32), np.eye(4), perchannel=False)


def test_a_model_with_tables(rng, tmp_path, capsys):
    model = ONNXModel(two_products(rng))
    first, relu, second = model.nodes()
    assert model.get_node("relu") == relu and model.get_node("third") is None and model.input() == ["x"]
    assert model.get_children(first) == [relu] and model.get_siblings(second) == [] and model.get_parents(second) == [relu]
    assert model.input_name_to_nodes["r"] == [second] and model.output_name_to_node["h"] == first
    assert model.graph_info == {"first": "MatMul", "relu": "Relu", "second": "MatMul"}
    assert model.get_initializer_share_num("w") == 1 and model.get_initializer_share_num("no") == 0
    model.set_initializer("v", np.ones(360))
    assert (numpy_helper.to_array(model.get_initializer("v")) == np.ones((40, 9), np.float32)).all()
    model.add_tensors_to_outputs(["h", "y"])
    assert model.output() == ["y", "h"]
    model.remove_tensors_from_outputs(["y"])
    model.remove_unused_nodes()
    assert [node.name for node in model.nodes()] == ["first"] and [tensor.name for tensor in model.initializer()] == ["w"]
    model.save(tmp_path / "one.onnx")
    again = ONNXModel(tmp_path / "one.onnx")
    assert again.model.graph.node == model.model.graph.node and again.model_path == str(tmp_path / "one.onnx")
    util.simple_progress_bar(4, 1)
    assert capsys.readouterr().out == "\rProgress: [#####               ] 25.00%"


class Tensor:
    """What PyTorch's tensors do: NumPy gets those of bfloat16 as floats alone."""

    def __init__(self, dtype: str):
        self.dtype = dtype

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def float(self) -> Tensor:
        return Tensor("torch.float32")

    def numpy(self) -> np.ndarray:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.ones(2, np.float32)


def test_values_become_arrays():
    for value in ([1.0, 1.0], np.ones(2), Tensor("torch.float32"), Tensor("torch.bfloat16")):
        assert util.to_numpy(value).tolist() == [1.0, 1.0]
