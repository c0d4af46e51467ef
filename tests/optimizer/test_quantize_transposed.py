"""Transposed convolutions of whole numbers, beside onnxruntime, which computes them with floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

import sardonyx
from sardonyx.optimizer.rewrite import Journal, apply_rules
from sardonyx.optimizer.rules.quantize_transposed import TRANSPOSED
from sardonyx.providers.cpu.provider import evaluate
from tests.providers.native.agreement import model_of

TYPES = (np.uint8, np.int8)


def model(shape: tuple[int, ...], filters: np.ndarray, types: Any, rng: np.random.Generator, **attributes: Any) -> ModelProto:
    """A transposed convolution between DequantizeLinear and QuantizeLinear; `types` are those of image and result."""
    image, result = types
    per_channel, has_bias = attributes.pop("per_channel", False), attributes.pop("has_bias", False)
    open_sizes = attributes.pop("is_open", False)
    channels = filters.shape[1]
    count = (channels,) if per_channel else ()
    constants = {
        "w": filters,
        "xs": np.float32(0.03),
        "xz": image(rng.integers(np.iinfo(image).min, np.iinfo(image).max + 1)),
        "ws": rng.uniform(0.01, 0.03, count).astype(np.float32),
        "wz": rng.integers(-9, 9, count).astype(np.int8)
        if filters.dtype == np.int8
        else rng.integers(100, 150, count).astype(np.uint8),
        "ys": np.float32(0.2),
        "yz": result(rng.integers(np.iinfo(result).min, np.iinfo(result).max + 1)),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=1),
    ]
    inputs = ["a", "b"]
    if has_bias:
        constants["c"] = rng.integers(-3000, 3000, channels * attributes.get("group", 1)).astype(np.int32)
        constants["cs"] = np.asarray(constants["xs"] * constants["ws"])
        constants["cz"] = np.zeros(count, np.int32)
        nodes.append(helper.make_node("DequantizeLinear", ["c", "cs", "cz"], ["d"], axis=0))
        inputs.append("d")
    nodes += [
        helper.make_node("ConvTranspose", inputs, ["f"], **attributes),
        helper.make_node("QuantizeLinear", ["f", "ys", "yz"], ["y"]),
    ]
    sizes = ["n", shape[1], *(f"s{axis}" for axis in range(len(shape) - 2))] if open_sizes else shape
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(image)), sizes)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@st.composite
def windows(draw: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The sizes of filters, and attributes."""
    kernel = tuple(draw(st.integers(1, 5)) for _ in range(2))
    stride = draw(st.integers(1, 4))
    pads = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
    attributes: dict[str, Any] = {"strides": [stride] * 2, "pads": pads}
    if stride > 1 and draw(st.booleans()):
        attributes["output_padding"] = [draw(st.integers(0, stride - 1)) for _ in range(2)]
    return kernel, attributes


def codes(rng: np.random.Generator, type: Any, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(type)
    return rng.integers(limits.min, limits.max + 1, shape).astype(type)


@settings(max_examples=60, deadline=None)
@given(
    windows(),
    st.tuples(*(st.sampled_from(TYPES) for _ in range(3))),
    st.integers(1, 20),
    st.sampled_from((1, 3, 20, 33)),
    st.data(),
)
def test_results_are_those_of_floats_to_a_step(window, types, channels, results, data) -> None:
    kernel, attributes = window
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    shape = (data.draw(st.integers(1, 2)), channels, *(data.draw(st.integers(5, 9)) for _ in range(2)))
    filters = codes(rng, types[1], (channels, results, *kernel))
    forms = {name: data.draw(st.booleans()) for name in ("per_channel", "has_bias", "is_open")}
    source = model(shape, filters, (types[0], types[2]), rng, **attributes, **forms)
    assert_becomes_a_convolution(source)
    assert_agrees_with_onnxruntime(source, codes(rng, types[0], shape))


def assert_becomes_a_convolution(source: ModelProto) -> None:
    typed = model_of(source)
    assert apply_rules(typed, TRANSPOSED, evaluate=evaluate, journal=Journal(strict=True))
    ops = [node.op_type for node in typed.graph.nodes]
    assert "QLinearConv" in ops and "ConvTranspose" not in ops


def assert_agrees_with_onnxruntime(source: ModelProto, image: np.ndarray) -> None:
    content = source.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, {"x": image})[0]
    for native in ("0", "1"):
        session = sardonyx.InferenceSession(content, providers=[("CPUExecutionProvider", {"native": native})])
        got = session.run(None, {"x": image})[0]
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        assert np.abs(got.astype(np.int64) - wanted.astype(np.int64)).max(initial=0) <= 1


@pytest.mark.parametrize(("results", "windows"), [(4, [(2, 2)]), (32, [(2, 2), (2, 1), (1, 2), (1, 1)])])
def test_phases_of_many_channels_have_windows_of_their_own(results: int, windows: list[tuple[int, int]]) -> None:
    """No product is by a zero that fills a window up: of 3×3 taps and stride 2, nine are multiplied instead of sixteen."""
    rng = np.random.default_rng(5)
    filters = codes(rng, np.int8, (8, results, 3, 3))
    typed = model_of(model((1, 8, 5, 5), filters, (np.uint8, np.uint8), rng, strides=[2, 2], pads=[1] * 4))
    apply_rules(typed, TRANSPOSED, evaluate=evaluate, journal=Journal(strict=True))
    packed = [node.inputs[3] for node in typed.graph.nodes if node.op_type == "QLinearConv"]
    assert [value.constant.numpy().shape[2:] for value in packed if value is not None and value.constant is not None] == windows


@pytest.mark.parametrize(
    ("shape", "filters", "attributes"),
    [
        ((1, 4, 5, 5), (4, 2, 3, 3), {"group": 2}),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"dilations": [2, 2]}),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"strides": [1, 2]}),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"strides": [2, 2], "output_shape": [10, 10]}),
        ((1, 4, 5), (4, 2, 3), {"strides": [2]}),
        ((1, 4, 5, 5, 5), (4, 2, 2, 2, 2), {"strides": [2, 2, 2]}),
    ],
    ids=["groups", "dilations", "two strides", "auto_pad", "output_shape", "one axis", "three axes"],
)
def test_others_stay_and_give_the_same(shape: tuple[int, ...], filters: tuple[int, ...], attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    source = model(shape, codes(rng, np.int8, filters), (np.uint8, np.uint8), rng, **attributes)
    assert not apply_rules(model_of(source), TRANSPOSED, evaluate=evaluate, journal=Journal(strict=True))
    assert_agrees_with_onnxruntime(source, codes(rng, np.uint8, shape))
