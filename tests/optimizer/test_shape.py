"""Rules about reshapes, views and ranges."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.optimizer.rewrite import Journal, apply_rules
from sardonyx.optimizer.rules import shape
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, run, typed
from tests.optimizer.test_conv import reasons

VIEWS = [shape.constant_shape, shape.eliminate_view, shape.merge_views]
SIZES = "zero = Constant<value_ints=[0]>() one = Constant<value_ints=[1]>() n = Shape<start=0, end=1>(x) s = Shape<start=1, end=2>(x)"


@pytest.mark.parametrize(
    ("parts", "written"),
    [
        ("n, s, heads, size", "0, 0, 2, 4"),
        ("n, rest, heads, size", "0, -1, 2, 4"),
        ("n, s, rest", "0, 0, -1"),
    ],
)
def test_a_target_from_the_own_shape_is_constant(parts, written):
    rank = len(parts.split(","))
    head = f"g (float[N,S,8] x) => (float[{','.join('ABCD'[:rank])}] y) "
    constants = "heads = Constant<value_ints=[2]>() size = Constant<value_ints=[4]>() rest = Constant<value_ints=[-1]>()"
    journal = assert_rewrites(
        shape.constant_shape,
        head + f"{{ {SIZES} {constants} t = Concat<axis=0>({parts}) y = Reshape(x, t) }}",
        head + f"<int64[{rank}] t = {{{written}}}> {{ y = Reshape(x, t) }}",
    )
    assert len(journal.applied()) == 1


def test_the_size_that_is_left_is_computed():
    head = "g (float[N,S,8] x) => (float[A,8] y) "
    assert_rewrites(
        shape.constant_shape,
        head + f"{{ {SIZES} k = Constant<value_ints=[8]>() m = Mul(n, s) t = Concat<axis=0>(m, k) y = Reshape(x, t) }}",
        head + "<int64[2] t = {-1, 8}> { y = Reshape(x, t) }",
    )


@pytest.mark.parametrize("parts", ["s, n, k", "n, m"])
def test_a_target_that_takes_two_unknown_sizes_stays(parts):
    """`n, m` could be written 0, -1, but then an empty batch could not be reshaped any more."""
    text = "g (float[N,S,8] x) => (float[K] y) <int64[1] flat = {-1}>"
    text += (
        f"{{ {SIZES} k = Constant<value_ints=[8]>() e = Mul(s, k) m = Identity(e) t = Concat<axis=0>({parts}) u = Reshape(x, t)"
    )
    text += " y = Reshape(u, flat) }"
    assert "more than one size is not known" in reasons(assert_rewrites(shape.constant_shape, text, None))


def test_an_empty_batch_can_still_be_reshaped():
    text = "g (float[N,S,8] x) => (float[A,B,C,D] y)"
    text += f"{{ {SIZES} k = Constant<value_ints=[2]>() r = Constant<value_ints=[4]>() t = Concat<axis=0>(n, s, k, r) y = Reshape(x, t) }}"
    model = typed(text)
    apply_rules(model, VIEWS, evaluate=evaluate, journal=Journal(strict=True))
    (got,) = run(model, {"x": np.zeros((0, 3, 8), np.float32)})
    assert got.shape == (0, 3, 2, 4)


def test_zeros_that_mean_zero_stay():
    text = "g (float[N,0,8] x) => (float[A,B] y) { n = Shape<start=0, end=1>(x) z = Constant<value_ints=[0]>()"
    text += " t = Concat<axis=0>(n, z) y = Reshape<allowzero=1>(x, t) }"
    assert_rewrites(shape.constant_shape, text, None)


@pytest.mark.parametrize(
    "nodes",
    [
        "t = Constant<value_ints=[0,-1,8]>() v = Reshape(x, t)",
        "t = Shape(x) v = Reshape(x, t)",
        "a = Constant<value_ints=[1]>() u = Unsqueeze(x, a) v = Squeeze(u, a)",
        "t = Constant<value_ints=[0,0,2,4]>() u = Reshape(x, t) r = Constant<value_ints=[0,0,8]>() v = Reshape(u, r)",
    ],
)
def test_views_that_lead_back_go(nodes):
    head = "g (float[N,S,8] x) => (float[N,S,8] y) "
    assert_rewrites(VIEWS, head + f"{{ {nodes} y = Neg(v) }}", head + "{ y = Neg(x) }")


@pytest.mark.parametrize(
    ("nodes", "after"),
    [
        (
            "a = Constant<value_ints=[0]>() b = Constant<value_ints=[-2]>() u = Unsqueeze(x, a) v = Unsqueeze(u, b)",
            "Unsqueeze(x, t)|0,3",
        ),
        (
            "a = Constant<value_ints=[1,3]>() b = Constant<value_ints=[-1]>() u = Unsqueeze(x, a) v = Unsqueeze(u, b)",
            "Unsqueeze(x, t)|1,3,5",
        ),
        (
            "t1 = Constant<value_ints=[0,0,2,4]>() t2 = Constant<value_ints=[0,0,4,2]>() u = Reshape(x, t1) v = Reshape(u, t2)",
            "Reshape(x, t)|0,0,4,2",
        ),
        (
            "t1 = Constant<value_ints=[-1,8]>() t2 = Constant<value_ints=[-1,2,4]>() u = Reshape(x, t1) v = Reshape(u, t2)",
            "Reshape(x, t)|-1,2,4",
        ),
        ("t1 = Constant<value_ints=[0,0,2,4]>() u = Reshape(x, t1) v = Flatten<axis=3>(u)", "Reshape(x, t)|-1,4"),
    ],
)
def test_a_view_of_a_view_is_one_view(nodes, after):
    call, target = after.split("|")
    numbers = target.split(",")
    head = "g (float[N,S,8] x) => (float[K] y) <int64[1] flat = {-1}>"
    tail = "w = Neg(v) z = Abs(w) y = ReduceMin<keepdims=0>(z)"
    head = "g (float[N,S,8] x) => (float y) "
    assert_rewrites(
        VIEWS,
        head + f"{{ {nodes} {tail} }}",
        head + f"<int64[{len(numbers)}] t = {{{target}}}> {{ v = {call} {tail} }}",
    )


def test_squeezes_merge():
    head = "g (float[1,N,1,S,1] x) => (float[N,S] y) "
    assert_rewrites(
        VIEWS,
        head
        + "{ a = Constant<value_ints=[0]>() b = Constant<value_ints=[1,-1]>() u = Squeeze(x, a) v = Squeeze(u, b) y = Neg(v) }",
        head + "<int64[3] t = {0, 2, 4}> { v = Squeeze(x, t) y = Neg(v) }",
    )
    assert_rewrites(
        VIEWS,
        head + "{ u = Squeeze<axes=[0]>(x) v = Squeeze<axes=[1,3]>(u) y = Neg(v) }",
        head + "{ v = Squeeze<axes=[0,2,4]>(x) y = Neg(v) }",
        opset=11,
    )


def test_a_view_that_is_used_elsewhere_stays():
    text = "g (float[N,8] x) => (float[N,4,2] y, float[N,2,4] u) <int64[3] a = {0, 2, 4}, int64[3] b = {0, 4, 2}>"
    text += "{ u = Reshape(x, a) y = Reshape(u, b) }"
    assert "the view in between is used elsewhere" in reasons(assert_rewrites(shape.merge_views, text, None))


def test_a_reshape_by_unknown_numbers_stays():
    text = "g (float[N,8] x, int64[2] t) => (float[A,B] y) { y = Reshape(x, t) }"
    assert_rewrites(VIEWS, text, None, compare=False)


# --- ranges


def test_a_gathered_range_is_a_slice():
    head = "g (float[10,4] x, float[S] z) => (float[S,4] y) "
    constants = (
        "<int64 zero = {0}, int64 one = {1}, int64[1] start = {0}, int64[1] axis = {0}, int64[1] step = {1}, int64[1] a = {0}> "
    )
    assert_rewrites(
        shape.slice_range,
        head + constants + "{ n = Size(z) r = Range(zero, n, one) y = Gather<axis=0>(x, r) }",
        head + constants + "{ n = Size(z) e = Unsqueeze(n, a) y = Slice(x, start, e, axis, step) }",
    )


@pytest.mark.parametrize(
    "numbers",
    ["{-2}, int64 n = {3}, int64 d = {1}", "{0}, int64 n = {-1}, int64 d = {1}", "{5}, int64 n = {0}, int64 d = {-1}"],
)
def test_other_ranges_stay(numbers):
    text = f"g (float[10,4] x) => (float[K,4] y) <int64 s = {numbers}> {{ r = Range(s, n, d) y = Gather<axis=0>(x, r) }}"
    assert_rewrites(shape.slice_range, text, None)
