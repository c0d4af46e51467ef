"""Views in generated code: reshaping, slicing, splitting, expanding, and sizes that only shapes tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.ir import TensorType, Value, dim
from sardonyx.providers.native.program.sizes import ShapeMismatch, Sizes
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

FEW = settings(max_examples=12, deadline=None)
NAMES = {"float16": np.float16, "float": np.float32, "double": np.float64, "int8": np.int8, "int64": np.int64, "bool": np.bool_}


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-99, 99, shape).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_views_that_leave_a_cluster_are_copied(name: str) -> None:
    text = f"""agraph ({name}[a,b,c] x) => ({name}[c,a,b] y, {name}[c,n] z) <int64[2] shape = {{0,-1}}> {{
        y = Transpose<perm=[2,0,1]>(x)
        z = Reshape(y, shape)
    }}"""
    sizes = [(2, 3, 5), (1, 1, 1), (0, 4, 2), (3, 33, 40), (2, 16, 16), (1, 70, 3)]
    assert_agrees(text, [{"x": numbers(*shape, dtype=NAMES[name])} for shape in sizes])


@FEW
@given(st.data())
def test_slices(data: st.DataObject) -> None:
    bound = st.integers(-9, 9) | st.sampled_from((2**31 - 1, -(2**31)))
    starts, ends = [data.draw(bound) for _ in range(2)], [data.draw(bound) for _ in range(2)]
    steps = [data.draw(st.sampled_from((1, 2, 3, -1, -2))) for _ in range(2)]
    braces = [f"{{{a},{b}}}" for a, b in (starts, ends, steps)]
    text = f"""agraph (float[7,2,6] x) => (float[n,m,k] y)
        <int64[2] starts = {braces[0]}, int64[2] ends = {braces[1]}, int64[2] axes = {{0,-1}}, int64[2] steps = {braces[2]}> {{
        t = Slice(x, starts, ends, axes, steps)
        y = Transpose<perm=[2,1,0]>(t)
    }}"""
    assert_agrees(text, {"x": numbers(7, 2, 6)})


@pytest.mark.parametrize("start, end, step", [(1, 2**31 - 1, 1), (-3, 2**31 - 1, 2), (0, -1, 1), (2, 5, 1), (-1, -(2**31), -1)])
def test_slices_of_unknown_sizes(start: int, end: int, step: int) -> None:
    text = f"""agraph (float[n,3] x) => (float[m,3] y)
        <int64[1] starts = {{{start}}}, int64[1] ends = {{{end}}}, int64[1] axes = {{0}}, int64[1] steps = {{{step}}}> {{
        t = Slice(x, starts, ends, axes, steps)
        y = Add(t, t)
    }}"""
    assert_agrees(text, [{"x": numbers(size, 3)} for size in (0, 1, 2, 3, 4, 7, 40)])


def test_a_slice_up_to_a_size_of_another_input() -> None:
    text = """agraph (float[n,3] x, float[m] other) => (float[k,3] y) <int64[1] zero = {0}> {
        end = Shape(other)
        t = Slice(x, zero, end)
        y = Add(t, t)
    }"""
    assert_agrees(text, [{"x": numbers(5, 3), "other": numbers(size)} for size in (0, 2, 5, 9)])


@pytest.mark.parametrize("sizes", ["", "<int64[3] parts = {1,0,3}>"])
def test_parts_of_a_split(sizes: str) -> None:
    node = "Split<axis=1>(x, parts)" if sizes else "Split<axis=1,num_outputs=3>(x)"
    text = f"""agraph (float[n,4] x) => (float[n,p] a, float[n,q] b, float[r,n] c) {sizes} {{
        a, b, s = {node}
        c = Transpose(s)
    }}"""
    assert_agrees(text, [{"x": numbers(size, 4)} for size in (0, 1, 37)])


def test_expanding_to_known_sizes() -> None:
    text = """agraph (float[n,1] x, float[m] other) => (float[2,n,m] y, float[2,n,m] z)
        <int64[1] two = {2}, int64[1] one = {1}> {
        m = Shape(other)
        shape = Concat<axis=0>(two, one, m)
        y = Expand(x, shape)
        z = Add(y, other)
    }"""
    assert_agrees(text, [{"x": numbers(n, 1), "other": numbers(m)} for n, m in ((3, 4), (1, 1), (0, 2), (2, 0), (5, 67))])


def test_sizes_that_are_stored_only_where_they_are_read() -> None:
    text = """agraph (float[n,m] x) => (int64[3] y, float[k] z) <int64 i = {1}, int64[1] zero = {0}> {
        w = Add(x, x)
        shape = Shape(w)
        m = Gather(shape, i)
        m1 = Unsqueeze(m, zero)
        size = Size(w)
        s1 = Unsqueeze(size, zero)
        both = Mul(m1, s1)
        y = Concat<axis=0>(m1, s1, both)
        z = Reshape(w, s1)
    }"""
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((2, 3), (0, 4), (1, 1))])


def test_ranges_over_sizes() -> None:
    text = """agraph (float[n,m] x) => (int64[k] y, int64[j] z) <int64 i = {1}, int64 zero = {0}, int64 three = {3}, int64 minus = {-2}> {
        shape = Shape(x)
        m = Gather(shape, i)
        r = Range(zero, m, three)
        y = Add(r, m)
        s = Range(m, zero, minus)
        z = Add(s, s)
    }"""
    assert_agrees(text, [{"x": numbers(1, size)} for size in (0, 1, 3, 10, 1000)])


def test_sizes_that_do_not_fit_raise_what_numpy_raises() -> None:
    text = "agraph (float[n] x) => (float[2,3] y) <int64[2] shape = {2,3}> { t = Reshape(x, shape) y = Add(t, t) }"
    assert_agrees(text, {"x": numbers(6)})
    plan = native_plan(text)
    assert programs(plan)
    with pytest.raises(Exception, match="cannot be reshaped"):
        execute(plan, {"x": numbers(4)})


def test_sizes_that_do_not_broadcast_raise_what_numpy_raises() -> None:
    text = """agraph (float[n,3] x) => (float[m,3] y) <int64[1] zero = {0}, int64[1] four = {4}> {
        t = Slice(x, zero, four)
        y = Add(x, t)
    }"""
    assert_agrees(text, [{"x": numbers(size, 3)} for size in (0, 1, 4)])
    with pytest.raises(Exception, match="broadcast|shape"):
        execute(native_plan(text), {"x": numbers(6, 3)})


def test_a_result_that_is_only_reshaped_is_written_where_it_is_wanted() -> None:
    text = """agraph (float[n,4] x) => (float[n,2,2,1] y) <int64[3] shape = {0,2,2}, int64[1] last = {-1}> {
        t = Add(x, x)
        u = Reshape(t, shape)
        y = Unsqueeze(u, last)
    }"""
    assert_agrees(text, [{"x": numbers(size, 4)} for size in (0, 1, 9)], steps=1)


def test_parts_that_overlap() -> None:
    text = "agraph (float[n,9] x) => (float[n,k,4] y) { t = com.microsoft.UnfoldTensor<dim=1,size=4,step=2>(x) y = Add(t, t) }"
    assert_agrees(text, [{"x": numbers(size, 9)} for size in (0, 1, 5)])


def test_one_number_in_a_shape() -> None:
    text = """agraph (float[n,m] x) => (float[n,m] y) {
        shape = Shape(x)
        ones = ConstantOfShape<value = float[1] {1.5}>(shape)
        y = Add(x, ones)
    }"""
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((2, 3), (0, 4), (1, 1), (3, 70))], steps=1)


def test_a_size_below_its_cap_tells_the_symbol() -> None:
    length = dim.symbol("n")
    sizes = Sizes([Value("x", TensorType(dtypes.float32, (dim.minimum(512, length), 3)))])
    place = sizes(length * 2)
    numbers_of = sizes.compile()
    assert numbers_of(((7, 3),))[place] == 14
    with pytest.raises(ShapeMismatch):
        numbers_of(((512, 3),))


def test_a_transposed_and_reshaped_result_is_copied_once() -> None:
    text = """agraph (float[n,4,m] x) => (float[n,k] y) <int64[2] shape = {0,-1}> {
        t = Transpose<perm=[0,2,1]>(x)
        y = Reshape(t, shape)
    }"""
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((2, 4, 3), (1, 4, 1), (3, 4, 40))], steps=1)


def test_shuffled_channels_stay_last():
    text = """g (float[n,h,w,40] X) => (float[n,h,w,40] Y) <int64[5] split = {0, 2, 20, 5, 6}, int64[4] whole = {0, 40, 5, 6}> {
        T = Transpose<perm=[0, 3, 1, 2]>(X)  A = Reshape(T, split)  B = Transpose<perm=[0, 2, 1, 3, 4]>(A)
        C = Reshape(B, whole)  D = Relu(C)  Y = Transpose<perm=[0, 2, 3, 1]>(D)
    }"""
    feeds = [{"X": np.random.RandomState(0).standard_normal((batch, 5, 6, 40)).astype(np.float32)} for batch in (1, 3)]
    assert_agrees(text.replace("n,h,w,40", "n,5,6,40"), feeds)


def test_a_part_that_two_results_join_stands_in_both() -> None:
    """The column that both Concats take is computed while the first is written, whose order is decided by then."""
    text = """agraph (float[n,1] a, float[n,1] b) => (float[n,3] y, float[n,3] z)
        <float[2] bounds = {0.5, 1.5}, float zero = {0}, float one = {1}> {
        p = Less(a, bounds)  q = Less(b, bounds)
        none = Mul(a, zero)  last = Add(none, one)
        c = Cast<to=1>(p)  d = Cast<to=1>(q)
        y = Concat<axis=1>(c, last)
        z = Concat<axis=1>(d, last)
    }"""
    assert_agrees(text, [{"a": numbers(size, 1), "b": numbers(size, 1)} for size in (0, 1, 2, 7, 40)])
