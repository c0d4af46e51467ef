"""Generated MaxRoiPool, CropAndResize and DeformConv agree with NumPy's and with formulas in float64, whatever regions and offsets are."""

from __future__ import annotations

import itertools
import math
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
FEW = settings(max_examples=15, deadline=None)


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is compared with NumPy must not be NumPy's own."""
    if "refused" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


# --- MaxRoiPool


def pooled(name: str, height: int = 3, width: int = 2, scale: float = 0.5) -> str:
    return f"""g ({name}[N,C,H,W] x, {name}[R,5] r) => ({name}[R,C,{height},{width}] y) {{
        y = MaxRoiPool<pooled_shape=[{height},{width}], spatial_scale={scale}>(x, r) }}"""


@pytest.mark.parametrize("name", TYPES)
@FEW
@given(st.data())
def test_the_largest_pixels_of_any_regions(name: str, data: st.DataObject) -> None:
    draw = data.draw
    images, channels, height, width = draw(st.integers(1, 3)), *(draw(st.integers(0, 40)) for _ in range(3))
    rs = np.random.default_rng(channels)
    count = draw(st.integers(0, 6))
    x = rs.standard_normal((images, channels, height, width)).astype(TYPES[name])
    if x.size:
        x.reshape(-1)[rs.choice(x.size, 5)] = [np.nan, np.inf, -np.inf, -0.0, 0.0]
    regions = np.concatenate([rs.integers(0, images, (count, 1)), rs.uniform(-20, 80, (count, 4))], 1).astype(TYPES[name])
    assert_agrees(pooled(name, draw(st.integers(1, 4)), draw(st.integers(1, 4))), {"x": x, "r": regions}, opset=22)


def test_what_has_no_number_is_0_and_nan_stays() -> None:
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 3, 3] = np.nan
    regions = np.array([[0, 0, 0, 4, 4], [0, 6, 6, 8, 8], [0, 40, 40, 50, 50]], np.float32)
    plan = native_plan(pooled("float", 1, 1), opset=22)
    (y,) = execute(plan, {"x": x, "r": regions})
    np.testing.assert_array_equal(y.reshape(-1), [0, np.nan, 0])


@pytest.mark.parametrize("entry", [1, -1, np.nan, 1e30])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_regions_that_are_nowhere_are_refused_or_computed_as_numpy_does(entry: float, place: int) -> None:
    regions = np.zeros((2, 5), np.float32)
    regions[1, place] = entry
    feeds = {"x": np.ones((1, 3, 4, 4), np.float32), "r": regions}
    try:
        assert_agrees(pooled("float"), feeds)
    except (*CODED, ValueError, OverflowError) as error:
        assert place == 0 or not math.isfinite(entry) or abs(entry) > 1e9, error


# --- CropAndResize


def cropped(name: str, height: int, width: int, mode: str) -> str:
    return f"""g ({name}[N,C,H,W] x, {name}[R,4] r, int32[R] b) => ({name}[R,C,{height},{width}] y)
        <int32[2] size = {{{height}, {width}}}> {{
        y = com.microsoft.CropAndResize<mode="{mode}", extrapolation_value=1.7>(x, r, b, size) }}"""


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("name", [name for name in TYPES if name != "bfloat16"])
@FEW
@given(st.data())
def test_crops_of_any_size(name: str, mode: str, data: st.DataObject) -> None:
    draw = data.draw
    images, height, width = (draw(st.integers(1, 6)) for _ in range(3))
    channels, count = draw(st.integers(0, 20)), draw(st.integers(0, 6))
    rs = np.random.default_rng(channels)
    feeds = {
        "x": rs.standard_normal((images, channels, height, width)).astype(TYPES[name]),
        "r": rs.choice([0, 1, 0.5, -0.2, 1.2, 0.3, 0.8, np.inf], (count, 4)).astype(TYPES[name]),
        "b": rs.integers(0, images, count).astype(np.int32),
    }
    feeds["r"][:, 2:] = np.where(
        np.isfinite(feeds["r"][:, 2:]), feeds["r"][:, 2:], 1
    )  # between two infinities there is nothing
    feeds["r"][:, :2] = np.where(np.isfinite(feeds["r"][:, :2]), feeds["r"][:, :2], 0)
    assert_agrees(cropped(name, draw(st.integers(1, 5)), draw(st.integers(1, 5)), mode), feeds)


def test_a_whole_image_is_its_crop() -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype(np.float32)
    plan = native_plan(cropped("float", 5, 7, "bilinear"))
    (y,) = execute(plan, {"x": x, "r": np.array([[0, 0, 1, 1]], np.float32), "b": np.zeros(1, np.int32)})
    np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)


def test_images_that_are_not_there_are_refused() -> None:
    feeds = {"x": np.ones((2, 1, 3, 3), np.float32), "r": np.zeros((1, 4), np.float32), "b": np.array([2], np.int32)}
    with pytest.raises(CODED, match="batch_indices"):
        execute(native_plan(cropped("float", 2, 2, "nearest")), feeds)


# --- DeformConv


def deformed(name: str, weights: np.ndarray, masked: bool = False, bias: bool = False, **attributes: Any) -> str:
    given = ", ".join(f"{key}={value}" for key, value in attributes.items())
    axes = weights.ndim - 2
    space, places = ",".join("HWD"[:axes]), ",".join("PQR"[:axes])
    filters = ",".join(map(str, weights.shape))
    channels = weights.shape[1] * attributes.get("group", 1)
    others = f", {name}[{len(weights)}] b" if bias else ""
    others += f", {name}[N,M,{places}] m" if masked else ""
    inputs = "x, w, o" + (", b" if bias else ", " if masked else "") + (", m" if masked else "")
    return f"""g ({name}[N,{channels},{space}] x, {name}[{filters}] w, {name}[N,O,{places}] o{others})
        => ({name}[N,{len(weights)},{places}] y) {{ y = DeformConv<{given}>({inputs}) }}"""


def output_size(size: int, kernel: int, stride: int, dilation: int, pad: int) -> int:
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


@pytest.mark.parametrize("name", TYPES)
@FEW
@given(st.data())
def test_windows_of_any_form(name: str, data: st.DataObject) -> None:
    draw, type = data.draw, TYPES[name]
    axes, group, parts, batch = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 2)),
    )
    kernel, stride, dilation, pad = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.integers(0, 2)),
    )
    channels = draw(st.sampled_from([1, 2, 6])) * parts
    sizes = [draw(st.integers(dilation * (kernel - 1) + 1, 9)) for _ in range(axes)]
    output = [output_size(size, kernel, stride, dilation, pad) for size in sizes]
    rs = np.random.default_rng(channels)
    weights = rs.standard_normal((4 * group, channels, *[kernel] * axes)).astype(type)
    taps, masked, bias = kernel**axes, draw(st.booleans()), draw(st.booleans())
    feeds = {
        "x": rs.standard_normal((batch, channels * group, *sizes)).astype(type),
        "w": weights,
        "o": (rs.standard_normal((batch, parts * taps * axes, *output)) * 3).astype(type),
    }
    if feeds["o"].size > 9:
        feeds["o"].reshape(-1)[:4] = [np.nan, np.inf, -np.inf, 100]
    feeds |= {"m": rs.random((batch, parts * taps, *output)).astype(type)} if masked else {}
    feeds |= {"b": rs.standard_normal(4 * group).astype(type)} if bias else {}
    steps = {"strides": [stride] * axes, "dilations": [dilation] * axes, "pads": [pad] * axes * 2}
    source = deformed(name, weights, masked, bias, group=group, offset_group=parts, **steps)
    assert_agrees(source, feeds, opset=22, tolerance={"float": 1e-5}.get(name))


def direct(x: np.ndarray, w: np.ndarray, o: np.ndarray, m: np.ndarray, pad: int) -> np.ndarray:
    """The sum over taps and channels, with pixels between four others, one by one in float64."""
    batch, channels, height, width = x.shape
    filters, _, rows, columns = w.shape
    y = np.zeros((batch, filters, *o.shape[2:]))
    for n, i, j in itertools.product(range(batch), *map(range, o.shape[2:])):
        for tap, (a, b) in enumerate(itertools.product(range(rows), range(columns))):
            top, left = i - pad + a + o[n, 2 * tap, i, j], j - pad + b + o[n, 2 * tap + 1, i, j]
            pixel = np.zeros(channels)
            for p, q in itertools.product(
                range(math.floor(top), math.floor(top) + 2), range(math.floor(left), math.floor(left) + 2)
            ):
                if 0 <= p < height and 0 <= q < width:
                    pixel += x[n, :, p, q] * (1 - abs(top - p)) * (1 - abs(left - q))
            y[n, :, i, j] += w[:, :, a, b] @ pixel * m[n, tap, i, j]
    return y


def test_deformed_windows_are_what_the_formula_says() -> None:
    rs = np.random.default_rng(3)
    x, w = rs.standard_normal((2, 5, 6, 7)), rs.standard_normal((4, 5, 3, 3))
    o, m = rs.standard_normal((2, 18, 6, 7)) * 2, rs.random((2, 9, 6, 7))
    plan = native_plan(deformed("double", w, masked=True, pads=[1, 1, 1, 1]), opset=22)
    (y,) = execute(plan, {"x": x, "w": w, "o": o, "m": m})
    np.testing.assert_allclose(y, direct(x, w, o, m, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 17, 3, 3), (1, 18, 3, 2), (2, 18, 3, 3)])
def test_offsets_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    w = np.ones((1, 1, 3, 3), np.float32)
    feeds = {"x": np.ones((1, 1, 5, 5), np.float32), "w": w, "o": np.zeros(shape, np.float32)}
    with pytest.raises((*CODED, ValueError)):
        execute(native_plan(deformed("float", w, group=1), opset=22), feeds)
