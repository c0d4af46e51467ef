"""One-element results of branches get equal ranks where nobody notices, ranks with which a run fails are left out, and loops whose
state changes its rank once are peeled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.runtime.preparation.plan import all_steps
from tests.providers.native.agreement import compare

HEAD = '<ir_version: 10, opset_import: ["" : 21]> '


def sessions(text: str) -> tuple[Any, Any]:
    """The model as it is optimized, and as it was written."""
    model = onnx.parser.parse_model(HEAD + text).SerializeToString()
    plain = sardonyx.SessionOptions()
    plain.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain.add_session_config_entry("sardonyx.remember", "off")
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("sardonyx.remember", "off")
    return (
        sardonyx.InferenceSession(model, options),
        sardonyx.InferenceSession(model, plain, providers=[("CPUExecutionProvider", {"native": "0"})]),
    )


def is_one_program(session: Any) -> bool:
    return [step.in_numpy for step in all_steps(session._engine.plan)] == [False]


def assert_same(session: Any, plain: Any, feeds: dict[str, np.ndarray]) -> None:
    compare(session.run(None, feeds), plain.run(None, feeds))


BRANCHES = """g (bool c, bool d, float[N] x) => (float[N] y, bool[P] z) <bool[1] no = {0}> {
    b = If(c) <then_branch = t () => (bool p) { p = Not(d) }, else_branch = e () => (bool[1] q) { q = Or(d, no) }>
    %s }"""


@pytest.mark.parametrize(
    "behind",
    [
        """u = Not(b) z = Or(u, no)
        y = If(b) <then_branch = f () => (float[N] v) { v = Exp(x) }, else_branch = g () => (float[N] w) { w = Neg(x) }>""",
        "z = And(b, no) f = Cast<to=1>(b) y = Mul(f, x)",
    ],
)
def test_what_is_broadcast_anyway_gets_its_axes_at_once(behind: str) -> None:
    session, plain = sessions(BRANCHES % behind)
    assert is_one_program(session)
    for c in (True, False):
        for d in (True, False):
            assert_same(session, plain, {"c": np.array(c), "d": np.array(d), "x": np.arange(3, dtype=np.float32)})


@pytest.mark.parametrize("behind", ["z = Not(b) y = Neg(x)", "s = Shape(b) y = Neg(x) z = Cast<to=9>(s)"])
def test_ranks_that_somebody_sees_stay(behind: str) -> None:
    session, plain = sessions(BRANCHES % behind)
    for c in (True, False):
        assert_same(session, plain, {"c": np.array(c), "d": np.array(c), "x": np.arange(3, dtype=np.float32)})


IMPOSSIBLE = """g (bool c, float[N, K] x, int64[M, 1] at, float[L] data) => (float[L] y) <int64[1] one = {1}> {
    b = If(c) <then_branch = t () => (float[N, 1, K] p) { p = Unsqueeze(x, one) }, else_branch = e () => (float[N, K] q) { q = Neg(x) }>
    s = ReduceSum<keepdims=0>(b, one)
    %s }"""


@pytest.mark.parametrize(
    "behind",
    ["y = ScatterND(data, at, s)", "u = Exp(s) v = Unsqueeze(u, one) w = ScatterElements(v, at, v) y = Squeeze(w, one)"],
)
def test_a_branch_with_whose_rank_a_run_fails_leaves_the_rank_to_the_other(behind: str) -> None:
    session, plain = sessions(IMPOSSIBLE % behind)
    assert is_one_program(session)
    for size in (3, 1, 70):
        feeds = {"c": np.array(False), "at": np.arange(size)[:, None], "data": np.zeros(size, np.float32)}
        assert_same(session, plain, feeds | {"x": np.arange(size * 2, dtype=np.float32).reshape(size, 2)})


def test_a_run_that_takes_the_failing_branch_fails_as_it_did() -> None:
    feeds = {"at": np.arange(3)[:, None], "data": np.zeros(3, np.float32), "x": np.ones((3, 2), np.float32)}
    messages = []
    for session in sessions(IMPOSSIBLE % "y = ScatterND(data, at, s)"):
        session.run(None, feeds | {"c": np.array(False)})
        with pytest.raises(sardonyx.errors.InvalidArgument, match="updates tensor should have shape") as error:
            session.run(None, feeds | {"c": np.array(True)})
        messages.append(str(error.value).partition("Status Message")[2].partition("(inputs")[0])
    assert messages[0] == messages[1]


@pytest.mark.parametrize("behind", ["t = Exp(b) y = Flatten<axis=1>(t)", "y = Flatten<axis=0>(s)"])
def test_ranks_that_all_nodes_take_stay_both(behind: str) -> None:
    session, plain = sessions(IMPOSSIBLE.replace("float[L] y", "float[P, Q] y") % behind)
    feeds = {
        "at": np.zeros((1, 1), np.int64),
        "data": np.zeros(3, np.float32),
        "x": np.arange(6, dtype=np.float32).reshape(3, 2),
    }
    for c in (True, False):
        assert_same(session, plain, feeds | {"c": np.array(c)})


LOOP = """g (float[N] x) => (float[P] y, float[Q] z, int64 n) <int64 %s, bool go = {1}, float[1] zero = {0}, int64 limit = {4}> {
    s0 = Constant<value = float {7}>() k0 = Constant<value = int64 {0}>()
    y, z, n = Loop(m, go, s0, x, k0) <body = b (int64 i, bool c, float[R] s, float[T] a, int64 k)
        => (bool c2, float[R] s2, float[T] a2, int64 k2) {
        f = Cast<to=1>(i) a2 = Add(a, f) %s k2 = Add(i, k) c2 = Less(i, limit) }> }"""


@pytest.mark.parametrize("most", ["m = {1}", "m = {3}", "m = {9}"])
@pytest.mark.parametrize("state", ["s2 = Exp(a2)", "t = Add(s, zero) s2 = Mul(t, a)"])
def test_a_loop_whose_state_gets_its_rank_in_the_first_turn_is_one_program(most: str, state: str) -> None:
    session, plain = sessions(LOOP % (most, state))
    assert is_one_program(session)
    for size in (3, 1, 40):
        assert_same(session, plain, {"x": np.linspace(0, 1, size, dtype=np.float32)})


def test_a_loop_that_may_have_no_turn_stays() -> None:
    text = LOOP.replace("float[N] x", "float[N] x, int64 m").replace("int64 %s, ", "") % "s2 = Exp(a2)"
    session, plain = sessions(text)
    for turns in (0, 1, 5):
        assert_same(session, plain, {"x": np.ones(3, np.float32), "m": np.array(turns)})


def test_a_rank_that_grows_in_each_turn_stays() -> None:
    text = """g (float[N] x) => (float z) <int64 m = {4}, bool go = {1}, int64[1] first = {0}> {
        y = Loop(m, go, x) <body = b (int64 i, bool c, float[R] s) => (bool c2, float[R] s2) {
            c2 = Identity(c) s2 = Unsqueeze(s, first) }>
        z = ReduceSum<keepdims=0>(y) }"""
    session, plain = sessions(text)
    assert_same(session, plain, {"x": np.ones(3, np.float32)})


OTHER_RANKS = """g (bool c, float[N, M] x, float[1, 1, N, M] w) => (%s) <int64[1] one = {1}, int64[3] shape = {1, -1, 1}> {
    b = If(c) <then_branch = t () => (float[N, 1, M] p) { p = Unsqueeze(x, one) }, else_branch = e () => (float[N, M] q) { q = Neg(x) }>
    %s }"""
"""With N = 1 both can be added to w."""


@pytest.mark.parametrize(
    ("outputs", "behind"),
    [
        ("float[K] y", "r = Relu(b) f = Reshape(r, shape) y = ReduceSum<keepdims=0>(f)"),
        ("int64 y, float[P, Q, R] z", "y = Size(b) e = Exp(b) z = Reshape(e, shape)"),
        ("float[A, B, C, D] y", "e = Exp(b) y = Mul(w, e)"),
        ("float[A, B, C, D] y", "e = Neg(b) s = Sub(e, b) y = Max(w, s)"),
    ],
)
def test_branches_get_the_axes_with_which_all_that_reads_them_does_the_same(outputs: str, behind: str) -> None:
    session, plain = sessions(OTHER_RANKS % (outputs, behind))
    assert is_one_program(session)
    for c in (True, False):
        for width in (1, 5):
            x = np.linspace(-1, 1, width, dtype=np.float32).reshape(1, width)
            assert_same(session, plain, {"c": np.array(c), "x": x, "w": x[np.newaxis, np.newaxis] * 2})


@pytest.mark.parametrize(
    ("outputs", "behind"),
    [
        ("y", "k = Shape(b) y = Neg(k)"),
        ("y", "e = Exp(b) y = Flatten(e)"),
        ("y, z", "e = Exp(b) f = Reshape(e, shape) y = Neg(f) z = Neg(e)"),
        ("y", "f = Reshape(b, same) y = Neg(f)"),
    ],
)
def test_branches_keep_axes_that_somebody_sees(outputs: str, behind: str) -> None:
    text = OTHER_RANKS % (outputs, behind)
    session, plain = sessions(text.replace("{1, -1, 1}>", "{1, -1, 1}, int64[2] same = {0, -1}>"))
    for c in (True, False):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert_same(session, plain, {"c": np.array(c), "x": x, "w": np.ones((1, 1, 2, 3), np.float32)})


@pytest.mark.parametrize("declared", ["A, B", "A, B, C"])
def test_the_rank_that_outputs_declare_is_that_of_a_branch(declared: str) -> None:
    """A run that takes the other branch gives what it gives, as the model's word on its outputs binds nobody."""
    session, plain = sessions(OTHER_RANKS % (f"float[{declared}] y", "e = Exp(b) y = Relu(e)"))
    assert is_one_program(session)
    for c in (True, False, True):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert_same(session, plain, {"c": np.array(c), "x": x, "w": np.ones((1, 1, 2, 3), np.float32)})
