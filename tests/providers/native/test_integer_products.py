"""Matrix products of 8-bit integers: every bit as exact arithmetic has it, for all signs, zero points, sizes and feature sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import EVERY, use_level

DTYPES = {"uint8": np.uint8, "int8": np.int8}
CODES = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8, np.dtype(np.float32): TensorProto.FLOAT}
SHAPES = [
    ((3, 5), (5, 7)),
    ((17, 64), (64, 33)),
    ((1, 1), (1, 1)),
    ((0, 4), (4, 5)),
    ((4, 0), (0, 5)),
    ((5, 4), (4, 0)),
    ((70, 131), (131, 48)),
    ((6,), (6, 9)),
    ((9, 6), (6,)),
    ((6,), (6,)),
    ((2, 3, 4, 6), (6, 8)),
    ((2, 1, 4, 6), (3, 6, 8)),
    ((3, 4, 6), (3, 6, 8)),
]
both_signs = pytest.mark.parametrize(("a_type", "b_type"), [(a, b) for a in DTYPES for b in DTYPES])
each_level = pytest.mark.parametrize("level", EVERY)


@pytest.fixture
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    use_level(monkeypatch, request.param)
    yield request.param


on_each_level = pytest.mark.parametrize("level", EVERY, indirect=True)


def _bytes(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """All values of a type, its ends often."""
    limits = np.iinfo(DTYPES[dtype])
    numbers = rng.integers(limits.min, limits.max, shape, endpoint=True)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.3, ends, numbers).astype(DTYPES[dtype])


def _exact(A: np.ndarray, B: np.ndarray, a_zero: np.ndarray, b_zero: np.ndarray) -> np.ndarray:
    """In 64 bits, of which the lower 32 remain."""
    rows = a_zero[:, None] if a_zero.ndim == 1 and A.ndim > 1 else a_zero
    return np.matmul(A.astype(np.int64) - rows, B.astype(np.int64) - b_zero).astype(np.int32)


def _model(op: str, inputs: dict[str, np.ndarray], constants: set[str], result: int, domain: str = "", **attributes: object):
    """A node whose operands are inputs or initializers."""
    fed = [
        helper.make_tensor_value_info(name, CODES.get(array.dtype, TensorProto.INT32), array.shape)
        for name, array in inputs.items()
        if name not in constants
    ]
    node = helper.make_node(op, list(inputs), ["y"], domain=domain, **attributes)
    weights = [numpy_helper.from_array(inputs[name], name) for name in constants]
    graph = helper.make_graph([node], "g", fed, [helper.make_tensor_value_info("y", result, None)], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _integers(inputs: dict[str, np.ndarray], constants: set[str], threads: int = 1) -> np.ndarray:
    plan = native_plan(_model("MatMulInteger", inputs, constants, TensorProto.INT32), threads=threads)
    assert len(programs(plan)) == len(plan.steps) == 1, "left to NumPy"
    (found,) = execute(plan, {name: array for name, array in inputs.items() if name not in constants})
    return found


@on_each_level
@both_signs
def test_all_sizes_and_zero_points_are_exact(level: str, a_type: str, b_type: str) -> None:
    rng = np.random.default_rng(1)
    for a_shape, b_shape in SHAPES:
        A, B = _bytes(rng, a_type, *a_shape), _bytes(rng, b_type, *b_shape)
        has_both = len(a_shape) > 1 and len(b_shape) > 1
        for per_row, per_column in ((False, False), (True, True)):
            a_zero = _bytes(rng, a_type, *([a_shape[-2]] if per_row and has_both else []))
            b_zero = _bytes(rng, b_type, *([b_shape[-1]] if per_column and has_both else []))
            inputs = {"A": A, "B": B, "a_zero": a_zero, "b_zero": b_zero}
            wanted = _exact(A, B, a_zero, b_zero)
            for constants in ({"B", "b_zero"}, set[str]()):
                np.testing.assert_array_equal(_integers(inputs, constants), wanted, f"{a_shape} {b_shape} {constants}")


@on_each_level
@both_signs
@pytest.mark.parametrize("zero", [0, 128])
def test_constants_in_the_middle_of_their_range_are_packed_as_bytes(level: str, a_type: str, b_type: str, zero: int) -> None:
    rng = np.random.default_rng(2)
    A, B = _bytes(rng, a_type, 9, 21), _bytes(rng, b_type, 21, 40)
    b_zero = np.array(zero if b_type == "uint8" else 0, DTYPES[b_type])
    inputs = {"A": A, "B": B, "a_zero": _bytes(rng, a_type), "b_zero": b_zero}
    np.testing.assert_array_equal(_integers(inputs, {"B", "b_zero"}), _exact(A, B, inputs["a_zero"], b_zero))


@on_each_level
def test_sums_that_would_saturate_or_overflow_elsewhere(level: str) -> None:
    """Pairs of products beyond 16 bits, and sums beyond 32, which wrap."""
    for count in (64, 70_000):
        A, B = np.full((2, count), 255, np.uint8), np.full((count, 3), -128, np.int8)
        zero = {"a_zero": np.array(0, np.uint8), "b_zero": np.array(0, np.int8)}
        found = _integers({"A": A, "B": B, **zero}, {"B", "b_zero"})
        np.testing.assert_array_equal(found, _exact(A, B, zero["a_zero"], zero["b_zero"]))


TYPES = st.sampled_from(list(DTYPES))


@given(st.integers(0, 40), st.integers(0, 70), st.integers(0, 70), TYPES, TYPES, st.booleans())
def test_products_of_any_size_are_exact(
    rows: int, inner: int, columns: int, a_type: str, b_type: str, is_constant: bool
) -> None:
    rng = np.random.default_rng(rows * 9973 + inner * 97 + columns)
    inputs = {
        "A": _bytes(rng, a_type, rows, inner),
        "B": _bytes(rng, b_type, inner, columns),
        "a_zero": _bytes(rng, a_type),
        "b_zero": _bytes(rng, b_type),
    }
    constants = {"B", "b_zero"} if is_constant else set()
    np.testing.assert_array_equal(_integers(inputs, constants, threads=2), _exact(*inputs.values()))


def _scales(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(0.001, 0.05, shape).astype(np.float32)


@on_each_level
@both_signs
@pytest.mark.parametrize("per_column", [False, True])
def test_quantized_products(level: str, a_type: str, b_type: str, per_column: bool) -> None:
    rng = np.random.default_rng(3)
    columns = [40] if per_column else []
    inputs = {
        "a": _bytes(rng, a_type, 2, 9, 21),
        "a_scale": _scales(rng),
        "a_zero": _bytes(rng, a_type),
        "b": _bytes(rng, b_type, 21, 40),
        "b_scale": _scales(rng, *columns),
        "b_zero": _bytes(rng, b_type, *columns),
        "y_scale": _scales(rng) * 40,
        "y_zero": _bytes(rng, a_type),
    }
    result = CODES[np.dtype(DTYPES[a_type])]
    for constants in (set(inputs) - {"a"}, set[str]()):
        feeds = {name: array for name, array in inputs.items() if name not in constants}
        assert_agrees(_model("QLinearMatMul", inputs, constants, result), feeds)


@on_each_level
@both_signs
def test_products_that_become_reals(level: str, a_type: str, b_type: str) -> None:
    rng = np.random.default_rng(4)
    inputs = {
        "A": _bytes(rng, a_type, 2, 9, 21),
        "B": _bytes(rng, b_type, 21, 40),
        "a_scale": _scales(rng),
        "b_scale": _scales(rng, 40),
        "a_zero": _bytes(rng, a_type),
        "b_zero": _bytes(rng, b_type, 40),
        "bias": _scales(rng, 40),
    }
    for constants in (set(inputs) - {"A"}, {"B", "b_scale", "b_zero", "bias"}, set[str]()):
        feeds = {name: array for name, array in inputs.items() if name not in constants}
        source = _model("MatMulIntegerToFloat", inputs, constants, TensorProto.FLOAT, "com.microsoft")
        assert_agrees(source, feeds, tolerance=0.0)


@on_each_level
@pytest.mark.parametrize("b_type", DTYPES)
def test_dynamically_quantized_products(level: str, b_type: str) -> None:
    rng = np.random.default_rng(5)
    inputs = {
        "A": rng.standard_normal((2, 9, 21)).astype(np.float32),
        "B": _bytes(rng, b_type, 21, 40),
        "b_scale": _scales(rng, 40),
        "b_zero": _bytes(rng, b_type, 40),
        "bias": _scales(rng, 40),
    }
    for constants in (set(inputs) - {"A"}, set[str]()):
        feeds = {name: array for name, array in inputs.items() if name not in constants}
        source = _model("DynamicQuantizeMatMul", inputs, constants, TensorProto.FLOAT, "com.microsoft")
        assert_agrees(source, feeds, tolerance=0.0)


@on_each_level
@both_signs
@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("is_real", [False, True])
def test_gemm_of_integers(level: str, a_type: str, b_type: str, trans: tuple[int, int], is_real: bool) -> None:
    rng = np.random.default_rng(6)
    inputs = {
        "A": _bytes(rng, a_type, *((21, 9) if trans[0] else (9, 21))),
        "a_scale": _scales(rng),
        "a_zero": _bytes(rng, a_type),
        "B": _bytes(rng, b_type, *((40, 21) if trans[1] else (21, 40))),
        "b_scale": _scales(rng, 40),
        "b_zero": _bytes(rng, b_type),
        "C": rng.integers(-9999, 9999, 40).astype(np.int32),
        **({} if is_real else {"y_scale": _scales(rng) * 40, "y_zero": _bytes(rng, a_type)}),
    }
    result = TensorProto.FLOAT if is_real else CODES[np.dtype(DTYPES[a_type])]
    for constants in (set(inputs) - {"A"}, set[str]()):
        feeds = {name: array for name, array in inputs.items() if name not in constants}
        attributes = {"alpha": 0.7, "transA": trans[0], "transB": trans[1]}
        source = _model("QGemm", inputs, constants, result, "com.microsoft", **attributes)
        assert_agrees(source, feeds, tolerance=0.0)


def test_quantizing_before_and_behind_a_product_is_part_of_its_steps() -> None:
    """The reals are quantized into rows, the sums scaled, added to and quantized again where they are computed."""
    source = """g (float[4,8] x, float[4,6] r) => (uint8[4,6] y)
        <uint8[8,6] w = {WEIGHTS}, float s = {0.1}, uint8 z = {100}, float t = {0.01}> {
        a = QuantizeLinear(x, s, z) b = com.microsoft.MatMulIntegerToFloat(a, w, s, t, z) c = Relu(b) d = Add(c, r)
        y = QuantizeLinear(d, s, z) }""".replace("WEIGHTS", ",".join(map(str, range(48))))
    rng = np.random.default_rng(7)
    feeds = {"x": rng.standard_normal((4, 8)).astype(np.float32), "r": rng.standard_normal((4, 6)).astype(np.float32)}
    assert_agrees(source, feeds, steps=2)
