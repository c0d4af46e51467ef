"""Convolutions of 8-bit integers: every bit as exact arithmetic has it, for all signs, zero points, windows, groups and feature sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.compiler.jit import jit
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import EVERY, use_level
from tests.providers.native.test_integer_products import CODES, DTYPES, _bytes, _model, _scales, both_signs

WINDOWS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("1x1", (2, 5, 6, 7), (9, 5, 1, 1), {}),
    ("1x1 of many", (1, 64, 9, 9), (40, 64, 1, 1), {}),
    ("1x1 with a stride", (1, 8, 9, 7), (16, 8, 1, 1), {"strides": [2, 2]}),
    ("3x3", (2, 6, 8, 9), (20, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("few channels", (1, 3, 20, 20), (16, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    ("dilated", (1, 4, 11, 12), (8, 4, 3, 3), {"pads": [2, 1, 0, 2], "dilations": [2, 3]}),
    ("only padding", (1, 4, 1, 1), (8, 4, 3, 3), {"pads": [5, 5, 5, 5]}),
    ("groups", (1, 12, 7, 7), (18, 4, 3, 3), {"group": 3, "pads": [1, 0, 0, 1]}),
    ("odd groups", (2, 9, 7, 7), (33, 3, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    ("depthwise", (2, 21, 9, 10), (21, 1, 3, 3), {"group": 21, "pads": [1, 1, 1, 1]}),
    ("depthwise with a stride", (1, 40, 9, 10), (40, 1, 5, 5), {"group": 40, "pads": [2, 2, 2, 2], "strides": [2, 2]}),
    ("a tall depthwise window", (1, 33, 14, 9), (33, 1, 7, 2), {"group": 33, "pads": [2, 1, 0, 2], "dilations": [2, 3]}),
    ("a wide depthwise window", (1, 8, 20, 20), (8, 1, 17, 17), {"group": 8}),
    ("1-D", (2, 5, 30), (7, 5, 4), {"pads": [2, 1], "strides": [3]}),
    ("3-D", (1, 3, 4, 5, 6), (5, 3, 2, 3, 2), {"pads": [1, 1, 1, 0, 0, 0]}),
    ("empty", (0, 3, 5, 5), (4, 3, 3, 3), {}),
    ("auto_pad", (1, 4, 8, 9), (6, 4, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
]
each_window = pytest.mark.parametrize(
    ("shape", "filters", "attributes"), [one[1:] for one in WINDOWS], ids=[one[0] for one in WINDOWS]
)


@pytest.fixture
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    use_level(monkeypatch, request.param)
    yield request.param


on_each_level = pytest.mark.parametrize("level", EVERY, indirect=True)


def _pads(shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any]) -> list[tuple[int, int]]:
    rank = len(kernel)
    if attributes.get("auto_pad") == "SAME_LOWER":
        strides = attributes["strides"]
        totals = [max(0, (-(-size // step) - 1) * step + taps - size) for size, step, taps in zip(shape[2:], strides, kernel)]
        return [(total - total // 2, total // 2) for total in totals]
    pads = attributes.get("pads", [0] * (2 * rank))
    return list(zip(pads[:rank], pads[rank:]))


def _exact(x: np.ndarray, w: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """The sums of whole numbers less their zero points, in 64 bits, tap by tap."""
    kernel, group = w.shape[2:], attributes.get("group", 1)
    rank = len(kernel)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    padded = np.pad(x, [(0, 0), (0, 0), *_pads(x.shape, kernel, attributes)])
    sizes = [
        (size - (taps - 1) * gap - 1) // step + 1 for size, taps, gap, step in zip(padded.shape[2:], kernel, dilations, strides)
    ]
    total = np.zeros((len(x), len(w), *sizes), np.int64)
    for tap in np.ndindex(*kernel):
        cut = [
            slice(k * gap, k * gap + (size - 1) * step + 1, step) for k, gap, size, step in zip(tap, dilations, sizes, strides)
        ]
        seen = padded[(slice(None), slice(None), *cut)]
        for number in range(group):
            channels, count = w.shape[1], len(w) // group
            image = seen[:, number * channels : (number + 1) * channels]
            rows = w[number * count : (number + 1) * count][(slice(None), slice(None), *tap)]
            total[:, number * count : (number + 1) * count] += np.einsum("nc...,mc->nm...", image, rows)
    return total


@on_each_level
@both_signs
@each_window
def test_sums_are_exact(level: str, a_type: str, b_type: str, shape: Any, filters: Any, attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    inputs = {
        "x": _bytes(rng, a_type, *shape),
        "w": _bytes(rng, b_type, *filters),
        "x_zero": _bytes(rng, a_type),
        "w_zero": _bytes(rng, b_type, filters[0]),
    }
    image = inputs["x"].astype(np.int64) - int(inputs["x_zero"])
    for zero in (inputs["w_zero"], np.array(128 if b_type == "uint8" else 0, DTYPES[b_type])):
        inputs["w_zero"] = zero
        rows = inputs["w"].astype(np.int64) - (zero.reshape(-1, *(1,) * (len(filters) - 1)) if zero.ndim else int(zero))
        wanted = _exact(image, rows, attributes).astype(np.int32)
        for constants in ({"w", "w_zero"}, {"w", "w_zero", "x_zero"}):
            plan = native_plan(_model("ConvInteger", inputs, constants, 6, **attributes), threads=1 + len(constants) % 2)
            assert len(programs(plan)) == len(plan.steps) == 1, "left to NumPy"
            (found,) = execute(plan, {name: array for name, array in inputs.items() if name not in constants})
            np.testing.assert_array_equal(found, wanted)


EPILOGUES = {"1x1 of many", "3x3", "few channels", "depthwise with a stride"}
"""Windows whose results are rounded by code of their own; that is run for both types on every level."""
ROUNDED = [
    pytest.param(*window[1:], a_type, level, id=f"{window[0]}-{a_type}-{level}")
    for window in WINDOWS
    for a_type in DTYPES
    for level in EVERY
    if window[0] in EPILOGUES or (a_type, level) == ("uint8", EVERY[-1])
]


@pytest.mark.parametrize(("shape", "filters", "attributes", "a_type", "level"), ROUNDED, indirect=["level"])
def test_quantized_convolutions(level: str, a_type: str, shape: Any, filters: Any, attributes: dict[str, Any]) -> None:
    """The sums are those of `test_sums_are_exact`; here they are scaled and rounded."""
    rng = np.random.default_rng(2)
    inputs = {
        "x": _bytes(rng, a_type, *shape),
        "x_scale": _scales(rng),
        "x_zero": _bytes(rng, a_type),
        "w": _bytes(rng, "int8", *filters),
        "w_scale": _scales(rng, filters[0]),
        "w_zero": np.zeros(filters[0], np.int8),
        "y_scale": _scales(rng) * 40,
        "y_zero": _bytes(rng, a_type),
        "B": rng.integers(-(2**20), 2**20, filters[0]).astype(np.int32),
    }
    result = CODES[np.dtype(DTYPES[a_type])]
    for constants in (set(inputs) - {"x"}, {"w", "w_zero"}):
        feeds = {name: array for name, array in inputs.items() if name not in constants}
        assert_agrees(_model("QLinearConv", inputs, constants, result, **attributes), feeds)


@on_each_level
@pytest.mark.parametrize("a_type", DTYPES)
@pytest.mark.parametrize("scale", [1e-30, 2e-5, 1e-4, 1e30])
def test_sums_that_are_far_from_the_range_of_the_result(level: str, a_type: str, scale: float) -> None:
    rng = np.random.default_rng(4)
    inputs = {
        "x": _bytes(rng, a_type, 1, 8, 5, 5),
        "x_scale": np.float32(0.01),
        "x_zero": _bytes(rng, a_type),
        "w": _bytes(rng, "int8", 20, 8, 1, 1),
        "w_scale": np.full(20, 0.01, np.float32),
        "w_zero": np.zeros(20, np.int8),
        "y_scale": np.float32(scale),
        "y_zero": _bytes(rng, a_type),
        "B": rng.choice([-(2**31) + 2**18, 2**31 - 2**18, 0], 20).astype(np.int32),
    }
    result = CODES[np.dtype(DTYPES[a_type])]
    assert_agrees(_model("QLinearConv", inputs, set(inputs) - {"x"}, result), {"x": inputs["x"]})


def _block(rng: np.random.Generator, channels: int) -> onnx.ModelProto:
    """Two convolutions and a residual."""
    scale, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.array(3, np.uint8), "z")
    none = numpy_helper.from_array(np.array(0, np.int8), "n")
    weights = [
        numpy_helper.from_array(_bytes(rng, "int8", channels, channels, size, size) // 8, name)
        for name, size in (("w0", 3), ("w1", 1))
    ]
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w0", "s", "n", "s", "z"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("QLinearConv", ["a", "s", "z", "w1", "s", "n", "s", "z"], ["b"]),
        helper.make_node("QLinearAdd", ["b", "s", "z", "x", "s", "z", "s", "z"], ["y"], domain="com.microsoft"),
    ]
    image, result = (helper.make_tensor_value_info(name, TensorProto.UINT8, [1, channels, 9, 9]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [image], [result], [scale, zero, none, *weights])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@on_each_level
def test_images_stay_whole_numbers_between_convolutions(level: str) -> None:
    """Nothing but convolutions, and what brings images into groups."""
    rng = np.random.default_rng(3)
    model = _block(rng, 40)
    assert_agrees(model, {"x": _bytes(rng, "uint8", 1, 40, 9, 9)})
    (program,) = programs(native_plan(model))
    assert sum(step.kernel.title == "conv" for step in program.program.steps) == 2


def test_the_sums_of_a_tile_stay_in_their_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the epilogue needs takes none of them: the innermost loops load and multiply, and move nothing."""
    use_level(monkeypatch, "avx512vnni")
    (program,) = programs(native_plan(_block(np.random.default_rng(3), 64)))
    kernels = [step.kernel for step in program.program.steps if step.kernel.title == "conv"]
    assert len(kernels) == 2
    for kernel in kernels:
        text = jit(X86_LEVELS["avx512vnni"]).assembly(kernel)
        loops = re.finditer(r"^(\.LBB\d+_\d+):\n(?:(?!\.LBB).*\n)*?\s+j\w+\s+\1$", text, re.MULTILINE)
        (full,) = [loop[0] for loop in loops if loop[0].count("vpdpbusd") == 28]
        assert not re.search(r"vmov\w+\s+%zmm\d+, (%zmm\d+|\d+\(%rsp\))", full)


def _dynamic(shape: tuple[int, ...], filters: tuple[int, ...], attributes: dict[str, Any], readers: int = 1) -> onnx.ModelProto:
    """Reals that are rounded in the run, and so many convolutions of them."""
    weights = numpy_helper.from_array(_bytes(np.random.default_rng(4), "int8", *filters), "w")
    names = [f"y{number}" for number in range(readers)]
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    nodes += [helper.make_node("ConvInteger", ["q", "w", "z"], [name], **attributes) for name in names]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [helper.make_tensor_value_info(name, TensorProto.INT32, [None] * len(shape)) for name in names]
    graph = helper.make_graph(nodes, "g", [image], results, [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@on_each_level
@each_window
@pytest.mark.parametrize("readers", [1, 2])
def test_reals_are_rounded_where_images_are_read(
    level: str, shape: Any, filters: Any, attributes: dict[str, Any], readers: int
) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    assert_agrees(_dynamic(shape, filters, attributes, readers), {"x": x})


@on_each_level
def test_rounded_numbers_do_not_go_through_memory_before_they_are_centered(level: str) -> None:
    shape = (1, 8, 9, 9)
    (program,) = programs(native_plan(_dynamic(shape, (16, 8, 3, 3), {"pads": [1, 1, 1, 1]})))
    loops = [step for step in program.program.steps if step.kernel.title == "elementwise"]
    assert len([step for step in loops if step.traffic >= np.prod(shape)]) == 1  # type: ignore[operator]
