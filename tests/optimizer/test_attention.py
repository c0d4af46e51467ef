"""Attention fusion: what exporters write becomes one op, computes the same, and is left alone where that is not certain."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sardonyx.ir import Graph, Model, Node, edit, verify
from sardonyx.optimizer.passes.attention import fuse_attention
from sardonyx.optimizer.passes.attention_masks import causal_offset
from sardonyx.optimizer.passes.constants import fold_constants
from sardonyx.optimizer.passes.rotary import fuse_rotary_embeddings
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from tests import onnxruntime_peer
from tests.optimizer import attention_idioms as idioms
from tests.optimizer.rewriting import random_feeds, run, typed

LOWEST = float(np.finfo(np.float32).min)


def fuse(model: Model) -> Journal:
    """The passes that attention needs, alone."""
    journal = Journal(strict=True)
    rewriting = Rewriting(model, evaluate, {}, journal)
    fold_constants(model.graph, rewriting)
    fuse_rotary_embeddings(model.graph, rewriting)
    fuse_attention(model.graph, rewriting)
    verify.verify(model)
    return journal


def fused(text: str, *, opset: int = 18, feeds: dict[str, Any] | None = None, rtol: float = 1e-5, **changed: Any) -> Graph:
    """A graph after fusion, which computes what it did before; `changed` are feeds that are not random."""
    model = typed(text, opset)
    feeds = {**random_feeds(model.graph), **(feeds or {}), **changed}
    before = run(model, feeds)
    fuse(model)
    for got, want in zip(run(model, feeds), before, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.nanmax(np.abs(want), initial=1e-30))
    return model.graph


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes)


def attention(graph: Graph) -> Node:
    """The one attention op of a graph, in which no softmax is left."""
    assert ops(graph)["Softmax"] == 0
    (node,) = [node for node in graph.nodes if node.op_type in ("MultiHeadAttention", "Attention")]
    return node


def reasons(text: str, opset: int = 18) -> list[str | None]:
    """Why an attention is not fused."""
    model = typed(text, opset)
    journal = fuse(model)
    assert ops(model.graph)["Softmax"] == 1
    return [event.reason for event in journal.events if event.rule == "AttentionFusion"]


# --- exporters' idioms


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_bert_of_the_older_exporter(opset):
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])  # the second row is masked altogether
    graph = fused(idioms.bert(), opset=opset, mask=mask)
    node = attention(graph)
    assert node.attribute("num_heads") == 4
    assert node.attribute("scale") == pytest.approx(8**-0.5)
    assert node.inputs[0].producer.op_type == "Add"  # the projection, whose heads nobody takes apart any more
    assert graph.outputs[0] is node.outputs[0]
    assert ops(graph)["Transpose"] == 0


def test_scaled_dot_product_of_the_newer_exporter():
    mask = np.random.default_rng(1).random((2, 1, 5, 5)) < 0.5
    mask[0, 0, 2] = False
    graph = fused(idioms.sdpa(), mask=mask)
    node = attention(graph)
    assert node.attribute("scale") == pytest.approx(8**-0.5)
    assert ops(graph)["IsNaN"] == ops(graph)["Transpose"] == ops(graph)["Mul"] == 0


@pytest.mark.parametrize("opset", [18, 23])
def test_a_guarded_row_without_any_key_stays_zero(opset):
    mask = np.random.default_rng(1).random((2, 1, 5, 5)) < 0.5
    mask[0, 0, 2] = False
    graph = fused(idioms.sdpa(hidden="infinite"), opset=opset, mask=mask)
    assert attention(graph).op_type == ("MultiHeadAttention" if opset < 23 else "Attention")


def test_an_unguarded_row_without_any_key_stays_not_a_number():
    bias = np.zeros((2, 1, 5, 5), np.float32)
    bias[0, 0, 2] = -np.inf
    graph = fused(idioms.self_attention("t = Mul(raw, eighth) s = Add(t, bias)", ", float[N,1,S,S] bias"), bias=bias)
    assert attention(graph).op_type == "MultiHeadAttention"


@pytest.mark.parametrize("select", ["Gather", "Slice", "Split"])
def test_one_projection_for_all_three(select):
    graph = fused(idioms.packed(select))
    attention(graph)
    assert ops(graph) == {"MatMul": 1, "Slice": 3, "MultiHeadAttention": 1}


@pytest.mark.parametrize("past", [0, 3])
def test_past_and_present_are_part_of_the_op(past):
    feeds = {
        name: np.random.default_rng(2).standard_normal((2, 4, past, 8)).astype(np.float32)
        for name in ("past_key", "past_value")
    }
    mask = np.array([[0] * past + [0, 1, 1, 1, 1], [1] * past + [1, 1, 1, 1, 0]])
    graph = fused(idioms.with_past(idioms.PADDING, ", int64[N,T] mask"), feeds=feeds, mask=mask)
    node = attention(graph)
    assert [value.name for value in node.outputs[1:]] == ["key", "value"]
    assert [value.name for value in node.inputs[6:8]] == ["past_key", "past_value"]
    assert ops(graph)["Concat"] == ops(graph)["Transpose"] == 0
    assert node.attribute("unidirectional") is None


@pytest.mark.parametrize("past", [0, 3])
def test_a_mask_that_is_provably_causal_needs_no_tensor(past):
    feeds = {
        name: np.random.default_rng(2).standard_normal((2, 4, past, 8)).astype(np.float32)
        for name in ("past_key", "past_value")
    }
    graph = fused(idioms.with_past(), feeds=feeds)
    node = attention(graph)
    assert node.attribute("unidirectional") == 1
    assert node.inputs[5] is None
    assert ops(graph) == {"MatMul": 3, "MultiHeadAttention": 1}


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("batch", ["1", "N"])
def test_llama_turns_heads_and_shares_keys(opset, past, batch):
    rng = np.random.default_rng(3)
    feeds = {name: rng.standard_normal((2, 2, past, 8)).astype(np.float32) for name in ("past_key", "past_value")}
    mask = rng.random((2, 1, 5, past + 5)) < 0.5
    mask[1, 0, 0] = False
    ids = rng.integers(0, 50, (2 if batch == "N" else 1, 5))
    graph = fused(idioms.llama(batch), opset=opset, feeds=feeds, mask=mask, ids=ids)
    node = attention(graph)
    assert ops(graph)["RotaryEmbedding"] == 2
    assert ops(graph)["Expand"] == ops(graph)["Neg"] == 0
    assert [value.name for value in node.outputs[1:]] == ["key", "value"]
    if opset == 23:
        assert (node.op_type, node.attribute("q_num_heads"), node.attribute("kv_num_heads")) == ("Attention", 4, 2)
    else:
        assert (node.op_type, node.attribute("num_heads")) == ("MultiHeadAttention", 2)


def test_cross_attention_with_heads_in_the_batch():
    graph = fused(idioms.cross_attention())
    node = attention(graph)
    assert (node.attribute("num_heads"), node.attribute("scale")) == (4, 0.125)
    assert [value.name for value in node.inputs[:3]] == ["qp0", "kp", "vp"]
    assert ops(graph) == {"MatMul": 3, "MultiHeadAttention": 1}


def test_sequences_before_batches():
    graph = fused(idioms.sequence_first())
    assert attention(graph).attribute("num_heads") == 4


def test_relative_position_bias_and_no_scale():
    lookup = "b0 = Gather(table, buckets) b1 = Transpose<perm=[2,0,1]>(b0) b2 = Unsqueeze(b1, v0) "
    text = idioms.self_attention("s = Add(raw, b2)", ", float[8,4] table, int64[S,S] buckets", before=lookup)
    node = attention(fused(text))
    assert node.attribute("scale") == 1.0
    assert node.inputs[5].name == "b2"


def test_scores_in_half_precision_with_a_softmax_in_single():
    text = idioms.self_attention("t = Mul(raw, eighth) s = Cast<to=1>(t)").replace("a = Softmax", "wide = Softmax")
    text = text.replace("o = MatMul(a, v)", "a = Cast<to=10>(wide) o = MatMul(a, v)")
    assert attention(fused(idioms.in_type(text, "float16", 10), rtol=4e-3)).op_type == "MultiHeadAttention"


def test_einsum():
    scores = 'k5 = Transpose<perm=[0,1,3,2]>(k) raw = Einsum<equation="nhid,nhjd->nhij">(q, k5)'
    text = idioms.self_attention(idioms.SCALED).replace("raw = MatMul(q, k)", scores)
    text = text.replace("o = MatMul(a, v)", 'o = Einsum<equation="nhij, nhjd -> nhid">(a, v)')
    assert attention(fused(text)).attribute("num_heads") == 4


def test_einsum_of_a_single_head():
    text = (
        f"g (float[N,S,8] q, float[N,S,8] k, float[N,S,6] v) => (float[N,S,6] y) {{ {idioms.NUMBERS}"
        f'raw = Einsum<equation="nid,njd->nij">(q, k) {idioms.SCALED} a = Softmax(s) y = Einsum<equation="nij,njd->nid">(a, v) }}'
    )
    assert attention(fused(text)).attribute("num_heads") == 1


def test_products_that_are_fused_already():
    text = idioms.self_attention(idioms.SCALED).replace(
        "raw = MatMul(q, k)", "k5 = Transpose<perm=[0,1,3,2]>(k) raw = com.microsoft.FusedMatMul<alpha=0.5, transB=1>(q, k5)"
    )
    assert attention(fused(text)).attribute("scale") == 0.0625


def test_the_result_may_go_on_without_batches():
    text = idioms.self_attention(idioms.SCALED).replace("y = Reshape(y_t, together)", "y = Reshape(y_t, flat)")
    graph = fused(text.replace("=> (float[N,S,32] y)", "=> (float[M,32] y)"))
    assert ops(graph) == {"MatMul": 3, "MultiHeadAttention": 1, "Reshape": 1}


def test_heads_that_stay_apart_get_their_layout_back():
    text = idioms.self_attention(idioms.SCALED).replace("(float[N,S,32] y)", "(float[N,S,32] y, float[N,4,S,8] o)")
    graph = fused(text)
    attention(graph)
    assert graph.outputs[1].producer.op_type == "Transpose"


def test_operands_that_were_never_together_are_transposed():
    text = (
        f"g (float[N,4,S,8] q, float[N,4,E,8] k, float[N,4,E,6] v) => (float[N,4,S,6] y) {{ {idioms.NUMBERS}"
        f"kt = Transpose<perm=[0,1,3,2]>(k) raw = MatMul(q, kt) {idioms.SCALED} a = Softmax(s) y = MatMul(a, v) }}"
    )
    node = attention(fused(text))
    assert [value.name for value in node.inputs[1:3]] == ["k", "v"]


def test_keys_of_one_head_serve_all_queries():
    text = (
        f"g (float[N,4,S,8] q, float[N,1,E,8] k, float[N,1,E,8] v) => (float[N,4,S,8] y) {{ {idioms.NUMBERS}"
        f"kt = Transpose<perm=[0,1,3,2]>(k) raw = MatMul(q, kt) {idioms.SCALED} a = Softmax(s) y = MatMul(a, v) }}"
    )
    assert attention(fused(text)).attribute("num_heads") == 1


# --- masks


def test_a_mask_for_all_queries_is_made_for_each_as_onnxruntime_wants_it():
    text = idioms.self_attention("t = Mul(raw, eighth) s = Add(t, bias)", ", float[N,1,1,S] bias")
    graph = fused(text)
    assert [str(size) for size in attention(graph).inputs[5].type.shape] == ["N", "1", "S", "S"]


def test_several_masks_are_one():
    text = idioms.self_attention(
        "t = Mul(raw, eighth) c = Where(seen, t, lowest) d = Add(b1, c) s = Sub(d, b2)",
        ", bool[1,1,S,S] seen, float[N,1,1,S] b1, float[S,S] b2",
    )
    seen = np.tri(5, dtype=bool)[None, None].copy()
    seen[0, 0, 3] = False
    assert ops(fused(text, seen=seen))["Where"] == 1


def test_what_is_added_before_the_scale_is_scaled():
    attention(fused(idioms.self_attention("t = Add(raw, bias) s = Mul(t, eighth)", ", float[N,4,S,S] bias")))


@pytest.mark.parametrize("number", [LOWEST, -np.inf])
def test_scores_replaced_by_a_very_low_number(number):
    hidden = "lowest" if number == LOWEST else "infinite"
    text = idioms.self_attention(f"t = Mul(raw, eighth) s = Where(hide, {hidden}, t)", ", bool[N,1,S,S] hide")
    hide = np.random.default_rng(1).random((2, 1, 5, 5)) < 0.5
    hide[:, :, 1] = True
    attention(fused(text, hide=hide))


def test_a_number_that_may_not_hide_a_score_is_not_added_instead():
    text = idioms.self_attention("low = Constant<value_float=-10000.0>() s = Where(seen, raw, low)", ", bool[N,1,S,S] seen")
    assert reasons(text) == ["masked scores become -10000, which may not hide them"]


@pytest.mark.parametrize(
    "mask",
    [
        "ones = ConstantOfShape<value=float[1] {1.0}>(square) low = Trilu<upper=0>(ones) seen = Cast<to=9>(low) s = Where(seen, t, lowest)",
        "ones = ConstantOfShape<value=float[1] {1.0}>(square) low = Trilu<upper=0>(ones) none = Equal(low, zero)"
        " bias = Where(none, infinite, zero) s = Add(t, bias)",
        "ones = ConstantOfShape<value=int32[1] {1}>(square) high = Trilu<upper=1>(ones, i1) hide = Cast<to=9>(high)"
        " s = Where(hide, infinite, t)",
        "n = Squeeze(length) r = Range(i0, n, i1) column = Unsqueeze(r, v1) row = Unsqueeze(r, v0) later = Greater(row, column)"
        " seen = Not(later) low = Constant<value_float=-10000.0>() s = Where(seen, t, low)",
    ],
)
def test_causal_masks_are_recognized(mask):
    sizes = "length = Shape<start=1,end=2>(x) square = Concat<axis=0>(length, length) "
    node = attention(fused(idioms.self_attention(f"t = Mul(raw, eighth) {mask}", before=sizes)))
    assert node.attribute("unidirectional") == 1
    assert node.inputs[5] is None


def test_a_constant_triangle_is_causal_too():
    rows = ", ".join("0.0" if j <= i else "-inf" for i in range(5) for j in range(5))
    triangle = f"triangle = Constant<value = float[1,1,5,5] {{{rows}}}>() "
    text = idioms.self_attention("t = Mul(raw, eighth) s = Add(t, triangle)", before=triangle).replace("[N,S,32]", "[N,5,32]")
    assert attention(fused(text)).attribute("unidirectional") == 1


def with_a_table(rows: str) -> str:
    """Scores that a constant table masks by -10000; `rows` cuts it."""
    cut = idioms.table_positions().replace("Slice(table, first, total, v2, v1)", rows)
    text = idioms.with_past().replace(idioms.POSITIONS, cut)
    text = text.replace("bias = Where(causal, zero, lowest) s = Add(scaled, bias)", "s = Where(causal, scaled, low)")
    return text.replace("zero = Const", "low = Constant<value_float=-10000.0>() zero = Const", 1)


def test_a_table_cut_behind_the_past_is_causal():
    """Masked scores become -10000, which hides them only from queries that see another key; each sees its own."""
    text = with_a_table("Slice(table, first, total, v2, v1)")
    past = np.random.default_rng(2).standard_normal((2, 4, 3, 8)).astype(np.float32)
    node = attention(fused(text, past_key=past, past_value=past[::-1].copy()))
    assert node.inputs[6].name == "past_key" and node.attribute("unidirectional") == 1


@pytest.mark.parametrize(
    ("cut", "offset"),
    [
        ("Slice(table, v2, end, v0)", 2),
        ("Slice(table, v1, end, v1)", -1),
        ("Slice(table, v1, end, v0, v1)", 1),
        ("Slice(table, v0, end, v0, v2)", None),
        ("Slice(table, minus1, end, v0)", None),
    ],
)
def test_where_a_table_is_cut_tells_how_far_queries_see(cut, offset):
    triangle = ", ".join(str(int(column <= row)) for row in range(6) for column in range(6))
    table = f"table = Constant<value = uint8[6,6] {{{triangle}}}>()"
    graph = typed(f"g (float[1] x) => (uint8[R,C] y, float[1] z) {{ {idioms.NUMBERS} {table} y = {cut} z = Neg(x) }}", 18).graph
    graph.outputs[0].known = None
    assert causal_offset(graph.outputs[0]) == offset


def test_a_window_is_not_taken_for_causal():
    mask = (
        "n = Squeeze(length) r = Range(i0, n, i1) column = Unsqueeze(r, v1) row = Unsqueeze(r, v0) upto = LessOrEqual(row, column)"
        " start = Sub(column, i2) after = Greater(row, start) seen = And(upto, after) s = Where(seen, t, lowest)"
    )
    node = attention(fused(idioms.self_attention(f"t = Mul(raw, eighth) {mask}", before="length = Shape<start=1,end=2>(x) ")))
    assert node.attribute("unidirectional") is None


def test_layers_share_one_mask():
    def layer(n: int) -> str:
        q, k, v = f"q{n}", f"k{n}", f"v{n}x"
        heads = idioms.split(q + "p", q) + idioms.split(k + "p", k, transposed=True) + idioms.split(v + "p", v)
        projections = f"{q}p = MatMul(x{n}, wq) {k}p = MatMul(x{n}, wk) {v}p = MatMul(x{n}, wv) "
        scores = f"raw{n} = MatMul({q}, {k}) s{n} = Add(raw{n}, bias) a{n} = Softmax(s{n}) o{n} = MatMul(a{n}, {v}) "
        return projections + heads + scores + idioms.join(f"o{n}", f"x{n + 1}")

    inputs = f"float[N,S,32] x0, float[N,1,1,S] bias{idioms.weights('wq', 'wk', 'wv')}"
    graph = fused(f"g ({inputs}) => (float[N,S,32] x3) {{ {idioms.NUMBERS}{layer(0)}{layer(1)}{layer(2)}}}")
    assert (ops(graph)["MultiHeadAttention"], ops(graph)["Expand"]) == (3, 1)


# --- what is left alone, and what is only half of it


def test_weights_that_are_an_output_are_kept():
    text = idioms.self_attention(idioms.SCALED).replace("(float[N,S,32] y)", "(float[N,S,32] y, float[N,4,S,S] a)")
    assert reasons(text) == ["its weights are used elsewhere"]


def test_a_mask_that_enlarges_the_scores_is_refused():
    text = idioms.self_attention("t = Mul(raw, eighth) s = Add(t, bias)", ", float[M,1,S,S] bias")
    text = text.replace("=> (float[N,S,32] y)", "=> (float[K,S,32] y)")
    assert reasons(text) == ["a mask of shape (<M>, 1, <S>, <S>) may enlarge the scores"]


def test_double_precision_waits_for_the_standard_op():
    text = idioms.in_type(idioms.self_attention(idioms.SCALED), "double", 11)
    assert reasons(text) == ["MultiHeadAttention takes no float64"]
    assert attention(fused(text, opset=23)).op_type == "Attention"


def test_a_softmax_over_classes_is_no_attention():
    text = f"g (float[N,S,32] x, float[32,8] w) => (float[N,S,8] y) {{ {idioms.NUMBERS} l = MatMul(x, w) y = Softmax(l) }}"
    assert reasons(text) == []


def past_lengths_from(lengths: str) -> str:
    """A causal mask that asks the keys, joined with their past, how long the past is."""
    text = idioms.with_past().replace(idioms.POSITIONS, "")
    positions = idioms.POSITIONS.replace(
        "pasts = Shape<start=2,end=3>(past_key)", f"{lengths} new = Shape<start=1,end=2>(x) pasts = Sub(all, new)"
    )
    return text.replace("kt = Transpose", positions + "kt = Transpose")


@pytest.mark.parametrize(
    "lengths",
    ["both = Shape(key) all = Slice(both, v2, v3)", "all = Shape<start=2,end=3>(value)", "all = Shape<start=-2,end=-1>(key)"],
)
@pytest.mark.parametrize("past", [0, 3])
def test_a_mask_that_asks_for_the_length_of_joined_keys_is_told_by_their_parts(lengths, past):
    feeds = {
        name: np.random.default_rng(2).standard_normal((2, 4, past, 8)).astype(np.float32)
        for name in ("past_key", "past_value")
    }
    graph = fused(past_lengths_from(lengths), feeds=feeds)
    assert [value.name for value in attention(graph).inputs[6:8]] == ["past_key", "past_value"]
    assert len(attention(graph).outputs) == 3


def test_a_past_whose_elements_the_mask_depends_on_is_joined_outside():
    nothing = "least = ReduceMin<keepdims=0>(key) whole = Cast<to=7>(least) none = Mul(whole, i0)"
    lengths = f"{nothing} asked = Shape<start=2,end=3>(key) all = Add(asked, none)"
    graph = fused(past_lengths_from(lengths))
    assert len(attention(graph).outputs) == 1
    assert ops(graph)["Concat"] == 2


def test_nothing_moves_into_a_loop():
    text = (
        f"g (float[N,4,S,8] q, float[N,4,8,S] k, float[N,4,S,8] v, bool b) => (float[N,4,S,8] y) {{ {idioms.NUMBERS}"
        f"s = MatMul(q, k) y = If<then_branch = t () => (float[N,4,S,8] yt) {{ a = Softmax(s) yt = MatMul(a, v) }},"
        f" else_branch = e () => (float[N,4,S,8] ye) {{ ye = Identity(v) }}>(b) }}"
    )
    model = typed(text, 18)
    assert not any(fuse_attention(graph, Rewriting(model, evaluate)) for graph in edit.all_graphs(model.graph))


def test_attention_inside_of_a_branch():
    text = (
        f"g (float[N,4,S,8] q, float[N,4,8,S] k, float[N,4,S,8] v, bool b) => (float[N,4,S,8] y) {{ {idioms.NUMBERS}"
        f"y = If<then_branch = t () => (float[N,4,S,8] yt) {{ s = MatMul(q, k) a = Softmax(s) yt = MatMul(a, v) }},"
        f" else_branch = e () => (float[N,4,S,8] ye) {{ ye = Identity(v) }}>(b) }}"
    )
    model = typed(text, 18)
    feeds = {**random_feeds(model.graph), "b": np.array(True)}
    before = run(model, feeds)
    assert sum(fuse_attention(graph, Rewriting(model, evaluate)) for graph in edit.all_graphs(model.graph)) == 1
    verify.verify(model)
    np.testing.assert_allclose(run(model, feeds)[0], before[0], rtol=1e-5, atol=1e-6)


def test_a_causal_mask_that_may_be_broadcast_is_added():
    """Were the mask made for one query, all others would see what that one does."""
    mask = (
        "n = Squeeze(length) m = Squeeze(other) r = Range(i0, n, i1) c = Range(i0, m, i1) column = Unsqueeze(c, v1) row = Unsqueeze(r, v0)"
        " seen = LessOrEqual(row, column) bias = Where(seen, zero, lowest) s = Add(t, bias)"
    )
    sizes = "length = Shape<start=1,end=2>(x) other = Shape<start=0,end=1>(z) "
    text = idioms.self_attention(f"t = Mul(raw, eighth) {mask}", ", float[M] z", before=sizes)
    assert reasons(text) == ["a mask of shape (<M>, <S>) may enlarge the scores"]


def test_keys_expanded_over_the_batch():
    text = (
        f"g (float[N,4,S,8] q, float[1,4,E,8] k1, float[1,4,E,8] w1) => (float[N,4,S,8] y) {{ {idioms.NUMBERS}"
        f"n = Shape<start=0,end=1>(q) shape = Concat<axis=0>(n, v1, v1, v1) k = Expand(k1, shape) v = Expand(w1, shape)"
        f" kt = Transpose<perm=[0,1,3,2]>(k) raw = MatMul(q, kt) {idioms.SCALED} a = Softmax(s) y = MatMul(a, v) }}"
    )
    assert attention(fused(text)).attribute("num_heads") == 4


def test_an_attention_that_is_one_op_takes_heads_side_by_side():
    text = (
        f"g (float[N,S,32] x, bool[1,1,S,T] mask, float[N,2,P,8] past_key, float[N,2,P,8] past_value{idioms.weights('wq')}"
        f"{idioms.weights('wk', 'wv', columns=16)}) => (float[N,S,32] y, float[N,2,T,8] key, float[N,2,T,8] value) {{ {idioms.NUMBERS}"
        f"two = Constant<value_ints=[0,0,2,8]>() {idioms.project('q', 'k', 'v')}{idioms.split('qp', 'q')}"
        f"{idioms.split('kp', 'kn').replace('apart', 'two')}{idioms.split('vp', 'vn').replace('apart', 'two')}"
        f"key = Concat<axis=2>(past_key, kn) value = Concat<axis=2>(past_value, vn) {idioms.repeated('key', 'k')}"
        f"{idioms.repeated('value', 'v')}o = Attention(q, k, v, mask) {idioms.join('o', 'y')}}}"
    )
    graph = fused(text, opset=23, mask=np.random.default_rng(1).random((1, 1, 5, 8)) < 0.5)
    assert ops(graph) == {"MatMul": 3, "Attention": 1}
    assert [value.name for value in graph.outputs] == ["y", "key", "value"]


def test_fusing_again_changes_nothing():
    model = typed(idioms.llama(), 18)
    fuse(model)
    assert not fuse_attention(model.graph, Rewriting(model, evaluate))


# --- the whole pipeline, and onnxruntime


def feeds_of(model: Model, text: str) -> dict[str, np.ndarray]:
    feeds = random_feeds(model.graph)
    return {**feeds, "mask": np.ones((2, 1, 5, 8), bool)} if "bool[N,1,S,T] mask" in text else feeds


EXPORTS = {
    "bert": idioms.bert(),
    "sdpa": idioms.sdpa(),
    "guarded": idioms.sdpa("infinite"),
    "packed": idioms.packed("Gather"),
    "past": idioms.with_past(),
    "llama": idioms.llama(),
    "cross": idioms.cross_attention(),
}


@pytest.mark.parametrize("text", EXPORTS.values(), ids=EXPORTS)
def test_no_softmax_is_left_after_the_extended_level(text):
    model = typed(text, 18)
    feeds = feeds_of(model, text)
    before = run(model, feeds)
    optimize(model, Level.EXTENDED, evaluate=evaluate, journal=Journal(strict=True))
    verify.verify(model)
    attention(model.graph)
    for got, want in zip(run(model, feeds), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", EXPORTS.values(), ids=EXPORTS)
def test_a_fused_model_runs_in_onnxruntime(text):
    model = typed(text, 18)
    feeds = feeds_of(model, text)
    before = run(model, feeds)
    fuse(model)
    results = onnxruntime_peer.run(model, feeds)
    assert results is not None
    for got, want in zip(results, before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
