"""Attention without padding, biases by distance and rotations by several positions agree with NumPy's, in native code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import CODED
from sardonyx.providers.native import provider
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan

TYPES: dict[str, Any] = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FEW = settings(max_examples=10, deadline=None)
halves_too = pytest.mark.parametrize("name", ["float", "float16"])


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is compared with NumPy must not be NumPy's own."""
    if "refused" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


def numbers(name: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(TYPES[name])


def packed(lengths: list[int], longest: int) -> dict[str, np.ndarray]:
    """Where the tokens of batches of some lengths stand, those of padding last; and where each batch ends."""
    own = [batch * longest + place for batch, length in enumerate(lengths) for place in range(length)]
    rest = sorted(set(range(len(lengths) * longest)) - set(own))
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    return {"o": np.array(own + rest, np.int32).reshape(len(lengths), longest), "c": ends}


batches = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@halves_too
@FEW
@given(lengths=batches, more=st.integers(0, 2))
def test_tokens_of_several_batches(name: str, lengths: list[int], more: int) -> None:
    feeds, count = packed(lengths, max(lengths) + more), sum(lengths)
    source = f"g ({name}[T,8] x, int32[B,S] o) => ({name}[B,S,8] y) {{ y = com.microsoft.RestorePadding(x, o) }}"
    assert_agrees(source, {"x": numbers(name, count, 8), "o": feeds["o"]})
    source = f"""g ({name}[T,8] x, {name}[8,24] w, {name}[24] b, int32[B,S] o, int32[C] c) => ({name}[T,8] y) {{
        y = com.microsoft.PackedAttention<num_heads=2>(x, w, b, o, c) }}"""
    assert_agrees(
        source, {"x": numbers(name, count, 8), "w": numbers(name, 8, 24), "b": numbers(name, 24), **feeds}, tolerance=4e-3
    )
    source = f"""g ({name}[T,8] q, {name}[T,8] k, {name}[T,8] v, {name}[24] b, int32[B,S] o, int32[C] c) => ({name}[T,8] y) {{
        y = com.microsoft.PackedMultiHeadAttention<num_heads=2>(q, k, v, b, o, c) }}"""
    parts = {key: numbers(name, count, 8) for key in "qkv"}
    assert_agrees(source, {**parts, "b": numbers(name, 24), **feeds}, tolerance=4e-3)
    source = f"""g ({name}[T,2,3,4] q, int32[B,S] o, int32[C] c) => ({name}[T,8] y) {{
        y = com.microsoft.PackedMultiHeadAttention<num_heads=2>(q, , , , o, c) }}"""
    assert_agrees(source, {"q": numbers(name, count, 2, 3, 4), **feeds}, tolerance=4e-3)


def test_tokens_that_stand_nowhere_are_refused() -> None:
    plan = native_plan("g (float[T,8] x, int32[B,S] o) => (float[B,S,8] y) { y = com.microsoft.RestorePadding(x, o) }")
    with pytest.raises((*CODED, IndexError)):
        execute(plan, {"x": np.ones((2, 8), np.float32), "o": np.array([[0, 9]], np.int32)})


@halves_too
@FEW
@given(
    queries=st.integers(0, 40), keys=st.integers(0, 300), is_bidirectional=st.booleans(), distance=st.sampled_from([17, 128])
)
def test_biases_by_distance(name: str, queries: int, keys: int, is_bidirectional: bool, distance: int) -> None:
    source = f"""g ({name}[32,4] t) => ({name}[1,4,Q,K] y) <int64 q = {{{queries}}}, int64 k = {{{keys}}}> {{
        y = com.microsoft.RelativePositionBias<max_distance={distance}, is_bidirectional={int(is_bidirectional)}>(t, q, k) }}"""
    assert_agrees(source, {"t": numbers(name, 32, 4)})


@halves_too
@pytest.mark.parametrize("is_packed", [False, True])
def test_biases_through_gates(name: str, is_packed: bool) -> None:
    query, more, last = (f"{name}[T,8] q", ", int32[B,S] o", ", o") if is_packed else (f"{name}[B,S,8] q", "", "")
    source = f"""g ({query}, {name}[8] a, {name}[1,2,S,S] r, {name}[4,8] w, {name}[8] b, {name}[1,2,1,1] e{more})
        => ({name}[B,2,S,S] y) {{ y = com.microsoft.GatedRelativePositionBias<num_heads=2>(q, a, r, w, b, e{last}) }}"""
    shapes = {"q": (4, 8) if is_packed else (2, 3, 8), "a": (8,), "r": (1, 2, 3, 3), "w": (4, 8), "b": (8,), "e": (1, 2, 1, 1)}
    feeds = {key: numbers(name, *shape) for key, shape in shapes.items()}
    assert_agrees(source, feeds | ({"o": packed([3, 1], 3)["o"]} if is_packed else {}))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("heads_first", [False, True])
def test_rotations_by_three_positions(name: str, layout: int, heads_first: bool) -> None:
    shape, given = ((2, 2, 5, 8), "B,2,S,8") if heads_first else ((2, 5, 16), "B,S,16")
    source = f"""g ({name}[{given}] x, int64[3,B,S] p, {name}[20,4] c, {name}[20,4] s) => ({name}[{given}] y) {{
        y = com.microsoft.MRotaryEmbedding
            <num_heads=2, mrope_section=[2,1,1], mrope_layout={layout}, interleaved={int(heads_first)}>(x, p, c, s) }}"""
    positions = np.random.default_rng(0).integers(0, 20, (3, 2, 5))
    assert_agrees(source, {"x": numbers(name, *shape), "p": positions, "c": numbers(name, 20, 4), "s": numbers(name, 20, 4)})


@pytest.mark.parametrize("position", [-1, 20])
def test_positions_without_angles_are_refused(position: int) -> None:
    source = """g (float[B,S,16] x, int64[3,B,S] p, float[20,4] c) => (float[B,S,16] y) {
        y = com.microsoft.MRotaryEmbedding<num_heads=2, mrope_section=[2,1,1]>(x, p, c, c) }"""
    feeds = {"x": np.ones((1, 1, 16), np.float32), "p": np.full((3, 1, 1), position), "c": np.ones((20, 4), np.float32)}
    with pytest.raises(CODED, match="range"):
        execute(native_plan(source), feeds)
