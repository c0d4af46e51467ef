"""Embeddings of words, positions and segments with their normalization as one op."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.ir import verify
from sardonyx.optimizer.rewrite import Journal, apply_rules
from sardonyx.optimizer.rules.embedding import embed_layer_normalization, shape_of_lookup
from sardonyx.providers.cpu.provider import evaluate
from tests import onnxruntime_peer
from tests.optimizer.rewriting import random_feeds, run, typed

TABLES = "float[9,16] words, float[12,16] places, float[2,16] kinds, float[16] gamma, float[16] beta"
NORMALIZED = "y = LayerNormalization<axis=-1, epsilon=1.0e-6>(sum, gamma, beta)"


def fused(text: str, opset: int = 18) -> Journal:
    model = typed(text, opset)
    feeds = random_feeds(model.graph)
    before = run(model, feeds)
    journal = Journal(strict=True)
    apply_rules(model, [shape_of_lookup, embed_layer_normalization], evaluate=evaluate, journal=journal)
    verify.verify(model)
    for result in (run(model, feeds), onnxruntime_peer.run(model, feeds)):
        for got, want in zip(result, before, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return journal


@pytest.mark.parametrize(
    "total",
    [
        "a = Add(w, k) sum = Add(a, p)",
        "a = Add(p, w) sum = Add(k, a)",
        "sum = Add(w, p)",
    ],
)
@pytest.mark.parametrize("positions", ["1", "N"])
@pytest.mark.parametrize("element", ["int32", "int64"])
def test_lookups_in_any_order(total, positions, element):
    text = (
        f"g ({element}[N,S] ids, {element}[{positions},S] at, {element}[N,S] segments, {TABLES}) => (float[N,S,16] y) {{"
        f" w = Gather(words, ids) p = Gather(places, at) k = Gather(kinds, segments) {total} {NORMALIZED} }}"
    )
    assert len(fused(text).applied()) == 1


def test_positions_cut_from_a_range():
    """Their number is min(12, S), which fits S only where it is the same: the sum has the ids' shape."""
    text = (
        f"g (int64[N,S] ids, {TABLES}) => (float[N,S,16] y) {{ n = Shape<start=1,end=2>(ids) v0 = Constant<value_ints=[0]>()"
        f" v1 = Constant<value_ints=[1]>() range = Constant<value = int64[1,12] {{0,1,2,3,4,5,6,7,8,9,10,11}}>()"
        f" at = Slice(range, v0, n, v1) w = Gather(words, ids) p = Gather(places, at) sum = Add(w, p) {NORMALIZED} }}"
    )
    (normalized,) = [node for node in typed(text, 18).graph.nodes if node.op_type == "LayerNormalization"]
    assert [str(size) for size in normalized.inputs[0].type.shape] == ["N", "S", "16"]
    assert len(fused(text).applied()) == 1


@pytest.mark.parametrize(("total", "kept"), [("sum = Add(w, p)", "sum"), ("a = Add(w, p) sum = Add(a, k)", "sum")])
def test_a_sum_goes_on_elsewhere(total, kept):
    text = (
        f"g (int64[N,S] ids, int64[1,S] at, int64[N,S] segments, {TABLES}) => (float[N,S,16] y, float[N,S,16] {kept}) {{"
        f" w = Gather(words, ids) p = Gather(places, at) k = Gather(kinds, segments) {total} {NORMALIZED} }}"
    )
    assert len(fused(text).applied()) == 1


def test_a_part_of_a_sum_that_goes_on_elsewhere_is_left_alone():
    text = (
        f"g (int64[N,S] ids, int64[1,S] at, int64[N,S] segments, {TABLES}) => (float[N,S,16] y, float[N,S,16] a) {{"
        f" w = Gather(words, ids) p = Gather(places, at) k = Gather(kinds, segments) a = Add(w, p) sum = Add(a, k) {NORMALIZED} }}"
    )
    assert fused(text).events[0].reason == "'a' is used elsewhere"


def test_a_scale_that_is_computed_from_the_sum_is_left_alone():
    text = (
        f"g (int64[N,S] ids, int64[1,S] at, {TABLES}) => (float[N,S,16] y) {{ w = Gather(words, ids) p = Gather(places, at)"
        f" sum = Add(w, p) axes = Constant<value_ints=[0,1]>() means = ReduceMean<keepdims=0>(sum, axes)"
        f" y = LayerNormalization<axis=-1, epsilon=1.0e-6>(sum, means, beta) }}"
    )
    assert fused(text).events[0].reason == "scale or bias may be computed from the sum"


def test_positions_are_counted_by_the_shape_of_rows():
    """DistilBERT: the shape of the rows becomes that of the ids, so that no row is looked up for it."""
    text = (
        f"g (int64[N,S] ids, {TABLES}) => (float[N,S,16] y) {{ w = Gather(words, ids) shape = Shape(w)"
        f" one = Constant<value_int=1>() zero = Constant<value_int=0>() length = Gather(shape, one) at1 = Range(zero, length, one)"
        f" v0 = Constant<value_ints=[0]>() at = Unsqueeze(at1, v0) p = Gather(places, at) sum = Add(w, p) {NORMALIZED} }}"
    )
    journal = fused(text)
    assert len(journal.applied()) == 2, [event.reason for event in journal.events]


@pytest.mark.parametrize("asked", ["n = Shape<start=1>(w)", "n = Shape<end=2>(w)"])
def test_a_part_of_the_shape_of_rows_is_left_alone(asked):
    text = (
        f"g (int64[N,S] ids, int64[1,S] at, {TABLES}) => (float[N,S,16] y, int64[2] n) {{"
        f" w = Gather(words, ids) {asked} p = Gather(places, at) sum = Add(w, p) {NORMALIZED} }}"
    )
    assert not fused(text).applied()


def test_positions_that_enlarge_the_result_are_left_alone():
    text = (
        f"g (int64[N,S] ids, int64[1,L] at, {TABLES}) => (float[N,M,16] y) {{"
        f" w = Gather(words, ids) p = Gather(places, at) sum = Add(w, p) {NORMALIZED} }}"
    )
    model = typed(text, 18)
    journal = Journal(strict=True)
    apply_rules(model, [embed_layer_normalization], evaluate=evaluate, journal=journal)
    assert {event.reason for event in journal.events} == {"shapes of ids may differ"}
