"""A failure inside a cluster of native code names the node that failed, in the words of a run without native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.preparation.plan import all_steps
from tests.runtime.models import parsed

F, I = np.float32, np.int64
X = np.arange(6, dtype=F).reshape(2, 3)
IMAGE, ONES = np.ones((2, 6, 3), F), np.ones(6, F)

CASES: dict[str, tuple[str, dict[str, np.ndarray], str]] = {
    "Gather": (
        "g (float[N,3] x, int64[K] i) => (y) { [first] a = Abs(x) [pick] b = Gather<axis=0>(a, i) [last] y = Exp(b) }",
        {"x": X, "i": np.array([0, 7], I)},
        "Gather node. Name:'pick'",
    ),
    "the second of two": (
        "g (float[N,3] x, int64[K] i, int64[M] j) => (y) "
        "{ a = Abs(x) [good] b = Gather(a, i) c = Exp(b) [bad] d = Gather(c, j) [last] y = Neg(d) }",
        {"x": X, "i": np.array([0, 1], I), "j": np.array([5], I)},
        "Gather node. Name:'bad'",
    ),
    "GatherElements": (
        "g (float[N,3] x, int64[K,3] i) => (y) { a = Abs(x) [pick] b = GatherElements<axis=0>(a, i) y = Exp(b) }",
        {"x": X, "i": np.full((2, 3), -9, I)},
        "GatherElements node. Name:'pick'",
    ),
    "broadcasting": (
        "g (float[N,M] x, float[N,M] z) => (y) { a = Abs(x) e = Exp(z) [sum] b = Add(a, e) y = Sqrt(b) }",
        {"x": X, "z": np.ones((2, 5), F)},
        "Add node. Name:'sum'",
    ),
    "MatMul": (
        "g (float[N,M] x, float[K,L] z) => (y) { a = Abs(x) [product] b = MatMul(a, z) y = Exp(b) }",
        {"x": X, "z": np.ones((4, 5), F)},
        "MatMul node. Name:'product'",
    ),
    "Concat": (
        "g (float[N,M] x, float[K,L] z) => (y) { a = Abs(x) e = Exp(z) [join] b = Concat<axis=0>(a, e) y = Sqrt(b) }",
        {"x": X, "z": np.ones((2, 5), F)},
        "Concat node. Name:'join'",
    ),
    "Reshape": (
        "g (float[N,M] x) => (y) <int64[2] s = {4, -1}> { a = Abs(x) [form] b = Reshape(a, s) y = Exp(b) }",
        {"x": X},
        "Reshape node. Name:'form'",
    ),
    "a shape that is fed": (
        "g (float[N,M] x, int64[2] s) => (y) { a = Abs(x) [form] b = Reshape(a, s) y = Exp(b) }",
        {"x": X, "s": np.array([4, 4], I)},
        "Reshape node. Name:'form'",
    ),
    "TopK": (
        "g (float[N,M] x) => (y, n) <int64[1] k = {5}> { a = Abs(x) [best] b, n = TopK(a, k) y = Exp(b) }",
        {"x": X},
        "TopK node. Name:'best'",
    ),
    "Slice": (
        "g (float[N,M] x, int64[1] steps) => (y) <int64[1] s = {0}, int64[1] e = {9}, int64[1] axes = {1}> "
        "{ a = Abs(x) [cut] b = Slice(a, s, e, axes, steps) y = Exp(b) }",
        {"x": X, "steps": np.array([0], I)},
        "Slice node. Name:'cut'",
    ),
    "too few variances": (
        "g (float[N,C,H] x, float[A] s, float[B] b, float[D] m, float[E] v) => (y) "
        "{ a = Abs(x) [norm] n = BatchNormalization(a, s, b, m, v) y = Exp(n) }",
        {"x": IMAGE, "s": ONES, "b": ONES, "m": ONES, "v": ONES[:2]},
        "BatchNormalization node. Name:'norm'",
    ),
    "too few scales": (
        "g (float[N,C,H] x, float[A] s, float[B] b) => (y) { a = Abs(x) [norm] n = InstanceNormalization(a, s, b) y = Exp(n) }",
        {"x": IMAGE, "s": ONES[:2], "b": ONES},
        "InstanceNormalization node. Name:'norm'",
    ),
    "too few biases": (
        "g (float[N,6,H] x, float[A] s, float[B] b) => (y) "
        "{ a = Abs(x) [norm] n = GroupNormalization<num_groups=3>(a, s, b) y = Exp(n) }",
        {"x": IMAGE, "s": ONES, "b": ONES[:2]},
        "GroupNormalization node. Name:'norm'",
    ),
    "a branch": (
        "g (float[N,3] x, int64[K] i, bool c) => (y) { w = Abs(x) [choose] z = If (c) <"
        "then_branch = t () => (u) { a = Abs(w) [pick] b = Gather(a, i) u = Exp(b) }, "
        "else_branch = e () => (v) { v = Neg(w) }> y = Exp(z) }",
        {"x": X, "i": np.array([9], I), "c": np.array(True)},
        "If 'choose' > Gather 'pick'",
    ),
    "a loop": (
        "g (float[N,3] x, int64[K] i) => (y) <int64 m = {3}, bool c = {1}> { [turn] y = Loop (m, c, x) <"
        "body = b (int64 n, bool d, float[P,3] s) => (bool d1, float[Q,3] s1) "
        "{ d1 = Identity(d) a = Abs(s) [pick] p = Gather(a, i) s1 = Exp(p) }> }",
        {"x": X, "i": np.array([9], I)},
        "Loop 'turn' > Gather 'pick'",
    ),
}


def failure(text: str, feeds: dict[str, np.ndarray], native: str) -> tuple[Any, Exception]:
    options = sardonyx.SessionOptions()
    options.log_severity_level = 4
    model = parsed(text, opset=22, ir_version=10)
    session = sardonyx.InferenceSession(model, options, providers=[("CPUExecutionProvider", {"native": native})])
    with pytest.raises(Exception) as caught:
        session.run(None, feeds)
    with pytest.raises(type(caught.value)):  # runs that follow fail too, by other ways through the model
        for _ in range(2):
            session.run(None, feeds)
    return session, caught.value


@pytest.mark.parametrize("label", CASES)
def test_native_code_names_the_node_that_failed(label: str) -> None:
    text, feeds, named = CASES[label]
    _, plain = failure(text, feeds, "0")
    _, native = failure(text, feeds, "1")
    assert named in str(plain)
    assert (type(native), str(native)) == (type(plain), str(plain))


@pytest.mark.parametrize("label", ["Gather", "the second of two", "broadcasting", "MatMul", "Reshape", "TopK", "a branch"])
def test_these_are_clusters_of_several_nodes(label: str) -> None:
    session, _ = failure(*CASES[label][:2], "1")
    sizes = [len(step.nodes) for step in all_steps(session._engine.plan) if isinstance(step.call, CompiledProgram)]
    assert max(sizes, default=0) > 1


def test_an_error_of_our_own_inside_a_cluster_keeps_its_kind() -> None:
    from sardonyx.errors import InvalidArgument

    text, feeds, _ = CASES["Gather"]
    assert isinstance(failure(text, feeds, "1")[1], InvalidArgument)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[A,B] x, float[C,D] z) => (float[E,F] y) { n = Neg(x) y = Add(n, z) }", "the sizes A and C must go together"),
        (
            "g (float[A,B] x, float[A,B] z) => (float[E,F] y) { n = Neg(x) y = Add(n, z) }",
            "sizes of inner values must go together",
        ),
    ],
    ids=["names", "no names"],
)
def test_sizes_that_do_not_go_together_are_told_in_words(text: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    session = sardonyx.InferenceSession(parsed(text, opset=21, ir_version=10))
    for rows in (1, 2, 4):  # what is compiled at last knows that sizes of one name differ
        feeds = {"x": np.ones((2, 3), np.float32), "z": np.ones((rows, 3), np.float32)}
        if rows < 4:
            session.run(None, feeds)
    with pytest.raises(Exception, match="2 by 4"):
        session.run(None, feeds)
    assert any(
        f"(Neg, Add): {reason}, but the inputs have the shapes [2, 3], [4, 3]" in record.getMessage()
        for record in caplog.records
    )
