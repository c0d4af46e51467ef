"""Calibration: ranges and histograms against NumPy, folded batch by batch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from sardonyx.quantization import CalibrationMethod, TensorData, TensorsData, create_calibrator, histograms
from sardonyx.quantization.histograms import HistogramCollector
from tests.quantization.small import Feeds, batches, mlp, normal


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def ranges(rng, tmp_path, method=CalibrationMethod.MinMax, feeds=None, **options):
    onnx.save(mlp(rng), tmp_path / "m.onnx")
    calibrator = create_calibrator(tmp_path / "m.onnx", None, str(tmp_path / "a.onnx"), method, extra_options=options)
    calibrator.collect_data(Feeds(feeds))
    return calibrator.compute_data()


def test_minmax_keeps_the_extremes_of_all_batches(rng, tmp_path) -> None:
    feeds = batches(rng, "x", 5, 32)
    found = ranges(rng, tmp_path, feeds=feeds)
    values = np.concatenate([feed["x"] for feed in feeds])
    assert found["x"].range_value == (values.min(), values.max())
    assert set(found.keys()) == {"x", "a", "b", "c", "y"}


def test_averages_are_those_of_the_batches(rng, tmp_path) -> None:
    feeds = batches(rng, "x", 5, 32)
    found = ranges(rng, tmp_path, feeds=feeds, moving_average=True)
    lows = [feed["x"].min() for feed in feeds]
    assert np.allclose(found["x"].lowest, np.mean(lows), rtol=1e-6)


@pytest.mark.parametrize("method", [CalibrationMethod.Percentile, CalibrationMethod.Distribution])
def test_values_wait_within_a_budget(method, rng, tmp_path, monkeypatch) -> None:
    """With a budget of nothing each batch is counted at once; ranges stay where they were but for the width of a bin."""
    feeds = batches(rng, "x", 50, 32, count=6)
    whole = ranges(np.random.default_rng(3), tmp_path, method, feeds)
    monkeypatch.setattr(histograms, "BUDGET", 0)
    counted = ranges(np.random.default_rng(3), tmp_path, method, feeds)
    for name in whole:
        low, high = whole[name].range_value
        assert np.allclose(counted[name].range_value, (low, high), atol=0.05 * float(high - low))


def test_histograms_grow_with_their_values(rng) -> None:
    collector = HistogramCollector("entropy", False, 64, 16, 99.0, "same")
    values = [normal(rng, 100, scale=scale) for scale in (0.5, 2.0, 1.0)]
    for array in values:
        collector.collect({"t": [array]})
    counts, edges, low, high, threshold = collector.get_histogram_dict()["t"]
    everything = np.concatenate(values)
    assert counts.sum() == 300 and len(edges) == len(counts) + 1
    assert (low, high) == (everything.min(), everything.max())
    assert threshold >= np.abs(everything).max()
    assert np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-3)


def test_zeros_first_and_values_later_are_counted(rng) -> None:
    collector = HistogramCollector("entropy", False, 64, 16, 99.0, "same")
    collector.collect({"t": [np.zeros(10, np.float32)]})
    collector.collect({"t": [normal(rng, 50)]})
    assert collector.get_histogram_dict()["t"][0].sum() == 60


def test_percentiles_leave_the_rest_out_at_both_ends(rng, tmp_path) -> None:
    feeds = [{"x": np.linspace(-1, 1, 32 * 100, dtype=np.float32).reshape(100, 32)}]
    found = ranges(rng, tmp_path, CalibrationMethod.Percentile, feeds, symmetric=False, percentile=90.0)
    low, high = found["x"].range_value
    assert np.allclose((low, high), (-0.9, 0.9), atol=0.01)


def test_numbers_that_are_not_floats_are_refused() -> None:
    with pytest.raises(ValueError, match="float16 or float32"):
        TensorData(lowest=np.float64(0), highest=np.float64(1))
    with pytest.raises(TypeError, match="tuple"):
        TensorsData(CalibrationMethod.MinMax, {"t": 3})
