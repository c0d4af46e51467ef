"""Rarer forms of attention: scores that are capped, scores whose shape is asked for, attention among quantized values."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.ir import Graph, Node
from tests import onnxruntime_peer
from tests.optimizer import attention_idioms as idioms
from tests.optimizer.rewriting import random_feeds, run, typed
from tests.optimizer.test_attention import LOWEST, attention, fuse, fused, ops, reasons

# --- scores that are capped

CAP = "cap = Constant<value_float=2.0>() scaled = Mul(raw, eighth) c1 = Div(scaled, cap) c2 = Tanh(c1) c3 = Mul(c2, cap) "
MASKED = ", float[N,1,S,S] bias"


def capped(graph: Graph, op_type: str) -> Node:
    assert ops(graph)["Softmax"] == ops(graph)["Tanh"] == 0
    (node,) = [node for node in graph.nodes if node.op_type == op_type]
    assert node.attribute("softcap") == pytest.approx(2.0)
    assert node.attribute("scale") == pytest.approx(0.125)
    return node


def finite_bias() -> np.ndarray:
    bias = np.where(np.random.default_rng(1).random((2, 1, 5, 5)) < 0.5, np.float32(LOWEST), np.float32(0))
    bias[0, 0, 2] = LOWEST
    return bias


KEPT = f"{CAP} hidden = Where(keep, zero, lowest) s = Add(c3, hidden)", ", bool[N,1,S,S] keep"


@pytest.mark.parametrize("opset", [18, 23])
def test_capped_scores(opset):
    graph = fused(idioms.self_attention(*KEPT), opset=opset, keep=finite_bias() == 0)
    node = capped(graph, "GroupQueryAttention")
    assert node.attribute("causal") == 0 and node.attribute("num_heads") == node.attribute("kv_num_heads") == 4


def test_capped_scores_that_may_all_be_hidden_stay():
    (reason,) = reasons(idioms.self_attention(f"{CAP} s = Add(c3, bias)", MASKED))
    assert "each sees one" in str(reason)


MORE_KEYS = (
    "g (float[2,4,5,8] q, float[2,4,8,6] k, float[2,4,6,8] v) => (float[2,4,5,8] y) { eighth = Constant<value_float=0.125>()"
    f" raw = MatMul(q, k) {CAP} a = Softmax<axis=-1>(c3) y = MatMul(a, v) }}"
)


def test_capped_scores_of_more_keys_than_queries():
    """GroupQueryAttention has no keys but those of the queries and a past, which onnxruntime takes for one batch only."""
    (reason,) = reasons(MORE_KEYS, 18)
    assert "as many queries as keys" in str(reason)
    model = typed(MORE_KEYS, 23)
    feeds = random_feeds(model.graph)
    want = run(model, feeds)
    fuse(model)
    capped(model.graph, "Attention")
    for got in (run(model, feeds), onnxruntime_peer.run(model, feeds)):
        assert got is not None
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


def test_capped_scores_without_a_mask():
    node = capped(fused(idioms.self_attention(f"{CAP} s = Identity(c3)"), rtol=2e-5), "GroupQueryAttention")
    assert len(node.inputs) == 7


def test_factors_after_the_cap_belong_to_it():
    scores = (
        "half = Constant<value_float=0.5>() four = Constant<value_float=4.0>() quarter = Mul(raw, eighth) c1 = Mul(quarter, half)"
        " c2 = Tanh(c1) c3 = Mul(c2, four) hidden = Where(keep, zero, one) c4 = Add(c3, hidden) s = Mul(c4, half)"
    )
    capped(fused(idioms.self_attention(scores, ", bool[N,1,S,S] keep")), "GroupQueryAttention")


@pytest.mark.parametrize(
    "scores",
    [
        "m = Add(raw, bias) c1 = Tanh(m) s = Mul(c1, eighth)",
        "c1 = Tanh(raw) c2 = Tanh(c1) s = Mul(c2, eighth)",
        "c1 = Tanh(raw) c2 = Mul(c1, eighth) s = Mul(c2, lowest)",
    ],
    ids=["a mask before", "twice", "below zero"],
)
def test_what_is_no_cap_stays(scores):
    (reason,) = reasons(idioms.self_attention(scores, MASKED))
    assert "capped" in str(reason)


def test_a_capped_model_runs_in_onnxruntime():
    model = typed(idioms.self_attention(*KEPT), 18)
    feeds = {**random_feeds(model.graph), "keep": finite_bias() == 0}
    want = run(model, feeds)
    fuse(model)
    got = onnxruntime_peer.run(model, feeds)
    assert got is not None
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


# --- shapes of scores


@pytest.mark.parametrize("asked", ["raw", "a"])
def test_operands_tell_the_shape_of_scores(asked):
    """As the older exporter writes it for DeBERTa: sizes are read from scores and weights."""
    text = idioms.self_attention(idioms.SCALED).replace("=> (float[N,S,32] y)", "=> (float[N,S,32] y, int64[4] sizes)")
    graph = fused(text.replace("o = MatMul(a, v)", f"sizes = Shape({asked}) o = MatMul(a, v)"))
    assert attention(graph).op_type == "MultiHeadAttention"
    assert ops(graph)["MatMul"] == 3  # the projections


HEADS_JOINED = (
    "g (float[B,S,8] q, float[B,8,T] k, float[B,T,8] v) => (float[B,S,8] y, int64[4] sizes) { apart = Constant<value_ints=[-1,4,5,6]>()"
    " joined = Constant<value_ints=[-1,5,6]>() raw = MatMul(q, k) r = Reshape(raw, apart) a = Softmax<axis=-1>(r)"
    " sizes = Shape(a) w = Reshape(a, joined) y = MatMul(w, v) }"
)


def test_operands_tell_the_shape_of_scores_whose_heads_are_set_apart():
    graph = fused(HEADS_JOINED.replace("B,", "8,").replace("S,", "5,").replace("T", "6"))
    assert ops(graph)["Softmax"] == 0


def test_operands_tell_the_shape_of_scores_whose_heads_are_joined():
    text = (
        "g (float[2,4,5,8] q, float[2,4,8,6] k, float[2,4,6,8] v) => (float[2,4,5,8] y, int64[3] sizes) {"
        " joined = Constant<value_ints=[-1,5,6]>() apart = Constant<value_ints=[-1,4,5,6]>() raw = MatMul(q, k) r = Reshape(raw, joined)"
        " a = Softmax<axis=-1>(r) sizes = Shape(r) w = Reshape(a, apart) y = MatMul(w, v) }"
    )
    assert ops(fused(text))["Softmax"] == 0


def test_scores_that_are_used_as_numbers_stay():
    text = idioms.self_attention(idioms.SCALED).replace("=> (float[N,S,32] y)", "=> (float[N,S,32] y, float[N,4,S,S] more)")
    assert reasons(text.replace("o = MatMul(a, v)", "more = Exp(s) o = MatMul(a, v)")) == []


# --- quantized


def test_an_attention_with_quantization_inside_stays():
    """Rounding between softmax and product is part of the model; a fused op would skip it."""
    quantized = "sa = Constant<value_float=0.00392>() za = Constant<value = uint8 {0}>() "
    text = idioms.self_attention(idioms.SCALED, before=quantized)
    inside = "aq = QuantizeLinear(a, sa, za) ad = DequantizeLinear(aq, sa, za) o = MatMul(ad, v)"
    assert reasons(text.replace("o = MatMul(a, v)", inside)) == []


def test_an_attention_between_quantizations_is_fused():
    quantized = (
        "sx = Constant<value_float=0.03>() zx = Constant<value = int8 {0}>() "
        "xq = QuantizeLinear(f, sx, zx) x = DequantizeLinear(xq, sx, zx) "
    )
    text = idioms.self_attention(idioms.SCALED, before=quantized).replace("float[N,S,32] x", "float[N,S,32] f")
    attention(fused(text))
