"""Filters that a run computes, in every order in which they may lie in memory: what packs them reads each in another way."""

from __future__ import annotations

import numpy as np
import pytest

from tests.providers.native.agreement import assert_agrees

ORDERS = {
    "as they are": ("{m},{c},{k},{k}", "W = Identity(F)"),
    "filters last": ("{c},{k},{k},{m}", "W = Transpose<perm = [3, 0, 1, 2]>(F)"),
    "channels and filters exchanged": ("{c},{m},{k},{k}", "W = Transpose<perm = [1, 0, 2, 3]>(F)"),
    "exchanged and turned round": (
        "{c},{m},{k},{k}",
        "T = Transpose<perm = [1, 0, 2, 3]>(F) s = Constant<value_ints = [-1, -1]>() e = Constant<value_ints = [-999, -999]>()"
        "a = Constant<value_ints = [2, 3]>() W = Slice(T, s, e, a, s)",
    ),
    "taps first": ("{k},{k},{m},{c}", "W = Transpose<perm = [2, 3, 0, 1]>(F)"),
}
SIZES = [(1, 1, 1), (7, 5, 1), (33, 17, 3), (16, 16, 2), (40, 35, 5), (70, 20, 3), (3, 2, 7)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("filters, channels, kernel", SIZES)
def test_filters_of_any_order_are_packed(order, filters, channels, kernel):
    shape, arranged = ORDERS[order]
    shape = shape.format(m=filters, c=channels, k=kernel)
    text = f"g (float[2,{channels},9,8] X, float[{shape}] F) => (float[2,{filters},h,w] Y) {{ {arranged} Y = Conv(X, W) }}"
    rng = np.random.default_rng(3)
    F = rng.standard_normal(tuple(map(int, shape.split(",")))).astype(np.float32)
    assert_agrees(text, {"X": rng.standard_normal((2, channels, 9, 8)).astype(np.float32), "F": F})


@pytest.mark.parametrize("type, dtype", [("float16", np.float16), ("double", np.float64)])
@pytest.mark.parametrize("order", ORDERS)
def test_filters_of_other_types_are_packed(order, type, dtype):
    shape, arranged = ORDERS[order]
    shape = shape.format(m=21, c=18, k=3)
    text = f"g ({type}[1,18,6,5] X, {type}[{shape}] F) => ({type}[1,21,h,w] Y) {{ {arranged} Y = Conv(X, W) }}"
    rng = np.random.default_rng(4)
    F = rng.standard_normal(tuple(map(int, shape.split(",")))).astype(dtype)
    assert_agrees(text, {"X": rng.standard_normal((1, 18, 6, 5)).astype(dtype), "F": F})


@pytest.mark.parametrize("group, filters, channels", [(2, 6, 8), (3, 39, 4), (5, 5, 1)])
def test_filters_of_groups_are_packed(group, filters, channels):
    text = (
        f"g (float[2,{group * channels},7,7] X, float[{filters},{channels},3,3] W) => (float[2,{filters},7,7] Y)"
        f"{{ Y = Conv<group = {group}, pads = [1, 1, 1, 1]>(X, W) }}"
    )
    rng = np.random.default_rng(5)
    X = rng.standard_normal((2, group * channels, 7, 7)).astype(np.float32)
    assert_agrees(text, {"X": X, "W": rng.standard_normal((filters, channels, 3, 3)).astype(np.float32)})


def test_numbers_that_are_not_finite_stay_where_they_are():
    W = np.zeros((20, 18, 3, 3), np.float32)
    W[7, 3, 1, 2], W[19, 17, 2, 2], W[0, 0, 0, 0] = np.nan, np.inf, -np.inf
    text = "g (float[1,18,3,3] X, float[20,18,3,3] W) => (float[1,20,1,1] Y) { Y = Conv(X, W) }"
    assert_agrees(text, {"X": np.ones((1, 18, 3, 3), np.float32), "W": W})
