"""If, Loop and Scan inside of programs: they agree with NumPy's provider for open and closed sizes, any number of turns, and nested."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import CPUExecutionProvider, assert_agrees, compare, model_of, native_plan, programs
from tests.providers.native.test_random_loops import without_names

CONSTANTS = (
    "<bool yes = {1}, bool no = {0}, float half = {0.5}, float zero = {0}, int64 two = {2}, int64 one = {1}, int64 none = {0}>"
)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sized(text: str, sizes: Mapping[str, int], closed: frozenset[str]) -> str:
    """A model's text with some of its sizes as numbers."""
    for name in closed:
        text = text.replace(f"<{name}>", str(sizes[name]))
    text = text.replace("<N>", "N").replace("<K>", "K").replace("<T>", "T")
    return text.replace(") {", f") {CONSTANTS} {{", 1)


def every_closing(sizes: Mapping[str, int]) -> list[frozenset[str]]:
    return [frozenset(names) for count in range(len(sizes) + 1) for names in itertools.combinations(sizes, count)]


# --- If

IF = {
    "reads a chain before": """g (bool c, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        z = Relu(x)
        w = If(c) <then_branch = t () => (float[A,B] a) { a0 = Add(z, x) a = Exp(a0) },
                   else_branch = e () => (float[C,D] b) { b = Neg(x) }>
        y = Mul(w, z) }""",
    "gives on what is outside": """g (bool c, float[<N>,<K>] x) => (float[<N>,<K>] y, float[<N>,<K>] u) {
        z = Exp(x)
        y, u = If(c) <then_branch = t () => (float[A,B] a, float[A,B] a1) { a = Identity(z) a1 = Identity(x) },
                      else_branch = e () => (float[C,D] b, float[C,D] b1) { b = Identity(x) b1 = Neg(b) }> }""",
    "is the last": """g (bool c, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        y = If(c) <then_branch = t () => (float[A,B] a) { a = Softmax(x) }, else_branch = e () => (float[C,D] b) { b = Tanh(x) }> }""",
    "is decided by data": """g (bool c, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        s = ReduceSum<keepdims=0>(x) d = Greater(s, zero) f = Xor(c, d)
        y = If(f) <then_branch = t () => (float[A,B] a) { h = Transpose<perm=[1,0]>(x) i = Exp(h) a = Transpose<perm=[1,0]>(i) },
                   else_branch = e () => (float[C,D] b) { b = Tanh(x) }> }""",
    "stands in another": """g (bool c, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        z = Relu(x) d = Not(c)
        y = If(c) <then_branch = t () => (float[A,B] a) {
                a1 = Exp(z)
                a = If(d) <then_branch = tt () => (float[E,F] p) { p = Add(a1, x) },
                    else_branch = te () => (float[G,H] q) { q = Mul(a1, z) }> },
            else_branch = e () => (float[C,D] b) {
                b = If(d) <then_branch = et () => (float[E,F] p) { p = Sub(z, x) },
                    else_branch = ee () => (float[G,H] q) { q = Identity(x) }> }> }""",
    "copies a view on the way": """g (bool c, float[<N>,<K>] x) => (float[<N>,<K>] y, float[<K>,<N>] v) {
        v0 = Exp(x) v = Transpose<perm=[1,0]>(v0)
        w = If(c) <then_branch = t () => (float[A,B] a) { r = ReduceSum<keepdims=0>(v) a = Mul(r, x) },
                   else_branch = e () => (float[C,D] b) { b = Neg(x) }>
        t = Transpose<perm=[1,0]>(v) y = Add(w, t) }""",
}


@pytest.mark.parametrize("name", IF)
def test_branches_agree_with_numpy(name: str) -> None:
    sizes = {"N": 3, "K": 5}
    for closed in every_closing(sizes):
        shapes = [(3, 5)] + [(n, k) for n, k in [(1, 1), (0, 4), (7, 0), (70, 33)] if not closed]
        feeds = [{"c": np.array(c), "x": floats(*shape)} for shape in shapes for c in (True, False)]
        assert_agrees(sized(IF[name], sizes, closed), feeds)


def test_a_branch_that_is_not_taken_finds_no_fault_in_data() -> None:
    text = """g (bool c, float[N] x, int64[1] i) => (float[1] y) {
        y = If(c) <then_branch = t () => (float[1] a) { a = Gather(x, i) }, else_branch = e () => (float[1] b) { b = Cast<to=1>(i) }> }"""
    far = {"x": floats(4), "i": np.array([9])}
    plan = native_plan(text)
    assert [step.compiled for step in plan.steps] == [True]
    assert execute(plan, {"c": np.array(False), **far})[0] == [9]
    with pytest.raises(Exception, match=r"(?s)Gather.*9"):
        execute(plan, {"c": np.array(True), **far})


def test_a_condition_of_many_elements_is_refused_as_numpy_does() -> None:
    text = """g (bool[N] c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] a) { a = Exp(x) }, else_branch = e () => (float[2] b) { b = Neg(x) }> }"""
    assert_agrees(text, [{"c": np.array([flag]), "x": floats(2)} for flag in (True, False)])
    with pytest.raises(Exception, match="one element"):
        execute(native_plan(text), {"c": np.array([True, True]), "x": floats(2)})


# --- Loop

LOOP = {
    "counts": """g (int64 m, bool go, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,B] s) => (bool d, float[A,B] t) {
            d = Identity(c) f = Cast<to=1>(i) g = Add(s, f) t = Tanh(g) }> }""",
    "swaps its state": """g (int64 m, bool go, float[<N>,<K>] x) => (float[<N>,<K>] y, float[<N>,<K>] z) {
        n = Neg(x)
        y, z = Loop(m, go, x, n) <body = b (int64 i, bool c, float[A,B] s, float[A,B] t) => (bool d, float[A,B] t1, float[A,B] s1) {
            d = Identity(c) t1 = Identity(t) s1 = Identity(s) }> }""",
    "ends early": """g (int64 m, bool go, float[<N>,<K>] x) => (float[<N>,<K>] y, int64 turns) {
        y, turns = Loop(m, go, x, two) <body = b (int64 i, bool c, float[A,B] s, int64 k) => (bool d, float[A,B] t, int64 l) {
            t = Add(s, half) l = Identity(i) d = Less(i, two) }> }""",
    "asks by data alone": """g (int64 m, bool go, float[<N>,<K>] x) => (float[<N>,<K>] y, int64 n) {
        y, n = Loop(, go, x, m) <body = b (int64 i, bool c, float[A,B] s, int64 k) => (bool d, float[A,B] t, int64 l) {
            t = Mul(s, half) l = Sub(k, one) d = Greater(l, none) }> }""",
    "is nested": """g (int64 m, bool go, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        e = Exp(x)
        y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,B] s) => (bool c, float[A,B] t) {
            h = Mul(s, half)
            t = Loop(i, c, h) <body = bb (int64 j, bool cc, float[C,D] u) => (bool cc, float[C,D] v) {
                f = Cast<to=1>(j) w = Add(u, f) w1 = Add(w, e) v = Tanh(w1) }> }> }""",
    "has branches": """g (int64 m, bool go, float[<N>,<K>] x) => (float[<N>,<K>] y) {
        y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,B] s) => (bool c, float[A,B] t) {
            r = Mod(i, two) odd = Cast<to=9>(r)
            t = If(odd) <then_branch = o () => (float[C,D] p) { p = Add(s, x) },
                else_branch = e () => (float[E,F] q) { q = Mul(s, half) }> }> }""",
    "transposes its state": """g (int64 m, bool go, float[<K>,<K>] x) => (float[<K>,<K>] y) {
        y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,A] s) => (bool c, float[A,A] t) {
            t = Transpose<perm=[1,0]>(s) }> }""",
    "multiplies": """g (int64 m, bool go, float[<K>,<K>] x) => (float[<K>,<K>] y) {
        w = Softmax(x)
        y = Loop(m, go, x) <body = b (int64 i, bool c, float[A,A] s) => (bool c, float[A,A] t) {
            p = MatMul(s, w) t = Add(p, x) }> }""",
}


@pytest.mark.parametrize("name", LOOP)
def test_loops_agree_with_numpy(name: str) -> None:
    sizes = {"N": 3, "K": 4}
    square = "<N>" not in LOOP[name]
    for closed in every_closing(sizes):
        shapes = [(3, 4)] + [(n, k) for n, k in [(1, 1), (5, 0), (40, 37)] if not closed]
        feeds = [
            {"m": np.array(m), "go": np.array(go), "x": floats(k if square else n, k)}
            for n, k in shapes
            for m, go in [(3, True), (1, True), (0, True), (-2, True), (5, False), (6, True)]
        ]
        assert_agrees(sized(LOOP[name], sizes, closed), feeds)


def test_what_turns_give_is_collected() -> None:
    text = """g (float[N,K] x) => (float[K] y, float[T,K] rows, int64[T] numbers, float[T] sums) <bool yes = {1}, int64 zero = {0}> {
        n = Shape<start=0, end=1>(x) m = Squeeze(n)
        first = Gather(x, zero) h = Sub(first, first)
        y, rows, numbers, sums = Loop(m, yes, h) <body = b (int64 i, bool c, float[A] s)
            => (bool c, float[A] t, float[A] u, int64 i2, float v) {
            r = Gather(x, i) t = Add(s, r) u = Exp(t) i2 = Identity(i) v = ReduceSum<keepdims=0>(t) }> }"""
    assert_agrees(text, [{"x": floats(n, k)} for n, k in [(1, 3), (4, 3), (300, 1), (2, 0)]])


def test_what_was_collected_stays_while_others_are_computed() -> None:
    text = """g (float[N,K] x, float[K] h) => (float[K] y, float[N] z) <bool yes = {1}, int64[1] second = {1}> {
        n = Shape<start=0, end=1>(x) m = Squeeze(n)
        y, rows = Loop(m, yes, h) <body = b (int64 i, bool c, float[A] s) => (bool c, float[A] t, float[A] u) {
            r = Gather(x, i) e = Softmax(r) p = Add(s, e) q = Softmax(p) t = Tanh(q) u = Exp(t) }>
        z = ReduceSum<keepdims=0>(rows, second) }"""
    assert_agrees(text, [{"x": floats(n, k), "h": floats(k, seed=1)} for n, k in [(1, 3), (4, 3), (9, 40)]])


def test_a_loop_without_turns_collects_nothing() -> None:
    text = """g (int64 m, float[N] x) => (float[N] y, float[T,N] rows) <bool yes = {1}> {
        y, rows = Loop(m, yes, x) <body = b (int64 i, bool c, float[A] s)
            => (bool c, float[A] t, float[A] u) { t = Exp(s) u = Neg(s) }> }"""
    reference = make_plan(model_of(text).graph, [CPUExecutionProvider()])
    plan = native_plan(text)
    for turns in (0, -3, 2):
        feeds = {"m": np.array(turns), "x": floats(4)}
        compare(execute(plan, feeds), execute(reference, feeds))


def test_a_fault_inside_of_a_loop_names_its_node() -> None:
    text = """g (int64 m, float[N] x) => (float[1] y) <bool yes = {1}, int64[1] first = {0}> {
        s0 = Gather(x, first)
        y = Loop(m, yes, s0) <body = b (int64 i, bool c, float[1] s) => (bool c, float[1] t) {
            k = Unsqueeze(i, first) r = Gather(x, k) t = Add(s, r) }> }"""
    plan = native_plan(text)
    assert [step.compiled for step in plan.steps] == [True]
    assert execute(plan, {"m": np.array(4), "x": np.ones(4, np.float32)})[0] == [5]
    with pytest.raises(Exception, match=r"(?s)Gather.*Loop|Loop.*Gather"):
        execute(plan, {"m": np.array(5), "x": np.ones(4, np.float32)})


# --- Scan

SCAN = {
    "forward": "num_scan_inputs = 1",
    "backward": "num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1, 0]",
    "other axes": "num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1, -1]",
    "other axes backward": "num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [1, 0], scan_output_directions = [0, 1]",
}


@pytest.mark.parametrize("name", SCAN)
def test_scans_agree_with_numpy(name: str) -> None:
    sizes = {"T": 4, "K": 5}
    for closed in every_closing(sizes):
        turned = "axes" in name
        shape, second = ("<K>,<T>", "<K>,<T>") if turned else ("<T>,<K>", "<T>,<K>")
        third = "<K>,<T>" if name == "other axes" else "<T>,<K>"
        text = f"""g (float[<K>] s0, float[{shape}] x) => (float[<K>] s, float[{second}] y, float[{third}] z) {{
            s, y, z = Scan<{SCAN[name]}, body = b (float[A] a, float[A] r) => (float[A] a2, float[A] o, float[A] p) {{
                a2 = Add(a, r) o = Tanh(a2) p = Mul(r, r) }}>(s0, x) }}"""
        pairs = [(4, 5)] + [(t, k) for t, k in [(1, 1), (3, 0), (130, 3)] if not closed]
        feeds = [{"s0": floats(k), "x": floats(*((k, t) if turned else (t, k)), seed=1)} for t, k in pairs]
        assert_agrees(sized(text, sizes, closed), feeds)


def test_scans_over_several_inputs_and_matrices_agree() -> None:
    text = """g (float[B,H] h, float[T,B,H] x, float[B,T,H] z, float[H,H] w) => (float[B,H] s, float[B,T,H] y) {
        s, y = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1], scan_output_axes = [1],
            body = b (float[E,F] a, float[E,F] r, float[E,F] q)
            => (float[E,F] a2, float[E,F] o) { p = MatMul(a, w) u = Add(p, r) v = Mul(u, q) a2 = Tanh(v) o = Softmax(a2) }>(h, x, z) }"""
    feeds = [
        {"h": floats(b, k), "x": floats(t, b, k, seed=1), "z": floats(b, t, k, seed=2), "w": floats(k, k, seed=3) / (4 * k)}
        for t, b, k in [(5, 2, 3), (1, 1, 8), (40, 3, 17)]
    ]
    assert_agrees(text, feeds)


def test_lengths_that_differ_are_refused_as_numpy_does() -> None:
    text = """g (float[B] h, float[T,B] x, float[U,B] z) => (float[B] s) {
        s = Scan<num_scan_inputs = 2, body = b (float[A] a, float[A] r, float[A] q)
            => (float[A] a2) { p = Add(a, r) a2 = Mul(p, q) }>(h, x, z) }"""
    plan = native_plan(text)
    with pytest.raises(Exception, match="lengths"):
        execute(plan, {"h": floats(2), "x": floats(3, 2), "z": floats(4, 2)})


# --- rows of which no shape tells the sizes

CELL = """g (float[B,T,D] x, float[B2,H] h, float[D2,H2] w, float[H3,H4] u) => (float[B3,H5] last, float[T2,B4,H6] rows, float[T3] sums)
    <int64[1] zero = {0}> {
    xt = Transpose<perm = [1, 0, 2]>(x)
    last, rows, sums = Scan<num_scan_inputs = 1, body = b (float[p,q] s, float[r,d] e)
        => (float[p2,q2] s2, float[p3,q3] o, float v) {
        m = MatMul(e, w) n = MatMul(s, u) a = Add(m, n) s2 = Tanh(a) o = Exp(s2) v = ReduceSum<keepdims = 0>(o) }>(h, xt) }"""
DECODER = """g (float[B,H,T,D] k, float[B2,H2,one,D2] q, int64 n)
    => (float[B3,H3,T2,D3] all, float[N,B4,H4,one2,D4] rows) <bool yes = {1}> {
    all, rows = Loop(n, yes, k) <body = b (int64 i, bool c, float[b,h,t,d] s) => (bool c2, float[b2,h2,t2,d2] s2, float[b3,h3,o,d3] y) {
        c2 = Identity(c) kt = Transpose<perm = [0, 1, 3, 2]>(s) a = MatMul(q, kt) p = Softmax(a)
        y = MatMul(p, s) s2 = Concat<axis = 2>(s, y) }> }"""
CUTS = """g (float[N,K] x, int64[M] ends, int64[M] begins) => (float[R,L,K2] rows) <int64[1] zero = {0}> {
    rows = Scan<num_scan_inputs = 2, body = b (int64 begin, int64 end) => (float[l,k] part) {
        b1 = Unsqueeze(begin, zero) e1 = Unsqueeze(end, zero) part = Slice(x, b1, e1) }>(begins, ends) }"""


def cell_feeds(b: int, t: int, d: int, h: int) -> dict[str, np.ndarray]:
    return {"x": floats(b, t, d), "h": floats(b, h, seed=1), "w": floats(d, h, seed=2) / d, "u": floats(h, h, seed=3) / (4 * h)}


def open_model(text: str, named: bool) -> onnx.ModelProto:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text)
    if not named:
        without_names(model.graph)
    return model


@pytest.mark.parametrize("named", [True, False])
def test_rows_have_the_sizes_that_the_first_turn_gives_them(named: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert_agrees(open_model(CELL, named), [cell_feeds(*sizes) for sizes in [(2, 5, 3, 4), (1, 1, 1, 1), (3, 40, 2, 17)]])
    feeds = [
        {"k": floats(b, h, t, d), "q": floats(b, h, 1, d, seed=1), "n": np.array(n)}
        for b, h, t, d, n in [(2, 3, 4, 8, 3), (1, 1, 1, 1, 1), (1, 2, 3, 5, 60)]
    ]
    assert_agrees(open_model(DECODER, named), feeds)
    assert "NumPy computes" not in caplog.text


def test_rows_of_several_sizes_are_refused_as_numpy_does(caplog: pytest.LogCaptureFixture) -> None:
    ends, x = np.array([2, 5, 7]), floats(9, 3)
    assert_agrees(open_model(CUTS, named=False), [{"x": x, "ends": ends, "begins": ends - size} for size in (2, 1, 0)])
    assert "NumPy computes" not in caplog.text
    plan = native_plan(open_model(CUTS, named=False))
    for begins in ([0, 4, 5], [1, 3, 5], [0, 3, 4]):
        with pytest.raises(Exception, match="Scan"):
            execute(plan, {"x": x, "ends": ends, "begins": np.array(begins)})


# --- sessions


def test_threads_may_run_a_loop_at_once() -> None:
    text = sized(LOOP["has branches"], {}, frozenset())
    plan = native_plan(text, threads=2)
    reference = make_plan(model_of(text).graph, [CPUExecutionProvider()])
    feeds = [{"m": np.array(m), "go": np.array(True), "x": floats(m, 50, seed=m)} for m in range(1, 9)]
    wanted = [execute(reference, one) for one in feeds]
    with ThreadPoolExecutor(4) as workers:
        for _ in range(5):
            for got, expected in zip(workers.map(lambda one: execute(plan, one), feeds), wanted):
                compare(got, expected)


def test_a_loop_is_profiled() -> None:
    text = sized(LOOP["counts"], {}, frozenset())
    plan = native_plan(text)
    (program,) = programs(plan)
    feeds = {"m": np.array(6), "go": np.array(True), "x": floats(3, 4)}
    outputs, times = program.run_timed([feeds[value.name] for value in program.program.inputs])
    compare(outputs, execute(plan, feeds))
    assert len(times) == len(program.program.steps) and all(one.seconds >= 0 for one in times)


def test_sessions_show_that_nothing_is_left_to_numpy() -> None:
    text = sized(LOOP["is nested"], {}, frozenset())
    session = sardonyx.InferenceSession(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    assert [step.compiled for step in session._sess.plan.steps] == [True]
