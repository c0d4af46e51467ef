"""What runs at which level, and how it is switched on and off."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx.parser

import sardonyx
from sardonyx.optimizer import levels
from sardonyx.optimizer.pipeline import Level, Stage, optimize
from sardonyx.optimizer.rewrite import Journal
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import typed

GELU = "{ s = Div(x, root) e = Erf(s) f = Add(e, one) m = Mul(x, f) y = Mul(m, half) }"
TEXT = "g (float[N,4] x) => (float[N,4] y) <float root = {1.41421356}, float one = {1}, float half = {0.5}> " + GELU
CASTS = "g (float[N,4] x) => (float[N,4] y) { a = Cast<to=10>(x) b = Cast<to=1>(a) y = Neg(b) }"


def optimized(text, level, opset=21, disabled=(), **options):
    model = typed(text, opset)
    keys = {f"optimization.{name}": value for name, value in options.items()}
    optimize(model, level, evaluate=evaluate, disabled=disabled, options=keys, journal=Journal(strict=True))
    return Counter(node.op_id for node in model.graph.nodes)


def test_onnx_ops_come_at_the_basic_level_others_later():
    assert optimized(TEXT, Level.BASIC) == {"Gelu": 1}
    assert "Erf" in optimized(TEXT, Level.BASIC, opset=17)
    assert optimized(TEXT, Level.EXTENDED, opset=17) == {"com.microsoft::Gelu": 1}
    assert "Erf" in optimized(TEXT, Level.DISABLE_ALL)


def test_passes_and_single_rules_are_switched_off_by_name():
    assert "Erf" in optimized(TEXT, Level.ALL, disabled=["GeluFusion"])
    divided = "g (float[N] a, float[N] b) => (float[N] y) <float one = {1}> { r = Div(one, a) y = Mul(r, b) }"
    assert optimized(divided, Level.BASIC) == {"Div": 1}
    assert optimized(divided, Level.BASIC, disabled=["DivMulFusion"]) == {"Div": 1, "Mul": 1}


def test_what_changes_numbers_is_off_by_default():
    assert optimized(CASTS, Level.ALL) == {"Cast": 2, "Neg": 1}
    assert optimized(CASTS, Level.ALL, enable_cast_chain_elimination="1") == {"Neg": 1}
    assert optimized(TEXT, Level.ALL, opset=17, enable_gelu_approximation="1") == {"com.microsoft::FastGelu": 1}


def test_levels_after_the_basic_one_may_run_once():
    model = typed(TEXT, 17)
    optimize(model, Level.ALL, evaluate=evaluate, options={"session.graph_optimizations_loop_level": "0"})
    assert [node.op_id for node in model.graph.nodes] == ["com.microsoft::Gelu"]


def test_a_stage_that_raises_is_left_out_with_a_warning(monkeypatch, caplog):
    def broken(graph, rewriting):
        raise KeyError("oops")

    monkeypatch.setitem(levels.LEVELS, Level.BASIC, [Stage("BrokenPass", run=broken), *levels.LEVELS[Level.BASIC]])
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { i = Identity(x) y = Neg(i) }'
    )
    session = sardonyx.InferenceSession(model)
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(2, np.float32)})[0], [-1, -1])
    assert "EliminateIdentity at Identity 'i'" in session.explain()
    assert "optimizer stage BrokenPass failed: KeyError: 'oops'" in caplog.text
