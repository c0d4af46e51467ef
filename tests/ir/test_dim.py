"""Symbolic sizes: whatever form an expression takes, it evaluates to what plain integers give."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ir import dim
from sardonyx.ir.dim import symbol

NAMES = ("N", "H", "W")


def plain(function):
    return {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "min": min,
        "max": max,
    }[function]


def symbolic(function):
    return {"floordiv": dim.floordiv, "mod": dim.mod, "min": dim.minimum, "max": dim.maximum}.get(function, plain(function))


leaves = st.one_of(st.integers(-20, 20), st.sampled_from(NAMES))
trees = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "min", "max"]), inner, inner),
    max_leaves=8,
)


def build(tree):
    if isinstance(tree, tuple):
        return symbolic(tree[0])(build(tree[1]), build(tree[2]))
    return symbol(tree) if isinstance(tree, str) else tree


def compute(tree, bindings):
    if isinstance(tree, tuple):
        return plain(tree[0])(compute(tree[1], bindings), compute(tree[2], bindings))
    return bindings[tree] if isinstance(tree, str) else tree


@given(trees, st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES}))
def test_an_expression_evaluates_like_integers(tree, bindings):
    try:
        expected = compute(tree, bindings)
    except ZeroDivisionError:
        return  # dividing by zero has no value; the expression is then a fresh symbol or fails likewise
    built = build(tree)
    if any(one.is_anonymous for one in dim.symbols(built)):
        return  # a constant division by zero inside a branch that does not matter
    assert dim.evaluate(built, bindings) == expected


@given(trees, st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES}))
def test_substituting_all_symbols_is_evaluating(tree, bindings):
    built = build(tree)
    try:
        expected = dim.evaluate(built, bindings)
    except (ZeroDivisionError, KeyError):
        return
    assert dim.substitute(built, bindings) == expected


@given(trees, st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES}))
def test_nothing_is_below_its_lower_bound(tree, bindings):
    built = build(tree)
    least = dim.lower_bound(built)
    try:
        assert least is None or dim.evaluate(built, bindings) >= least
    except (ZeroDivisionError, KeyError):
        return


def test_what_a_convolution_leaves_is_not_negative():
    W = symbol("W")
    assert dim.is_nonnegative((W - 1) // 2 + 1)
    assert dim.is_nonnegative(((W - 1) // 2 + 2) // 2)
    assert not dim.is_nonnegative((W - 5) // 2 + 1)
    A, B = (W - 3) // 4, (symbol("H") - 3) // 4
    assert dim.lower_bound(A * B + A + B + 2) == 1  # (A + 1) * (B + 1) pixels and a token
    assert dim.lower_bound(A * A) is None and dim.lower_bound(A * A + 2 * A + 1) == 0


def test_sizes_that_hold_themselves_twice_do_not_double_for_ever():
    """As a stranger's model may want, or one that slices the same axis in each block."""
    size = symbol("N") - 3
    for step in range(200):
        size = dim.minimum(dim.floordiv(size + step, 3), size * size - step) + dim.maximum(size, 5 - size)
        assert len(str(size)) < 10**6


@given(trees, trees, st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES}))
def test_a_named_size_changes_no_value(tree, outer, bindings):
    whole = build(tree)
    if isinstance(whole, int) or any(one.is_anonymous for one in dim.symbols(whole)):
        return
    for size in (
        build(outer),
        whole * 3 - 2,
        build(outer) * whole,
        dim.floordiv(whole + 7, 3),
        dim.minimum(whole, build(outer)),
    ):
        try:
            expected = dim.evaluate(size, bindings)
            bound = {**bindings, "called": dim.evaluate(whole, bindings)}
        except (ZeroDivisionError, KeyError):
            continue
        if bound["called"] < 0:
            continue  # no size, and symbols stand for sizes
        assert dim.evaluate(dim.with_name(size, whole, "called"), bound) == expected


def test_a_named_size_stands_in_for_its_symbols():
    a, b, batch, called = dim.symbol("H") // 2, dim.symbol("W") // 2, dim.symbol("N"), dim.symbol("called")
    whole = a * b + a + b + 1

    def told(size):
        return dim.with_name(size, whole, "called")

    assert told(batch * whole * 256) == batch * called * 256
    assert told(dim.floordiv(whole - 1, 6)) == dim.floordiv(called - 1, 6)
    assert told(a) == a
    assert dim.with_name(3 * a + 3 * (a // 2) + 1, a + a // 2, "called") == 3 * called + 1


@given(trees)
def test_an_expression_survives_pickling(tree):
    built = build(tree)
    assert pickle.loads(pickle.dumps(built)) == built


def test_equal_sizes_are_equal_however_they_were_made():
    n, h = symbol("N"), symbol("H")
    assert (n + h) * 2 == 2 * h + 2 * n
    assert (n * 768) // 64 // 12 == n
    assert (4 * n + 3) // 4 == n
    assert dim.mod(6 * n + 4, 3) == 1
    assert n - n == 0
    assert hash(n + 1) == hash(1 + n)


def test_extremes_are_decided_where_the_difference_is_known():
    n = symbol("N")
    assert dim.minimum(n, n + 1) == n
    assert dim.maximum(n, 0) == n
    assert dim.maximum(n, n + 2, 1) == n + 2
    assert dim.maximum(symbol("M"), dim.maximum(3, n)) == dim.maximum(3, symbol("M"), n)
    assert str(dim.minimum(n, 5)) == "min(5, N)"


def test_a_convolution_size_is_a_floor_division():
    h = symbol("H")
    size = (h + 2 * 1 - 3) // 2 + 1
    assert [dim.evaluate(size, {"H": n}) for n in (224, 225, 7)] == [112, 113, 4]


def test_a_size_may_be_capped_by_numbers_alone():
    n, m = dim.symbol("n"), dim.symbol("m")
    assert dim.is_capped(dim.minimum(n, 512), n)
    assert dim.is_capped(n, n)
    assert not dim.is_capped(dim.minimum(n, m), n)
    assert not dim.is_capped(dim.minimum(n, 0), n)
    assert not dim.is_capped(n, dim.minimum(n, 512))


def test_fresh_symbols_differ_and_have_no_name():
    assert dim.fresh() != dim.fresh()
    assert dim.is_anonymous(dim.fresh())
    assert not dim.is_anonymous(symbol("N"))


def test_a_symbolic_size_has_no_truth():
    with pytest.raises(TypeError, match="not known"):
        bool(symbol("N"))


def test_hostile_growth_ends_in_a_fresh_symbol():
    total = 1
    for number in range(100):
        total = total * (symbol(f"s{number}") + 1)
    assert dim.is_anonymous(total) or len(getattr(total, "terms", ())) <= dim.MAX_TERMS


def test_the_product_of_very_many_sizes_is_quick():
    total = dim.product(symbol(f"s{number}") for number in range(20_000))
    assert all(len(monomial) <= dim.MAX_ATOMS for monomial in total.terms)


@given(st.lists(st.sampled_from((0, 1, 2, 7)), min_size=1, max_size=4))
def test_operands_broadcast_to_the_size_that_numpy_gives_them(sizes):
    names = [f"s{number}" for number in range(len(sizes))]
    whole = dim.broadcast(*map(symbol, names))
    assert whole == dim.broadcast(whole, symbol(names[0])) == dim.broadcast(*map(symbol, reversed(names)))
    try:
        (expected,) = np.broadcast_shapes(*((size,) for size in sizes))
    except ValueError:
        return
    assert dim.evaluate(whole, dict(zip(names, sizes))) == dim.substitute(whole, dict(zip(names, sizes))) == expected


def test_a_number_is_the_size_that_operands_broadcast_to():
    n, m = symbol("n"), symbol("m")
    assert dim.broadcast(n, 1) == n and dim.broadcast(1, 1) == 1
    assert dim.broadcast(n, 5, m) == 5 and dim.broadcast(dim.broadcast(n, m), 3) == 3
