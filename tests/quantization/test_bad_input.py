"""Models whose quantized numbers cannot be right are refused when a session is made, with the node and the field that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import errors

F, U8, I8 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8
BAD_SCALES = {"zero": 0.0, "negative": -1.0, "NaN": np.nan, "infinity": np.inf}
one, byte = np.float32(0.1), np.uint8(3)
bytes8 = np.arange(8, dtype=np.uint8).reshape(2, 4)


def session(op: str, fed: dict[str, tuple[int, list]], constants: dict[str, Any], domain: str = "com.microsoft", **attributes):
    """A session of one node named "bad"."""
    names = [*fed, *constants]
    order = attributes.pop("order", names)
    inputs = [helper.make_tensor_value_info(name, type, shape) for name, (type, shape) in fed.items()]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    node = helper.make_node(op, [name if name in names else "" for name in order], ["Y"], "bad", domain=domain, **attributes)
    output = helper.make_tensor_value_info("Y", 0, None)
    output.type.Clear()
    graph = helper.make_graph([node], "g", inputs, [output], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return sardonyx.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def refused(match: str, *arguments: Any, **keywords: Any) -> None:
    with pytest.raises((errors.Fail, errors.InvalidGraph, errors.InvalidArgument), match=match) as caught:
        session(*arguments, **keywords)
    assert "bad" in str(caught.value), "the message does not name the node"


X, B2 = {"x": (F, [2, 4])}, {"a": (U8, [2, 4])}
DIVISORS = {
    "QuantizeLinear": (X, {"y_scale": one, "y_zero_point": byte}, ""),
    "com.microsoft.QuantizeLinear": (X, {"y_scale": one, "y_zero_point": byte}, "com.microsoft"),
    "QLinearSigmoid": (B2, {"X_scale": one, "X_zero_point": byte, "Y_scale": one}, "com.microsoft"),
    "QLinearAdd": (B2, {"sa": one, "za": byte, "B": bytes8, "sb": one, "zb": byte, "C_scale": one}, "com.microsoft"),
    "QLinearConcat": ({}, {"Y_scale": one, "zy": byte, "b": bytes8, "sb": one, "zb": byte}, "com.microsoft"),
}


@pytest.mark.parametrize("bad", BAD_SCALES)
@pytest.mark.parametrize("op", DIVISORS)
def test_scales_by_which_nothing_can_be_divided(op: str, bad: str) -> None:
    fed, constants, domain = DIVISORS[op]
    (name,) = (name for name in ("y_scale", "Y_scale", "C_scale") if name in constants)
    attributes = {"axis": 0} if op == "QLinearConcat" else {}
    constants = {**constants, name: np.float32(BAD_SCALES[bad])}
    refused(f"{name} must be finite and above 0", op.rpartition(".")[2], fed, constants, domain, **attributes)


def _dead_channel(domain: str, scale: float) -> np.ndarray:
    """What a convolution makes of filters of which the second is 0 and has this scale."""
    weights = np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32)
    weights[1] = 0
    scales = np.array([0.02, scale, 0.03], np.float32)
    constants = {"w": weights, "sw": scales, "zw": np.zeros(3, np.int8), "s": one, "z": byte}
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "sw", "zw"], ["wq"], domain=domain, axis=0),
        helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], domain=domain, axis=0),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["y"]),
    ]
    fed, result = helper.make_tensor_value_info("x", F, [1, 2, 5, 5]), helper.make_tensor_value_info("y", F, [1, 3, 3, 3])
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [fed], [result], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    x = np.random.default_rng(1).standard_normal((1, 2, 5, 5)).astype(np.float32)
    return sardonyx.InferenceSession(model).run(None, {"x": x})[0]


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_channel_of_zeros_may_have_a_scale_of_zero(domain: str) -> None:
    found = _dead_channel(domain, 0.0)
    assert not found[:, 1].any() and found[:, 0].any() and found[:, 2].any()
    np.testing.assert_array_equal(found, _dead_channel(domain, 1.0))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_no_other_scale_of_a_channel_may_be_anything_but_finite_and_above_0(bad: float) -> None:
    with pytest.raises(errors.Fail, match="y_scale must be finite and above 0"):
        _dead_channel("", bad)


MATRIX = np.arange(12, dtype=np.int8).reshape(4, 3)
FACTORS: dict[str, tuple[dict, dict, dict]] = {
    "DynamicQuantizeMatMul": ({"A": (F, [2, 4])}, {"B": MATRIX, "b_scale": one}, {}),
    "MatMulIntegerToFloat": ({"A": (U8, [2, 4])}, {"B": MATRIX, "a_scale": one, "b_scale": one}, {}),
    "GatherBlockQuantized": (
        {"indices": (TensorProto.INT64, ["N"])},
        {"data": np.zeros((3, 8), np.uint8), "scales": np.ones((3, 1), np.float32)},
        {"order": ["data", "indices", "scales"], "block_size": 16},
    ),
    "MatMulNBits": (
        {"A": (F, ["N", 32])},
        {"B": np.zeros((3, 2, 8), np.uint8), "scales": np.ones((3, 2), np.float32)},
        {"K": 32, "N": 3, "block_size": 16},
    ),
    "MatMulBnb4": (
        {"A": (F, ["N", 32])},
        {"B": np.zeros(48, np.uint8), "absmax": np.ones(6, np.float32)},
        {"K": 32, "N": 3, "block_size": 16, "quant_type": 1},
    ),
}


@pytest.mark.parametrize("bad", ["NaN", "infinity"])
@pytest.mark.parametrize("op", FACTORS)
def test_scales_that_are_no_numbers(op: str, bad: str) -> None:
    fed, constants, attributes = FACTORS[op]
    for name in (name for name in constants if name.endswith(("scale", "scales", "absmax"))):
        spoilt = np.array(constants[name])
        spoilt.flat[-1] = BAD_SCALES[bad]
        refused(f"{name} must be finite", op, fed, {**constants, name: spoilt}, **attributes)


@pytest.mark.parametrize(
    ("op", "changed", "match"),
    [
        ("MatMulNBits", {"B": np.zeros((3, 2, 7), np.uint8)}, "B is .3, 2, 7., K, N, bits and block_size ask for 48 elements"),
        ("MatMulNBits", {"scales": np.ones((3, 3), np.float32)}, "scales is .3, 3., .* ask for 6 elements"),
        ("MatMulNBits", {"block_size": 24}, "block_size must be a power of two"),
        ("MatMulNBits", {"block_size": 8}, "block_size must be a power of two, 16 or more"),
        ("MatMulNBits", {"bits": 9}, "bits from 2 to 8"),
        ("MatMulBnb4", {"B": np.zeros(47, np.uint8)}, "B is .47., K, N and block_size ask for 48 elements"),
        ("MatMulBnb4", {"absmax": np.ones(5, np.float32)}, "absmax is .5., .* ask for 6 elements"),
        ("MatMulBnb4", {"block_size": 0}, "must be positive"),
        ("MatMulBnb4", {"quant_type": 2}, "quant_type must be 0"),
        ("GatherBlockQuantized", {"scales": np.ones((3, 2), np.float32)}, "scales is .3, 2., blocks of 16 ask for .3, 1."),
        ("GatherBlockQuantized", {"scales": np.ones(3, np.float32)}, "scales is .3., blocks of 16 ask for .3, 1."),
        ("GatherBlockQuantized", {"block_size": -16}, "block_size must not be negative"),
    ],
)
def test_sizes_that_contradict_each_other(op: str, changed: dict, match: str) -> None:
    fed, constants, attributes = FACTORS[op]
    arrays = {name: changed.get(name, array) for name, array in constants.items()}
    numbers = {name: number for name, number in changed.items() if name not in constants}
    refused(match, op, fed, arrays, **{**attributes, **numbers})


@pytest.mark.parametrize(
    ("shapes", "attributes", "match"),
    [
        (
            ((2, 6), (2, 2), None),
            {"axis": 1, "block_size": 2},
            "x_scale is .2, 2., but blocks of 2 along axis 1 of .2, 6. need .2, 3.",
        ),
        (((2, 6), (2, 3), (2, 2)), {"axis": 1, "block_size": 2}, "x_zero_point is .2, 2., but blocks of 2"),
        (((2, 6), (3,), None), {"axis": 1}, "x_scale is .3., but axis 1 of .2, 6. has 6 indices"),
        (((2, 6), (2, 3), None), {"axis": 1, "block_size": -2}, "block_size must not be negative"),
    ],
)
def test_blocks_of_the_standard(shapes: tuple, attributes: dict, match: str) -> None:
    x, scale, zero = shapes
    constants = {"x_scale": np.ones(scale, np.float32)}
    if zero is not None:
        constants["x_zero_point"] = np.zeros(zero, np.int8)
    refused(match, "DequantizeLinear", {"x": (I8, list(x))}, constants, "", **attributes)


PICTURE = {"x": (U8, [1, 4, 5, 5])}
FILTERS = {"w": np.ones((4, 4, 1, 1), np.int8)}
OF_X, OF_Y = {"x_scale": one, "x_zero_point": byte}, {"y_scale": one, "y_zero_point": byte}
OF_A, OF_B = {"a_scale": one, "a_zero_point": byte}, {"b_scale": one, "b_zero_point": np.int8(0)}
CONVOLUTION = {**OF_X, **FILTERS, "w_scale": one, "w_zero_point": np.int8(0), **OF_Y, "B": np.zeros(4, np.int32)}
GEMM = {**OF_A, "b": MATRIX, **OF_B, "C": np.zeros(3, np.int32), **OF_Y}
SUM = {
    "A_scale": one,
    "A_zero_point": byte,
    "b": bytes8,
    "B_scale": one,
    "B_zero_point": byte,
    "C_scale": one,
    "C_zero_point": byte,
}
ATTENTION = {
    "weight": np.ones((4, 12), np.int8),
    "bias": np.zeros(12, np.float32),
    "input_scale": one,
    "weight_scale": one,
    "mask_index": np.array([4], np.int32),
    "input_zero_point": byte,
    "weight_zero_point": np.int8(0),
}
COUNTED: dict[str, tuple[dict, dict, dict]] = {
    "ConvInteger": (PICTURE, {**FILTERS, "x_zero_point": byte, "w_zero_point": np.int8(0)}, {"domain": ""}),
    "QLinearConv": (PICTURE, CONVOLUTION, {"domain": ""}),
    "com.microsoft.QLinearConv": ({"x": (U8, [1, 5, 5, 4])}, CONVOLUTION, {"channels_last": 1}),
    "MatMulInteger": (B2, {"b": MATRIX, "a_zero_point": byte, "b_zero_point": np.int8(0)}, {"domain": ""}),
    "QLinearMatMul": (B2, {**OF_A, "b": MATRIX, **OF_B, **OF_Y}, {"domain": ""}),
    "QGemm": (B2, GEMM, {}),
    "DynamicQuantizeMatMul": ({"A": (F, [2, 4])}, {"B": MATRIX, **OF_B}, {}),
    "MatMulIntegerToFloat": (
        B2,
        {"B": MATRIX, "a_scale": one, "b_scale": one, "a_zero_point": byte, "b_zero_point": np.int8(0)},
        {},
    ),
    "QAttention": ({"a": (U8, [1, 4, 4])}, ATTENTION, {"num_heads": 2}),
    "QLinearAdd": (B2, SUM, {}),
    "QLinearSigmoid": (B2, {"X_scale": one, "X_zero_point": byte, "Y_scale": one, "Y_zero_point": byte}, {}),
    "QLinearSoftmax": (B2, {"X_scale": one, "x_zero_point": byte, **OF_Y}, {"opset": 13}),
    "QLinearAveragePool": (PICTURE, {**OF_X, **OF_Y}, {"kernel_shape": [2, 2]}),
    "QLinearGlobalAveragePool": (PICTURE, {**OF_X, **OF_Y}, {}),
    "QLinearReduceMean": (
        B2,
        {"data_scale": one, "data_zero_point": byte, "reduced_scale": one, "reduced_zero_point": byte},
        {"axes": [1], "keepdims": 1},
    ),
}
"""The name of each scale and zero point is that of the spec."""


@pytest.mark.parametrize("op", COUNTED)
def test_scales_and_zero_points_of_another_number_are_refused(op: str) -> None:
    fed, constants, attributes = COUNTED[op]
    session(op.rpartition(".")[2], fed, constants, **attributes)
    fields = [
        name
        for name in constants
        if name.endswith(("scale", "zero_point")) or (op.endswith("QLinearConv") and name == "B") or name == "C"
    ]
    for name in fields:
        spoilt = np.resize(constants[name], 7)
        refused(rf"\b{name} is \[7\], it", op.rpartition(".")[2], fed, {**constants, name: spoilt}, **attributes)


def test_scales_for_rows_and_columns_of_a_batch_are_compared_with_its_sizes() -> None:
    fed, many = {"a": (U8, [5, 2, 4])}, np.ones((5, 4, 3), np.int8)
    constants = {**OF_A, "b": many, **OF_B, **OF_Y}
    fitting = {"a_scale": np.ones((5, 2, 1), np.float32), "b_scale": np.ones((5, 1, 3), np.float32)}
    session("QLinearMatMul", fed, {**constants, **fitting}, "")
    for name, shape in (("a_scale", (5, 3, 1)), ("a_scale", (1, 5, 2, 1)), ("b_scale", (5, 3, 1)), ("b_scale", (4, 1, 3))):
        refused(rf"\b{name} is", "QLinearMatMul", fed, {**constants, name: np.ones(shape, np.float32)}, "")


def test_zero_points_of_another_type_are_refused() -> None:
    refused("y_zero_point|types", "QuantizeLinear", {"x": (F, [4])}, {"y_scale": one, "y_zero_point": one}, "")
    for name, other in (("x_zero_point", np.int8(3)), ("w_zero_point", byte)):
        refused("bound to different types", "QLinearConv", PICTURE, {**CONVOLUTION, name: other}, "")
    for name, other in (("a_zero_point", np.int8(3)), ("b_zero_point", byte)):
        refused("bound to different types", "QGemm", B2, {**GEMM, name: other})
    refused("bound to different types", "QLinearAdd", B2, {**SUM, "A_zero_point": np.int8(3)})
    refused("bound to different types", "DequantizeLinear", {"x": (I8, [4])}, {"x_scale": one, "x_zero_point": byte}, "")


def test_scales_that_are_fed_are_computed_with_as_floats_are() -> None:
    """0 divides to infinity or NaN, which become the ends of the range and its least number; both providers agree."""
    fed = {"x": (F, [4]), "y_scale": (F, []), "y_zero_point": (U8, [])}
    x = np.array([1, -1, 0, np.nan], np.float32)
    feeds = {"x": x, "y_scale": np.float32(0), "y_zero_point": np.uint8(7)}
    (found,) = session("QuantizeLinear", fed, {}, "").run(None, feeds)
    assert found.tolist() == [255, 0, 0, 0]
    (found,) = session("QuantizeLinear", fed, {}, "").run(None, {**feeds, "y_scale": np.float32(-1)})
    assert found.tolist() == [6, 8, 7, 0]
