"""Forms of ops that few models have agree with NumPy's: sizes, norms, modes and types beyond the usual ones."""

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

TYPES: dict[str, Any] = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "double": np.float64}
FEW = settings(max_examples=12, deadline=None)
each_type = pytest.mark.parametrize("name", TYPES)


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is compared with NumPy must not be NumPy's own."""
    if "refused" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


def numbers(name: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(TYPES[name])


# --- normalization and pools


@each_type
@pytest.mark.parametrize(
    "attributes", ["alpha=-1.0, beta=0.5, bias=0.0, size=3", "alpha=0.5, beta=0.3, size=4", "size=1099511627777"]
)
def test_neighbouring_channels(name: str, attributes: str) -> None:
    planes = f"g ({name}[N,C,H,W] x) => ({name}[N,C,H,W] y) {{ y = LRN<{attributes}>(x) }}"
    turned = f"g ({name}[N,H,W,C] x) => ({name}[N,C,H,W] y) {{ z = Transpose<perm=[0,3,1,2]>(x) y = LRN<{attributes}>(z) }}"
    for source in (planes, turned):
        assert_agrees(source, [{"x": numbers(name, 2, 7, 5, 20)}, {"x": numbers(name, 0, 1, 1, 1)}])


@each_type
@pytest.mark.parametrize("p", [1, 3, 5])
def test_norms_of_any_order(name: str, p: int) -> None:
    whole = f"g ({name}[N,C,H,W] x) => ({name}[N,C,1,1] y) {{ y = GlobalLpPool<p={p}>(x) }}"
    pooled = f"g ({name}[N,C,H,W] x) => ({name}[N,C,P,Q] y) {{ y = LpPool<p={p}, kernel_shape=[2,3], pads=[1,1,0,0]>(x) }}"
    for source in (whole, pooled):
        assert_agrees(source, {"x": numbers(name, 2, 3, 5, 9)}, opset=22)


UNPOOLED = """g ({0}[1,2,H,W] x, int64[1,2,H,W] i) => ({0}[1,2,{1},{2}] y) <int64[4] s = {{1, 2, {1}, {2}}}> {{
    y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i, s) }}"""


@FEW
@given(
    name=st.sampled_from(list(TYPES)),
    height=st.integers(4, 9),
    width=st.integers(4, 9),
    is_own=st.booleans(),
    size=st.integers(0, 3),
)
def test_pixels_put_into_another_shape(name: str, height: int, width: int, is_own: bool, size: int) -> None:
    rs = np.random.default_rng(height)
    count = 2 * (2 * size) ** 2 if is_own else 2 * height * width
    places = rs.permutation(max(count, 18))[: 2 * size * size].reshape(1, 2, size, size)
    if places.size and places.max() >= count:
        return
    feeds = {"x": numbers(name, 1, 2, size, size), "i": places}
    assert_agrees(UNPOOLED.format(name, height, width), feeds, opset=22)


@pytest.mark.parametrize("place", [-1, 2 * 7 * 7])
def test_places_beyond_the_shape_are_refused(place: int) -> None:
    places = np.arange(8).reshape(1, 2, 2, 2)
    places[0, 0, 0, 0] = place
    with pytest.raises(CODED, match="index"):
        execute(native_plan(UNPOOLED.format("float", 7, 7), opset=22), {"x": np.ones((1, 2, 2, 2), np.float32), "i": places})


# --- indexing

SCATTERED = """g ({0}[A,B] x, int64[A,C] i, {0}[A,C] u) => ({0}[A,B] y) {{
    y = ScatterElements<axis=1, reduction="{1}">(x, i, u) }}"""


@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
def test_booleans_that_are_joined(reduction: str) -> None:
    rs = np.random.default_rng(0)
    x, u, rows = (rs.integers(0, 2, shape).astype(bool) for shape in ((4, 70), (4, 90), (3, 70)))
    assert_agrees(SCATTERED.format("bool", reduction), {"x": x, "i": rs.integers(-70, 70, (4, 90)), "u": u})
    source = (
        f'g (bool[A,B] x, int64[C,1] i, bool[C,B] u) => (bool[A,B] y) {{ y = ScatterND<reduction="{reduction}">(x, i, u) }}'
    )
    assert_agrees(source, {"x": x, "i": np.array([[0], [3], [-1]]), "u": rows})


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_complex_numbers_are_moved_and_not_joined_as_bits(reduction: str) -> None:
    x = (np.arange(6) + 1j).reshape(2, 3).astype(np.complex64)
    plan = native_plan(SCATTERED.format("complex64", reduction))
    (y,) = execute(plan, {"x": x, "i": np.array([[0], [2]]), "u": np.array([[2j], [3]], np.complex64)})
    wanted = x.copy()
    wanted[0, 0], wanted[1, 2] = {"none": (2j, 3), "add": (3j, 8 + 1j), "mul": (-2, 15 + 3j)}[reduction]
    np.testing.assert_array_equal(y, wanted)


def test_marks_of_unsigned_numbers() -> None:
    source = "g (uint64[N] i) => (float[N,4] y) <int64 d = {4}, float[2] v = {0, 1}> { y = OneHot(i, d, v) }"
    assert_agrees(source, {"i": np.array([0, 3, 4, 2**63, 2**64 - 1, 2**63 - 1], np.uint64)})


# --- signals


@FEW
@given(
    bands=st.integers(0, 40), length=st.integers(0, 600), low=st.floats(0, 300, width=32), width=st.floats(1, 9000, width=32)
)
def test_bands_of_mels(bands: int, length: int, low: float, width: float) -> None:
    source = f"""g (int64 r, float a, float b) => (float[A,B] y) <int64 n = {{{bands}}}, int64 l = {{{length}}}> {{
        y = MelWeightMatrix(n, l, r, a, b) }}"""
    feeds = {"r": np.array(16000), "a": np.array(low, np.float32), "b": np.array(low + width, np.float32)}
    assert_agrees(source, feeds)


def test_bands_that_end_at_whole_numbers_or_nowhere_are_refused_or_numpys() -> None:
    source = (
        "g (int64 r, float a, float b) => (float[A,B] y) <int64 n = {4}, int64 l = {15}> { y = MelWeightMatrix(n, l, r, a, b) }"
    )
    for rate, low, high in ((16, 1.0, 1.0), (16, 3.0, 3.0), (8000, 5.0, 5.0)):
        assert_agrees(source, {"r": np.array(rate), "a": np.array(low, np.float32), "b": np.array(high, np.float32)})
