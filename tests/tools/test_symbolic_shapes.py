"""Symbolic sizes of inner values: texts that sympy could read, and that give the sizes that onnxruntime sees."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.ir import dim
from sardonyx.tools import symbolic_shape_infer as shapes
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference
from sardonyx.tools.symbolic_sizes import simplified, written

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
SLICED = f"""{HEAD}
g (float[batch, time, 6] x) => (float[a, b] y, int64[c, d] n)
<int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] end = {{9223372036854775807}}, int64[3] wide = {{0, -1, 3}}> {{
    s = Slice(x, one, end, one)
    every = Slice(x, one, end, one, two)
    flat = Flatten<axis = 2>(s)
    r = Reshape(x, wide)
    last = Slice(r, one, end, one)
    y = Relu(flat)
    inner = NonZero(every)
    n = Neg(inner)
}}"""
CACHED = f"""{HEAD}
g (float[batch, seq, 4] q, float[batch, past, 4] cache, float[batch, total] mask) => (float[a, b, c] y)
<int64[1] one = {{1}}> {{
    k = Concat<axis = 1>(cache, q)
    kt = Transpose<perm = [0, 2, 1]>(k)
    scores = MatMul(q, kt)
    row = Unsqueeze(mask, one)
    y = Add(scores, row)
}}"""


def inferred(text: str, **options: bool) -> tuple[onnx.ModelProto, dict[str, list[object]]]:
    model = SymbolicShapeInference.infer_shapes(onnx.parser.parse_model(text), **options)
    return model, {value.name: shapes.get_shape_from_value_info(value) for value in model.graph.value_info}


def number(size: object, sizes: dict[str, int]) -> int:
    """What a size is where symbols are these; numbers divide without rounding, as in sympy."""
    if isinstance(size, int):
        return size
    names = {name: Fraction(value) for name, value in sizes.items()}
    return int(eval(str(size), {"floor": math.floor, "Min": min, "Max": max, "Mod": lambda a, b: a % b}, names))


def seen_by_onnxruntime(text: str, feeds: dict[str, np.ndarray], names: list[str]) -> dict[str, tuple[int, ...]]:
    model = onnx.parser.parse_model(text)
    declared = {value.name for value in model.graph.output}
    for name in names:
        if name not in declared:
            model.graph.output.append(helper.make_empty_tensor_value_info(name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return {name: value.shape for name, value in zip(names, session.run(names, feeds), strict=True)}


@pytest.mark.parametrize("time", [1, 2, 5, 8])
def test_expressions_give_the_sizes_that_onnxruntime_sees(time):
    _, known = inferred(SLICED)
    names = ["s", "every", "flat", "r", "last", "y"]
    real = seen_by_onnxruntime(SLICED, {"x": np.ones((2, time, 6), np.float32)}, names)
    assert {name: tuple(number(size, {"batch": 2, "time": time}) for size in known[name]) for name in names} == real


def test_symbols_are_at_least_one_and_names_are_those_of_sympy():
    _, known = inferred(SLICED)
    assert known["s"] == ["batch", "time - 1", 6]
    assert known["r"] == ["batch", "2*time", 3]
    assert known["inner"] == [3, "NonZero_6_o0__d1"]


def test_outputs_are_among_the_infos_and_lose_names_that_inference_knows_better():
    model, known = inferred(SLICED)
    output = {value.name: shapes.get_shape_from_value_info(value) for value in model.graph.output}
    assert output["y"] == ["batch*time - batch", 6]
    assert output == {name: known[name] for name in ("y", "n")}
    assert not {value.name for value in model.graph.value_info} & {tensor.name for tensor in model.graph.initializer}
    onnx.checker.check_model(model)


def test_sizes_that_must_be_equal_are_merged_when_asked_for():
    assert inferred(CACHED)[1]["k"] == ["batch", "past + seq", 4]
    _, known = inferred(CACHED, auto_merge=True)
    assert known["k"] == ["batch", "total", 4] and known["y"] == ["batch", "seq", "total"]


def test_merging_changes_no_size_of_a_run_that_works():
    _, known = inferred(CACHED, auto_merge=True)
    feeds = {
        "q": np.ones((2, 3, 4), np.float32),
        "cache": np.ones((2, 5, 4), np.float32),
        "mask": np.ones((2, 8), np.float32),
    }
    real = seen_by_onnxruntime(CACHED, feeds, ["k", "scores", "row", "y"])
    sizes = {"batch": 2, "seq": 3, "past": 5, "total": 8}
    assert {name: tuple(number(size, sizes) for size in known[name]) for name in real} == real


def test_a_model_that_cannot_be_typed_is_named_incomplete():
    broken = onnx.parser.parse_model(f"{HEAD} g (float[2, 3] x, float[4, 5] w) => (float[a, b] y) {{ y = MatMul(x, w) }}")
    with pytest.raises(Exception, match="Incomplete symbolic shape inference"):
        SymbolicShapeInference.infer_shapes(broken)


@st.composite
def dims(draw, depth: int = 3):
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(st.integers(0, 9), st.sampled_from("ab").map(dim.symbol)))
    left, right = draw(dims(depth - 1)), draw(dims(depth - 1))
    match draw(st.sampled_from(["+", "-", "*", "//", "min", "max"])):
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return dim.floordiv(left, draw(st.integers(2, 5)))
        case "min":
            return dim.minimum(left, right)
    return dim.maximum(left, right)


@given(dims(), st.integers(1, 20), st.integers(1, 20))
def test_simplified_sizes_and_their_texts_have_the_same_value(size, a, b):
    sizes = {"a": a, "b": b}
    shown = written(simplified(size), {})
    assert number(shown if isinstance(shown, int) else str(shown), sizes) == dim.evaluate(size, sizes)


@given(dims(), st.integers(0, 20))
def test_rewriting_without_a_change_changes_nothing(size, a):
    assert dim.rewritten(size, lambda part: part) == size
    doubled = dim.rewritten(size, lambda part: dim.symbol("a") * 2 if part == dim.symbol("a") else part)
    assert dim.evaluate(doubled, {"a": a, "b": 3}) == dim.evaluate(size, {"a": 2 * a, "b": 3})


def test_small_functions_that_scripts_import():
    node = helper.make_node("ReduceMean", ["x"], ["y"], keepdims=1)
    assert (shapes.get_attribute(node, "keepdims"), shapes.get_attribute(node, "axes", 7)) == (1, 7)
    value = helper.make_tensor_value_info("x", TensorProto.INT64, ["n", 3, None])
    assert shapes.get_shape_from_value_info(value) == ["n", 3, None]
    assert shapes.get_elem_type_from_type_proto(value.type) == TensorProto.INT64
    assert (
        not shapes.is_sequence(value.type)
        and shapes.get_shape_from_value_info(helper.make_empty_tensor_value_info("z")) is None
    )
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    assert shapes.is_sequence(sequence.type) and shapes.get_shape_from_type_proto(sequence.type) == [2]
    assert shapes.get_opset(onnx.parser.parse_model(SLICED)) == 17
    assert shapes.get_opset(onnx.parser.parse_model(SLICED), "com.microsoft") is None
    assert [shapes.handle_negative_axis(axis, 3) for axis in (-1, 0, 2)] == [2, 0, 2]
    with pytest.raises(AssertionError):
        shapes.handle_negative_axis(3, 3)
    assert (shapes.as_scalar([4]), shapes.as_scalar(np.array([5])), shapes.as_scalar(6)) == (4, 5, 6)
    assert (shapes.as_list(3, False), shapes.as_list(None, True), shapes.as_list(None, False)) == ([3], None, [])
    assert shapes.is_literal(3) and not shapes.is_literal("a")
    assert shapes.get_shape_from_sympy_shape([2, "n", None]) == [2, "n", None]
    assert shapes.make_named_value_info("q").name == "q"
