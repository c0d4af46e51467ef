"""Sizes that only a run tells, inside of programs: state that grows, rows that are counted, branches of different shapes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sardonyx.providers.native.execution import argument_table
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import CPUExecutionProvider, assert_agrees, compare, model_of, native_plan
from tests.providers.native.aot_models import check, write

CONSTANTS = """<bool yes = {1}, float half = {0.5}, float zero = {0}, int64 two = {2}, int64 one = {1}, int64 none = {0},
    int64[1] first = {0}, int64[1] second = {1}, int64[1] rest = {9223372036854775807}>"""

GROWING = {
    "by a row": """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        r = ReduceSum<keepdims=1>(s, first) h = Tanh(r) t = Concat<axis=0>(s, h) }>""",
    "by a row that others read": """y0 = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        w = Exp(x) r = ReduceSum<keepdims=1>(w, first) h = Tanh(r) t = Concat<axis=0>(s, h) }>
        z = Neg(y0) q = Softmax<axis=0>(y0) y = Add(z, q)""",
    "along the second axis": """u = Transpose<perm=[1,0]>(x)
        v = Loop(m, go, u) <body = b (int64 i, bool c, float[4,A] s) => (bool c, float[4,B] t) {
            r = ReduceMax<keepdims=1>(s, second) e = Exp(r) g = Tanh(e) t = Concat<axis=1>(s, g) }>
        y = Transpose<perm=[1,0]>(v)""",
    "twofold": """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        h = Mul(s, half) t = Concat<axis=0>(h, s) }>""",
    "and shrinks": """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        t0 = Slice(s, second, rest, first) t = Tanh(t0) }>""",
    "with attention": """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        k = Transpose<perm=[1,0]>(s) p = MatMul(s, k) q = Softmax(p) v = MatMul(q, s) l = ReduceMean<keepdims=1>(v, first)
        t = Concat<axis=0>(s, l) }>""",
    "until data says so": """y, n = Loop(, go, x, m) <body = b (int64 i, bool c, float[A,4] s, int64 k) => (bool d, float[B,4] t, int64 l) {
        r = ReduceMean<keepdims=1>(s, first) t = Concat<axis=0>(s, r) l = Sub(k, one) d = Greater(l, none) }>""",
    "in turns of turns": """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        e = ReduceMean<keepdims=1>(s, first)
        t = Loop(i, c, s) <body = bb (int64 j, bool cc, float[C,4] u) => (bool cc, float[D,4] v) {
            f = Tanh(u) g = ReduceMin<keepdims=1>(f, first) g2 = Add(g, e) v = Concat<axis=0>(u, g2) }> }>""",
    "in a branch": """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        r = Mod(i, two) odd = Cast<to=9>(r)
        t = If(odd) <then_branch = o () => (float[C,4] p) { h = ReduceSum<keepdims=1>(s, first) p = Concat<axis=0>(h, s) },
                     else_branch = e () => (float[D,4] q) { q = Tanh(s) }> }>""",
    "beside what stays": """y, z = Loop(m, go, x, x) <body = b (int64 i, bool c, float[A,4] s, float[N,4] k)
        => (bool c, float[B,4] t, float[N,4] l) {
        l = Tanh(k) r = ReduceSum<keepdims=1>(l, first) t = Concat<axis=0>(s, r) }>""",
    "in two states": """y, z = Loop(m, go, x, x) <body = b (int64 i, bool c, float[A,4] s, float[E,4] k)
        => (bool c, float[B,4] t, float[F,4] l) {
        l = Concat<axis=0>(k, s) r = ReduceMean<keepdims=1>(k, first) t = Concat<axis=0>(s, r) }>""",
}


def graph(text: str) -> str:
    return f"g (int64 m, bool go, float[N,4] x) => (float[M,4] y) {CONSTANTS} {{ {text} }}"


def rows(count: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((count, 4)) * 0.3).astype(np.float32)


def feeds(turns: int, count: int, go: bool = True) -> dict[str, np.ndarray]:
    return {"m": np.array(turns), "go": np.array(go), "x": rows(count)}


@pytest.mark.parametrize("name", GROWING)
def test_state_may_change_its_size(name: str) -> None:
    given = [feeds(turns, count) for turns, count in [(3, 2), (0, 3), (1, 1), (5, 7), (4, 6)]]
    given += [feeds(3, 2, go=False), feeds(-1, 2)] if name != "until data says so" else []
    assert_agrees(graph(GROWING[name]), given)


def test_room_is_made_for_what_becomes_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument_table, "FIRST_CAPACITY", 2)
    for name in ("by a row", "twofold", "in turns of turns", "in two states"):
        assert_agrees(graph(GROWING[name]), [feeds(turns, 1) for turns in (1, 6, 2, 7)])


def test_state_without_rows_may_grow() -> None:
    text = """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        f = Cast<to=1>(i) v = Gather(w, first) r = Add(v, f) t = Concat<axis=0>(s, r) }>"""
    source = graph(text).replace("float[N,4] x)", "float[N,4] x, float[K,4] w)")
    assert_agrees(source, [{**feeds(turns, 0), "w": rows(3)} for turns in (0, 1, 5)])


def test_rows_are_counted_that_turns_collect() -> None:
    text = """g (int64 m, float[N] x) => (float[N] y, float[T,N] r, int64[T] numbers) <bool yes = {1}, float most = {4}, float zero = {0}> {
        y, r, numbers = Loop(m, yes, x) <body = b (int64 i, bool c, float[A] s) => (bool d, float[A] t, float[A] u, int64 j) {
            t = Mul(s, s) u = Neg(s) j = Identity(i) e = ReduceMax<keepdims=0>(t) d = Less(e, most) }> }"""
    given = [{"m": np.array(m), "x": np.float32(x)} for m in (0, 1, 3, 400) for x in ([1.1, 0.5], [3, 0], [1.0001, 1], [0.3])]
    assert_agrees(text, given)


def test_what_is_collected_may_be_used_in_the_same_program() -> None:
    text = """g (int64 m, float[N] x) => (float[T,N] z, float[N] total) <bool yes = {1}, int64[1] axis = {0}> {
        y, r = Loop(m, yes, x) <body = b (int64 i, bool c, float[A] s) => (bool c, float[A] t, float[A] u) { t = Tanh(s) u = Neg(t) }>
        z = Exp(r) total = ReduceSum<keepdims=0>(z, axis) }"""
    assert_agrees(text, [{"m": np.array(m), "x": np.float32([0.5, -1, 2])} for m in (1, 5, 300)])


def test_branches_may_have_different_shapes() -> None:
    text = """g (bool c, float[N,4] x) => (float[M,4] y, float[K] s) <int64[1] second = {1}, int64[1] first = {0}> {
        w = If(c) <then_branch = t () => (float[A,4] a) { a = Concat<axis=0>(x, x) },
                   else_branch = e () => (float[B,4] b) { b = Slice(x, first, second, first) }>
        y = Exp(w) s = ReduceSum<keepdims=0>(w, second) }"""
    assert_agrees(text, [{"c": np.array(c), "x": rows(n)} for c in (True, False) for n in (1, 5, 200)])


def test_what_one_branch_leaves_is_not_written_over() -> None:
    """Sizes that both branches settle are those of the one that runs."""
    text = """g (float[A,B,C,D] x, bool c, float[4,8,1,1] z, int32 i, float[1,16,8] w, float[1,16,16] r) => (v, y) {
        v = If(c) <then_branch = a () => (s) { s = Neg(x) }, else_branch = b () => (t) { t = Identity(z) }>
        g = Gather<axis=1>(v, i) y = RNN<hidden_size=16>(g, w, r) }"""
    numbers = np.random.default_rng(0)
    shapes = {"x": (4, 8, 7, 8), "z": (4, 8, 1, 1), "w": (1, 16, 8), "r": (1, 16, 16)}
    feeds: dict[str, np.ndarray] = {name: numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    assert_agrees(text, {**feeds, "c": np.array(True), "i": np.array(1, np.int32)})


def test_threads_may_run_it_at_once_while_room_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument_table, "FIRST_CAPACITY", 2)
    source = graph(GROWING["with attention"])
    plan, reference = native_plan(source, threads=2), make_plan(model_of(source).graph, [CPUExecutionProvider()])
    given = [feeds(turns, 1 + turns % 3) for turns in range(12)]
    wanted = [execute(reference, one) for one in given]
    with ThreadPoolExecutor(4) as workers:
        for _ in range(3):
            for got, expected in zip(workers.map(lambda one: execute(plan, one), given), wanted):
                compare(got, expected)


def test_results_belong_to_the_caller() -> None:
    plan = native_plan(graph(GROWING["by a row"]))
    first = execute(plan, feeds(3, 2))[0]
    kept = first.copy()
    execute(plan, {**feeds(3, 2), "x": rows(2, seed=9)})
    np.testing.assert_array_equal(first, kept)
    assert first.flags.owndata and first.flags.writeable


def test_sizes_that_contradict_are_left_to_numpy() -> None:
    text = """y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,4] s) => (bool c, float[B,4] t) {
        a = Add(s, x) r = ReduceSum<keepdims=1>(a, first) t = Concat<axis=0>(a, r) }>"""
    source = graph(text)
    plan, reference = native_plan(source), make_plan(model_of(source).graph, [CPUExecutionProvider()])
    for turns in (1, 2):
        compare(execute(plan, feeds(turns, 1)), execute(reference, feeds(turns, 1)))
    with pytest.raises(Exception, match=r"Add"):
        execute(plan, feeds(2, 3))


def test_it_is_compiled_ahead_of_time(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", graph(GROWING["by a row that others read"]))
    check(path, feeds(3, 2), feeds(0, 1), feeds(300, 2))


@pytest.mark.parametrize("columns", [3, 5000, 200_000])
def test_a_result_whose_shape_is_settled_late_has_room_for_what_was_written_before(columns: int) -> None:
    """The reshaped result is the program's own: its sizes come from data behind those of the range that it shows."""
    text = """g (int64[2] s) => (int64[A,B] y) <int64 zero = {0}, int64 one = {1}> {
        n = ReduceProd<keepdims=0>(s) r = Range(zero, n, one) y = Reshape(r, s) }"""
    assert_agrees(text, [{"s": np.array([4, columns])}, {"s": np.array([columns, 2])}])
