"""Reductions in generated code compute what NumPy does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.providers.native.kernels.reduction.operators import runs_of
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan

RNG = np.random.default_rng(0)
OPS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int64": np.int64,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "int8": np.int8,
    "uint8": np.uint8,
    "bool": np.bool_,
}
SHAPES = [(1, 1, 1, 1), (2, 3, 4, 5), (3, 1, 17, 70), (2, 0, 3, 4), (1, 40, 2, 1), (6, 7, 40, 50)]


def numbers(shape, type, op="Sum"):
    dtype = np.dtype(TYPES[type])
    if dtype.kind == "b":
        return RNG.random(shape) < 0.5
    if dtype.kind in "iu":
        return RNG.integers(1 if op == "LogSum" else 0 if dtype.kind == "u" else -9, 9, size=shape).astype(dtype)
    found = RNG.normal(size=shape)
    # not around 0: sums of rounding errors would be compared there
    return (np.abs(found) + 1 if op == "LogSum" else found * 2 + 1).astype(dtype)


def text(op, type, axes, keepdims=1, rank=4):
    names = "abce"[:rank]
    kept = ["1" if axis in axes else names[axis] for axis in range(rank) if keepdims or axis not in axes]
    listed = ", ".join(map(str, axes))
    return f"""g ({type}[{",".join(names)}] x) => ({type}[{",".join(kept)}] y) <int64[{len(axes)}] axes = {{{listed}}}> {{
        y = Reduce{op}<keepdims={keepdims}>(x, axes) }}"""


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axes", [[3], [0], [1, 2], [0, 2], [1, 3], [0, 1, 2, 3]])
def test_any_axes(op, axes):
    feeds = [{"x": numbers(shape, "float", op)} for shape in (SHAPES[:5] if op == "Prod" else SHAPES)]
    assert_agrees(text(op, "float", axes, keepdims=len(axes) % 2), feeds)


def test_products_are_taken_in_order_through_rows_that_are_apart():
    """A part of them is infinite where another is 0, and the whole is 0."""
    text = """g (float[3,a,2,33] x, float[3,1,2,1] c) => (float[1,1,1,1] y) <int64[4] axes = {0, 1, 2, 3}> {
        d = Mul(c, x) y = ReduceProd(d, axes) }"""
    factors = np.array([0, 1, 1, 1, 1, 1], np.float32).reshape(3, 1, 2, 1)
    feeds = {"x": np.full((3, 4, 2, 33), 100, np.float32), "c": factors}
    (result,) = execute(native_plan(text), feeds)
    assert result.item() == 0


SMALL_TYPES = ("int8", "uint8", "bool")
"""Which only the extremes take."""


@pytest.mark.parametrize(
    "op, type", [(op, type) for type in list(TYPES)[1:] for op in OPS if op in ("Max", "Min") or type not in SMALL_TYPES]
)
def test_any_type(op, type):
    # what the logarithm of nothing is as an integer nobody says
    shapes = SHAPES[:3] if np.dtype(TYPES[type]).kind in "iu" and op in ("LogSum", "LogSumExp") else SHAPES[:5]
    feeds = [{"x": numbers(shape, type, op)} for shape in shapes]
    for axes in ([3], [1]):
        assert_agrees(text(op, type, axes), feeds)


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "LogSumExp", "Mean"])
@pytest.mark.parametrize("axes", [[1], [0], [0, 1]])
def test_nan_and_infinities(op, axes):
    x = numbers((40, 70), "float")
    x[3, 5], x[4, 69], x[5, 0], x[6], x[7, 64] = np.nan, np.inf, -np.inf, -np.inf, np.nan
    calm = numbers((9, 70), "float")
    calm[2, 3] = np.inf
    assert_agrees(text(op, "float", axes, rank=2), [{"x": x}, {"x": calm}])


@pytest.mark.parametrize("type", ["float", "int32", "float16"])
@pytest.mark.parametrize("op", ["Sum", "Max", "Mean", "L2"])
def test_threads_share_what_gives_few_results(op, type):
    for shape, axes in [((100000,), "0"), ((2, 100000), "1"), ((3000, 5), "0")]:
        kept = [str(size) for axis, size in enumerate(shape) if str(axis) not in axes]
        source = f"""g ({type}[{",".join(map(str, shape))}] x) => ({type}[{",".join(kept)}] y) <int64[1] axes = {{{axes}}}> {{
            y = Reduce{op}<keepdims=0>(x, axes) }}"""
        assert_agrees(source, {"x": numbers(shape, type, op)}, steps=2)


def test_long_sums_are_precise():
    x = RNG.random(1_000_000).astype(np.float32)
    (y,) = execute(native_plan("g (float[n] x) => (float y) { y = ReduceSum<keepdims=0>(x) }"), {"x": x})
    assert abs(float(y) - x.astype(np.float64).sum()) <= 2e-7 * float(y)


def test_axes_as_attribute():
    source = "g (float[a,b,c] x) => (float[a,c] y) { y = ReduceMax<axes=[-2], keepdims=0>(x) }"
    assert_agrees(source, [{"x": numbers((2, 3, 40), "float")}, {"x": numbers((2, 0, 3), "float")}], opset=11)


@pytest.mark.parametrize("noop", [0, 1])
def test_without_axes_all_are_reduced_or_none(noop):
    out = "a,b" if noop else "1,1"
    source = f"g (float[a,b] x) => (float[{out}] y) {{ y = ReduceSumSquare<noop_with_empty_axes={noop}>(x) }}"
    feeds = [{"x": numbers((3, 40), "float")}, {"x": numbers((1, 1), "float")}]
    assert_agrees(source, feeds)
    given = source.replace("float[a,b] x", "float[a,b] x, int64[0] axes").replace("(x)", "(x, axes)")
    assert_agrees(given, [{**one, "axes": np.zeros(0, np.int64)} for one in feeds])


def test_axes_that_are_computed_are_left_to_numpy():
    source = "g (float[a,b] x, int64[1] axes) => (float[c,d] y) { y = ReduceSum(x, axes) t = Add(y, y) }"
    plan = native_plan(source)
    feeds = {"x": numbers((3, 4), "float"), "axes": np.array([1])}
    np.testing.assert_allclose(execute(plan, feeds)[0], feeds["x"].sum(1, keepdims=True), rtol=1e-6)


def test_what_stands_around_a_reduction_becomes_part_of_it():
    source = """g (float[a,b,c] x, float[c] w) => (float[a,b] y) <int64[1] axes = {2}> {
        t = Mul(x, w) u = Add(t, x) s = ReduceSum<keepdims=0>(u, axes) y = Mul(s, s) }"""
    assert_agrees(source, [{"x": numbers((3, 4, 50), "float"), "w": numbers((50,), "float")}], steps=1)
    source = source.replace("float[a,b] y", "float[b,c] y").replace("{2}", "{0}")
    assert_agrees(source, [{"x": numbers((3, 4, 50), "float"), "w": numbers((50,), "float")}], steps=1)


@pytest.mark.parametrize("type", ["float", "float16", "double"])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_pools_over_all_pixels(op, type):
    feeds = [{"x": numbers(shape, type)} for shape in [(1, 3, 5, 7), (2, 4, 1, 1), (1, 2, 30, 40)]]
    assert_agrees(f"g ({type}[n,c,h,w] x) => ({type}[n,c,1,1] y) {{ y = {op}(x) }}", feeds)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceLogSumExp"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 5, 1, 3), (3, 70, 6, 5), (0, 4, 2, 2), (1, 33, 40, 30)])
def test_statistics_of_batches_whose_channels_lie_last(shape, op, keepdims):
    """The convolution lets its channels lie last; its result is reduced as it is, and behind a chain that is not 0 at 0."""
    channels = shape[1]
    text = (
        f"g (float[{','.join(map(str, shape))}] x, float[{channels},{channels},1,1] w) => (float[a] y, float[b] z)"
        "<int64[3] axes = {0, 2, 3}, float one = {1}, int64[1] flat = {-1}>"
        f"{{ c = Conv(x, w) m = {op}<keepdims={keepdims}>(c, axes) y = Reshape(m, flat) s = Sub(c, one)"
        f"t = {op}<keepdims={keepdims}>(s, axes) z = Reshape(t, flat) }}"
    )
    x = RNG.standard_normal(shape).astype(np.float32)
    assert_agrees(text, {"x": x, "w": np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1)})


MIXED = "g (float[a,b,c] x) => (float[b] y, float[a,1,c] z) <int64[2] o = {0, 2}, int64[1] m = {1}> { %s }"


@settings(max_examples=25, deadline=None)
@given(shape=st.tuples(*[st.integers(0, 20)] * 2, st.integers(0, 150)))
def test_any_shape(shape):
    x = numbers(shape, "float")
    plan = native_plan(MIXED % "y = ReduceSum<keepdims=0>(x, o) z = ReduceMax(x, m)")
    y, z = execute(plan, {"x": x})
    np.testing.assert_allclose(y, x.astype(np.float64).sum((0, 2)), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(z, x.max(1, keepdims=True, initial=-np.inf))


def test_axes_are_grouped_into_runs():
    assert runs_of((2, 3, 4), frozenset({2}), True).kinds == "KR"
    assert runs_of((2, 3, 4), frozenset({2}), True).kept == (3,)
    assert runs_of((2, 3, 4), frozenset({1}), False).kept == (1, 1)
    one = runs_of((2, 1, 4, 1), frozenset({0, 3}), True)
    assert (one.kinds, one.groups, one.kept) == ("RK", (2, 2), (4,))
    assert runs_of((), frozenset(), True).kinds == "K"
    assert runs_of((5, 6), frozenset({0, 1}), False).kept == (0,)
