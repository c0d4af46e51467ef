"""Fourier transforms whose lengths come with the run agree with NumPy's of float64, and with the sum that defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.errors import Fail
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees_or_refuses, native_pair, native_plan, programs, without_fallback

TYPES = {"float": (np.float32, 3e-7), "double": (np.float64, 3e-15), "float16": (np.float16, 1e-3)}
"""And how far results may lie from those of float64, in units of the largest one: they are computed in float64."""
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 48, 64, 97, 105, 210, 256, 361, 1000, 1024, 1031, 2401, 4099]
"""Powers of two, small factors of all kinds, large ones."""
HEAD = '<ir_version: 10, opset_import: ["": 20]>'
FORMS = [("", 1), ("", 2), ("inverse=1", 1), ("inverse=1", 2), ("onesided=1", 1), ("onesided=1, inverse=1", 2)]


def text_of(attributes: str, element: str = "float", length: int | None = None) -> str:
    call = f"DFT<{attributes}>" if attributes else "DFT"
    given, operands = ("", "n") if length is None else (f"<int64 l = {{{length}}}>", "n, l")
    return f"{HEAD} g ({element}[B,N,P] x) => (y) {given} {{ n = Neg(x) y = {call}({operands}) }}"


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def exact(x: np.ndarray, attributes: str, length: int | None = None) -> np.ndarray:
    """What NumPy makes of the same numbers in float64."""
    signal = -x.astype(np.float64) @ np.array([1, 1j])[: x.shape[-1]]
    is_half, is_inverse = "onesided" in attributes, "inverse" in attributes
    if is_half and is_inverse:
        return np.fft.irfft(signal, length, axis=1)[..., np.newaxis]
    transform = np.fft.rfft if is_half else np.fft.ifft if is_inverse else np.fft.fft
    result = transform(signal.real if x.shape[-1] == 1 else signal, length, axis=1)
    return np.stack([result.real, result.imag], axis=-1)


def assert_near(got: np.ndarray, wanted: np.ndarray, bound: float) -> None:
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=bound * np.abs(wanted).max(initial=1e-9))


@pytest.mark.parametrize(("attributes", "parts"), FORMS)
@pytest.mark.parametrize("element", TYPES)
def test_any_length(element: str, attributes: str, parts: int) -> None:
    dtype, bound = TYPES[element]
    plan, _ = native_pair(text_of(attributes, element), threads=2)
    for length in LENGTHS:
        if length > 1 or "inverse" not in attributes or "onesided" not in attributes:
            x = numbers(3, length, parts, dtype=dtype)
            assert_near(execute(plan, {"x": x})[0], exact(x, attributes), bound)


def test_a_spectrum_is_the_sum_that_defines_it() -> None:
    plan, _ = native_pair(text_of(""))
    for length in (1, 6, 13, 40):
        x = numbers(2, length, 2)
        turns = np.exp(-2j * np.pi * np.outer(np.arange(length), np.arange(length)) / length)
        wanted = turns @ (-x.astype(np.float64) @ np.array([1, 1j]))[..., np.newaxis]
        assert_near(execute(plan, {"x": x})[0], np.concatenate([wanted.real, wanted.imag], axis=-1), 3e-7)


@pytest.mark.parametrize(("attributes", "parts"), FORMS)
@pytest.mark.parametrize("length", [1, 6, 13, 500])
def test_signals_of_any_length_are_cut_off_or_filled_up(length: int, attributes: str, parts: int) -> None:
    plan, _ = native_pair(text_of(attributes, length=length))
    for samples in (1, 2, 5, 8, 300, 600):
        x = numbers(2, samples, parts)
        assert_near(execute(plan, {"x": x})[0], exact(x, attributes, length), 3e-7)


def test_real_and_complex_signals_go_through_one_program() -> None:
    plan, _ = native_pair(text_of(""))
    for parts in (1, 2, 1):
        x = numbers(2, 30, parts)
        assert_near(execute(plan, {"x": x})[0], exact(x, ""), 3e-7)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [("", (2, 5, 3)), ("", (2, 0, 1)), ("onesided=1", (2, 5, 2)), ("onesided=1, inverse=1", (2, 1, 2)), ("", (0, 5, 1))],
)
def test_signals_that_do_not_fit_are_numpys(attributes: str, shape: tuple[int, ...]) -> None:
    text = text_of(attributes)
    _, reference = native_pair(text)
    assert_agrees_or_refuses(native_plan(text), reference, {"x": numbers(*shape)})


def test_what_is_not_finite_spoils_its_own_signal_alone() -> None:
    plan, _ = native_pair(text_of(""))
    for length in (16, 30, 23):
        x = numbers(3, length, 2)
        x[1, 3, 0] = np.nan
        (got,) = execute(plan, {"x": x})
        assert np.isfinite(got[[0, 2]]).all() and not np.isfinite(got[1]).all()


@pytest.mark.parametrize("is_half", [0, 1])
@pytest.mark.parametrize("rank", [2, 3])
def test_frames_of_any_length(rank: int, is_half: int) -> None:
    axes = "B,N,1" if rank == 3 else "B,N"
    text = f"""{HEAD} g (float[{axes}] x, float[W] w) => (y) <int64 s = {{3}}> {{
        v = Neg(w) y = STFT<onesided={is_half}>(x, s, v) }}"""
    plan, reference = native_pair(text, threads=2)
    for samples, width in ((20, 20), (50, 7), (300, 64), (1000, 101)):
        x, w = numbers(2, samples, *(1,) * (rank - 2)), numbers(width)
        frames = np.lib.stride_tricks.sliding_window_view(x.reshape(2, samples).astype(np.float64), width, axis=-1)[:, ::3] * -w
        wanted = np.fft.rfft(frames) if is_half else np.fft.fft(frames)
        assert_near(execute(plan, {"x": x, "w": w})[0], np.stack([wanted.real, wanted.imag], axis=-1), 3e-7)
    assert not assert_agrees_or_refuses(native_plan(text), reference, {"x": numbers(2, 5, *(1,) * (rank - 2)), "w": numbers(6)})


@pytest.mark.parametrize("length", [6000, 16384])
def test_long_signals_of_complex_numbers(length: int) -> None:
    plan, _ = native_pair(text_of("").replace("B,N,P", f"B,{length},2"))
    x = numbers(2, length, 2)
    assert_near(execute(plan, {"x": x})[0], exact(x, ""), 3e-7)


def test_very_long_signals_are_left_to_numpy() -> None:
    text = text_of("")
    plan, reference = native_plan(text), native_pair(text)[1]
    x = numbers(1, (1 << 18) + 1, 1)
    assert assert_agrees_or_refuses(plan, reference, {"x": x})
    without_fallback(plan)
    assert len(programs(plan)) == 1
    with pytest.raises(Fail, match="left to NumPy"):
        execute(plan, {"x": x})
