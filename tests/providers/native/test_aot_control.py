"""Models with control flow, compiled ahead of time: clusters before, inside and behind it, and what bodies read from outside.

A grid: what is computed before, times the control flow that reads it, times what comes behind.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sardonyx
from sardonyx.ir import dim
from sardonyx.providers.native.program.size_terms import dim_of, summed, terms_of
from tests.providers.native.aot_models import check, compile_model, is_used, options, same, write

CONSTANTS = """<float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float zero = {0}, int64 two = {2}, bool yes = {1},
    int64[1] start = {1}, int64[1] end = {9}, int64[1] axis = {0}, int64[1] one = {1}, int64[2] sizes = {1, 2}>"""

BEFORE = {
    "nothing": "a = Identity(x)",
    "chain": "b = Exp(x) a = Tanh(b)",
    "product": "b = MatMul(x, w) a = Relu(b)",
    "slice": "a = Slice(x, start, end, axis)",
    "slice by a size": "n = Shape(x) f = Slice(n, axis, one) a = Slice(x, start, f, axis)",
    "slice by an input": "a = Slice(x, k, end, axis)",
    "slice after a chain": "b = Exp(x) c = Tanh(b) a = Slice(c, start, end, axis)",
    "split": "b, c = Split<axis=1>(x, sizes) a = Concat<axis=1>(c, b)",
    "transpose": "b = Transpose<perm=[1, 0]>(x) c = Exp(b) a = Transpose<perm=[1, 0]>(c)",
    "of data's size": "r = ReduceSum<keepdims=0>(x, one) p = Greater(r, zero) b = Compress<axis=0>(x, p) a = Exp(b)",
}
"""What makes `a`, float[M, 3]."""

CONTROL = {
    "if reads": """t = If(flag) <then_branch = yes () => (float[A, 3] p) { p0 = Exp(a) p = Tanh(p0) },
        else_branch = no () => (float[B, 3] q) { q = Neg(a) }>""",
    "if gives on": """t = If(flag) <then_branch = yes () => (float[A, 3] p) { p = Identity(a) },
        else_branch = no () => (float[B, 3] q) { q = Exp(x) }>""",
    "if reads an input": """t = If(flag) <then_branch = yes () => (float[A, 3] p) { p = Identity(w) },
        else_branch = no () => (float[B, 3] q) { q0 = Exp(x) q = Tanh(q0) }>""",
    "if slices": """t = If(flag) <then_branch = yes () => (float[A, 3] p) { p = Slice(a, start, end, axis) },
        else_branch = no () => (float[B, 3] q) { q0 = Slice(a, axis, one, axis) q = Exp(q0) }>""",
    "if decided by a cluster": """s = ReduceSum<keepdims=0>(a) cc = Greater(s, zero)
        t = If(cc) <then_branch = yes () => (float[A, 3] p) { p = Exp(a) }, else_branch = no () => (float[B, 3] q) { q = Neg(a) }>""",
    "if decided by a size": """m = Shape(a) m0 = Gather<axis=0>(m, two0) cc = Greater(m0, two)
        t = If(cc) <then_branch = yes () => (float[A, 3] p) { p = Exp(a) }, else_branch = no () => (float[B, 3] q) { q = Neg(a) }>""",
    "if in if": """t = If(flag) <then_branch = yes () => (float[A, 3] p) {
            p1 = Exp(a)
            p = If(flag) <then_branch = deep () => (float[D, 3] u) { u0 = Add(p1, a) u = Tanh(u0) },
                else_branch = deeper () => (float[E, 3] v) { v = Neg(a) }> },
        else_branch = no () => (float[B, 3] q) { q = Neg(a) }>""",
    "loop": """t = Loop(two, yes, a) <body = step (int64 i, bool go, float[V, 3] s) => (bool on, float[W, 3] r) {
            on = Identity(go) r0 = Exp(s) r1 = Add(r0, a) r = Tanh(r1) }>""",
    "loop of sequences": """e = SequenceConstruct(a)
        z = Loop(two, yes, e) <body = step (int64 i, bool go, seq(float[V, 3]) s) => (bool on, seq(float[W, 3]) r) {
            on = Identity(go) h = Exp(a) r = SequenceInsert(s, h) }>
        l = SequenceErase(z, two) t = ConcatFromSequence<axis=0>(l)""",
    "map": """e = SplitToSequence<axis=0>(a, two)
        z = SequenceMap(e) <body = step (float[V, 3] s) => (float[V, 3] r) { r0 = Exp(s) r = Tanh(r0) }>
        l = SequenceInsert(z, a) t = ConcatFromSequence<axis=0>(l)""",
    "loop that reads only": """t = Loop(two, yes, x) <body = step (int64 i, bool go, float[V, 3] s) => (bool on, float[W, 3] r) {
            on = Identity(go) m0 = ReduceMax<keepdims=1>(a) r0 = Mul(s, m0) r = Tanh(r0) }>""",
    "loop with an if": """t = Loop(two, yes, a) <body = step (int64 i, bool go, float[V, 3] s) => (bool on, float[W, 3] r) {
            on = Identity(go) h = Exp(a)
            r = If(go) <then_branch = yes () => (float[A, 3] p) { p0 = Add(s, h) p = Tanh(p0) },
                else_branch = no () => (float[B, 3] q) { q = Identity(a) }> }>""",
    "loop in a loop": """t = Loop(two, yes, a) <body = step (int64 i, bool go, float[V, 3] s) => (bool on, float[W, 3] r) {
            on = Identity(go) h = Exp(s)
            r = Loop(two, go, s) <body = inner (int64 j, bool go2, float[V2, 3] s2) => (bool on2, float[W2, 3] r2) {
                on2 = Identity(go2) r3 = Add(s2, h) r4 = Mul(r3, a) r2 = Tanh(r4) }> }>""",
    "loop that collects": """l, u = Loop(two, yes, a) <
            body = step (int64 i, bool go, float[V, 3] s) => (bool on, float[W, 3] r, float[3] c) {
            on = Identity(go) r0 = Exp(s) r = Tanh(r0) c0 = ReduceSum<keepdims=0>(r, axis) c = Add(c0, c0) }>
        t = Concat<axis=0>(l, u)""",
    "scan": """l, t = Scan<num_scan_inputs=1, body = step (float[3] s, float[3] e) => (float[3] r, float[3] c) {
            r0 = Add(s, e) r = Tanh(r0) c0 = Mul(r, row) c = Exp(c0) }>(row, a)""",
    "scan with an if": """l, t = Scan<num_scan_inputs=1, body = step (float[3] s, float[3] e) => (float[3] r, float[3] c) {
            r = Add(s, e)
            c = If(flag) <then_branch = yes () => (float[3] p) { p0 = ReduceMax<keepdims=0>(a, axis) p = Add(p0, e) },
                else_branch = no () => (float[3] q) { q = Neg(e) }> }>(row, a)""",
}
"""What makes `t`, float[T, 3], of `a`."""

BEHIND = {
    "nothing": "y = Identity(t)",
    "chain": "z0 = Exp(t) y = Tanh(z0)",
    "both": "z0 = ReduceMax<keepdims=1>(a) z1 = Exp(t) y = Add(z1, z0)",
}

TEXT = """
g (float[N, 3] x, bool flag, int64[1] k) => (float[Y, 3] y{more})
{constants}
{{ two0 = Constant<value_int=0>() row = ReduceSum<keepdims=0>(w, axis) {before} {control} {behind} }}
"""


def feeds(flag: bool) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    return {"x": x, "flag": np.array(flag), "k": np.int64([2])}


def text(before: str, control: str, behind: str, is_output: bool) -> str:
    more = ", float[Z, 3] a" if is_output else ""
    return TEXT.format(more=more, constants=CONSTANTS, before=BEFORE[before], control=CONTROL[control], behind=BEHIND[behind])


@pytest.mark.parametrize("control", CONTROL)
@pytest.mark.parametrize("before", BEFORE)
def test_control_flow_beside_clusters_is_compiled(before: str, control: str, tmp_path: Path) -> None:
    for behind, is_output in (("nothing", False), ("chain", True), ("both", False)):
        path = write(tmp_path / "model.onnx", text(before, control, behind, is_output))
        check(path, feeds(True), feeds(False), embed=is_output)


@pytest.mark.parametrize("control", CONTROL)
def test_control_flow_is_compiled_in_the_ort_format_and_by_session_options(control: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", text("slice after a chain", control, "both", False))
    expected = sardonyx.InferenceSession(path).run(None, feeds(True))
    by_options = tmp_path / "by_options.onnx"
    entries = {"ep__context_enable": "1", "ep__context_file_path": str(by_options)}
    sardonyx.InferenceSession(path, options(allow=False, **entries))
    for target in (compile_model(path, target=tmp_path / "model_ctx.ort"), by_options):
        session = sardonyx.InferenceSession(target, options())
        assert is_used(session)
        same(session.run(None, feeds(True)), expected)


def test_forms_are_summed() -> None:
    n, m = dim.symbol("n"), dim.symbol("m")
    parts = [n * m + 2, 3, dim.maximum(n - 1, 0) * 4, n * m * 2, dim.maximum(n - 1, 0)]
    numbers = {"n": 0, "m": 1}
    assert dim_of(summed(terms_of(part, numbers, {}) for part in parts), list(numbers)) == sum(parts[1:], start=parts[0])
    assert summed([0, 0]) == 0
