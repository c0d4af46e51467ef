"""Rewrites that are noted for the runtime instead of made: what onnxruntime notes, and what it can replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx import dtypes, formats, ir
from sardonyx.formats.ort.decoding import decode
from sardonyx.ir.text import parse_model
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.saving import files as saving
from sardonyx.settings import MINIMAL_BUILD_OPTIMIZATIONS
from tests.formats import ort_fixtures
from tests.formats.ort_fixtures import MODELS, comparable

HEADER = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
QDQ = "QDQSelectorActionTransformer"
WEIGHTS = ", ".join(str(120 + number) for number in range(16))
PARAMETERS = "float s = {0.02}, uint8 z = {128}, float s2 = {0.03}, uint8 z2 = {120}, float sb = {0.0006}, int32 zb = {0}"
NONE = 0xFFFFFFFF


def unit(body: str, inputs: str = "uint8[1,4,8,8] x", outputs: str = "uint8[1,4,8,8] y", **constants: str) -> ir.Model:
    """A graph of DequantizeLinear `d` of x, what `body` says, and QuantizeLinear of `t` to y unless it makes y itself."""
    more = "".join(f", {text}" for text in constants.values())
    end = "" if "y =" in body else "y = QuantizeLinear(t, s2, z2)"
    text = f"g ({inputs}) => ({outputs}) <{PARAMETERS}{more}> {{ d = DequantizeLinear(x, s, z) {body} {end} }}"
    return parse_model(HEADER + text)


def saved(model: ir.Model, style: str = "save") -> Any:
    saving.make_savable(model, Level.ALL, settings={MINIMAL_BUILD_OPTIMIZATIONS: style})
    return decode(saving.as_saved(model).encoded())


def records(tree: Any) -> list[tuple[Any, ...]]:
    entries = tree["model"]["graph"].get("runtime_optimizations", {}).get("records", [])
    found = []
    for entry in entries:
        for one in entry["runtime_optimization_records"]:
            indices = {key: value for key, value in one["nodes_to_optimize_indices"].items() if value}
            nodes = indices.pop("node_indices")
            found.append((entry["optimizer_name"], one["action_id"], nodes, indices, one["produced_op_ids"]))
    return found


def ops(tree: Any) -> list[str]:
    return [node["op_type"] for node in tree["model"]["graph"]["nodes"]]


# --- as onnxruntime writes them


@pytest.mark.parametrize("name", ["conv_relu", "qdq_conv"])
def test_the_tree_with_records_is_the_one_that_onnxruntime_writes(name: str) -> None:
    tree = saved(formats.load(MODELS / f"{name}.onnx"))
    want = ort_fixtures.decoded(f"{name}.rtopt")
    assert comparable(tree)["model"]["graph"]["runtime_optimizations"] == want["model"]["graph"]["runtime_optimizations"]
    ids = {entry["op_id"] for entry in tree["kernel_type_str_resolver"]["op_kernel_type_str_args"]}
    assert ids == {entry["op_id"] for entry in want["kernel_type_str_resolver"]["op_kernel_type_str_args"]}


def test_a_product_names_the_op_that_comes_of_it() -> None:
    """onnxruntime leaves that out and cannot replay its own record then."""
    (ours,) = records(saved(formats.load(MODELS / "qdq_matmul.onnx")))
    (theirs,) = records(ort_fixtures.decoded("qdq_matmul.rtopt"))
    assert ours[:4] == theirs[:4]
    assert theirs[4] == [] and ours[4] == [":QLinearMatMul:10"]


UNARY = {"num_inputs": 1, "num_outputs": 1}
CASES: dict[str, tuple[ir.Model, str, list[int], dict[str, Any], list[str], str]] = {
    "gather": (
        unit("t = Gather<axis=1>(d, i) y = QuantizeLinear(t, s, z)", outputs="uint8[1,2,8,8] y", i="int64[2] i = {0, 3}"),
        *("drop", [0, 1, 2], UNARY, [], "Gather"),
    ),
    "resize": (
        unit(
            't = Resize<mode="nearest">(d, , c) y = QuantizeLinear(t, s, z)',
            outputs="uint8[1,4,16,16] y",
            c="float[4] c = {1, 1, 2, 2}",
        ),
        *("drop_no_int16_support", [0, 1, 2], UNARY, [], "Resize"),
    ),
    "reduction": (
        unit("t = ReduceMax<axes=[1]>(d) y = QuantizeLinear(t, s, z)", outputs="uint8[1,1,8,8] y"),
        *("drop_no_int16_support_and_positive_scale", [0, 1, 2], UNARY, [], "ReduceMax"),
    ),
    "argmax": (
        unit("y = ArgMax<axis=1>(d)", outputs="int64[1,1,8,8] y"),
        *("dropDQ", [0, 1], {"num_inputs": 1}, [], "ArgMax"),
    ),
    "split": (
        unit(
            "t, u = Split<axis=1>(d) y = QuantizeLinear(t, s, z) v = QuantizeLinear(u, s, z)",
            outputs="uint8[1,2,8,8] y, uint8[1,2,8,8] v",
        ),
        "dropSplitQDQ",
        [0, 1, 2, 3],
        {**UNARY, "has_variadic_output": True, "num_variadic_outputs": 2},
        [":Split:13"],
        "Split",
    ),
    "sigmoid": (unit("t = Sigmoid(d)"), "1DQ", [0, 1, 2], UNARY, ["com.microsoft:QLinearSigmoid:1"], "QLinearSigmoid"),
    "softmax": (unit("t = Softmax(d)"), "1DQ_CPU", [0, 1, 2], UNARY, ["com.microsoft:QLinearSoftmax:1"], "QLinearSoftmax"),
    "sum": (
        unit("e = DequantizeLinear(w, s2, z2) t = Add(d, e)", inputs="uint8[1,4,8,8] x, uint8[1,4,8,8] w"),
        *("2DQ", [0, 1, 2, 3], {"num_inputs": 2, "num_outputs": 1}, ["com.microsoft:QLinearAdd:1"], "QLinearAdd"),
    ),
    "concatenation": (
        unit(
            "e = DequantizeLinear(w, s2, z2) t = Concat<axis=1>(d, e)",
            inputs="uint8[1,4,8,8] x, uint8[1,4,8,8] w",
            outputs="uint8[1,8,8,8] y",
        ),
        "*DQ",
        [0, 1, 2, 3],
        {**UNARY, "has_variadic_input": True, "num_variadic_inputs": 2},
        ["com.microsoft:QLinearConcat:1"],
        "QLinearConcat",
    ),
    "choice": (
        unit("e = DequantizeLinear(w, s2, z2) t = Where(c, d, e)", inputs="bool[1] c, uint8[1,4,8,8] x, uint8[1,4,8,8] w"),
        *("Where", [0, 1, 2, 3], {"num_inputs": 2, "num_outputs": 1}, ["com.microsoft:QLinearWhere:1"], "QLinearWhere"),
    ),
    "convolution": (
        unit("e = DequantizeLinear(w, s2, z2) t = Conv(d, e)", w=f"uint8[4,4,1,1] w = {{{WEIGHTS}}}"),
        *("Conv", [0, 1, NONE, 2, 3], {"num_inputs": 3, "num_outputs": 1}, [":QLinearConv:10"], "QLinearConv"),
    ),
    "product": (
        unit(
            "e = DequantizeLinear(w, s2, z2) y = MatMul(d, e)",
            inputs="uint8[2,4] x",
            outputs="float[2,4] y",
            w=f"uint8[4,4] w = {{{WEIGHTS}}}",
        ),
        *("MatMul", [0, 1, 2], {"num_inputs": 2}, ["com.microsoft:MatMulIntegerToFloat:1"], "MatMulIntegerToFloat"),
    ),
    "sum of products": (
        unit(
            "e = DequantizeLinear(w, s2, z2) f = DequantizeLinear(b, sb, zb) t = Gemm(d, e, f)",
            inputs="uint8[2,4] x",
            outputs="uint8[2,4] y",
            w=f"uint8[4,4] w = {{{WEIGHTS}}}",
            b="int32[4] b = {1, 2, 3, 4}",
        ),
        *("Gemm", [0, 1, 2, 3, 4], {"num_inputs": 3, "num_outputs": 1}, ["com.microsoft:QGemm:1"], "QGemm"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_unit_is_recorded_and_replayed_by_onnxruntime(name: str, tmp_path: Any) -> None:
    import onnxruntime

    model, action, nodes, counts, produced, made = CASES[name]
    plain = decode(saving.as_saved(_typed(ir.edit.clone_model(model))).encoded())
    saving.make_savable(model, Level.ALL, settings={MINIMAL_BUILD_OPTIMIZATIONS: "save"})
    data = bytes(saving.as_saved(model).encoded())
    assert records(decode(data)) == [(QDQ, action, nodes, counts, produced)]
    assert ops(decode(data)) == ops(plain)  # nothing has been changed

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.enable_saved_runtime_optimizations", "1")
    options.optimized_model_filepath = str(tmp_path / "replayed.ort")
    replayed = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    assert made in ops(decode((tmp_path / "replayed.ort").read_bytes()))
    direct = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {
        value.name: random.integers(0, 256, value.shape).astype(bool if "bool" in value.type else np.uint8)
        for value in direct.get_inputs()
    }
    for one, other in zip(replayed.run(None, feeds), direct.run(None, feeds), strict=True):
        if one.dtype == np.uint8:
            assert np.abs(one.astype(int) - other.astype(int)).max() <= 1
        else:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def _typed(model: ir.Model) -> ir.Model:
    saving.make_savable(model, Level.BASIC)
    return model


FLOATS = ", ".join(["0.5"] * 16)


def test_activations_after_convolutions_are_recorded() -> None:
    text = f"""
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {{{FLOATS}}}, float low = {{0}}, float high = {{6}}>
    {{ t = Conv(x, w) u = LeakyRelu(t) v = Conv(u, w) y = Clip(v, low, high) }}"""
    fused = ["com.microsoft:FusedConv:1"]
    assert records(saved(parse_model(HEADER + text))) == [
        ("ConvActivationFusion", "ConvAct", [0, 1], {"num_outputs": 1}, fused),
        ("ConvActivationFusion", "ConvAct", [2, 3], {"num_outputs": 1}, fused),
    ]


def test_a_bias_after_few_bits_is_recorded() -> None:
    text = f"""
    g (float[2,32] x) => (float[2,4] y)
    <uint8[4,1,16] b = {{{", ".join(map(str, range(64)))}}}, float[4] c = {{0.1, 0.1, 0.1, 0.1}}, float[4] bias = {{1, 2, 3, 4}}>
    {{ t = com.microsoft.MatMulNBits<K=32, N=4, bits=4, block_size=32>(x, b, c) y = Add(t, bias) }}"""
    assert records(saved(parse_model(HEADER + text))) == [("MatMulNBitsFusion", "FuseBias", [0, 1], {"num_outputs": 1}, [])]


@pytest.mark.parametrize("dtype", ["uint4", "int4", "uint8"])
def test_products_with_weights_in_blocks_are_recorded(dtype: str) -> None:
    """onnxruntime writes the same; of 4-bit weights it cannot read its own files."""
    element = dtypes.from_name(dtype)
    numbers = np.random.default_rng(0).integers(0, 7, (32, 4)).astype(element.numpy)
    graph = ir.Graph("g", [ir.Value("x", ir.TensorType(dtypes.float32, (2, 32)))])
    weights, zero = (graph.add_initializer(name, ir.Tensor.of(array)) for name, array in (("w", numbers), ("z", numbers[:2])))
    scale = graph.add_initializer("s", ir.Tensor.of(np.full((2, 4), 0.1, np.float32)))
    real = graph.append(ir.Node("DequantizeLinear", [weights, scale, zero], ["d"], {"axis": 0, "block_size": 16}, version=21))
    product = graph.append(ir.Node("MatMul", [graph.inputs[0], real.outputs[0]], ["y"], version=21))
    graph.outputs = [product.outputs[0]]
    found = records(saved(ir.Model(graph, {"": 21})))
    assert found == [(QDQ, "DQMatMulToMatMulNBits", [0, 1], {"num_inputs": 1}, ["com.microsoft:MatMulNBits:1"])]


# --- what is not recorded


def test_what_somebody_else_reads_is_not_recorded() -> None:
    model = unit("t = Sigmoid(d) y = QuantizeLinear(t, s2, z2)", outputs="uint8[1,4,8,8] y, float[1,4,8,8] t")
    assert records(saved(model)) == []


def test_without_a_zero_point_nothing_is_recorded() -> None:
    model = parse_model(
        HEADER
        + "g (uint8[4] x) => (uint8[4] y) <float s = {0.5}> { d = DequantizeLinear(x, s) t = Sigmoid(d) y = QuantizeLinear(t, s) }"
    )
    assert records(saved(model)) == []


def test_below_the_extended_level_nothing_is_recorded() -> None:
    model = formats.load(MODELS / "conv_relu.onnx")
    saving.make_savable(model, Level.BASIC, settings={MINIMAL_BUILD_OPTIMIZATIONS: "save"})
    assert model.saved_optimizations == []


def test_apply_makes_those_rewrites_and_no_others() -> None:
    text = f"""
    g (float[1,4,8,8] x, float[4,4] a) => (float[1,4,8,8] y, float[4,4] b) <float[4,4,1,1] w = {{{FLOATS}}}>
    {{ t = Conv(x, w) y = Relu(t) p = Gemm(a, a) b = Relu(p) }}"""
    assert ops(saved(parse_model(HEADER + text), "apply")) == ["FusedConv", "Gemm", "Relu"]
    assert "FusedGemm" in ops(saved(parse_model(HEADER + text), ""))
