"""Attention and rotary embeddings whose numbers and sizes of heads a run tells: every axis is open, and one program serves all sizes."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import CODED
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import assert_agrees, compare, model_of, native_plan, programs
from tests.providers.native.test_attention import floats

QUICK = settings(max_examples=20, deadline=None)
HEADS = st.sampled_from([1, 2, 3, 5, 8])
SIZES = st.sampled_from([1, 2, 3, 7, 8, 15, 16, 17, 24, 33, 64, 80, 100, 128, 130, 256])
LENGTHS = st.sampled_from([1, 2, 5, 9, 33, 70])
OPEN_4D = "float[b,n,s,d] q, float[c,m,t,e] k, float[a,o,u,f] v"
ATTENTION = f"g ({OPEN_4D}) => (float[b,n,s,f] y) {{ y = Attention(q, k, v) }}"
WITH_PAST = f"""g ({OPEN_4D}, float[pa,pb,pc,pd] pk, float[pe,pf,pg,ph] pv, float[ma,mb] m)
  => (float[b,n,s,f] y, float[ka,kb,kc,kd] kk, float[va,vb,vc,vd] vv) {{ y, kk, vv = Attention<is_causal = 1>(q, k, v, m, pk, pv) }}"""
MULTI_HEAD = """g (float[b,s,x] q, float[c,t,y] k, float[a,u,z] v, float[w] bias) => (float[b,s,z] out)
  { out = com.microsoft.MultiHeadAttention<num_heads = 3>(q, k, v, bias) }"""
GROUPED = """g (float[b,s,x] q, float[c,t,y] k, float[a,u,z] v, float[pa,pb,pc,pd] pk, float[pe,pf,pg,ph] pv,
    int32[l] n, float[r,h] cos, float[ra,ha] sin) => (float[b,s,x] out, float[ka,kb,kc,kd] kk, float[va,vb,vc,vd] vv)
  <int32 total = {0}> { out, kk, vv =
    com.microsoft.GroupQueryAttention<num_heads = 6, kv_num_heads = 2, do_rotary = 1>(q, k, v, pk, pv, n, total, cos, sin) }"""


def assert_native(caplog: pytest.LogCaptureFixture, text: str, *sets: Mapping[str, np.ndarray], opset: int = 23) -> None:
    """Check that native code computes what NumPy does, and hands no run over to it."""
    with caplog.at_level(logging.WARNING, "sardonyx"):
        assert_agrees(text, sets, opset=opset)
    handed = [record.getMessage() for record in caplog.records if "NumPy computes" in record.getMessage()]
    assert not handed, handed[0]


def heads(batch: int, count: int, shared: int, queries: int, keys: int, size: int, value_size: int) -> dict[str, np.ndarray]:
    return {
        "q": floats(batch, count, queries, size),
        "k": floats(batch, shared, keys, size, seed=1),
        "v": floats(batch, shared, keys, value_size, seed=2),
    }


@QUICK
@given(st.integers(1, 3), st.integers(1, 3), LENGTHS, LENGTHS, SIZES, SIZES)
def test_any_heads(shared: int, group: int, queries: int, keys: int, size: int, value_size: int) -> None:
    assert_agrees(ATTENTION, heads(2, shared * group, shared, queries, keys, size, value_size), opset=23)


def test_one_program_serves_all_heads(caplog: pytest.LogCaptureFixture) -> None:
    sets = [
        heads(2, *case) for case in ((4, 4, 9, 9, 8, 8), (6, 2, 1, 300, 80, 33), (1, 1, 40, 7, 256, 1), (8, 1, 2, 3, 3, 96))
    ]
    assert_native(caplog, ATTENTION, *sets)


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_types(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    dtype = np.float16 if kind == "float16" else np.float64
    sets = [heads(1, 4, 2, queries, 40, size, 24) for queries, size in ((1, 20), (33, 20), (33, 160))]
    cast = [{name: array.astype(dtype) for name, array in feeds.items()} for feeds in sets]
    assert_native(caplog, ATTENTION.replace("float[", f"{kind}["), *cast)


@pytest.mark.parametrize("queries", [1, 4, 40])
@pytest.mark.parametrize("size", [3, 16, 72])
def test_pasts(caplog: pytest.LogCaptureFixture, queries: int, size: int) -> None:
    past = {"pk": floats(2, 2, 35, size, seed=3), "pv": floats(2, 2, 35, 20, seed=4), "m": floats(queries, 35 + queries)}
    assert_native(caplog, WITH_PAST, {**heads(2, 4, 2, queries, queries, size, 20), **past})


@pytest.mark.parametrize("scale", ["", "scale = 0.3"])
def test_scales(caplog: pytest.LogCaptureFixture, scale: str) -> None:
    text = ATTENTION.replace("Attention(", f"Attention<{scale}>(") if scale else ATTENTION
    assert_native(caplog, text, heads(2, 3, 3, 2, 30, 12, 12), heads(2, 3, 3, 20, 30, 48, 12))


@QUICK
@given(LENGTHS, LENGTHS, SIZES, SIZES)
def test_merged_heads_with_a_bias(queries: int, keys: int, size: int, value_size: int) -> None:
    feeds = {"q": floats(2, queries, 3 * size), "k": floats(2, keys, 3 * size), "v": floats(2, keys, 3 * value_size)}
    assert_agrees(MULTI_HEAD, {**feeds, "bias": floats(3 * (2 * size + value_size))})


def grouped(queries: int, past: int, size: int, half: int) -> dict[str, np.ndarray]:
    return {
        "q": floats(2, queries, 6 * size),
        "k": floats(2, queries, 2 * size),
        "v": floats(2, queries, 2 * size, seed=1),
        "pk": floats(2, 2, past, size),
        "pv": floats(2, 2, past, size, seed=1),
        "n": np.array([past + queries - 1] * 2, np.int32),
        "cos": floats(200, half),
        "sin": floats(200, half, seed=1),
    }


@pytest.mark.parametrize(("queries", "past"), [(1, 70), (1, 3), (9, 40)])
def test_groups(caplog: pytest.LogCaptureFixture, queries: int, past: int) -> None:
    text = GROUPED.replace("{0}", f"{{{past + queries}}}")
    assert_native(caplog, text, *(grouped(queries, past, size, half) for size, half in ((8, 4), (20, 6), (96, 48))))


ROTARY = """g (float[b,n,s,d] x, int64[c,t] p, float[r,h] cos, float[q,i] sin) => (float[b,n,s,d] y)
  { y = com.microsoft.RotaryEmbedding<OPTIONS>(x, p, cos, sin) }"""


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [0, 6])
def test_rotary(caplog: pytest.LogCaptureFixture, interleaved: int, width: int) -> None:
    text = ROTARY.replace("OPTIONS", f"interleaved = {interleaved}, rotary_embedding_dim = {width}, num_heads = 2")
    merged = text.replace("[b,n,s,d]", "[b,s,d]")
    for size in (6, 16, 34, 100):
        feeds = {"p": np.random.default_rng(0).integers(0, 50, (2, 7)), **angles(50, (width or size) // 2)}
        assert_native(caplog, text, {"x": floats(2, 3, 7, size), **feeds})
        assert_native(caplog, merged, {"x": floats(2, 7, 2 * size), **feeds})


def test_how_many_heads_are_turned_can_follow_from_the_angles(caplog: pytest.LogCaptureFixture) -> None:
    text = ROTARY.replace("<OPTIONS>", "").replace("[b,n,s,d]", "[b,s,d]")
    positions = {"p": np.zeros((2, 7), np.int64)}
    assert_native(caplog, text, *({"x": floats(2, 7, 24), **positions, **angles(9, half)} for half in (2, 3, 12)))


SECTIONS = """g (float[b,s,d] x, int64[a,c,t] p, float[r,h] cos, float[q,i] sin) => (float[b,s,d] y)
  { y = com.microsoft.MRotaryEmbedding<mrope_section = [2, 3, 1]OPTIONS>(x, p, cos, sin) }"""


@pytest.mark.parametrize(
    ("options", "width"), [("", 36), (", num_heads = 3", 36), (", num_heads = 2, rotary_embedding_dim = 12", 40)]
)
def test_positions_of_three_kinds(caplog: pytest.LogCaptureFixture, options: str, width: int) -> None:
    feeds = {"p": np.random.default_rng(0).integers(0, 9, (3, 2, 7)), **angles(9, 6)}
    assert_native(caplog, SECTIONS.replace("OPTIONS", options), {"x": floats(2, 7, width), **feeds})


def angles(rows: int, half: int) -> dict[str, np.ndarray]:
    return {"cos": floats(rows, half), "sin": floats(rows, half, seed=1)}


# --- states and embeddings

LINEAR = """g (float[b,s,x] q, float[c,t,y] k, float[a,u,z] v, float[pa,pb,pc,pd] past, float[da,db,dc] decay, float[ra,rb,rc] beta)
  => (float[b,s,z] out, float[ka,kb,kc,kd] state)
  { out, state = LinearAttention<q_num_heads = 4, kv_num_heads = 2>(q, k, v, past, decay, beta) }"""


def linear(size: int, width: int, gates: int, rates: int) -> dict[str, np.ndarray]:
    return {
        "q": floats(2, 5, 4 * size),
        "k": floats(2, 5, 2 * size, seed=1) / size,
        "v": floats(2, 5, 2 * width),
        "past": floats(2, 2, size, width),
        "decay": -np.abs(floats(2, 5, gates)),
        "beta": np.abs(floats(2, 5, rates)),
    }


@pytest.mark.parametrize("rates", [1, 2])
def test_states(caplog: pytest.LogCaptureFixture, rates: int) -> None:
    sizes = ((8, 8, 2), (8, 20, 16), (1, 3, 2), (33, 1, 66))
    assert_native(caplog, LINEAR, *(linear(size, width, gates, rates) for size, width, gates in sizes), opset=27)


EMBED = """g (int32[b,s] ids, int32[c,t] kinds, float[w,x] words, float[p,y] places, float[k,z] of_kind, float[g] gamma,
    float[h] beta, int32[m,n] mask, int32[o,q] at) => (float[b,s,x] y, int32[b] count, float[b,s,x] total)
  { y, count, total = com.microsoft.EmbedLayerNormalization(ids, kinds, words, places, of_kind, gamma, beta, mask, at) }"""


def embed(width: int, rows: int = 2) -> dict[str, np.ndarray]:
    def numbers(limit: int, *shape: int) -> np.ndarray:
        return np.random.default_rng(limit).integers(0, limit, shape).astype(np.int32)

    tables = {"words": floats(9, width), "places": floats(7, width), "of_kind": floats(2, width)}
    rest = {"gamma": floats(width), "beta": floats(width, seed=1), "mask": numbers(2, 2, 4), "at": numbers(7, rows, 4)}
    return {"ids": numbers(9, 2, 4), "kinds": numbers(2, 2, 4), **tables, **rest}


def test_embeddings(caplog: pytest.LogCaptureFixture) -> None:
    assert_native(caplog, EMBED, *(embed(width, rows) for width in (1, 8, 17, 64) for rows in (1, 2)), opset=21)


# --- what does not fit

WRONG = [
    (ATTENTION, heads(1, 4, 3, 5, 5, 8, 8)),  # 4 heads of queries cannot share 3
    (ATTENTION, {**heads(1, 4, 4, 5, 5, 8, 8), "k": floats(1, 4, 5, 9)}),
    (ATTENTION, {**heads(1, 4, 4, 5, 5, 8, 8), "v": floats(1, 2, 5, 8)}),
    (ATTENTION, {**heads(1, 4, 4, 5, 5, 8, 8), "v": floats(1, 4, 6, 8)}),
    (ATTENTION, {**heads(1, 4, 4, 5, 5, 8, 8), "k": floats(2, 4, 5, 8)}),
    (ATTENTION, heads(1, 4, 4, 5, 5, 0, 8)),
    (ATTENTION, heads(1, 4, 4, 5, 5, 8, 0)),
    (ATTENTION, heads(1, 0, 0, 5, 5, 8, 8)),
    (ATTENTION, heads(1, 4, 0, 5, 5, 8, 8)),
    (ATTENTION, heads(1, 2, 2, 5, 5, 300, 8)),  # larger than the kernels hold
    (ATTENTION, heads(1, 2, 2, 1, 5, 8, 700)),
    (MULTI_HEAD, {"q": floats(1, 2, 12), "k": floats(1, 2, 12), "v": floats(1, 2, 12), "bias": floats(35)}),
    (MULTI_HEAD, {"q": floats(1, 2, 13), "k": floats(1, 2, 13), "v": floats(1, 2, 13), "bias": floats(39)}),
    (MULTI_HEAD, {"q": floats(1, 2, 12), "k": floats(1, 2, 15), "v": floats(1, 2, 12), "bias": floats(39)}),
    (GROUPED.replace("{0}", "{4}"), grouped(1, 3, 8, 5)),
    (GROUPED.replace("{0}", "{4}"), {**grouped(1, 3, 8, 4), "sin": floats(200, 3)}),
    (GROUPED.replace("{0}", "{4}"), {**grouped(1, 3, 8, 4), "pk": floats(2, 2, 3, 9)}),
    (GROUPED.replace("{0}", "{4}"), {**grouped(1, 3, 8, 4), "pv": floats(2, 1, 3, 8)}),
    (GROUPED.replace("{0}", "{4}"), {**grouped(1, 3, 8, 4), "cos": floats(0, 4), "sin": floats(0, 4)}),
    (ROTARY.replace("<OPTIONS>", ""), {"x": floats(2, 3, 7, 8), "p": np.zeros((2, 7), np.int64), **angles(9, 3)}),
    (ROTARY.replace("<OPTIONS>", ""), {"x": floats(2, 3, 7, 7), "p": np.zeros((2, 7), np.int64), **angles(9, 3)}),
    (ROTARY.replace("<OPTIONS>", ""), {"x": floats(2, 3, 7, 0), "p": np.zeros((2, 7), np.int64), **angles(9, 0)}),
    (ROTARY.replace("<OPTIONS>", ""), {"x": floats(2, 3, 7, 8), "p": np.full((2, 7), 9), **angles(9, 4)}),
    (SECTIONS.replace("OPTIONS", ""), {"x": floats(2, 7, 40), "p": np.zeros((3, 2, 7), np.int64), **angles(9, 6)}),
    (SECTIONS.replace("OPTIONS", ""), {"x": floats(2, 7, 36), "p": np.zeros((3, 2, 7), np.int64), **angles(9, 5)}),
    (SECTIONS.replace("OPTIONS", ""), {"x": floats(2, 7, 36), "p": np.full((3, 2, 7), -1), **angles(9, 6)}),
    (LINEAR, {**linear(8, 8, 16, 1), "decay": floats(2, 5, 8)}),
    (LINEAR, {**linear(8, 8, 16, 1), "beta": floats(2, 5, 3)}),
    (LINEAR, {**linear(8, 8, 16, 1), "past": floats(2, 2, 8, 9)}),
    (LINEAR, {**linear(8, 8, 16, 1), "q": floats(2, 5, 34)}),
    (LINEAR, {**linear(8, 8, 16, 1), "k": floats(2, 5, 17)}),
    (EMBED, {**embed(8), "words": floats(0, 8)}),
    (EMBED, {**embed(8), "places": floats(7, 9)}),
    (EMBED, {**embed(8), "places": floats(7, 1)}),
    (EMBED, {**embed(8), "gamma": floats(7)}),
    (EMBED, {**embed(8), "gamma": floats(1)}),
    (EMBED, {**embed(8), "kinds": np.zeros((1, 4), np.int32)}),
    (EMBED, {**embed(8), "mask": np.ones((2, 5), np.int32)}),
    (EMBED, {**embed(8), "at": np.zeros((3, 4), np.int32)}),
    (EMBED, {**embed(8), "at": np.full((2, 4), 7, np.int32)}),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_sizes_that_do_not_fit_are_told_as_numpy_tells_them(number: int) -> None:
    text, feeds = WRONG[number]
    opset = 27 if text is LINEAR else 23
    plan, reference = native_plan(text, opset=opset), make_plan(model_of(text, opset).graph, [CPUExecutionProvider()])
    assert programs(plan), "nothing was compiled"
    with np.errstate(all="ignore"):
        try:
            wanted = execute(reference, feeds)
        except (*CODED, ValueError) as error:
            with pytest.raises(type(error)):
                execute(plan, feeds)
        else:
            compare(execute(plan, feeds), wanted)
