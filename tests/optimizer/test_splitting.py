"""Gathers and slices that become a Split."""

from __future__ import annotations

import pytest

from sardonyx.optimizer.passes.splitting import split_once
from tests.optimizer.rewriting import assert_rewrites

HEAD = "g (float[N,3,4] x) => (float[N,4] y) "


@pytest.mark.parametrize("opset", [11, 21])
def test_gathers_of_all_of_an_axis(opset):
    constants = "<int64 i = {0}, int64 j = {1}, int64 k = {-1}> "
    before = (
        HEAD
        + constants
        + ("{ a = Gather<axis=1>(x, i) b = Gather<axis=1>(x, j) c = Gather<axis=1>(x, k) d = Mul(a, b) y = Sub(d, c) }")
    )
    if opset < 13:
        after = "{ p, q, r = Split<axis=1, split=[1,1,1]>(x) a = Squeeze<axes=[1]>(p) b = Squeeze<axes=[1]>(q) c = Squeeze<axes=[1]>(r)"
        head = HEAD
    else:
        after = "{ p, q, r = Split<axis=1>(x, s) a = Squeeze(p, t) b = Squeeze(q, t) c = Squeeze(r, t)"
        head = HEAD + "<int64[3] s = {1, 1, 1}, int64[1] t = {1}> "
    assert_rewrites(split_once, before, head + after + " d = Mul(a, b) y = Sub(d, c) }", opset=opset)


def test_slices_of_all_of_an_axis():
    head = "g (float[N,6] x) => (float[N,K] y) "
    constants = (
        "<int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {-2}, int64[1] end = {9223372036854775807}, int64[1] axis = {1},"
        "int64[3] s = {2, 2, 2}> "
    )
    assert_rewrites(
        split_once,
        head
        + constants
        + "{ c = Slice(x, four, end, axis) a = Slice(x, zero, two, axis) b = Slice(x, two, four, axis) d = Mul(a, b) y = Sub(d, c) }",
        head + constants + "{ a, b, c = Split<axis=1>(x, s) d = Mul(a, b) y = Sub(d, c) }",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Gather<axis=1>(x, i) b = Gather<axis=1>(x, j) y = Mul(a, b)",
        "a = Gather<axis=1>(x, i) b = Gather<axis=1>(x, i) c = Gather<axis=1>(x, j) d = Mul(a, b) y = Mul(d, c)",
        "a = Gather<axis=1>(x, i) b = Gather<axis=1>(x, v) c = ReduceSum<keepdims=0>(b, one) y = Mul(a, c)",
    ],
)
def test_parts_that_leave_something_out_or_overlap_stay(nodes):
    text = HEAD + "<int64 i = {0}, int64 j = {1}, int64[2] v = {1, 2}, int64[1] one = {1}> { " + nodes + " }"
    assert_rewrites(split_once, text, None)
