"""ArgMax, ArgMin, Hardmax, TopK and running sums in generated code compute what NumPy does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import Fail
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan

RNG = np.random.default_rng(0)
TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    **{name: np.dtype(name).type for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
SHAPES = [(1, 1, 1), (3, 17, 5), (2, 4, 70), (1, 40, 3), (10, 30, 100), (0, 3, 4)]


def numbers(shape, type, *, awkward=False):
    """Numbers many of which are equal; the awkward ones have NaN, infinities and both zeros among them."""
    dtype = np.dtype(TYPES[type])
    if dtype.kind in "iu":
        return RNG.integers(0 if dtype.kind == "u" else -9, 9, size=shape).astype(dtype)
    x = (RNG.integers(-20, 20, size=shape) / 4).astype(dtype)
    if awkward and x.size:
        for value in (np.nan, np.inf, -np.inf, -0.0):
            x.reshape(-1)[RNG.integers(0, x.size, size=3)] = value
    return x


def feeds_of(type, axis=0, least=0):
    """Operands with at least some elements along an axis."""
    shapes = [shape for shape in SHAPES if shape[axis] >= least]
    return [{"x": numbers(shape, type, awkward=awkward)} for shape in shapes for awkward in (False, True)]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_of_extremes(op, type):
    for axis, keepdims, last in [(2, 1, 0), (1, 0, 0), (2, 0, 1), (1, 1, 1)]:
        out = ["1" if one == axis else "abc"[one] for one in range(3) if keepdims or one != axis]
        text = f"""g ({type}[a,b,c] x) => (int64[{",".join(out)}] y) {{
            y = {op}<axis={axis}, keepdims={keepdims}, select_last_index={last}>(x) }}"""
        assert_agrees(text, feeds_of(type), opset=13)


def test_the_first_axis_and_what_stands_around():
    text = "g (float[a,b] x, float[b] w) => (int64[b] y) { t = Mul(x, w) i = ArgMax<axis=0, keepdims=0>(t) y = Add(i, i) }"
    assert_agrees(text, [{"x": numbers(one, "float"), "w": numbers(one[1:], "float")} for one in [(1, 1), (7, 100)]], steps=1)


def test_nothing_has_no_largest_element():
    plan = native_plan("g (float[a,b] x) => (int64[a,1] y) { y = ArgMax<axis=1>(x) }")
    with pytest.raises(Fail, match="no elements to choose from"):
        execute(plan, {"x": np.zeros((2, 0), np.float32)})


@pytest.mark.parametrize("type", ["float", "double", "float16"])
def test_hardmax(type):
    assert_agrees(f"g ({type}[a,b,c] x) => ({type}[a,b,c] y) {{ y = Hardmax(x) }}", feeds_of(type))
    assert_agrees(f"g ({type}[a,b,c] x) => ({type}[a,b,c] y) {{ y = Hardmax<axis=1>(x) }}", feeds_of(type), opset=11)


@pytest.mark.parametrize("type", ["float", "double", "int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_running_sums_and_products(op, type):
    feeds = feeds_of(type) if type[0] in "iu" else [{"x": (1 + RNG.random(one) / 100).astype(TYPES[type])} for one in SHAPES]
    for axis, exclusive, reverse in [(2, 0, 0), (2, 1, 1), (2, 0, 1), (2, 1, 0), (1, 0, 0), (1, 1, 1)]:
        text = f"""g ({type}[a,b,c] x) => ({type}[a,b,c] y) <int64 axis = {{{axis}}}> {{
            y = {op}<exclusive={exclusive}, reverse={reverse}>(x, axis) }}"""
        assert_agrees(text, feeds, opset=26, steps=1)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("largest", [0, 1])
def test_the_k_best(type, largest):
    for k, axis in [(1, 2), (3, 2), (3, 1), (0, 1)]:
        shape = f"a,b,{k}" if axis == 2 else f"a,{k},c"
        text = f"""g ({type}[a,b,c] x) => ({type}[{shape}] y, int64[{shape}] i) <int64[1] k = {{{k}}}> {{
            y, i = TopK<axis={axis}, largest={largest}>(x, k) }}"""
        assert_agrees(text, feeds_of(type, axis, k), opset=24)


TOP = "g (float[a,b] x) => (float[a,100] y, int64[a,100] i) <int64[1] k = {100}> { y, i = TopK(x, k) }"


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(0, 3), columns=st.integers(100, 1000), values=st.sampled_from([3, 50, 10**6]))
def test_many_of_many(rows, columns, values):
    x = RNG.integers(0, values, size=(rows, columns)).astype(np.float32)
    y, i = execute(native_plan(TOP), {"x": x})
    wanted = np.argsort(-x, axis=1, kind="stable")[:, :100]
    np.testing.assert_array_equal(i, wanted)
    np.testing.assert_array_equal(y, np.take_along_axis(x, wanted, 1))


def test_more_than_there_are_is_an_error():
    with pytest.raises(Fail, match="should not be greater than"):
        execute(native_plan(TOP), {"x": np.zeros((2, 99), np.float32)})
