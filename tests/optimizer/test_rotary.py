"""Rotary embeddings: recognized in either layout, for all or some features, with angles computed or looked up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sardonyx.ir import Graph, verify
from sardonyx.optimizer.passes.rotary import fuse_rotary_embeddings
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from tests import onnxruntime_peer
from tests.optimizer.attention_idioms import ANGLES, NUMBERS, rotated
from tests.optimizer.rewriting import random_feeds, run, typed


def fused(text: str, opset: int = 18, count: int = 1) -> Graph:
    model = typed(text, opset)
    feeds = {name: value if name != "ids" else value + 7 for name, value in random_feeds(model.graph).items()}
    before = run(model, feeds)
    journal = Journal(strict=True)
    fuse_rotary_embeddings(model.graph, Rewriting(model, evaluate, {}, journal))
    verify.verify(model)
    results = [run(model, feeds)] + ([onnxruntime_peer.run(model, feeds)] if count else [])
    for result in results:
        for got, want in zip(result, before, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert sum(node.op_type == "RotaryEmbedding" for node in model.graph.nodes) == count, journal.events
    return model.graph


@pytest.mark.parametrize("batch", ["1", "N"])
@pytest.mark.parametrize("opset", [17, 21])
def test_heads_before_positions(batch, opset):
    text = f"g (float[N,4,S,8] x, int64[{batch},S] ids) => (float[N,4,S,8] y) {{ {NUMBERS}{ANGLES}{rotated('x', 'y')}}}"
    fused(text, opset)


def test_positions_before_heads():
    angles = ANGLES.replace(
        "cos = Unsqueeze(cos3, v1) sin = Unsqueeze(sin3, v1)", "cos = Unsqueeze(cos3, v2) sin = Unsqueeze(sin3, v2)"
    )
    fused(f"g (float[N,S,4,8] x, int64[1,S] ids) => (float[N,S,4,8] y) {{ {NUMBERS}{angles}{rotated('x', 'y')}}}")


def test_heads_are_turned_where_they_stand_side_by_side():
    text = (
        f"g (float[N,S,32] x, int64[1,S] ids) => (float[N,4,S,8] y) {{ {NUMBERS}{ANGLES}"
        f"r = Reshape(x, apart) h = Transpose<perm=[0,2,1,3]>(r) {rotated('h', 'y')}}}"
    )
    graph = fused(text)
    (node,) = [node for node in graph.nodes if node.op_type == "RotaryEmbedding"]
    assert node.inputs[0].name == "x"


def test_some_features_are_turned_and_the_others_follow():
    text = (
        f"g (float[N,4,S,20] x, int64[1,S] ids) => (float[N,4,S,20] y) {{ {NUMBERS}{ANGLES}"
        f"part = Slice(x, v0, v8, v3) rest = Slice(x, v8, end, v3) {rotated('part', 'turned')}y = Concat<axis=-1>(turned, rest) }}"
    )
    graph = fused(text)
    (node,) = [node for node in graph.nodes if node.op_type == "RotaryEmbedding"]
    assert (node.attribute("rotary_embedding_dim"), node.attribute("num_heads")) == (8, 4)


def test_halves_taken_by_split():
    turned = "lo, hi = Split<axis=3, num_outputs=2>(x) neg = Neg(hi) t = Concat<axis=3>(neg, lo) "
    turned += "c = Mul(cos, x) s = Mul(t, sin) y = Add(s, c) "
    fused(f"g (float[N,4,S,8] x, int64[1,S] ids) => (float[N,4,S,8] y) {{ {NUMBERS}{ANGLES}{turned}}}")


def test_angles_from_a_table():
    table = np.tile(np.cos(np.arange(16 * 4).reshape(16, 4)), 2).astype(np.float32)
    numbers = ", ".join(f"{number:.8f}" for number in table.reshape(-1))
    lookup = f"table = Constant<value = float[16,8] {{{numbers}}}>() c3 = Gather(table, ids) "
    lookup += "cos = Unsqueeze(c3, v1) sin = Unsqueeze(c3, v1) "
    fused(f"g (float[N,4,S,8] x, int64[N,S] ids) => (float[N,4,S,8] y) {{ {NUMBERS}{lookup}{rotated('x', 'y')}}}")


def test_layers_share_their_tables():
    text = (
        f"g (float[N,4,S,8] a, float[N,2,S,8] b, int64[N,S] ids) => (float[N,4,S,8] y, float[N,2,S,8] z) {{ {NUMBERS}{ANGLES}"
        f"{rotated('a', 'y')}{rotated('b', 'z')}}}"
    )
    counts = Counter(node.op_type for node in fused(text, count=2).nodes)
    assert (counts["Slice"], counts["Range"]) == (3, 1)


def test_pairs_that_are_turned_by_two_angles_are_left_alone():
    text = (
        f"g (float[N,4,S,8] x, float[1,1,S,8] cos, float[1,1,S,8] sin) => (float[N,4,S,8] y) {{ {NUMBERS}{rotated('x', 'y')}}}"
    )
    fused(text, count=0)


def test_angles_that_differ_between_heads_are_left_alone():
    angles = ANGLES.replace("cos = Unsqueeze(cos3, v1) sin = Unsqueeze(sin3, v1)", "cos = Identity(cos3) sin = Identity(sin3)")
    fused(f"g (float[N,4,S,8] x, int64[4,S] ids) => (float[N,4,S,8] y) {{ {NUMBERS}{angles}{rotated('x', 'y')}}}", count=0)


def test_the_standard_op_takes_heads_side_by_side_too():
    text = (
        f"g (float[N,S,32] x, float[N,S,4] cos, float[N,S,4] sin) => (float[N,4,S,8] y) {{ {NUMBERS}"
        f"r = Reshape(x, apart) h = Transpose<perm=[0,2,1,3]>(r) y = RotaryEmbedding(h, cos, sin) }}"
    )
    graph = fused(text, opset=23)
    assert [node.op_type for node in graph.nodes] == ["RotaryEmbedding", "Reshape", "Transpose"]
