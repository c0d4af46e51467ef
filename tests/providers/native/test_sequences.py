"""Sequences of tensors and optional values inside of programs agree with NumPy's provider, also as state of loops and from branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import CPUExecutionProvider, assert_agrees, compare, model_of, native_plan

CONSTANTS = "<bool yes = {1}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[3] parts = {2, 0, 3}>"


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_constants(text: str) -> str:
    return text.replace(") {", f") {CONSTANTS} {{", 1)


def assert_same_or_fails(text: str, feeds: Sequence[dict[str, np.ndarray]]) -> None:
    """Both providers give the same, or raise what begins with the same words: of several nodes that fail any may be the first."""
    plan = native_plan(text)
    assert all(step.compiled for step in plan.steps)
    reference = make_plan(model_of(text).graph, [CPUExecutionProvider()])
    for fed in feeds:
        try:
            wanted: Any = execute(reference, fed)
        except Exception as error:
            with pytest.raises(type(error)) as raised:
                execute(plan, fed)
            assert _first_words(raised.value) == _first_words(error)
        else:
            compare(execute(plan, fed), wanted)


def _first_words(error: BaseException) -> list[str]:
    return str(error).split("Status Message")[-1].split()[:4]


SHAPES = [((2, 3), (4, 3)), ((1, 3), (0, 3)), ((0, 0), (5, 0)), ((300, 1), (2, 1)), ((4, 3), (4, 3))]
PROGRAMS = {
    "joins": """s = SequenceConstruct(x, y, x) r = ConcatFromSequence<axis=0>(s) n = SequenceLength(s)""",
    "joins from the end": """s = SequenceConstruct(x, y) r = ConcatFromSequence<axis=-2>(s) n = SequenceLength(s)""",
    "stacks": """s = SequenceConstruct(x, x, x) r = ConcatFromSequence<axis=1, new_axis=1>(s) n = SequenceLength(s)""",
    "stacks behind": """s = SequenceConstruct(x, x) r = ConcatFromSequence<axis=-1, new_axis=1>(s) n = SequenceLength(s)""",
    "inserts": """s = SequenceConstruct(x, y) t = SequenceInsert(s, y, p) n = SequenceLength(t) r = ConcatFromSequence<axis=0>(t)""",
    "inserts at the end": """s = SequenceEmpty() t = SequenceInsert(s, y) u = SequenceInsert(t, x) n = SequenceLength(u)
        r = ConcatFromSequence<axis=0>(u)""",
    "erases": """s = SequenceConstruct(x, y, x, y) t = SequenceErase(s, p) n = SequenceLength(t) r = ConcatFromSequence<axis=0>(t)""",
    "erases the last": """s = SequenceConstruct(x, y, x) t = SequenceErase(s) n = SequenceLength(t) r = ConcatFromSequence<axis=0>(t)""",
    "takes one": """s = SequenceConstruct(x, y, x) q = SequenceAt(s, p) n = SequenceLength(s) r = Exp(q)""",
    "leaves what others read": """s = SequenceConstruct(x, y) t = SequenceErase(s, p) u = SequenceInsert(s, x, p) v = Identity(s)
        w = SequenceInsert(v, y) a = ConcatFromSequence<axis=0>(t) b = ConcatFromSequence<axis=0>(u)
        c = ConcatFromSequence<axis=0>(w) d = ConcatFromSequence<axis=0>(s) r = Concat<axis=0>(a, b, c, d) n = SequenceLength(s)""",
    "cuts into single rows": """s = SplitToSequence<axis=0>(x) t = SequenceInsert(s, x) r = ConcatFromSequence<axis=0>(t)
        n = SequenceLength(s)""",
    "cuts columns away": """s = SplitToSequence<axis=1, keepdims=0>(x) n = SequenceLength(s) r = Neg(x)""",
    "cuts into parts": """s = SplitToSequence<axis=0>(x, two) n = SequenceLength(s) t = SequenceInsert(s, y)
        r = ConcatFromSequence<axis=0>(t)""",
    "cuts by a number": """s = SplitToSequence<axis=-2>(x, p) n = SequenceLength(s) r = SequenceAt(s, zero)""",
    "cuts by a list": """s = SplitToSequence<axis=0>(x, parts) n = SequenceLength(s) r = SequenceAt(s, p)""",
    "maps": """s = SequenceConstruct(x, y, x)
        t, u = SequenceMap(s, y) <body = b (float[A,B] v, float[C,D] w) => (float[A,B] o, float[C,B] m) {
            o = Tanh(v) h = ReduceSum<keepdims=0>(v) m = Add(w, h) }>
        q = ConcatFromSequence<axis=0>(t) k = ConcatFromSequence<axis=0>(u) r = Concat<axis=0>(q, k) n = SequenceLength(u)""",
    "maps two": """s = SequenceConstruct(x, y) a = SequenceConstruct(y, x, x)
        t = SequenceMap(s, a) <body = b (float[A,B] v, float[C,B] w) => (float[E,B] o) { o = Concat<axis=0>(v, w) }>
        r = ConcatFromSequence<axis=0>(t) n = SequenceLength(t)""",
    "maps nothing": """s = SequenceConstruct(x) a = SequenceErase(s)
        t = SequenceMap(a) <body = b (float[A,B] v) => (float[A,B] o) { o = Exp(v) }> n = SequenceLength(t) r = Neg(y)""",
    "unpacks": """o = Optional(x) h = OptionalHasElement(o) e = OptionalGetElement(o) n = Cast<to=7>(h) r = Neg(e)""",
    "unpacks a sequence": """s = SequenceConstruct(x, y) o = Optional(s) i = Identity(o) e = OptionalGetElement(i)
        f = SequenceInsert(e, x) r = ConcatFromSequence<axis=0>(f) n = SequenceLength(s)""",
    "asks for what is there": """h = OptionalHasElement(x) e = OptionalGetElement(x) n = Cast<to=7>(h) r = Neg(e)""",
    "is nothing": """h = OptionalHasElement() n = Cast<to=7>(h) r = Neg(x)""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("closed", [False, True])
def test_sequences_agree_with_numpy(name: str, closed: bool) -> None:
    text = with_constants(f"g (float[N,K] x, float[M,K] y, int64 p) => (float[R,S] r, int64 n) {{ {PROGRAMS[name]} }}")
    if "stacks" in name:
        text = text.replace("float[R,S] r", "float[R,S,T] r")
    shapes = SHAPES
    if closed:
        text = text.replace("float[N,K] x", "float[5,3] x").replace("float[M,K] y", "float[4,3] y")
        shapes = [((5, 3), (4, 3))]
    feeds = [
        {"x": floats(*first), "y": floats(*second, seed=1), "p": np.array(position)}
        for first, second in shapes
        for position in (0, 1, -1, 2, -2, 3, -4, 9, 2**40, -(2**63))
    ]
    assert_same_or_fails(text, feeds)


def test_a_position_out_of_range_is_told() -> None:
    text = with_constants("g (float[N] x, int64 p) => (float[M] r) { s = SequenceConstruct(x, x) r = SequenceAt(s, p) }")
    with pytest.raises(Exception, match=r"Invalid sequence index \(7\) specified for sequence of size \(2\)"):
        execute(native_plan(text), {"x": floats(3), "p": np.array(7)})


@pytest.mark.parametrize("lengths", [[3, 3], [6, -1], [2**62, 2**62], [5, 0], [-5, 10], [4, 2]])
def test_lengths_that_do_not_add_up_are_refused(lengths: list[int]) -> None:
    text = with_constants("""g (float[N,2] x, int64[L] l) => (int64 n, float[A,2] r) {
        s = SplitToSequence<axis=0>(x, l) n = SequenceLength(s) r = SequenceAt(s, zero) }""")
    assert_same_or_fails(text, [{"x": floats(5, 2), "l": np.array(lengths)}])


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "double", "bool", "int64"])
def test_elements_of_all_widths(dtype: str) -> None:
    text = f"g ({dtype}[N] x, int64 p) => ({dtype}[M] r) {{ s = SequenceConstruct(x, x) t = SequenceErase(s, p) u = SequenceInsert(t, x, p)"
    text = with_constants(text + " r = ConcatFromSequence<axis=0>(u) }")
    array = np.arange(11).astype({"double": "float64"}.get(dtype, dtype))
    assert_agrees(text, [{"x": array, "p": np.array(position)} for position in (0, -1)])


# --- in loops and branches

LOOPS = {
    "appends": """e = SequenceEmpty() f = SequenceInsert(e, x)
        s = Loop(m, yes, f) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) v = Cast<to=1>(i) w = Add(x, v) t = SequenceInsert(q, w) }>""",
    "begins with nothing": """e = SequenceEmpty()
        u = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) w = Exp(x) t = SequenceInsert(q, w) }>
        s = SequenceInsert(u, x)""",
    "puts in front": """e = SequenceConstruct(x)
        s, z = Loop(m, yes, e, x) <body = b (int64 i, bool c, seq(float[A,B]) q, float[N,K] a)
            => (bool c2, seq(float[C,D]) t, float[N,K] a2) {
            c2 = Identity(c) a2 = Neg(a) o = Concat<axis=0>(a, a) t = SequenceInsert(q, o, zero) }>""",
    "takes away": """e = SplitToSequence<axis=0>(x) f = SequenceInsert(e, x)
        s = Loop(m, yes, f) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            l = SequenceLength(q) c2 = Greater(l, two) t = SequenceErase(q, zero) }>""",
    "goes round": """e = SequenceConstruct(x, x)
        s = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) a = SequenceAt(q, zero) f = SequenceErase(q, zero) h = Tanh(a) t = SequenceInsert(f, h) }>""",
    "swaps": """e = SequenceConstruct(x) h = SequenceConstruct(x, x)
        s, o = Loop(m, yes, e, h) <body = b (int64 i, bool c, seq(float[A,B]) q, seq(float[A,B]) r1)
            => (bool c2, seq(float[C,D]) t, seq(float[C,D]) u) {
            c2 = Identity(c) n1 = Neg(x) t = SequenceInsert(r1, n1) u = Identity(q) }>""",
    "reads from outside": """e = SequenceConstruct(x, x, x) k = SequenceLength(e)
        s = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) j = Mod(i, k) a = SequenceAt(e, j) t = SequenceInsert(q, a) }>""",
    "changes a copy": """e = SequenceConstruct(x, x) s0 = SequenceEmpty() s1 = SequenceInsert(s0, x)
        s = Loop(m, yes, s1) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) d = SequenceErase(e) l = SequenceLength(d) lf = Cast<to=1>(l) w = Mul(x, lf) t = SequenceInsert(q, w) }>""",
    "decides": """e = SequenceConstruct(x)
        s = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) j = Mod(i, two) odd = Cast<to=9>(j)
            t = If(odd) <then_branch = y () => (seq(float[E,F]) t1) { t1 = SequenceInsert(q, x) },
                else_branch = z () => (seq(float[E,F]) t2) { t2 = Identity(q) }> }>""",
    "decides from the beginning": """e = SequenceEmpty()
        u = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) j = Mod(i, two) odd = Cast<to=9>(j)
            t = If(odd) <then_branch = y () => (seq(float[E,F]) t1) { t1 = SequenceInsert(q, x) },
                else_branch = z () => (seq(float[E,F]) t2) { t2 = Identity(q) }> }>
        s = SequenceInsert(u, x)""",
    "begins anew": """e = SequenceConstruct(x)
        u = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c) l = SequenceLength(q) full = Greater(l, two)
            t = If(full) <then_branch = y () => (seq(float[E,F]) t1) { t1 = SequenceEmpty() },
                else_branch = z () => (seq(float[E,F]) t2) { v = Neg(x) t2 = SequenceInsert(q, v) }> }>
        s = SequenceInsert(u, x)""",
    "is nested": """e = SequenceConstruct(x)
        s = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c)
            t = Loop(i, c, q) <body = bb (int64 j, bool d, seq(float[E,F]) u) => (bool d2, seq(float[G,H]) v) {
                d2 = Identity(d) v = SequenceInsert(u, x, j) }> }>""",
    "maps inside": """e = SequenceConstruct(x, x)
        s = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {
            c2 = Identity(c)
            t = SequenceMap(q) <body = bb (float[E,F] u) => (float[G,F] v) { w = Tanh(u) v = Concat<axis=0>(w, x) }> }>""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_hand_sequences_on(name: str) -> None:
    behind = "r = ConcatFromSequence<axis=0>(s) n = SequenceLength(s)"
    text = f"g (float[N,K] x, int64 m) => (float[R,K] r, int64 n) {{ {LOOPS[name]} {behind} }}"
    turns = (0, 1, 2, 5) if name in ("is nested", "maps inside") else (0, 1, 2, 5, 300)
    feeds = [{"x": floats(n, k), "m": np.array(m)} for n, k in ((2, 3), (0, 2), (1, 40)) for m in turns]
    assert_same_or_fails(with_constants(text), feeds)


def test_a_sequence_grows_by_large_tensors() -> None:
    text = f"g (float[N,K] x, int64 m) => (float[R,K] r) {{ {LOOPS['appends']} r = ConcatFromSequence<axis=0>(s) }}"
    assert_agrees(with_constants(text), [{"x": floats(400, 300), "m": np.array(m)} for m in (12, 3)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_sequence_that_begins_with_nothing_stays_where_turns_put_it(axis: int) -> None:
    text = f"""g (float[N,K] x, int64 m) => (float[R,S,T] r) {{
        e = SequenceEmpty()
        s = Loop(m, yes, e) <body = b (int64 i, bool c, seq(float[A,B]) q) => (bool c2, seq(float[C,D]) t) {{
            c2 = Identity(c) f = Cast<to=1>(i) v = Add(x, f) t = SequenceInsert(q, v) }}>
        r = ConcatFromSequence<axis={axis}, new_axis=1>(s) }}"""
    assert_agrees(
        with_constants(text), [{"x": floats(*size), "m": np.array(m)} for m in (1, 3, 9) for size in ((2, 3), (4, 1), (40, 50))]
    )


BRANCHES = """g (bool c, float[N,K] x, int64 p) => (float[R,K] r, int64 n) {
    s = SequenceConstruct(x, x)
    t = If(c) <then_branch = y () => (seq(float[A,B]) a) { e = Exp(x) a = SequenceInsert(s, e, p) },
               else_branch = z () => (seq(float[A,B]) b) { f = SequenceErase(s, p) g0 = Concat<axis=0>(x, x) b = SequenceInsert(f, g0) }>
    u = SequenceInsert(t, x) q = ConcatFromSequence<axis=0>(u) w = ConcatFromSequence<axis=0>(s) r = Concat<axis=0>(q, w)
    n = SequenceLength(t) }"""


def test_branches_give_sequences() -> None:
    feeds = [
        {"c": np.array(c), "x": floats(n, 3), "p": np.array(p)}
        for c in (True, False)
        for n in (2, 0, 40)
        for p in (0, 1, -1, 2, 3)
    ]
    assert_same_or_fails(with_constants(BRANCHES), feeds)


def test_what_a_session_gives_as_a_sequence_is_left_to_numpy() -> None:
    text = """g (float[N] x) => (seq(float[M]) s, float[N] y) { y0 = Exp(x) s = SequenceConstruct(x, y0) y = Tanh(y0) }"""
    plan = native_plan(text)
    assert [(step.node.op_type, step.compiled) for step in plan.steps if not step.compiled] == [("SequenceConstruct", False)]
    sequence, result = execute(plan, {"x": floats(3)})
    compare([*sequence, result], [floats(3), np.exp(floats(3)), np.tanh(np.exp(floats(3)))])


def test_what_only_a_run_packs_is_left_to_numpy() -> None:
    text = """g (bool c, float[N] x) => (float[M] r, float[N] y) {
        y = Exp(x)
        o = If(c) <then_branch = t () => (optional(float[A]) a) { a = Optional(x) },
                   else_branch = e () => (optional(float[A]) b) { b = Optional(y) }>
        r = OptionalGetElement(o) }"""
    plan = native_plan(text)
    assert any(step.compiled for step in plan.steps)
    reference = make_plan(model_of(text).graph, [CPUExecutionProvider()])
    for c in (True, False):
        feeds = {"c": np.array(c), "x": floats(4)}
        compare(execute(plan, feeds), execute(reference, feeds))


# --- any program

STEPS = {
    "insert": "SequenceInsert({0}, {1}, {2})",
    "append": "SequenceInsert({0}, {1})",
    "erase": "SequenceErase({0}, {2})",
    "pop": "SequenceErase({0})",
    "same": "Identity({0})",
    "map": "SequenceMap({0}) <body = b{3} (float[A{3},B{3}] v{3}) => (float[A{3},B{3}] o{3}) {{ o{3} = Neg(v{3}) }}>",
    "turn": """Loop(m, yes, {0}) <body = b{3} (int64 i{3}, bool c{3}, seq(float[A{3},B{3}]) q{3})
        => (bool d{3}, seq(float[C{3},D{3}]) t{3}) {{
        d{3} = Identity(c{3}) t{3} = SequenceInsert(q{3}, {1}, zero) }}>""",
    "either": """If(f) <then_branch = y{3} () => (seq(float[A{3},B{3}]) a{3}) {{ a{3} = SequenceInsert({0}, {1}, {2}) }},
        else_branch = z{3} () => (seq(float[A{3},B{3}]) b{3}) {{ b{3} = SequenceErase({0}, {2}) }}>""",
}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.sampled_from("xy"), st.sampled_from(["p", "zero", "one"])
        ),
        min_size=1,
        max_size=7,
    ),
    st.lists(st.tuples(st.integers(-3, 4), st.integers(0, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=5),
)
def test_any_program_of_sequences_agrees_with_numpy(steps: list[tuple[str, int, str, str]], runs: list[Any]) -> None:
    lines = ["s0 = SequenceConstruct(x, y)"]
    for number, (kind, source, tensor, position) in enumerate(steps, 1):
        lines.append(f"s{number} = " + STEPS[kind].format(f"s{source % number}", tensor, position, number))
    last = len(steps)
    lines.append(f"t = SequenceInsert(s{last}, x) r = ConcatFromSequence<axis=0>(t) n = SequenceLength(s{last // 2})")
    head = "g (float[N,2] x, float[M,2] y, int64 p, int64 m, bool f) => (float[R,2] r, int64 n)"
    text = with_constants(f"{head} {{ {' '.join(lines)} }}")
    feeds = [
        {"x": floats(size, 2), "y": floats(2, 2, seed=1), "p": np.array(p), "m": np.array(m), "f": np.array(f)}
        for p, m, f, size in runs
    ]
    assert_same_or_fails(text, feeds)
