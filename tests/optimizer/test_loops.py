"""State that no round changes is read from outside, and what depends on nothing else is computed before the loop."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.optimizer.passes.loops import keep_invariants
from tests.optimizer.rewriting import assert_rewrites

CARRIED = """g (float[3,4] x, float[4,4] w) => (float[3,4] y, float[4,4] v) <int64 m = {3}, bool go = {1}> {
    y, v = Loop(m, go, x, w)<body = b (int64 i, bool c, float[3,4] s, float[4,4] k) => (bool c2, float[3,4] s2, float[4,4] k2) {
        c2 = Identity(c) t = %s s2 = Add(s, t) k2 = Identity(k) }> }"""
USED = CARRIED % "MatMul(s, k)"
READ = """g (float[3,4] x, float[4,4] w) => (float[3,4] y, float[4,4] v) <int64 m = {3}, bool go = {1}> {
    y, unused = Loop(m, go, x, w)<body = b (int64 i, bool c, float[3,4] s, float[4,4] k) => (bool c2, float[3,4] s2, float[4,4] k2) {
        c2 = Identity(c) t = MatMul(s, w) s2 = Add(s, t) k2 = Identity(k) }>
    v = Identity(w) }"""
MOVABLE = """g (float[3,4] x, float[4,4] w) => (float[3,4] y) <int64 m = {3}, bool go = {1}> {
    y = Loop(m, go, x)<body = b (int64 i, bool c, float[3,4] s) => (bool c2, float[3,4] s2) {
        c2 = Identity(c) u = Mul(w, w) t = MatMul(s, u) s2 = Add(s, t) }> }"""
MOVED = """g (float[3,4] x, float[4,4] w) => (float[3,4] y) <int64 m = {3}, bool go = {1}> {
    u = Mul(w, w)
    y = Loop(m, go, x)<body = b (int64 i, bool c, float[3,4] s) => (bool c2, float[3,4] s2) {
        c2 = Identity(c) t = MatMul(s, u) s2 = Add(s, t) }> }"""
SCAN = """g (float[4] s, float[5,4] x) => (float[4] z, float[5,4] y) {
    z, y = Scan(s, x)<num_scan_inputs=1, body = b (float[4] k, float[4] p) => (float[4] k2, float[4] d) {
        k2 = Identity(k) d = Mul(k, p) }> }"""


HANDED_OUT = """g (float[3,4] x, float[3,4] w) => (float[3,4] y) <int64 m = {3}, bool go = {1}> {
    y = Loop(m, go, x)<body = b (int64 i, bool c, float[3,4] s) => (bool c2, float[3,4] s2) {
        c2 = Identity(c) u = Softmax(w) s2 = Identity(u) }> }"""


def test_state_that_is_handed_on_is_read_from_outside() -> None:
    assert_rewrites(keep_invariants, USED, READ)


def test_what_depends_on_nothing_inside_is_computed_before() -> None:
    assert_rewrites(keep_invariants, MOVABLE, MOVED)


@pytest.mark.parametrize(
    "text",
    [
        CARRIED.replace("k2 = Identity(k)", "k2 = Neg(k)") % "MatMul(s, k)",
        MOVABLE.replace("u = Mul(w, w) t = MatMul(s, u)", "t = Mul(s, s)"),
        MOVABLE.replace("u = Mul(w, w)", "n = Cast<to=1>(i) u = Mul(w, n)"),
        HANDED_OUT.replace("u = Softmax(w) s2 = Identity(u)", "s2 = Identity(w)"),
    ],
)
def test_what_changes_stays(text: str) -> None:
    assert_rewrites(keep_invariants, text, None)


@pytest.mark.parametrize(
    ("operand", "failing"), [("int64[3,4] a, int64[3,4] b", "Div(a, b)"), ("string[3,4] a, string[3,4] b", "Cast<to=7>(b)")]
)
def test_what_may_fail_stays_where_no_round_may_reach_it(operand: str, failing: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (int64 m, int64[3,4] x, {operand}) => (int64[3,4] y) {{
        go = Constant<value_int=1>() run = Cast<to=9>(go)
        y = Loop(m, run, x)<body = b (int64 i, bool c, int64[3,4] s) => (bool c2, int64[3,4] s2) {{
            c2 = Identity(c) t = {failing} s2 = Add(s, t) }}> }}"""
    session = sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    x, zeros = np.arange(12).reshape(3, 4), np.zeros((3, 4), np.int64)
    given = {"a": zeros, "b": zeros} if "int64[3,4] a" in operand else dict.fromkeys("ab", np.full((3, 4), "no number", object))
    feeds = {"m": np.array(0), "x": x, **given}
    (y,) = session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()})
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("text", [USED, MOVABLE, SCAN, HANDED_OUT, CARRIED % "MatMul(x, k)"])
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_sessions_compute_the_same(text: str, rounds: int) -> None:
    source = '<ir_version: 9, opset_import: ["" : 17]>' + text.replace("m = {3}", f"m = {{{rounds}}}")
    model = onnx.parser.parse_model(source).SerializeToString()
    plain = sardonyx.SessionOptions()
    plain.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    whole, simple = sardonyx.InferenceSession(model), sardonyx.InferenceSession(model, plain)
    feeds = {
        one.name: np.random.default_rng(len(one.name)).standard_normal(one.shape).astype(np.float32)
        for one in whole.get_inputs()
    }
    for got, wanted in zip(whole.run(None, feeds), simple.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
