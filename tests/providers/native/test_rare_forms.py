"""Forms of ops that few models have agree with NumPy's: sizes, norms, modes and types beyond the usual ones."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import dtypes
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


@each_type
@pytest.mark.parametrize("axis", [0, 1, -3])
def test_spectra_along_any_axis(name: str, axis: int) -> None:
    for attributes, length in (("", ""), ("", "l"), ("<onesided=1>", "")):
        parts = 1 if "onesided" in attributes else 2
        source = f"""g ({name}[2,6,5,{parts}] x) => ({name}[A,B,C,2] y) <int64 a = {{{axis}}}, int64 l = {{4}}> {{
            y = DFT{attributes}(x, {length}, a) }}"""
        assert_agrees(source, {"x": numbers(name, 2, 6, 5, parts)}, opset=20)


@each_type
def test_a_frame_as_long_as_the_signal(name: str) -> None:
    source = f"g ({name}[N,20,1] x) => ({name}[A,B,C,2] y) <int64 s = {{1}}> {{ y = STFT(x, s) }}"
    assert_agrees(source, {"x": numbers(name, 2, 20, 1)}, opset=17)


# --- factors and summands of other shapes and types


@each_type
def test_numbers_of_one_channel(name: str) -> None:
    source = f"""g ({name}[N] x, {name}[1] s, {name}[1] b, {name}[1] m, {name}[1] v) => ({name}[N] y) {{
        y = BatchNormalization(x, s, b, m, v) }}"""
    one = np.ones(1, TYPES[name])
    assert_agrees(source, {"x": numbers(name, 40), "s": one * 2, "b": one * 3, "m": one / 2, "v": one * 5}, opset=15)


@each_type
@pytest.mark.parametrize(
    ("axis", "scale", "bias"), [(1, (1,), (4, 5)), (2, (4, 1), (4, 5)), (2, (5,), (1, 1)), (3, (3, 1, 5), (5,))]
)
def test_factors_that_broadcast(name: str, axis: int, scale: tuple[int, ...], bias: tuple[int, ...]) -> None:
    sizes = [",".join(map(str, shape)) for shape in (scale, bias)]
    source = f"""g ({name}[A,3,4,5] x, {name}[{sizes[0]}] s, {name}[{sizes[1]}] b) => ({name}[A,3,4,5] y) {{
        y = LayerNormalization<axis={axis}>(x, s, b) }}"""
    assert_agrees(source, {"x": numbers(name, 2, 3, 4, 5), "s": numbers(name, *scale), "b": numbers(name, *bias)}, opset=17)


@each_type
@pytest.mark.parametrize("of_scale", ["float", "double"])
def test_factors_of_another_type(name: str, of_scale: str) -> None:
    source = f"g ({name}[A,B,5] x, {of_scale}[5] s) => ({of_scale}[A,B,5] y) {{ y = SimplifiedLayerNormalization(x, s) }}"
    feeds = {"x": numbers(name, 2, 3, 5), "s": numbers(of_scale, 5)}
    assert_agrees(source, feeds, opset=17, tolerance=None if name == "double" else 1e-6)  # means of squares are float32


@pytest.mark.parametrize("name", [name for name in TYPES if name != "bfloat16"])  # which the standard rounds after every step
@pytest.mark.parametrize("of_value", ["float", "double", "float16"])
def test_attention_with_values_of_another_type(name: str, of_value: str) -> None:
    source = f"""g ({name}[B,4,Q,8] q, {name}[B,2,K,8] k, {of_value}[B,2,K,6] v, {name}[Q,K] m) => ({name}[B,4,Q,6] y) {{
        y = Attention<is_causal=1>(q, k, v, m) }}"""
    feeds = {
        "q": numbers(name, 2, 4, 5, 8),
        "k": numbers(name, 2, 2, 7, 8),
        "v": numbers(of_value, 2, 2, 7, 6),
        "m": numbers(name, 5, 7),
    }
    assert_agrees(source, feeds, opset=23)


def test_attention_of_doubles_with_its_projections() -> None:
    source = """g (double[B,S,8] x, double[8,24] w, double[24] b) => (double[B,S,8] y) {
        y = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, b) }"""
    assert_agrees(source, {"x": numbers("double", 2, 5, 8), "w": numbers("double", 8, 24), "b": numbers("double", 24)})


# --- movement


@pytest.mark.parametrize("mode", ["reflect", "wrap"])
@FEW
@given(sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)), pads=st.lists(st.integers(-1, 12), min_size=4, max_size=4))
def test_margins_of_any_width(mode: str, sizes: tuple[int, int], pads: list[int]) -> None:
    if any(size + min(0, before) + min(0, after) < 1 for size, before, after in zip(sizes, pads[:2], pads[2:])):
        return
    margins = ", ".join(map(str, pads))
    source = (
        f'g (int32[{sizes[0]},{sizes[1]}] x) => (int32[C,D] y) <int64[4] p = {{{margins}}}> {{ y = Pad<mode="{mode}">(x, p) }}'
    )
    assert_agrees(source, {"x": np.arange(sizes[0] * sizes[1], dtype=np.int32).reshape(sizes)}, opset=19)


def test_a_margin_that_takes_away_more_than_there_is() -> None:
    source = "g (float[3] x, float v) => (float[2] y) <int64[2] p = {-4, 3}> { y = Pad(x, p, v) }"
    assert_agrees(source, {"x": numbers("float", 3), "v": np.array(2.5, np.float32)}, opset=19)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_ranges_of_narrow_floats(name: str) -> None:
    source = f"g ({name} a, {name} b, {name} c) => ({name}[N] y) {{ z = Range(a, b, c) y = Exp(z) }}"
    bounds = [(0.5, 7, 0.3), (7, -1, -0.75), (3, 1, 1)]
    feeds = [{key: np.array(number, TYPES[name]) for key, number in zip("abc", three)} for three in bounds]
    assert_agrees(source, feeds, opset=27)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("channels", [3, 33])
def test_doubles_at_points_of_float32(mode: str, channels: int) -> None:
    points = np.random.default_rng(0).uniform(-1.3, 1.3, (2, 4, 3, 2)).astype(np.float32)
    source = f"""g (double[N,{channels},H,W] x, float[N,P,Q,2] g) => (double[N,{channels},P,Q] y) {{
        y = GridSample<mode="{mode}">(x, g) }}"""
    assert_agrees(
        source, {"x": numbers("double", 2, channels, 6, 7), "g": points}, opset=20, tolerance=1e-5
    )  # weights are float32


@each_type
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_regions_in_view(name: str, mode: str) -> None:
    source = f"""g ({name}[1,2,6,7] x) => ({name}[1,2,5,9] y) <float[4] roi = {{0.2, -0.1, 0.9, 1.2}}, int64[2] s = {{5, 9}}> {{
        y = Resize<mode="{mode}", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0, axes=[2,3]>
            (x, roi, , s) }}"""
    assert_agrees(source, {"x": numbers(name, 1, 2, 6, 7)}, opset=19)


@pytest.mark.parametrize("type", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_floats_of_8_bits_that_are_moved(type: Any) -> None:
    name = {"float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}[np.dtype(type).name]
    x, u = numbers("float", 2, 6, 4).astype(type), numbers("float", 2, 2, 4).astype(type)
    source = f"g ({name}[2,6,4] x, {name}[2,2,4] u, int64[2] i) => ({name}[2,6,4] y) {{ y = TensorScatter<axis=1>(x, u, i) }}"
    assert_agrees(source, {"x": x, "u": u, "i": np.array([1, 4])}, opset=24)
    source = f'g ({name}[2,6,4] x) => ({name}[A,B,C] y) <int64[6] p = {{3, 0, 0, 3, 9, 9}}> {{ y = Pad<mode="wrap">(x, p) }}'
    assert_agrees(source, {"x": x}, opset=24)


SMALL = {dtype: dtype.numpy for dtype in (*sorted(dtypes.SUB_BYTE_INTS, key=str), dtypes.float4e2m1)}


def of_type(source: str, dtype: dtypes.ElementType, opset: int) -> onnx.ModelProto:
    """A model's text, where double stands for a type that the parser does not know."""
    model = onnx.parser.parse_model(f'<ir_version: 13, opset_import: ["" : {opset}]>' + source)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE:
            value.type.tensor_type.elem_type = dtype.code
    return model


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("mode", ["constant", "reflect", "wrap", "edge"])
@pytest.mark.parametrize("pads", [(3, 0, 0, 3, 9, 9), (0, 1, -1, 1, 0, 2), (-1, 0, 0, 0, -3, 7)])
def test_numbers_of_few_bits_with_margins(dtype: dtypes.ElementType, mode: str, pads: tuple[int, ...]) -> None:
    x = np.array([-6, -1.5, -0.0, 0, 0.5, 1, 2, 3] * 6).reshape(2, 6, 4).astype(np.float32).astype(SMALL[dtype])
    source = f"""g (double[2,6,4] x, double c) => (double[A,B,C] y)
        <int64[6] p = {{{", ".join(map(str, pads))}}}> {{ y = Pad<mode="{mode}">(x, p, c) }}"""
    assert_agrees(of_type(source, dtype, 25), {"x": x, "c": x[0, 0, 1].reshape(())})


@pytest.mark.parametrize("dtype", [dtypes.uint4, dtypes.int4, dtypes.float4e2m1], ids=str)
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_numbers_of_few_bits_that_are_scattered(dtype: dtypes.ElementType, mode: str) -> None:
    x = np.array([-6, -1.5, -0.0, 0, 0.5, 1, 2, 3] * 6).reshape(2, 6, 4).astype(np.float32).astype(SMALL[dtype])
    source = f"""g (double[N,M,K] x, double[N,L,K] u, int64[N] i) => (double[N,M,K] y) {{
        y = TensorScatter<axis=1, mode="{mode}">(x, u, i) }}"""
    start = np.array([1, 4 if mode == "linear" else 5])
    assert_agrees(of_type(source, dtype, 24), {"x": x, "u": x[:, :2, ::-1], "i": start})


def test_transposed_windows_with_pads_that_are_known() -> None:
    source = """g (float[N,3,H,W] x, float[3,2,3,3] w, float[2] b) => (float[N,2,P,Q] y) <int64[4] p = {1, 0, 1, 1}> {
        y = com.microsoft.ConvTransposeWithDynamicPads<strides=[2,2]>(x, w, p, b) }"""
    assert_agrees(source, {"x": numbers("float", 2, 3, 5, 4), "w": numbers("float", 3, 2, 3, 3), "b": numbers("float", 2)})


TEXTS = np.array([["a", "", "ü€😀"], ["b\0c", "long" * 30, "z"]], object)


@pytest.mark.parametrize(
    ("source", "feeds"),
    [
        (
            "(string[A,B] x, int64[A,C] i, string[A,C] u) => (string[A,B] y) { y = ScatterElements<axis=1>(x, i, u) }",
            {"i": np.array([[0, 2], [1, 1]]), "u": TEXTS[:, :2]},
        ),
        (
            "(string[A,B] x, int64[C,1] i, string[C,B] u) => (string[A,B] y) { y = ScatterND(x, i, u) }",
            {"i": np.array([[1]]), "u": TEXTS[:1]},
        ),
        ("(string[A,B] x) => (string[C,D] y) <int64[4] p = {1, 0, 2, 1}> { y = Pad(x, p) }", {}),
        ("(string[A,B] x, string v) => (string[C,D] y) <int64[4] p = {1, 0, 2, 1}> { y = Pad(x, p, v) }", {"v": np.array("é", object)}),
        ('(string[A,B] x) => (string[C,D] y) <int64[4] p = {0, 1, 0, 1}> { y = Pad<mode="reflect">(x, p) }', {}),
        ("(string[A,B] x) => (string[A,B] y) { y = Trilu(x) }", {}),
        (
            "(string[2] x, int64[N] i) => (string[N,3] y) <int64 d = {3}> { y = OneHot(i, d, x) }",
            {"i": np.array([0, -1, 5]), "x": TEXTS[1, 1:]},
        ),
    ],
    ids=lambda given: given.split("y = ")[1].split("(")[0] if isinstance(given, str) else "",
)  # fmt: skip
def test_strings_that_are_moved(source: str, feeds: dict[str, np.ndarray]) -> None:
    assert_agrees(f"g {source}", {"x": TEXTS, **{name: np.array(array) for name, array in feeds.items()}})
