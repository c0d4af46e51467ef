"""Unique in generated code gives what NumPy does: any type, any axis, sorted or as elements come, whatever outputs are wanted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.test_selection import TYPES, numbers


@pytest.mark.parametrize("type", [*TYPES, "bool"])
@pytest.mark.parametrize("order", [0, 1])
def test_all_elements(type: str, order: int) -> None:
    text = (
        f"g ({type}[a,b] x) => ({type}[m] y, int64[m] i, int64[n] v, int64[m] c) {{ y, i, v, c = Unique<sorted={order}>(x) }}"
    )
    shapes = [(0, 3), (1, 1), (7, 5), (40, 60)]
    kind = "int8" if type == "bool" else type
    feeds = [{"x": numbers(shape, kind, awkward=True)} for shape in shapes]
    assert_agrees(text, [{"x": fed["x"] > 0} for fed in feeds] if type == "bool" else feeds, opset=28)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("type", ["float", "int64", "uint8", "double"])
def test_slices_along_an_axis(axis: int, type: str) -> None:
    text = f"""g ({type}[a,b,c] x) => ({type}[d,e,f] y, int64[m] i, int64[n] v, int64[m] k) {{
        y, i, v, k = Unique<axis={axis}, sorted=%d>(x) }}"""
    shapes = [(3, 4, 2), (8, 1, 1), (0, 3, 2), (3, 0, 2), (2, 3, 0), (1, 1, 40), (2, 40, 1), (0, 0, 0)]
    feeds = [{"x": np.sign(numbers(shape, type, awkward=True))} for shape in shapes]
    for order in (0, 1):
        assert_agrees(text % order, feeds)


@pytest.mark.parametrize("outputs", ["y", "y, i", "y, , v", "y, , , c", ", i, , c"])
def test_what_is_not_wanted_is_left_out(outputs: str) -> None:
    named = {"y": "float[m] y", "i": "int64[p] i", "v": "int64[n] v", "c": "int64[q] c"}
    results = ", ".join(named[name] for name in outputs.replace(",", " ").split())
    text = f"g (float[n] x) => ({results}) {{ {outputs} = Unique(x) }}"
    assert_agrees(text, [{"x": numbers((size,), "float")} for size in (0, 1, 50)])


def test_in_the_order_of_contrib_a_nan_is_like_no_other() -> None:
    text = "g (float[N] x) => (float[M] y, int64[N] v, int64[M] c) { y, v, c = com.microsoft.Unique(x) }"
    feeds = [{"x": numbers((size,), "float", awkward=True)} for size in (0, 3, 60)]
    assert_agrees(text, feeds)


def test_what_follows_has_the_size_that_was_found() -> None:
    text = """g (float[N] x, int64 m) => (float[K,K] z, int64 n) <bool yes = {1}, int64[1] last = {-1}, int64[1] first = {0}> {
        w, q = Loop(m, yes, x, m) <body = b (int64 i, bool c, float[A] s, int64 k) => (bool d, float[B] t, int64 l) {
            d = Identity(c) h = Round(s) u = Unique(h) e = Concat<axis=0>(u, s) t = Mul(e, e) l = Size(u) }>
        y = Unique(w) a = Unsqueeze(y, last) b0 = Unsqueeze(y, first) z = Sub(a, b0) n = Identity(q) }"""
    assert_agrees(text, [{"x": numbers((size,), "float"), "m": np.array(turns)} for size in (1, 30) for turns in (0, 1, 3)])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(shape=array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), values=st.integers(1, 4), data=st.data())
def test_any_shape(shape: tuple[int, ...], values: int, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    in_order = data.draw(st.booleans())
    given = f"axis={axis}, " if axis is not None else ""
    sizes, result = ",".join("abc"[: len(shape)]), "m" if axis is None else ",".join("def"[: len(shape)])
    text = f"g (int32[{sizes}] x) => (int32[{result}] y, int64[p] i, int64[q] v, int64[p] k) {{"
    text += f" y, i, v, k = Unique<{given}sorted={int(in_order)}>(x) }}"
    x = np.random.default_rng(values).integers(0, values, shape).astype(np.int32)
    plan = native_plan(text)
    assert len(programs(plan)) == 1
    y, first, inverse, counts = execute(plan, {"x": x})
    whole, along = (x.reshape(-1), 0) if axis is None else (x, axis)
    np.testing.assert_array_equal(np.take(y, inverse, axis=along), whole)
    np.testing.assert_array_equal(np.take(whole, first, axis=along), y)
    np.testing.assert_array_equal(np.bincount(inverse, minlength=len(counts)), counts)
    rows = [row.reshape(-1).tolist() for row in np.moveaxis(y, along, 0)]
    assert len({tuple(row) for row in rows}) == len(rows)
    assert rows == sorted(rows) if in_order else first.tolist() == sorted(first.tolist())
