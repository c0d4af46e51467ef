"""Generated Fourier transforms agree with NumPy's: fast ones, and products with matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import Fail
from sardonyx.providers.native import provider
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16}
BOUNDS = {"float": 1e-5, "double": 1e-12, "float16": 2e-3}


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch, request):
    """What is compared with NumPy must not be NumPy's own."""
    if "raise" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


def signals(*shape, dtype=np.float32):
    return np.random.RandomState(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("length", [1, 2, 25, 64])
@pytest.mark.parametrize("form", ["onesided", "real", "complex"])
def test_frames(name, length, form):
    parts = 2 if form == "complex" else 1
    window = f"w = Constant<value_floats={np.hanning(length + 2)[1:-1].round(3).tolist()}>() v = Cast<to={code(name)}>(w)"
    text = f"""g ({name}[b,n,{parts}] x) => ({name}[b,f,k,2] y) {{
        s = Constant<value_int=3>() {window}
        y = STFT<onesided={int(form == "onesided")}>(x, s, v)
    }}"""
    feeds = [{"x": signals(*shape, parts, dtype=TYPES[name])} for shape in ((2, length), (1, length + 2), (3, 301), (0, 70))]
    assert_agrees(text, feeds, opset=17, level=1, tolerance=BOUNDS[name])


def code(name):
    return {"float": 1, "double": 11, "float16": 10}[name]


def test_frames_without_a_window_and_of_a_signal_of_two_axes():
    text = """g (float[b,n] x) => (float[b,f,17,2] y) {
        s = Constant<value_int=16>() l = Constant<value_int=32>()
        y = STFT(x, s, , l)
    }"""
    assert_agrees(text, [{"x": signals(2, n)} for n in (32, 33, 1000)], opset=17, level=1, tolerance=1e-5)


def test_what_follows_a_transform_is_in_the_same_program():
    text = """g (float[b,n,1] x) => (float[b,f,17] y) {
        s = Constant<value_int=16>() l = Constant<value_int=32>() a = Constant<value_ints=[-1]>()
        z = STFT(x, s, , l)
        y = ReduceSumSquare<keepdims=0>(z, a)
    }"""
    assert_agrees(text, [{"x": signals(2, 1000, 1)}], opset=18, level=1, tolerance=1e-5)


def test_a_signal_that_is_too_short_raises():
    text = "g (float[b,n,1] x) => (float[b,f,17,2] y) { s = Constant<value_int=16>() l = Constant<value_int=32>() y = STFT(x, s, , l) }"
    plan = native_plan(text, opset=17, level=1)
    assert programs(plan)
    with pytest.raises(Fail, match="cannot be cut into frames"):
        execute(plan, {"x": signals(1, 31, 1)})


@pytest.mark.parametrize("length", [None, 6, 13])
@pytest.mark.parametrize(
    "samples,parts,inverse,onesided", [(9, 1, 0, 1), (9, 1, 0, 0), (9, 2, 0, 0), (9, 2, 1, 0), (9, 2, 1, 1), (1, 1, 0, 1)]
)
def test_spectra(length, samples, parts, inverse, onesided):
    given = "" if length is None else ", l"
    last = 1 if inverse and onesided else 2
    text = f"""g (float[a,b,{samples},{parts}] x) => (float[a,b,k,{last}] y) {{
        l = Constant<value_int={length or 1}>()
        y = DFT<inverse={inverse}, onesided={onesided}>(x{given})
    }}"""
    opset = 17 if length == 6 else 20
    if opset == 17:
        text = text.replace("DFT<", "DFT<axis=2, ")
    feeds = [{"x": signals(*shape, samples, parts)} for shape in ((2, 3), (1, 1), (0, 2), (5, 40))]
    assert_agrees(text, feeds, opset=opset, level=1, tolerance=1e-5)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(2, 20, 3, 2), (1, 64, 5, 2), (3, 17, 1, 2)])
@pytest.mark.parametrize("axis", [1, -3])
def test_ways_back_along_another_axis(name, shape, axis):
    points = shape[1]
    text = f"""g ({name}[b,{points},r,2] x) => ({name}[B,N,R,2] y) {{
        a = Constant<value_int={axis}>() y = DFT<inverse=1>(x, , a) }}"""
    x = signals(*shape, dtype=TYPES[name])
    assert_agrees(text, [{"x": x}, {"x": x[:0]}, {"x": x[::-1]}], opset=20, level=1, tolerance=BOUNDS[name])
    wanted = np.fft.ifft(x[..., 0].astype(np.float64) + 1j * x[..., 1], axis=1)
    (y,) = execute(native_plan(text, opset=20, level=1), {"x": x})
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, atol=BOUNDS[name] * np.abs(wanted).max())


def test_images_go_to_their_spectra_and_back():
    text = """g (float[b,c,32,24,1] x) => (float[B,C,H,W,P] y) {
        a = Constant<value_int=3>() b0 = Constant<value_int=2>()
        s = DFT(x, , a) t = DFT(s, , b0) u = DFT<inverse=1>(t, , b0) y = DFT<inverse=1>(u, , a) }"""
    x = signals(2, 3, 32, 24, 1)
    (y,) = execute(native_plan(text, opset=20, level=1), {"x": x})
    np.testing.assert_allclose(y, np.concatenate([x, np.zeros_like(x)], axis=-1), atol=1e-5)
    assert_agrees(text, {"x": x}, opset=20, level=1, tolerance=1e-5)


def test_a_length_and_an_axis_that_are_vectors_of_one_element():
    text = """g (float[a,8,1] x) => (float[a,k,2] y) <int64[1] l = {8}, int64[1] axis = {1}> { y = DFT(x, l, axis) }"""
    assert_agrees(text, {"x": signals(3, 8, 1)}, opset=20, level=0, tolerance=1e-5)


@pytest.mark.parametrize("operands", ["l, two", "two, axis"])
def test_several_lengths_or_axes_raise(operands):
    constants = "int64 l = {8}, int64 axis = {1}, int64[2] two = {1, 1}"
    with pytest.raises(Fail):
        plan = native_plan(
            f"g (float[a,8,1] x) => (float[a,k,2] y) <{constants}> {{ y = DFT(x, {operands}) }}", opset=20, level=0
        )
        execute(plan, {"x": signals(1, 8, 1)})


@pytest.mark.parametrize("length", [2, 6, 10, 14, 96, 210, 400, 512, 1000, 2048, 4096])
def test_fast_transforms(length):
    text = f"""g (float[a,{length},1] x, float[a,{length // 2},2] z) => (float[a,k,2] s, float[a,m,2] t, float[a,m,2] u) {{
        s = DFT<onesided=1>(x)
        t = DFT(z)
        u = DFT<inverse=1>(z)
    }}"""
    feeds = [{"x": signals(count, length, 1), "z": signals(count, length // 2, 2)} for count in (1, 7, 33)]
    assert_agrees(text, feeds, opset=20, steps=3, tolerance=2e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 300), st.integers(0, 3), st.integers(0, 40), st.integers(1, 90))
def test_any_frames(length, batch, more, step):
    text = f"""g (float[b,n,1] x, float[{length}] w) => (float[b,f,k,2] y) {{
        s = Constant<value_int={step}>()
        y = STFT(x, s, w)
    }}"""
    if length % 2 or not programs(native_plan(text, opset=17, level=1)):  # a matrix needs a constant window
        text = text.replace(f", float[{length}] w", "").replace("s, w)", "s, , l)")
        text = text.replace("y =", f"l = Constant<value_int={length}>() y =")
    feeds = {"x": signals(batch, length + more * 7, 1), "w": np.hanning(length).astype(np.float32)}
    assert_agrees(text, feeds if " w)" in text else {"x": feeds["x"]}, opset=17, level=1, tolerance=1e-5)


def test_what_is_not_finite_spoils_its_own_signal_only():
    x = signals(20, 64, 1)
    x[3, 5], x[17, 60] = np.nan, np.inf
    plan = native_plan("g (float[a,64,1] x) => (float[a,k,2] y) { y = DFT<onesided=1>(x) }", opset=20)
    (got,) = execute(plan, {"x": x})
    assert np.array_equal(np.isfinite(got).all(axis=(1, 2)), ~np.isin(np.arange(20), [3, 17]))


def test_long_signals_are_left_to_numpy():
    for length in (1001, 8192):
        assert not programs(
            native_plan(f"g (float[a,{length},1] x) => (float[a,k,2] y) {{ y = DFT<onesided=1>(x) }}", opset=20)
        )
