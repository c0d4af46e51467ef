"""Rewrites that a file names: each action makes the op that onnxruntime makes of it, and nothing that does not fit is made."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.errors import Fail
from sardonyx.ir import Model, SavedOptimization, SavedOptimizations
from sardonyx.ir.verify import verify
from sardonyx.optimizer.replay import NO_NODE, replay
from sardonyx.optimizer.rewrite import Journal
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import random_feeds, run, typed

QDQ = "QDQSelectorActionTransformer"
PARAMETERS = "float s = {0.04}, uint8 z = {3}, float t = {0.05}, uint8 y = {5}, float ws = {0.02}, int8 wz = {0}"


def saved(
    text: str, optimizer: str, action: str, nodes: list[int], inputs: int, outputs: int, produced: str = "", **more: int
) -> Model:
    """A typed model with one record; nodes are numbered in the text's order."""
    model = typed(text, opset=17)
    record = SavedOptimization(action, tuple(nodes), inputs, outputs, **more, produced=tuple(produced.split()))
    numbered = dict(enumerate(model.graph.nodes))
    model.saved_optimizations = [SavedOptimizations(model.graph, numbered, {optimizer: [record]})]
    return model


def assert_replays(model: Model, *ops: str, exact: bool = True) -> Journal:
    """Check which ops are left and that they compute the same."""
    feeds = random_feeds(model.graph)
    want = run(model, feeds)
    journal = Journal(strict=True)
    replay(model, evaluate=evaluate, journal=journal)
    verify(model)
    assert [node.op_id for node in model.graph.nodes] == list(ops)
    assert model.saved_optimizations == []
    for got, wanted in zip(run(model, feeds), want, strict=True):
        a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        assert np.abs(a - b).max() <= (0 if exact else 1 if wanted.dtype.kind in "ui" else 1e-5 * np.abs(b).max())
    return journal


def unary(op: str, result: str = "uint8[2,6] q", shape: str = "2,6", same: bool = False, more: str = "") -> str:
    scale = "s, z" if same else "t, y"
    return f"""g (uint8[{shape}] x) => ({result}) <{PARAMETERS}{more}> {{
        d = DequantizeLinear (x, s, z) f = {op} q = QuantizeLinear (f, {scale}) }}"""


@pytest.mark.parametrize(
    ("text", "action", "op"),
    [
        (unary("Transpose <perm = [1, 0]> (d)", "uint8[6,2] q", same=True), "drop", "Transpose"),
        (unary("Reshape (d, r)", "uint8[3,4] q", same=True, more=", int64[2] r = {3, 4}"), "drop", "Reshape"),
        (unary("MaxPool <kernel_shape = [2, 2]> (d)", "uint8[1,2,5,5] q", "1,2,6,6", True),
         "drop_no_int16_support_and_positive_scale", "MaxPool"),
        (unary("DepthToSpace <blocksize = 2> (d)", "uint8[1,1,4,4] q", "1,4,2,2", True), "drop_no_int16_support", "DepthToSpace"),
    ],
)  # fmt: skip
def test_what_moves_numbers_moves_whole_ones(text, action, op):
    assert_replays(saved(text, QDQ, action, [0, 1, 2], 1, 1), op)


@pytest.mark.parametrize(
    ("op", "action", "shape", "result"),
    [
        ("Sigmoid", "1DQ", "2,6", "2,6"),
        ("LeakyRelu <alpha = 0.2>", "1DQ_CPU", "2,6", "2,6"),
        ("Softmax <axis = 1>", "1DQ_CPU", "2,6", "2,6"),
        ("AveragePool <kernel_shape = [2, 2]>", "1DQ", "1,2,6,6", "1,2,5,5"),
        ("GlobalAveragePool", "1DQ", "1,2,6,6", "1,2,1,1"),
    ],
)
def test_functions_of_one_tensor(op, action, shape, result):
    made = f"com.microsoft:QLinear{op.split()[0]}"
    model = saved(unary(f"{op} (d)", f"uint8[{result}] q", shape), QDQ, action, [0, 1, 2], 1, 1, f"{made}:1")
    assert_replays(model, made.replace(":", "::"), exact=False)
    if "Softmax" in op:
        assert next(model.graph.nodes).attribute("opset") == 13


def binary(op: str) -> str:
    return f"""g (uint8[2,6] a, uint8[2,6] b, bool[2,6] c) => (uint8[] q) <{PARAMETERS}> {{
        da = DequantizeLinear (a, s, z) db = DequantizeLinear (b, s, z) f = {op} q = QuantizeLinear (f, t, y) }}"""


@pytest.mark.parametrize(
    ("op", "action", "made", "more"),
    [
        ("Add (da, db)", "2DQ", "QLinearAdd", {}),
        ("Mul (da, db)", "2DQ", "QLinearMul", {}),
        ("Where (c, da, db)", "Where", "QLinearWhere", {}),
        ("Concat <axis = 0> (da, db)", "*DQ", "QLinearConcat", {"variadic_inputs": 2}),
    ],
)
def test_functions_of_two_tensors(op, action, made, more):
    inputs = 1 if more else 2
    model = saved(binary(op), QDQ, action, [0, 1, 2, 3], inputs, 1, f"com.microsoft:{made}:1", **more)
    assert_replays(model, f"com.microsoft::{made}", exact=False)


PRODUCT = f"""g (uint8[4,6] x) => (%s) <{PARAMETERS}, int8[6,5] w = {{{",".join(str(n % 90 - 40) for n in range(30))}}},
    int32[5] b = {{1, -2, 300, 4, -5}}, float bs = {{0.0008}}, int32 bz = {{0}}> {{
    d = DequantizeLinear (x, s, z) e = DequantizeLinear (w, ws, wz) h = DequantizeLinear (b, bs, bz)
    f = %s %s }}"""
QUANTIZED = "uint8[4,5] q", "q = QuantizeLinear (f, t, y)"
REAL = "float[4,5] f", ""


@pytest.mark.parametrize(
    ("op", "ends", "action", "nodes", "made"),
    [
        ("MatMul (d, e)", QUANTIZED, "MatMul", [0, 1, 3, 4], ":QLinearMatMul:10"),
        ("MatMul (d, e)", REAL, "MatMul", [0, 1, 3], "com.microsoft:MatMulIntegerToFloat:1"),
        ("Gemm (d, e)", QUANTIZED, "Gemm", [0, 1, NO_NODE, 3, 4], "com.microsoft:QGemm:1"),
        ("Gemm <alpha = 0.5> (d, e)", REAL, "Gemm", [0, 1, NO_NODE, 3], "com.microsoft:QGemm:1"),
        ("Gemm <beta = 1.0> (d, e, h)", QUANTIZED, "Gemm", [0, 1, 2, 3, 4], "com.microsoft:QGemm:1"),
    ],
)
def test_products(op, ends, action, nodes, made):
    output, quantize = ends
    model = saved(
        PRODUCT % (output, op, quantize), QDQ, action, nodes, len(nodes) - 1 - bool(quantize), int(bool(quantize)), made
    )
    if ", h)" not in op:
        model.graph.remove(next(node for node in model.graph.nodes if node.outputs[0].name == "h"))
    name = made.rpartition(":")[0].removeprefix(":").replace(":", "::")
    assert_replays(model, name, exact=False)


def test_a_convolution_with_and_without_a_bias():
    weights = ",".join(str(number % 70 - 30) for number in range(54))
    text = f"""g (uint8[1,2,6,6] x) => (uint8[1,3,6,6] q) <{PARAMETERS}, int8[3,2,3,3] w = {{{weights}}}, int32[3] b = {{5, -3, 100}},
        float bs = {{0.0008}}, int32 bz = {{0}}> {{ d = DequantizeLinear (x, s, z) e = DequantizeLinear (w, ws, wz) %s
        f = Conv <pads = [1, 1, 1, 1]> (d, e%s) q = QuantizeLinear (f, t, y) }}"""
    model = saved(text % ("", ""), QDQ, "Conv", [0, 1, NO_NODE, 2, 3], 3, 1, ":QLinearConv:10")
    assert_replays(model, "QLinearConv", exact=False)
    model = saved(text % ("h = DequantizeLinear (b, bs, bz)", ", h"), QDQ, "Conv", [0, 1, 2, 3, 4], 3, 1, ":QLinearConv:10")
    assert_replays(model, "QLinearConv", exact=False)
    (node,) = model.graph.nodes
    assert [None if value is None else value.name for value in node.inputs] == ["x", "s", "z", "w", "ws", "wz", "t", "y", "b"]
    assert node.outputs[0].name == "q" and node.version == 10


def test_comparing_and_splitting():
    text = f"g (uint8[2,6] x) => (int64[1,6] f) <{PARAMETERS}> {{ d = DequantizeLinear (x, s, z) f = ArgMax (d) }}"
    assert_replays(saved(text, QDQ, "dropDQ", [0, 1], 1, 0), "ArgMax")
    text = f"""g (uint8[2,6] x) => (uint8[2,3] p, uint8[2,3] q) <{PARAMETERS}> {{
        d = DequantizeLinear (x, s, z) a, b = Split <axis = 1> (d) p = QuantizeLinear (a, s, z) q = QuantizeLinear (b, s, z) }}"""
    assert_replays(saved(text, QDQ, "dropSplitQDQ", [0, 1, 2, 3], 1, 1, ":Split:13", variadic_outputs=2), "Split")


@pytest.mark.parametrize(
    "activation",
    ["Relu (c)", "Sigmoid (c)", "Tanh (c)", "LeakyRelu <alpha = 0.2> (c)", "HardSigmoid <alpha = 0.3, beta = 0.4> (c)", "Clip (c, l, h)"],
)  # fmt: skip
def test_activations_after_convolutions(activation):
    weights = ",".join(str(number % 7 / 8 - 0.4) for number in range(54))
    text = f"""g (float[1,2,6,6] x) => (float[1,3,4,4] y) <float[3,2,3,3] w = {{{weights}}}, float l = {{0.0}}, float h = {{1.0}}> {{
        c = Conv (x, w) y = {activation} }}"""
    model = saved(text, "ConvActivationFusion", "ConvAct", [0, 1], 0, 1, "com.microsoft:FusedConv:1")
    journal = assert_replays(model, "com.microsoft::FusedConv", exact=False)
    assert [event.rule for event in journal.events] == ["ConvActivationFusion"]


def test_products_with_weights_of_few_bits():
    weights = ",".join(str(number * 37 % 256) for number in range(64))
    scales = ",".join(str(number % 5 / 8 + 0.1) for number in range(4))
    text = f"""g (float[3,32] x) => (float[3,4] y)
        <uint8[4,1,16] w = {{{weights}}}, float[4] s = {{{scales}}}, float[4] b = {{1, 2, 3, 4}}> {{
        m = com.microsoft.MatMulNBits <K = 32, N = 4, bits = 4, block_size = 32> (x, w, s) y = Add (m, b) }}"""
    model = saved(text, "MatMulNBitsFusion", "FuseBias", [0, 1], 0, 1)
    assert_replays(model, "com.microsoft::MatMulNBits", exact=False)
    assert next(model.graph.nodes).inputs[5].name == "b"


def test_few_bits_that_are_dequantized():
    weights = ",".join(str(number * 37 % 256) for number in range(64))  # two numbers each
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[3,32] x) => (float[3,4] y)
        <uint4[32,4] w = {{{weights}}}, float[1,4] s = {{0.1, 0.2, 0.3, 0.4}}> {{
        d = DequantizeLinear <axis = 0, block_size = 32> (w, s) y = MatMul (x, d) }}"""
    model = saved(text, QDQ, "DQMatMulToMatMulNBits", [0, 1], 1, 0, "com.microsoft:MatMulNBits:1")
    assert_replays(model, "com.microsoft::MatMulNBits", exact=False)


def test_nodes_that_are_gone_are_no_error():
    model = saved(unary("Sigmoid (d)"), QDQ, "1DQ", [0, 1, 2], 1, 1, "com.microsoft:QLinearSigmoid:1")
    records = model.saved_optimizations[0].by_optimizer[QDQ]
    records.append(records[0])
    assert_replays(model, "com.microsoft::QLinearSigmoid", exact=False)


def test_unknown_optimizers_are_ignored():
    model = saved(unary("Sigmoid (d)"), "SomethingNew", "1DQ", [0, 1, 2], 1, 1)
    assert_replays(model, "DequantizeLinear", "Sigmoid", "QuantizeLinear")


SIGMOID = unary("Sigmoid (d)")
USED = SIGMOID.replace("(uint8[2,6] q)", "(uint8[2,6] q, float[2,6] f)")


@pytest.mark.parametrize(
    ("text", "action", "nodes", "inputs", "outputs", "produced", "reason"),
    [
        (SIGMOID, "2DQ", [0, 1, 2], 1, 1, "com.microsoft:QLinearSigmoid:1", "no DequantizeLinear feeds it as source 1"),
        (SIGMOID, "1DQ", [2, 1, 0], 1, 1, "com.microsoft:QLinearSigmoid:1", "does not quantize its output"),
        (SIGMOID, "1DQ", [0, 1], 1, 0, "com.microsoft:QLinearSigmoid:1", "1 nodes must read it, the record names 0"),
        (SIGMOID, "1DQ", [NO_NODE, 1, 2], 1, 1, "com.microsoft:QLinearSigmoid:1", "no DequantizeLinear feeds it as source 0"),
        (SIGMOID, "1DQ", [0, NO_NODE, 2], 1, 1, "com.microsoft:QLinearSigmoid:1", "names 3 nodes, but there are 1 before the target"),
        (SIGMOID, "1DQ", [0, 1, 2], 7, 1, "", "names 3 nodes, but there are 7 before the target"),
        (SIGMOID, "1DQ", [0, 1, 3], 1, 1, "", "names node 3, but the last one is 2"),
        (SIGMOID, "1DQ", [0, 1, 2], 1, 1, "", "Not enough produced nodes"),
        (SIGMOID, "1DQ", [0, 1, 2], 1, 1, "com.microsoft:QLinearSigmoid:1 :Add:14", "Too many produced nodes"),
        (SIGMOID, "1DQ", [0, 1, 2], 1, 1, "com.microsoft:QLinearSigmoid:x", "does not match produced node op"),
        (SIGMOID, "1DQ", [0, 1, 2], 1, 1, ":QLinearSigmoid:1", "does not match produced node op"),
        (SIGMOID, "drop", [0, 1, 2], 1, 1, "", "Type Error|is invalid"),
        (SIGMOID, "Nope", [0, 1, 2], 1, 1, "", "the action 'Nope', which is not known"),
        (USED, "1DQ", [0, 1, 2], 1, 1, "com.microsoft:QLinearSigmoid:1", "its output 'f' is used elsewhere too"),
        (unary("Tanh (d)"), "1DQ", [0, 1, 2], 1, 1, "com.microsoft:QLinearTanh:1", "not a registered function/op"),
    ],
)  # fmt: skip
def test_records_that_do_not_fit_the_graph_are_refused(text, action, nodes, inputs, outputs, produced, reason):
    model = saved(text, QDQ, action, nodes, inputs, outputs, produced)
    with pytest.raises(Fail, match=reason):
        replay(model, evaluate=evaluate)
