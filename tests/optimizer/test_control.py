"""An If whose condition is constant."""

from __future__ import annotations

import pytest

from sardonyx.ir import verify
from sardonyx.optimizer.passes.control import inline_taken_branches
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, random_feeds, run, typed

HEAD = "g (float[N] x) => (float[N] y) "
THEN = "then_branch = t () => (float[N] a) <float w = {2}> { h = Mul(x, w) a = Neg(h) }"
ELSE = "else_branch = e () => (float[N] b) { b = Identity(x) }"


@pytest.mark.parametrize(
    ("condition", "after"),
    [("1", "<float w = {2}> { h = Mul(x, w) a = Neg(h) y = Abs(a) }"), ("0", "{ i = Identity(x) y = Abs(i) }")],
)
def test_the_taken_branch_takes_the_place(condition, after):
    text = HEAD + f"<bool c = {{{condition}}}> {{ z = If <{THEN}, {ELSE}> (c) y = Abs(z) }}"
    assert_rewrites(inline_taken_branches, text, HEAD + after)


def test_a_computed_condition_stays():
    text = f"g (float[N] x, bool c) => (float[N] y) {{ y = If <{THEN}, {ELSE}> (c) }}"
    assert_rewrites(inline_taken_branches, text, None)


def test_a_branch_that_gives_an_outer_value():
    branches = "then_branch = t () => (float[N] a) { a = Identity(x) }, else_branch = e () => (float[N] a) { a = Neg(x) }"
    text = HEAD + f"<bool c = {{1}}> {{ y = If <{branches}> (c) }}"
    assert_rewrites(inline_taken_branches, text, HEAD + "{ y = Identity(x) }")


def test_branches_inside_branches_and_equal_names():
    inner = f"z = If <{THEN.replace('t (', 'u (')}, {ELSE.replace('e (', 'f (')}> (c)"
    outer = f"then_branch = t () => (float[N] z) {{ {inner} }}, else_branch = e () => (float[N] z) {{ z = Neg(x) }}"
    nodes = f"p = If <{outer}> (c) h = Abs(x) a = Sqrt(h) q = If <{THEN}, {ELSE}> (c) r = Add(p, q) y = Add(r, a)"
    text = HEAD + f"<bool c = {{1}}> {{ {nodes} }}"
    model = typed(text)
    feeds = random_feeds(model.graph)
    (want,) = run(model, feeds)
    optimize(model, Level.BASIC, evaluate=evaluate)
    verify.verify(model)
    assert "If" not in [node.op_type for node in model.graph.all_nodes()]
    assert run(model, feeds)[0] == pytest.approx(want)


def test_several_outputs_and_one_that_nobody_wants():
    branches = (
        "then_branch = t () => (float[N] a, float[N] b) { a = Neg(x) b = Abs(x) },"
        "else_branch = e () => (float[N] a, float[N] b) { a = Abs(x) b = Neg(x) }"
    )
    text = HEAD + f"<bool c = {{0}}> {{ p, q = If <{branches}> (c) y = Exp(q) }}"
    assert_rewrites(inline_taken_branches, text, HEAD + "{ q = Neg(x) y = Exp(q) }")
