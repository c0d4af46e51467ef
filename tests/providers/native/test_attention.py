"""Attention and rotary embeddings as machine code, against NumPy: masks, caches, bounds, layouts, types, edges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.providers.cpu.attention import attention as numpy_attention
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, change_budgets, native_plan, programs

Feeds = Mapping[str, np.ndarray]
QUICK = settings(max_examples=15, deadline=None)
SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100])


def floats(*shape: int, dtype: object = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def multi_head(inputs: str, operands: str, outputs: str = "float[b,s,n] y", attributes: str = "", heads: int = 4) -> str:
    names = ", ".join(one.split()[-1] for one in outputs.split(", "))
    return f"""g ({inputs}) => ({outputs})
      {{ {names} = com.microsoft.MultiHeadAttention<num_heads={heads}{attributes}>({operands}) }}"""


def projections(
    batch: int, queries: int, keys: int, size: int = 40, value_size: int = 40, seed: int = 0
) -> dict[str, np.ndarray]:
    return {
        "q": floats(batch, queries, size, seed=seed),
        "k": floats(batch, keys, size, seed=seed + 1),
        "v": floats(batch, keys, value_size, seed=seed + 2),
    }


# --- MultiHeadAttention

PLAIN = multi_head("float[b,s,40] q, float[b,t,40] k, float[b,t,28] v", "q, k, v", "float[b,s,28] y")
WITH_BIAS = multi_head(
    "float[b,s,40] q, float[b,t,40] k, float[b,t,40] v, float[b,1,s,t] m", 'q, k, v, "", "", m', "float[b,s,40] y"
)
WITH_PAST = multi_head(
    "float[b,s,40] q, float[b,s,40] k, float[b,s,40] v, float[b,1,s,t] m, float[b,4,p,10] pk, float[b,4,p,10] pv",
    'q, k, v, "", "", m, pk, pv',
    "float[b,s,40] y, float[b,4,t,10] kk, float[b,4,t,10] vv",
)


@QUICK
@given(st.integers(0, 3), SIZES, SIZES, st.integers(0, 99))
def test_any_sizes(batch: int, queries: int, keys: int, seed: int) -> None:
    assert_agrees(PLAIN, projections(batch, queries, keys, 40, 28, seed))


@QUICK
@given(st.integers(1, 2), SIZES, SIZES, st.integers(0, 99))
def test_a_bias_for_every_pair(batch: int, queries: int, keys: int, seed: int) -> None:
    bias = floats(batch, 1, queries, keys, seed=seed)
    assert_agrees(WITH_BIAS, {**projections(batch, queries, keys, seed=seed), "m": bias})


@QUICK
@given(st.integers(1, 2), st.sampled_from([1, 2, 5, 8, 9, 33]), st.sampled_from([0, 1, 63, 64, 65, 130]), st.integers(0, 99))
def test_past_and_present(batch: int, queries: int, past: int, seed: int) -> None:
    assert_agrees(WITH_PAST, with_past(batch, queries, past, seed))


WHOLE_VECTORS = multi_head(
    "{t}[b,s,128] q, {t}[b,s,128] k, {t}[b,s,128] v, {t}[b,4,p,32] pk, {t}[b,4,p,32] pv",
    'q, k, v, "", "", "", pk, pv',
    "{t}[b,s,128] y, {t}[b,4,t,32] kk, {t}[b,4,t,32] vv",
)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("past", [0, 1, 64, 130])
def test_caches_that_go_past_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch, dtype: type, past: int) -> None:
    change_budgets(monkeypatch, between_runs=1)
    text = WHOLE_VECTORS.replace("{t}", "float" if dtype is np.float32 else "float16")
    feeds = {name: floats(2, 1, 128, dtype=dtype, seed=seed) for seed, name in enumerate("qkv")}
    feeds |= {name: floats(2, 4, past, 32, dtype=dtype, seed=seed) for seed, name in enumerate(("pk", "pv"))}
    assert_agrees(text, feeds)
    (program,) = programs(native_plan(text, threads=2))
    expected = program([feeds[value.name] for value in program.program.inputs])  # type: ignore[union-attr]
    for shift in (0, 1, 4, 8):  # memory of the caller may lie anywhere
        targets = [np.zeros(one.size + shift, dtype)[shift:].reshape(one.shape) for one in expected]
        program([feeds[value.name] for value in program.program.inputs], destinations=targets)  # type: ignore[union-attr]
        for one, other in zip(targets, expected):
            np.testing.assert_array_equal(one, other)


def with_past(batch: int, queries: int, past: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {
        **projections(batch, queries, queries, seed=seed),
        "m": floats(batch, 1, queries, past + queries, seed=seed),
        "pk": floats(batch, 4, past, 10, seed=seed),
        "pv": floats(batch, 4, past, 10, seed=seed + 1),
    }


def test_long_pasts_are_split_among_threads() -> None:
    text = multi_head(
        "float[1,1,64] q, float[1,1,64] k, float[1,1,64] v, float[1,1,p,64] pk, float[1,1,p,64] pv",
        'q, k, v, "", "", "", pk, pv',
        "float[1,1,64] y, float[1,1,t,64] kk, float[1,1,t,64] vv",
        heads=1,
    )
    sets = [
        {**projections(1, 1, 1, 64, 64), "pk": floats(1, 1, past, 64), "pv": floats(1, 1, past, 64, seed=1)}
        for past in (511, 1023, 1100, 5000)
    ]
    assert_agrees(text, sets)


@pytest.mark.parametrize("shape", ["1,1,1,t", "b,1,1,t", "1,4,s,t", "b,4,1,t", "s,t", "t", "1,1,s,1"])
def test_biases_are_broadcast(shape: str) -> None:
    text = multi_head(
        f"float[b,s,40] q, float[b,t,40] k, float[b,t,40] v, float[{shape}] m", 'q, k, v, "", "", m', "float[b,s,40] y"
    )
    sizes = {"b": 2, "s": 19, "t": 21, "1": 1, "4": 4}
    for queries in (3, 19):
        mask = floats(*(queries if one == "s" else sizes[one] for one in shape.split(",")))
        assert_agrees(text, {**projections(2, queries, 21), "m": mask})


@pytest.mark.parametrize("shape", [("b",), ("b", "t"), ("b", "s", "t")])
def test_padding(shape: Sequence[str]) -> None:
    text = multi_head(
        f"float[b,s,40] q, float[b,t,40] k, float[b,t,40] v, int32[{','.join(shape)}] m",
        'q, k, v, "", m',
        "float[b,s,40] y",
        ", mask_filter_value=-50.0, unidirectional=1",
    )
    for queries in (2, 40):
        sizes = [{"b": 2, "s": queries, "t": 40}[one] for one in shape]
        random = np.random.default_rng(queries)
        mask = random.integers(0, 41 if len(shape) == 1 else 2, sizes).astype(np.int32)
        assert_agrees(text, {**projections(2, queries, 40), "m": mask})


def test_bias_of_the_projections() -> None:
    text = multi_head("float[b,s,40] q, float[b,t,40] k, float[b,t,28] v, float[108] c", "q, k, v, c", "float[b,s,28] y")
    for queries in (1, 20):
        assert_agrees(text, {**projections(2, queries, 11, 40, 28), "c": floats(108)})


def test_keys_of_an_encoder_have_their_heads_apart() -> None:
    text = multi_head("float[b,s,40] q, float[b,4,t,10] k, float[b,4,t,7] v", "q, k, v", "float[b,s,28] y")
    for queries in (1, 20):
        assert_agrees(text, {"q": floats(2, queries, 40), "k": floats(2, 4, 33, 10), "v": floats(2, 4, 33, 7)})


def test_packed_projections() -> None:
    whole = multi_head("float[b,s,4,3,10] q", "q", "float[b,s,40] y")
    joined = multi_head("float[b,s,40] q, float[b,t,4,2,10] k", "q, k", "float[b,s,40] y")
    for queries in (1, 20):
        assert_agrees(whole, {"q": floats(2, queries, 4, 3, 10)})
        assert_agrees(joined, {"q": floats(2, queries, 40), "k": floats(2, 13, 4, 2, 10)})


def test_causal() -> None:
    text = multi_head(
        "float[b,s,40] q, float[b,s,40] k, float[b,s,40] v, float[b,4,p,10] pk, float[b,4,p,10] pv",
        'q, k, v, "", "", "", pk, pv',
        "float[b,s,40] y, float[b,4,t,10] kk, float[b,4,t,10] vv",
        ", unidirectional=1, scale=0.2",
    )
    sets = [{**with_past(2, queries, past)} for queries, past in ((70, 0), (70, 70), (1, 3), (5, 200), (200, 1))]
    assert_agrees(text, [{name: array for name, array in one.items() if name != "m"} for one in sets])


@pytest.mark.parametrize("queries", [2, 35])
def test_infinities_and_nans(queries: int) -> None:
    given = {**projections(2, queries, 37), "m": floats(2, 1, queries, 37)}
    given["m"][0, 0, 0] = -math.inf
    given["m"][0, 0, 1, 5:] = -math.inf
    given["m"][1, 0, 0] = np.finfo(np.float32).min
    given["m"][1, 0, 1, 3] = math.nan
    given["m"][1, 0, 1, 30] = math.inf
    with np.errstate(invalid="ignore"):
        assert_agrees(WITH_BIAS, given)
    nan = projections(1, queries, 37, 40, 28)
    nan["q"][0, 1, 3] = np.array(0x7FFFFFFF, np.int32).view(np.float32)
    assert_agrees(PLAIN, nan)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(dtype: str) -> None:
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    sets = [{name: array.astype(kind) for name, array in with_past(2, *sizes).items()} for sizes in ((1, 70), (40, 3), (3, 0))]
    assert_agrees(WITH_PAST.replace("float[", f"{dtype}["), sets)


@pytest.mark.parametrize("size", [1, 5, 16, 24, 64, 80, 128, 160, 300])
def test_sizes_of_heads(size: int) -> None:
    text = multi_head(
        f"float[b,s,{2 * size}] q, float[b,t,{2 * size}] k, float[b,t,{2 * size}] v",
        "q, k, v",
        f"float[b,s,{2 * size}] y",
        heads=2,
    )
    assert_agrees(text, [projections(1, queries, 70, 2 * size, 2 * size) for queries in (1, 18, 40)])


def test_one_compilation_serves_all_shapes() -> None:
    plan = native_plan(WITH_PAST)
    (program,) = programs(plan)
    before = program.jit.compilations
    assert_agrees(WITH_PAST, [with_past(1, queries, past) for queries in (1, 4, 20) for past in (0, 5)])
    assert program.jit.compilations == before


def test_layers_share_a_mask() -> None:
    text = """g (float[b,s,40] q, float[b,t,40] k, float[b,t,40] v, float[b,1,s,t] m) => (float[b,s,40] y)
      { x = com.microsoft.MultiHeadAttention<num_heads=4>(q, k, v, "", "", m)
        y = com.microsoft.MultiHeadAttention<num_heads=4>(x, k, v, "", "", m) }"""
    assert_agrees(text, [{**projections(2, queries, 21), "m": floats(2, 1, queries, 21)} for queries in (2, 50)], steps=7)


# --- Attention of com.microsoft


def projected(inputs: str = "", operands: str = "", attributes: str = "", outputs: str = "", width: int = 24) -> str:
    more = outputs.split()[-1] if outputs else '""'
    return f"""g (float[b,s,12] x, float[12,{width}] w, float[{width}] c{inputs}) => (float[b,s,v] y{outputs})
      {{ y, {more} = com.microsoft.Attention<num_heads=2{attributes}>(x, w, c{operands}) }}"""


@pytest.mark.parametrize("shape", ["", "b", "c", "b,s", "b,s,s"])
@pytest.mark.parametrize("causal", [0, 1])
def test_projections_inside(shape: str, causal: int) -> None:
    text = projected(shape and f", int32[{shape.replace('c', '4')}] m", shape and ", m", f", unidirectional={causal}")
    text = text.replace("[b,", "[2,").replace("[b]", "[2]")
    for length in (3, 21):
        given = {"x": floats(2, length, 12), "w": floats(12, 24), "c": floats(24)}
        sizes = [{"b": 2, "s": length, "c": 4}[one] for one in shape.split(",")] if shape else []
        high = length if len(sizes) == 1 else 2
        mask = np.random.default_rng(length).integers(0, high, sizes).astype(np.int32)
        assert_agrees(text, {**given, "m": mask} if shape else given)


def test_projections_inside_with_past() -> None:
    text = projected(", float[2,b,2,p,4] q", ', "", q', ", unidirectional=1", ", float[2,b,2,t,4] z")
    for length, past in ((1, 9), (20, 3), (2, 0)):
        given = {"x": floats(2, length, 12), "w": floats(12, 24), "c": floats(24), "q": floats(2, 2, 2, past, 4)}
        assert_agrees(text, given)


def test_projections_of_different_sizes() -> None:
    text = projected(attributes=", qkv_hidden_sizes=[8, 8, 12]", width=28)
    assert_agrees(text, {"x": floats(2, 11, 12), "w": floats(12, 28), "c": floats(28)})


# --- GroupQueryAttention


def grouped(extra: str = "", operands: str = "", attributes: str = "", total: int = 0, cache: str = "p") -> str:
    return f"""g (float[b,s,64] q, float[b,s,16] k, float[b,s,16] v, float[b,2,{cache},8] pk, float[b,2,{cache},8] pv,
      int32[b] n{extra}) => (float[b,s,64] y, float[b,2,t,8] kk, float[b,2,t,8] vv) <int32 total = {{{total}}}>
      {{ y, kk, vv = com.microsoft.GroupQueryAttention<num_heads=8, kv_num_heads=2{attributes}>(
        q, k, v, pk, pv, n, total{operands}) }}"""


def grouped_feeds(batch: int, queries: int, capacity: int, totals: Sequence[int]) -> dict[str, np.ndarray]:
    return {
        "q": floats(batch, queries, 64),
        "k": floats(batch, queries, 16),
        "v": floats(batch, queries, 16, seed=1),
        "pk": floats(batch, 2, capacity, 8),
        "pv": floats(batch, 2, capacity, 8, seed=1),
        "n": np.array(totals, np.int32) - 1,
    }


@pytest.mark.parametrize(
    ("queries", "capacity", "totals"),
    [(1, 70, (71, 30)), (1, 100, (71, 1)), (3, 70, (73, 3)), (40, 40, (80, 45)), (20, 20, (20, 11)), (5, 9, (5, 2))],
)
@pytest.mark.parametrize(
    "attributes", ["", ", local_window_size=5", ", softcap=2.0, scale=0.7", ", causal=0", ", smooth_softmax=1"]
)
def test_grouped(queries: int, capacity: int, totals: Sequence[int], attributes: str) -> None:
    longest = max(totals)
    assert_agrees(grouped(attributes=attributes, total=longest), grouped_feeds(2, queries, capacity, totals))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [3, 4])
def test_grouped_with_rotary(interleaved: int, half: int) -> None:
    text = grouped(
        f", float[128,{half}] cos, float[128,{half}] sin",
        ", cos, sin",
        f", do_rotary=1, rotary_interleaved={interleaved}",
        total=73,
    )
    for queries, totals in ((3, (73, 50)), (33, (73, 33)), (73, (73, 10))):
        caches = {"cos": floats(128, half), "sin": floats(128, half, seed=1)}
        assert_agrees(text, {**grouped_feeds(2, queries, 70, totals), **caches})


def test_grouped_with_bias_and_sink() -> None:
    text = grouped(", float[b,1,s,40] m, float[8] sink", ', "", "", "", m, sink', total=40)
    for queries, totals in ((2, (40, 7)), (20, (40, 25))):
        more = {"m": floats(2, 1, queries, 40), "sink": floats(8)}
        assert_agrees(text, {**grouped_feeds(2, queries, 40, totals), **more})


def test_grouped_packed_without_past() -> None:
    text = """g (float[b,s,96] q, int32[b] n) => (float[b,s,64] y, float[b,2,t,8] kk, float[b,2,t,8] vv) <int32[1] total = {21}>
      { y, kk, vv = com.microsoft.GroupQueryAttention<num_heads=8, kv_num_heads=2>(q, "", "", "", "", n, total) }"""
    assert_agrees(text, {"q": floats(2, 21, 96), "n": np.array([20, 3], np.int32)})


def test_grouped_in_half_precision() -> None:
    text = grouped(", float[128,4] cos, float[128,4] sin", ", cos, sin", ", do_rotary=1", total=73).replace(
        "float[", "float16["
    )
    for queries, totals in ((3, (73, 50)), (33, (73, 33))):
        given = {**grouped_feeds(2, queries, 70, totals), "cos": floats(128, 4), "sin": floats(128, 4, seed=1)}
        assert_agrees(text, {name: array if name == "n" else array.astype(np.float16) for name, array in given.items()})


def test_wrong_lengths_are_told_as_numpy_tells_them() -> None:
    with pytest.raises(Exception, match="does not go with"):
        assert_agrees(grouped(total=71), grouped_feeds(2, 1, 70, (72, 5)))


# --- ONNX Attention


def standard(inputs: str, operands: str, outputs: str, attributes: str = "") -> str:
    names = ", ".join(one.split()[-1] for one in outputs.split(", "))
    return f"g ({inputs}) => ({outputs}) {{ {names} = Attention<{attributes}>({operands}) }}"


HEADS_APART = "float[b,6,s,8] q, float[b,2,t,8] k, float[b,2,t,5] v"


def apart(batch: int, queries: int, keys: int) -> dict[str, np.ndarray]:
    return {"q": floats(batch, 6, queries, 8), "k": floats(batch, 2, keys, 8), "v": floats(batch, 2, keys, 5)}


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("attributes", ["is_causal=1", "softcap=3.0", "scale=0.4, is_causal=1", "softmax_precision=1"])
def test_standard(opset: int, attributes: str) -> None:
    text = standard(HEADS_APART, "q, k, v", "float[b,6,s,5] y", attributes)
    assert_agrees(text, [apart(2, *sizes) for sizes in ((1, 20), (4, 4), (40, 40), (50, 20), (20, 50))], opset=opset)


@pytest.mark.parametrize("shape", ["s,t", "b,1,s,t", "1,6,1,t", "b,6,s,t"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_standard_masks(shape: str, kind: str) -> None:
    text = standard(f"{HEADS_APART}, {kind}[{shape}] m", "q, k, v, m", "float[b,6,s,5] y", "is_causal=1")
    for queries in (3, 40):
        sizes = [{"b": 2, "s": queries, "t": 43}.get(one) or int(one) for one in shape.split(",")]
        mask = floats(*sizes)
        mask[..., :2, :] = -math.inf  # the first queries may see nothing
        assert_agrees(text, {**apart(2, queries, 43), "m": mask > 0 if kind == "bool" else mask}, opset=23)


def test_standard_with_past_and_merged_heads() -> None:
    text = standard(
        "float[b,s,48] q, float[b,s,16] k, float[b,s,16] v, float[b,2,p,8] pk, float[b,2,p,8] pv",
        'q, k, v, "", pk, pv',
        "float[b,s,48] y, float[b,2,t,8] kk, float[b,2,t,8] vv",
        "q_num_heads=6, kv_num_heads=2, is_causal=1",
    )
    for queries, past in ((1, 70), (40, 3), (2, 0)):
        given = {"q": floats(2, queries, 48), "k": floats(2, queries, 16), "v": floats(2, queries, 16, seed=1)}
        assert_agrees(text, {**given, "pk": floats(2, 2, past, 8), "pv": floats(2, 2, past, 8, seed=1)}, opset=23)


def test_standard_lengths() -> None:
    text = standard(f"{HEADS_APART}, int64[b] n", 'q, k, v, "", "", "", n', "float[b,6,s,5] y", "is_causal=1")
    for queries in (2, 20):
        for lengths in ((43, 20), (25, 1)):
            assert_agrees(text, {**apart(2, queries, 43), "n": np.array(lengths)}, opset=24)


@pytest.mark.parametrize("kind", ["double", "float16", "bfloat16"])
def test_standard_types(kind: str) -> None:
    text = standard(HEADS_APART, "q, k, v", "float[b,6,s,5] y", "is_causal=1").replace("float[", f"{kind}[")
    dtype = {"double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[kind]
    sets = [{name: array.astype(dtype) for name, array in apart(2, *sizes).items()} for sizes in ((1, 20), (40, 40))]
    assert_agrees(text, sets, opset=23)


def test_standard_rounds_bfloat16_once() -> None:
    """NumPy rounds after every step; the kernel's results are the nearest to the true ones, but for ties and the last bits of its sums."""
    text = standard(HEADS_APART, "q, k, v", "float[b,6,s,5] y", "is_causal=0").replace("float[", "bfloat16[")
    feeds = {name: array.astype(ml_dtypes.bfloat16) for name, array in apart(2, 9, 70).items()}
    (got,) = execute(native_plan(text, opset=23), feeds)
    wanted, *_ = numpy_attention(*(array.astype(np.float64) for array in feeds.values()))
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2.0**-8 * 1.001)


# --- RotaryEmbedding


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("size", "width"), [(8, 0), (64, 0), (20, 12), (6, 0)])
def test_rotary(interleaved: int, size: int, width: int) -> None:
    half = (width or size) // 2
    attributes = f"num_heads=3, interleaved={interleaved}, rotary_embedding_dim={width}"
    caches = {"cos": floats(50, half), "sin": floats(50, half, seed=1)}
    tokens = {"x": floats(2, 7, 3 * size), "p": np.random.default_rng(0).integers(0, 50, (2, 7)), **caches}
    inputs = f"float[b,s,{3 * size}] x, int64[b,s] p, float[c,{half}] cos, float[c,{half}] sin"
    outputs = f"float[b,s,{3 * size}] y"
    contrib = f"g ({inputs}) => ({outputs}) {{ y = com.microsoft.RotaryEmbedding<{attributes}>(x, p, cos, sin) }}"
    assert_agrees(contrib, tokens)
    assert_agrees(contrib.replace("int64[b,s]", "int64[1]"), {**tokens, "p": np.array([40])})
    assert_agrees(f"g ({inputs}) => ({outputs}) {{ y = RotaryEmbedding<{attributes}>(x, cos, sin, p) }}", tokens, opset=23)


def test_rotary_with_heads_apart_and_angles_of_each_token() -> None:
    text = """g (float[b,3,s,8] x, float[b,s,4] cos, float[b,s,4] sin) => (float[b,3,s,8] y)
      { y = RotaryEmbedding(x, cos, sin) }"""
    assert_agrees(text, {"x": floats(2, 3, 5, 8), "cos": floats(2, 5, 4), "sin": floats(2, 5, 4, seed=1)}, opset=23)


def test_positions_out_of_range_are_told() -> None:
    text = """g (float[b,s,8] x, int64[b,s] p, float[c,4] cos, float[c,4] sin) => (float[b,s,8] y)
      { y = com.microsoft.RotaryEmbedding(x, p, cos, sin) }"""
    given = {"x": floats(1, 2, 8), "p": np.array([[1, 9]]), "cos": floats(9, 4), "sin": floats(9, 4)}
    with pytest.raises(Exception, match="out of range"):
        assert_agrees(text, given)
