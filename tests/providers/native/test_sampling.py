"""Generated GridSample, AffineGrid and RoiAlign agree with NumPy's for all modes, types and layouts, with points anywhere."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import Fail
from sardonyx.providers.native import provider
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

TYPES = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "double": np.float64, "uint8": np.uint8}
INTEGERS = {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"bool": "bool"}
FEW = settings(max_examples=15, deadline=None)


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch, request):
    """What is compared with NumPy must not be NumPy's own."""
    if "raises" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


def pixels(rs, *shape, dtype=np.float32):
    return (rs.standard_normal(shape) * 20).astype(dtype)


def points(rs, *shape, dtype=np.float32):
    """Inside and outside, at borders, and some that are nowhere."""
    found = rs.uniform(-2.5, 2.5, shape)
    special = [np.nan, np.inf, -np.inf, 1e30, -1e30, 1, -1, 0.5, 0]
    if found.size > 40:
        found.reshape(-1)[rs.choice(found.size, len(special))] = special
    with np.errstate(over="ignore"):
        return found.astype(dtype)


def grid_text(name, axes, channels="c", grid_name="float", last=False, **attributes):
    """GridSample of images whose channels lie last in memory if so wanted."""
    space, places = ",".join("hwd"[:axes]), ",".join("pqr"[:axes])
    order = [0, axes + 1, *range(1, axes + 1)]
    given = f"n,{space},{channels}" if last else f"n,{channels},{space}"
    before = f"T = Transpose<perm={order}>(X)" if last else ""
    settings = ", ".join(
        f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in attributes.items()
    )
    return f"""g ({name}[{given}] X, {grid_name}[n,{places},{axes}] grid) => ({name}[n,{channels},{places}] Y) {{
        {before} Y = GridSample<{settings}>({"T" if last else "X"}, grid)
    }}"""


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@FEW
@given(st.data())
def test_any_grid(mode, outside, data):
    draw, small = data.draw, st.integers(0, 5)
    rs = np.random.RandomState(draw(st.integers(0, 1000)))
    axes = draw(st.integers(1, 2 if mode == "cubic" else 3))
    channels = draw(st.sampled_from([0, 1, 3, 16, 37]))
    last = draw(st.booleans())
    images, space = draw(st.integers(0, 2)), [1 + draw(small) for _ in range(axes)]
    shape = [images, *space, channels] if last else [images, channels, *space]
    feeds = {"X": pixels(rs, *shape), "grid": points(rs, images, *(draw(small) * 3 for _ in range(axes)), axes)}
    text = grid_text("float", axes, channels, last=last, mode=mode, padding_mode=outside, align_corners=draw(st.integers(0, 1)))
    assert_agrees(text, feeds, tolerance=0.0 if mode == "nearest" else 1e-5)


@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize(
    "name,grid_name", [("float16", "float16"), ("bfloat16", "float"), ("double", "double"), ("float", "double")]
)
def test_grids_of_other_types(name, grid_name, channels):
    rs = np.random.RandomState(0)
    feeds = {
        "X": pixels(rs, 2, channels, 6, 7, dtype=TYPES[name]),
        "grid": points(rs, 2, 5, 9, 2, dtype=TYPES[grid_name]),
    }
    for mode in ("nearest", "linear"):
        text = grid_text(name, 2, channels, grid_name, mode=mode, padding_mode="reflection")
        assert_agrees(text, feeds, opset=22, tolerance=2e-6 if name == "float" else None)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_integers_are_those_of_numpy_to_the_last_bit(mode, data):
    draw = data.draw
    name, grid_name = draw(st.sampled_from(sorted(INTEGERS))), draw(st.sampled_from(["float", "double", "float16"]))
    rs = np.random.RandomState(draw(st.integers(0, 1000)))
    axes = draw(st.integers(1, 2 if mode == "cubic" else 3))
    channels, last = draw(st.sampled_from([1, 3, 20])), draw(st.booleans())
    space = [draw(st.integers(1, 5)) for _ in range(axes)]
    shape = [2, *space, channels] if last else [2, channels, *space]
    X = np.frombuffer(rs.bytes(int(np.prod(shape)) * np.dtype(INTEGERS[name]).itemsize), INTEGERS[name]).reshape(shape)
    X = X if name != "bool" else rs.random_sample(shape) < 0.5
    feeds = {"X": X, "grid": points(rs, 2, *(draw(st.integers(1, 9)) for _ in range(axes)), axes, dtype=TYPES[grid_name])}
    outside = draw(st.sampled_from(["zeros", "border", "reflection"]))
    attributes = {"mode": mode, "padding_mode": outside, "align_corners": draw(st.integers(0, 1))}
    assert_agrees(grid_text(name, axes, channels, grid_name, last, **attributes), feeds, opset=22, tolerance=0.0)


def test_old_names_and_the_contrib_op():
    rs = np.random.RandomState(0)
    feeds = {"X": pixels(rs, 1, 3, 6, 7), "grid": points(rs, 1, 5, 50, 2)}
    for mode in ("bilinear", "nearest", "bicubic"):
        text = grid_text("float", 2, mode=mode, padding_mode="border")
        assert_agrees(text, feeds, opset=16, tolerance=1e-5)
        assert_agrees(text.replace("GridSample", "com.microsoft.GridSample"), feeds, tolerance=1e-5)


def test_a_pixel_that_is_not_finite_spoils_only_those_that_meet_it():
    rs = np.random.RandomState(0)
    X = pixels(rs, 1, 18, 6, 7)
    X[0, ::2, 2, 3], X[0, 1::2, 4, 4] = np.nan, np.inf
    feeds = {"X": X, "grid": points(rs, 1, 30, 30, 2)}
    assert_agrees(grid_text("float", 2, 18, mode="linear"), feeds)
    assert_agrees(grid_text("float", 2, mode="linear"), feeds)


@pytest.mark.parametrize("perm,shape", [([0, 2, 3, 1], "n,2,p,q"), ([1, 0, 3, 2], "p,n,2,q")])
def test_a_grid_that_was_transposed(perm, shape):
    rs = np.random.RandomState(0)
    text = f"""g (float[n,3,h,w] X, float[{shape}] G) => (float[n,3,p,q] Y, float[n,3,p,q] Z) {{
        grid = Transpose<perm={perm}>(G)
        Y = GridSample<align_corners=1>(X, grid)
        Z = Relu(Y)
    }}"""
    grid = points(rs, 2, 13, 17, 2)
    feeds = {"X": pixels(rs, 2, 3, 9, 8), "G": np.ascontiguousarray(grid.transpose(np.argsort(perm)))}
    assert_agrees(text, feeds)


def test_a_grid_of_which_only_a_run_tells_how_many_axes_it_has():
    rs = np.random.RandomState(0)
    text = "g (float[n,3,h,w] X, float[m,p,q,a] grid) => (float[n,3,p,q] Y) { Y = GridSample(X, grid) }"
    assert_agrees(text, {"X": pixels(rs, 2, 3, 9, 8), "grid": points(rs, 2, 13, 17, 2)})


def test_images_that_run_backward():
    rs = np.random.RandomState(0)
    text = """g (float[n,3,h,w] X, float[n,p,q,2] grid) => (float[n,3,p,q] Y) {
        s = Constant<value_ints=[-1]>() e = Constant<value_ints=[-9223372036854775807]>() a = Constant<value_ints=[3]>()
        F = Slice(X, s, e, a, s)
        Y = GridSample(F, grid)
    }"""
    assert_agrees(text, {"X": pixels(rs, 2, 3, 9, 8), "grid": points(rs, 2, 13, 17, 2)}, level=1)


# --- AffineGrid -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("name", ["float", "double", "float16"])
@pytest.mark.parametrize("sizes", [(2, 3, 5, 40), (1, 1, 1, 1), (2, 1, 3, 1, 17), (0, 1, 2, 2), (1, 1, 0, 3), (1, 1, 30, 200)])
def test_affine_grids(sizes, name, aligned):
    rs, axes = np.random.RandomState(0), len(sizes) - 2
    text = f"""g ({name}[n,{axes},{axes + 1}] theta) => ({name}[{",".join("abcde"[: axes + 2])}] grid) {{
        size = Constant<value_ints={list(sizes)}>()
        grid = AffineGrid<align_corners={aligned}>(theta, size)
    }}"""
    feeds = {"theta": rs.standard_normal((sizes[0], axes, axes + 1)).astype(TYPES[name])}
    assert_agrees(text, feeds, opset=20, level=0)


def test_the_grid_of_an_image_that_is_read_at_once():
    text = """g (float[n,3,h,w] X, float[n,2,3] theta) => (float[n,3,h,w] Y) {
        size = Shape(X)
        grid = AffineGrid(theta, size)
        Y = GridSample(X, grid)
    }"""
    rs = np.random.RandomState(0)
    assert_agrees(text, {"X": pixels(rs, 2, 3, 9, 12), "theta": pixels(rs, 2, 2, 3) / 20}, opset=20, tolerance=1e-5)


# --- RoiAlign -------------------------------------------------------------------------------------------------------


def roi_text(name="float", channels="c", height=3, width=5, **attributes):
    settings = {"output_height": height, "output_width": width, **attributes}
    words = ", ".join(f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in settings.items())
    return f"""g ({name}[n,{channels},h,w] X, {name}[r,4] rois, int64[r] batch) => ({name}[r,{channels},{height},{width}] Y) {{
        Y = RoiAlign<{words}>(X, rois, batch)
    }}"""


def regions(rs, images, count, size, dtype=np.float32):
    """Corners, some outside of the image, some in the wrong order, some of one point."""
    rois = rs.uniform(-0.3 * size, 1.3 * size, (count, 4))
    usual = rs.rand(count) < 0.7
    rois[usual] = np.concatenate(
        [np.minimum(rois[usual, :2], rois[usual, 2:]), np.maximum(rois[usual, :2], rois[usual, 2:])], 1
    )
    rois[rs.rand(count) < 0.1, 2:] = 1
    return {"rois": rois.astype(dtype), "batch": rs.randint(0, max(1, images), count)}


@pytest.mark.parametrize("mode", ["avg", "max"])
@FEW
@given(st.data())
def test_any_regions(mode, data):
    draw = data.draw
    rs = np.random.RandomState(draw(st.integers(0, 1000)))
    images, channels = draw(st.integers(1, 2)), draw(st.sampled_from([0, 1, 3, 16, 70]))
    height, width = (draw(st.sampled_from([1, 2, 9, 30])) for _ in "hw")
    scale = draw(st.sampled_from([0.25, 1.0]))
    feeds = {"X": pixels(rs, images, channels, height, width)}
    feeds |= regions(rs, images, draw(st.sampled_from([0, 1, 7])), max(height, width) / scale)
    text = roi_text(
        channels=channels,
        mode=mode,
        spatial_scale=scale,
        sampling_ratio=draw(st.sampled_from([0, 1, 3])),
        coordinate_transformation_mode=draw(st.sampled_from(["half_pixel", "output_half_pixel"])),
    )
    assert_agrees(text, feeds, tolerance=1e-5)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "double"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_other_types(name, mode):
    rs = np.random.RandomState(0)
    feeds = {"X": pixels(rs, 2, 20, 9, 11, dtype=TYPES[name]), **regions(rs, 2, 13, 10, TYPES[name])}
    assert_agrees(roi_text(name, mode=mode, sampling_ratio=2), feeds, opset=22, tolerance=1e-12 if name == "double" else None)


def test_regions_of_the_first_version():
    rs = np.random.RandomState(0)
    assert_agrees(roi_text(), {"X": pixels(rs, 2, 4, 9, 11), **regions(rs, 2, 13, 10)}, opset=10, tolerance=1e-5)


def test_a_maximum_that_is_not_a_number():
    rs = np.random.RandomState(0)
    X = pixels(rs, 1, 20, 9, 9)
    X[0, :, 4, 4], X[0, ::3, 2, 2], X[0, 1::3, 2, 6] = np.nan, np.inf, -np.inf
    assert_agrees(roi_text(mode="max", sampling_ratio=2), {"X": X, **regions(rs, 1, 13, 9)})


@pytest.mark.parametrize("image", [-1, 2])
def test_a_region_of_an_image_that_is_not_there_raises(image):
    plan = native_plan(roi_text())
    assert programs(plan)
    with pytest.raises(Fail, match="Invalid batch index"):
        execute(
            plan, {"X": np.zeros((2, 3, 4, 4), np.float32), "rois": np.ones((1, 4), np.float32), "batch": np.array([image])}
        )


def test_work_that_is_shared_by_threads():
    rs = np.random.RandomState(0)
    assert_agrees(roi_text(sampling_ratio=2), {"X": pixels(rs, 1, 64, 30, 30), **regions(rs, 1, 60, 30)}, tolerance=1e-5)
    assert_agrees(grid_text("float", 2, mode="linear"), {"X": pixels(rs, 2, 3, 50, 50), "grid": points(rs, 2, 60, 70, 2)})
    assert_agrees(grid_text("float", 2, 64, mode="linear"), {"X": pixels(rs, 2, 64, 20, 20), "grid": points(rs, 2, 40, 40, 2)})
