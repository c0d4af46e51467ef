"""The levels of accuracy: which algorithms each allows, and that errors of convolutions keep within what is promised."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.compiler.jit import host
from sardonyx.errors import InvalidArgument
from sardonyx.providers.native.kernels.conv import winograd
from sardonyx.providers.native.kernels.conv.direct import PIXELS
from sardonyx.providers.native.kernels.conv.rounding import BOUND, error_ratio, tap_energies, tap_factors
from sardonyx.providers.native.kernels.conv.transforms import Transform
from sardonyx.runtime.preparation.plan import all_steps
from tests.providers.native.aot_models import is_used, options
from tests.providers.native.test_conv import random, sum_of_windows

LEVELS = ("exact", "default", "fast")
PROMISED = 10
"""Times the error of the direct sum."""
ROUNDING = 2.0**-24
FLOOR = 4 * ROUNDING
"""Where the direct sum is nearly without error, as of a single product: relative to the largest sum of absolute products."""
needs_strassen = pytest.mark.skipif(host().name not in PIXELS, reason="there is no such code for this feature set")


def layer(weights: np.ndarray, shape: tuple[int, ...], **attributes: Any) -> bytes:
    """A model of one convolution of images of a known size."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def session_of(model: bytes | Path, level: str | None = None, **more: Any) -> sardonyx.InferenceSession:
    settings = options(**({} if level is None else {"sardonyx__accuracy": level}))
    return sardonyx.InferenceSession(model, settings, providers=["CPUExecutionProvider"], **more)


def algorithms(session: sardonyx.InferenceSession) -> set[str]:
    programs = [step.call.program for step in all_steps(session._engine.plan) if step.compiled]
    return {step.kernel.title for program in programs for step in program.steps} & {"conv", "winograd", "strassen"}


SQUARE = layer(random(64, 64, 3, 3), (1, 64, 28, 28))
POINTWISE = layer(random(256, 256, 1, 1), (1, 256, 28, 28))
PICTURES = {"x": random(1, 256, 28, 28, seed=1)}


# --- the setting


@needs_strassen
def test_each_level_allows_more_algorithms() -> None:
    assert [algorithms(session_of(SQUARE, level)) for level in LEVELS] == [{"conv"}, {"winograd"}, {"winograd"}]
    assert [algorithms(session_of(POINTWISE, level)) for level in LEVELS] == [{"conv"}, {"conv"}, {"strassen"}]
    assert algorithms(session_of(POINTWISE)) == {"conv"} and algorithms(session_of(SQUARE)) == {"winograd"}


def test_a_provider_option_goes_before_the_session_s() -> None:
    chosen = [("CPUExecutionProvider", {"accuracy": "exact"})]
    session = sardonyx.InferenceSession(SQUARE, options(sardonyx__accuracy="fast"), providers=chosen)
    assert algorithms(session) == {"conv"}


def test_the_old_name_of_exact_is_still_taken() -> None:
    assert algorithms(sardonyx.InferenceSession(SQUARE, options(session__winograd="off"))) == {"conv"}


@pytest.mark.parametrize("wrong", ["", "Exact", "off", "2"])
def test_other_levels_are_refused_by_the_names_that_there_are(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match=f"sardonyx.accuracy must be one of exact, default, fast, not '{wrong}'"):
        session_of(SQUARE, wrong)
    for native in ("0", "1"):
        with pytest.raises(InvalidArgument, match=f"accuracy must be one of exact, default, fast, not '{wrong}'"):
            given = {"accuracy": wrong, "native": native}
            sardonyx.InferenceSession(SQUARE, providers=[("CPUExecutionProvider", given)])


@needs_strassen
def test_sessions_of_other_levels_share_no_weights_that_differ() -> None:
    container = sardonyx.PrepackedWeightsContainer()
    shared = [session_of(POINTWISE, level, prepacked_weights_container=container) for level in (*LEVELS, "exact")]
    alone = [session_of(POINTWISE, level) for level in (*LEVELS, "exact")]
    for one, other in zip(shared, alone, strict=True):
        assert algorithms(one) == algorithms(other)
        assert np.array_equal(one.run(None, PICTURES)[0], other.run(None, PICTURES)[0])
    assert [session.prepacking_counts().packed for session in shared] == [1, 0, 1, 0]


@needs_strassen
@pytest.mark.parametrize("saved", LEVELS)
@pytest.mark.parametrize("level", LEVELS)
def test_saved_weights_of_another_level_are_not_taken_for_others(tmp_path: Path, saved: str, level: str) -> None:
    given = options(
        sardonyx__accuracy=saved,
        session__optimized_model_external_initializers_file_name="packed.bin",
        session__save_external_prepacked_constant_initializers="1",
    )
    given.optimized_model_filepath = str(tmp_path / "packed.onnx")
    sardonyx.InferenceSession(POINTWISE, given)
    session = session_of(tmp_path / "packed.onnx", level)
    assert algorithms(session) == algorithms(session_of(POINTWISE, level))
    assert session.prepacking_counts().packed == ((saved == "fast") != (level == "fast"))
    assert np.array_equal(session.run(None, PICTURES)[0], session_of(POINTWISE, level).run(None, PICTURES)[0])


@needs_strassen
@pytest.mark.parametrize("compiled", LEVELS)
@pytest.mark.parametrize("level", [*LEVELS, None])
def test_compiled_code_is_used_if_it_is_exact_enough(
    tmp_path: Path, compiled: str, level: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path, target = tmp_path / "layer.onnx", tmp_path / "layer_ctx.onnx"
    path.write_bytes(POINTWISE)
    sardonyx.ModelCompiler(options(sardonyx__accuracy=compiled), path).compile_to_file(target)
    with caplog.at_level(logging.WARNING, "sardonyx.runtime"):
        session = session_of(target, level)
    demanded = level or "default"
    assert is_used(session) == (LEVELS.index(compiled) <= LEVELS.index(demanded))
    if not is_used(session):
        assert f"it was compiled with accuracy={compiled}, this session demands {demanded}" in caplog.text
        assert np.array_equal(session.run(None, PICTURES)[0], session_of(POINTWISE, level).run(None, PICTURES)[0])


def test_what_is_stored_tells_which_transform_is_chosen(tmp_path: Path) -> None:
    given = options(
        session__optimized_model_external_initializers_file_name="packed.bin",
        session__optimized_model_external_initializers_min_size_in_bytes="0",
        session__save_external_prepacked_constant_initializers="1",
    )
    given.optimized_model_filepath = str(tmp_path / "packed.onnx")
    one_tap = random(64, 64, 3, 3)
    one_tap[:, :, :, :2] = one_tap[:, :, :2] = 0
    sardonyx.InferenceSession(layer(one_tap, (1, 64, 28, 28)), given)
    session = session_of(tmp_path / "packed.onnx")
    counts = session.prepacking_counts()
    assert counts.packed == 0 and counts.loaded == 2
    x = {"x": random(1, 64, 28, 28, seed=1)}
    assert np.array_equal(session.run(None, x)[0], session_of(layer(one_tap, (1, 64, 28, 28))).run(None, x)[0])


# --- the promise


def largest_errors(x: np.ndarray, weights: np.ndarray, level: str, stride: int, dilation: int) -> np.ndarray:
    """Of each filter, against float64."""
    model = layer(weights, x.shape, strides=[stride] * 2, dilations=[dilation] * 2)
    found = session_of(model, level).run(None, {"x": x})[0]
    exact = sum_of_windows(x.astype(np.float64), weights.astype(np.float64), stride, dilation)
    return np.abs(found - exact).max(axis=(0, 2, 3))


def assert_promise(x: np.ndarray, weights: np.ndarray, stride: int = 1, dilation: int = 1, floor: float = FLOOR) -> None:
    direct, found = (largest_errors(x, weights, level, stride, dilation) for level in ("exact", "default"))
    sizes = sum_of_windows(np.abs(x).astype(np.float64), np.abs(weights).astype(np.float64), stride, dilation)
    allowed = PROMISED * np.maximum(direct, floor * sizes.max(axis=(0, 2, 3)))
    assert (found <= allowed).all(), f"{(found / allowed).max() * PROMISED:.1f} times the error of the direct sum"


def spread(seed: int, decades: float, *shape: int) -> np.ndarray:
    """Factors over so many powers of ten."""
    return 10.0 ** np.random.RandomState(seed).uniform(-decades / 2, decades / 2, shape)


WINDOWS = [
    ((3, 3), 1, 1),
    ((3, 3), 2, 1),
    ((3, 3), 1, 2),
    ((5, 5), 1, 1),
    ((1, 7), 1, 1),
    ((2, 2), 1, 1),
    ((4, 1), 1, 1),
    ((7, 7), 2, 1),
]


@settings(max_examples=30, deadline=None)
@given(
    window=st.sampled_from(WINDOWS),
    points=st.sampled_from([(4,), (6,), (4, 6)]),
    seed=st.integers(0, 1000),
    filters=st.sampled_from([0, 10]),
    channels=st.sampled_from([0, 4, 8]),
    taps=st.sampled_from([0, 4, 8]),
    outliers=st.sampled_from([1, 1e4]),
    rectified=st.booleans(),
)
@example(((3, 3), 1, 1), (6,), 0, 0, 0, 0, 1e4, True)
@example(((3, 3), 1, 1), (6,), 0, 10, 8, 0, 1, True)
def test_transforms_keep_the_promise(
    window: Any, points: Any, seed: int, filters: float, channels: float, taps: float, outliers: float, rectified: bool
) -> None:
    kernel, stride, dilation = window
    x = random(1, 32, 24, 23, seed=seed + 1)
    x = np.maximum(x, 0) if rectified else x
    x[:, ::11] *= outliers
    weights = random(24, 32, *kernel, seed=seed) * spread(seed, filters, 24, 1, 1, 1)
    weights *= spread(seed, channels, 1, 32, 1, 1) * spread(seed, taps, 24, 1, *kernel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "POINTS", points)
        patch.setattr(winograd, "GAIN", 1e9)
        assert_promise(x, weights.astype(np.float32), stride=stride, dilation=dilation)


def test_folded_normalizations_with_tiny_variances_keep_the_promise() -> None:
    weights = random(64, 48, 3, 3)
    variances = np.where(np.arange(64) % 5 == 0, 1e-12, 1)
    weights *= (1 / np.sqrt(variances + 1e-5)).astype(np.float32)[:, None, None, None]
    weights[:, 7] *= 1e-6  # a channel whose own normalization has made it large
    x = np.maximum(random(1, 48, 28, 28, seed=1), 0)
    x[:, 7] *= 1e6
    assert algorithms(session_of(layer(weights, x.shape))) == {"winograd"}
    assert_promise(x, weights)


@pytest.mark.parametrize("tap", range(9))
def test_filters_of_a_single_tap_keep_the_promise(tap: int) -> None:
    weights = np.zeros((64, 64, 9), np.float32)
    weights[:, :, tap] = random(64, 64)
    assert_promise(random(1, 64, 28, 28, seed=1), weights.reshape(64, 64, 3, 3), floor=0)


CHANNEL = np.where(np.arange(256) == 5, 1e4, 1).astype(np.float32)


@pytest.mark.parametrize(
    "of_image, of_channels, of_filters",
    [(CHANNEL, 1 / CHANNEL, 1), (1, 1, np.where(np.arange(256) % 7 == 0, 1e5, 1))],
    ids=["a channel", "filters"],
)
def test_pointwise_products_keep_the_promise(of_image: Any, of_channels: Any, of_filters: Any) -> None:
    weights = random(256, 256) * of_channels * np.reshape(of_filters, (-1, 1))
    x = random(1, 256, 28, 28, seed=1) * np.reshape(of_image, (-1, 1, 1))
    assert_promise(x.astype(np.float32), weights.astype(np.float32)[:, :, None, None])


@pytest.mark.parametrize("channels, kernel", [(512, 3), (512, 4), (2048, 1), (64, 7)])
@pytest.mark.parametrize("level, factor", [("exact", 2), ("default", 4)])
def test_errors_of_long_sums_are_near_those_of_onnxruntime(channels: int, kernel: int, level: str, factor: float) -> None:
    weights, x = random(32, channels, kernel, kernel), random(1, channels, 12, 12, seed=1)
    model = layer(weights, x.shape)
    wanted = sum_of_windows(x.astype(np.float64), weights.astype(np.float64), 1, 1)
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found, reference = (np.square(one.run(None, {"x": x})[0] - wanted).mean() for one in (session_of(model, level), theirs))
    assert np.sqrt(found) <= factor * np.sqrt(reference)


# --- how it is kept


@pytest.mark.parametrize("transform", [Transform(4, 3), Transform(2, 3), Transform(5, 2), Transform(3, 2)])
def test_matrices_are_what_sliding_sums_take(transform: Transform) -> None:
    taps, inputs = random(transform.taps, seed=1), random(transform.width, seed=2)
    products = (transform.filter_matrix @ taps) * (transform.forward_matrix @ inputs)
    np.testing.assert_allclose(transform.backward_matrix @ products, np.correlate(inputs, taps), rtol=1e-5, atol=1e-6)


def test_the_estimate_knows_neither_the_scale_of_channels_nor_of_filters() -> None:
    factors = [tap_factors(Transform(4, 3))] * 2
    weights = random(32, 16, 3, 3).astype(np.float64)
    plain = error_ratio(tap_energies(weights), factors)
    assert plain < BOUND
    assert error_ratio(tap_energies(weights * spread(0, 12, 32, 1, 1, 1)), factors) == pytest.approx(plain)
    assert error_ratio(np.zeros((4, 3, 3)), factors) == 0
    assert error_ratio(np.full((4, 3, 3), np.inf), factors) == np.inf


def test_one_filter_with_its_weight_in_a_corner_takes_the_layer_to_a_smaller_transform(monkeypatch: Any) -> None:
    chosen = []
    steps = winograd.winograd_steps
    monkeypatch.setattr(winograd, "winograd_steps", lambda *given: (chosen.append(given[2]), steps(*given)))
    weights = random(64, 64, 3, 3)
    corner = weights.copy()
    corner[3, :, :2] = corner[3, :, :, :2] = 0
    for each in (weights, corner):
        session_of(layer(each, (1, 64, 28, 28)))
    widths = [[way.transform.width for way in ways] for ways in chosen]
    assert widths[0] == [6, 6] and sum(widths[1]) < 12


def test_one_bright_pixel_costs_its_neighbours_digits_unless_sums_are_exact() -> None:
    """What is not promised: documented in docs/accuracy.md."""
    x = random(1, 64, 28, 28, seed=1)
    x[0, :, 14, 14] *= 1e3
    weights = random(64, 64, 3, 3)
    wanted = sum_of_windows(x.astype(np.float64), weights.astype(np.float64), 1, 1)
    far = np.ones((26, 26), bool)
    far[12:15, 12:15] = False  # windows that meet the pixel
    size = np.abs(wanted[..., far]).max()
    errors = {}
    for level in ("exact", "default"):
        found = session_of(layer(weights, x.shape), level).run(None, {"x": x})[0]
        errors[level] = np.abs(found - wanted)[..., far].max() / size
    assert errors["exact"] < 2e-6 < 1e-4 < errors["default"] < 2e-3


@pytest.mark.parametrize("place", [(0, 0), (1, 1), (3, 1), (3, 3), (6, 6)])
def test_errors_by_a_pixel_that_outweighs_all_others_stay_of_the_order_of_its_products(place: tuple[int, int]) -> None:
    x, weights = random(1, 64, 13, 13), random(128, 64, 3, 3, seed=1)
    x[0, 5, *place] = 1e4
    assert_promise(x, weights, floor=4 * FLOOR)
