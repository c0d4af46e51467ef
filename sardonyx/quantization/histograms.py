"""Calibration by histograms: ranges that leave out rare values, by entropy, by percentile, or by the spread of the values.

Values wait in memory up to a budget and are then counted; what is counted takes a few kilobytes a tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from sardonyx.quantization.arithmetic import smooth_distribution
from sardonyx.quantization.calibraters import CalibraterBase, CalibrationDataReader
from sardonyx.quantization.ranges import TensorData, TensorsData
from sardonyx.quantization.types import CalibrationMethod

BUDGET = 1 << 28
"""Bytes of values that wait to be counted. The first count fixes the bins, so the more values it sees, the better."""
LEAST_DISTRIBUTION_BINS = 512
SCENARIOS = ("same", "p3")

Histogram = tuple[np.ndarray, np.ndarray, Any, Any, Any]
"""Counts, edges, lowest value, highest value, and the threshold at which the edges end."""


def rel_entr(pk: np.ndarray, qk: np.ndarray) -> np.ndarray:
    """p · log(p / q) for each element: 0 where p is 0, infinity where only q is."""
    result = np.full(np.broadcast(pk, qk).shape, np.inf, dtype=np.result_type(pk, qk, np.float32))
    both = (pk > 0) & (qk > 0)
    result[both] = pk[both] * np.log(pk[both] / qk[both])
    result[(pk == 0) & (qk >= 0)] = 0
    return result


def entropy(pk: np.ndarray, qk: np.ndarray, base: float | None = None, axis: int = 0) -> np.ndarray:
    """How much is lost where q stands for p (Kullback and Leibler), both scaled to sums of 1."""
    if base is not None and base <= 0:
        raise ValueError(f"the base of a logarithm is above 0, got {base}")
    p = np.asarray(pk, dtype=np.float32)
    q = np.asarray(qk, dtype=np.float32)
    p, q = p / np.sum(p, axis=axis, keepdims=True), q / np.sum(q, axis=axis, keepdims=True)
    loss = np.sum(rel_entr(p, q), axis=axis)
    return np.asarray(loss if base is None else loss / np.log(base)).astype(p.dtype)


class CalibrationDataCollector:
    """Takes arrays by the names of tensors in, and tells ranges."""

    def collect(self, name_to_arr: dict[str, Any]) -> None:
        raise NotImplementedError

    def compute_collection_result(self) -> Any:
        raise NotImplementedError


class HistogramCollector(CalibrationDataCollector):
    """Counts values in bins between minus and plus the largest magnitude; bins are added at both ends when it grows."""

    def __init__(self, method: str, symmetric: bool, num_bins: int, num_quantized_bins: int, percentile: float, scenario: str):
        self.histogram_dict: dict[str, Histogram] = {}
        self.method, self.symmetric = method, symmetric
        self.num_bins, self.num_quantized_bins = num_bins, num_quantized_bins
        self.percentile, self.scenario = percentile, scenario

    def get_histogram_dict(self) -> dict[str, Histogram]:
        return self.histogram_dict

    def collect(self, name_to_arr: dict[str, Any]) -> None:
        if self.method not in ("distribution", "entropy", "percentile"):
            raise ValueError(f"{self.method!r} is no method of histograms; there are entropy, percentile, distribution")
        if self.method == "percentile" and self.symmetric:
            self.collect_absolute_value(name_to_arr)
        else:
            self.collect_value(name_to_arr)

    def collect_absolute_value(self, name_to_arr: dict[str, Any]) -> None:
        """Count magnitudes, in bins from 0 on."""
        for name, arrays in name_to_arr.items():
            values = _flat(arrays)
            low, high = _extremes(values)
            magnitudes = np.abs(values)
            old = self.histogram_dict.get(name)
            if old is None:
                counts, edges = np.histogram(magnitudes, bins=self.num_bins)
                edges = edges.astype(values.dtype)
            else:
                counts, edges = _extended_upwards(old, magnitudes)
                low, high = np.minimum(old[2], low), np.maximum(old[3], high)
            self.histogram_dict[name] = (counts, edges, low, high, edges[-1])

    def collect_value(self, name_to_arr: dict[str, Any]) -> None:
        """Count values, in bins as far below 0 as above."""
        for name, arrays in name_to_arr.items():
            values = _flat(arrays)
            low, high = _extremes(values)
            threshold = np.maximum(np.abs(low), np.abs(high))
            old = self.histogram_dict.get(name)
            if old is not None:
                self.histogram_dict[name] = self.merge_histogram(old, values, low, high, threshold)
                continue
            counts, edges = np.histogram(values, bins=self.num_bins, range=(-threshold, threshold))
            self.histogram_dict[name] = (counts, edges.astype(values.dtype), low, high, threshold)

    def merge_histogram(
        self, old_histogram: Histogram, data_arr: Any, new_min: Any, new_max: Any, new_threshold: Any
    ) -> Histogram:
        """A histogram with more values; it keeps the width of its bins and gets more of them where they are needed."""
        counts, edges, low, high, threshold = old_histogram
        low, high = np.minimum(low, new_min), np.maximum(high, new_max)
        if not threshold:
            fresh, edges = np.histogram(data_arr, bins=len(counts), range=(-new_threshold, new_threshold))
            fresh[len(counts) // 2] += counts.sum()  # so far everything was 0
            return fresh, edges.astype(np.asarray(low).dtype), low, high, new_threshold
        more = 0
        if new_threshold > threshold:
            width = 2 * threshold / len(counts)
            more = int((new_threshold - threshold) // width + 1)
            threshold = more * width + threshold
        fresh, wide_edges = np.histogram(data_arr, bins=len(counts) + 2 * more, range=(-threshold, threshold))
        fresh[more : len(fresh) - more] += counts
        return fresh, wide_edges.astype(edges.dtype), low, high, threshold

    def compute_collection_result(self) -> Any:
        if not self.histogram_dict:
            raise ValueError("there is no histogram: collect comes first")
        compute = {
            "entropy": self.compute_entropy,
            "percentile": self.compute_percentile,
            "distribution": self.compute_distribution,
        }
        if self.method not in compute:
            raise ValueError(f"{self.method!r} is no method of histograms; there are {', '.join(compute)}")
        logging.getLogger(__name__).info("ranges of %d tensors by %s", len(self.histogram_dict), self.method)
        return compute[self.method]()

    def compute_percentile(self) -> dict[str, Any]:
        """The range that holds `percentile` percent of the values, the rest left out at both ends."""
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"percentile is between 0 and 100, got {self.percentile}")
        return {name: self._percentile_range(histogram) for name, histogram in self.histogram_dict.items()}

    def _percentile_range(self, histogram: Histogram) -> tuple[Any, Any, Any, Any]:
        counts, edges, low, high = histogram[:4]
        share = np.cumsum(counts / counts.sum())
        top = self.percentile / 100.0
        if self.symmetric:
            end = np.array(_edge(edges, share, top))
            ends: tuple[Any, Any] = -end, end
        else:
            rest = (1.0 - top) / 2.0
            ends = np.array(_edge(edges, share, rest)), np.array(_edge(edges, share, 1.0 - rest))
        lowest = low if ends[0] < low else ends[0]
        highest = high if ends[1] > high else ends[1]
        # onnxruntime keeps the first two counts here, and files of its caches show them
        return lowest, highest, counts[0], counts[1] if len(counts) > 1 else counts[0]

    def compute_entropy(self) -> dict[str, Any]:
        """The range in which the quantized distribution tells most about the real one."""
        return {
            name: (*self.get_entropy_threshold(histogram, self.num_quantized_bins), *histogram[:2])
            for name, histogram in self.histogram_dict.items()
        }

    def get_entropy_threshold(self, histogram: Histogram, num_quantized_bins: int) -> tuple[Any, Any]:
        """Try all ranges around 0 from `num_quantized_bins` bins on, and take that with the least loss."""
        counts, edges, low, high = histogram[:4]
        middle, least = len(counts) // 2, num_quantized_bins // 2
        best, ends = np.inf, (edges[0], edges[-1])
        for half in range(least, middle + 1):
            start, stop = max(0, middle - half), min(len(counts), middle + half + 1)
            loss = _quantization_loss(counts, start, stop, num_quantized_bins)
            if loss < best:
                best, ends = loss, (edges[start], edges[min(stop, len(edges) - 1)])
        return max(ends[0], low), min(ends[1], high)

    @staticmethod
    def _avg_std(hist: np.ndarray, hist_edges: np.ndarray, power: float = 1) -> tuple[Any, Any]:
        """Mean and deviation of counted values, each raised to `power` with its sign kept."""
        if power <= 0:
            raise ValueError(f"power is above 0, got {power}")
        values = (hist_edges[:-1] + hist_edges[1:]) / 2
        values = np.sign(values) * np.abs(values) ** power
        total = hist.sum()
        mean = (hist * values).sum() / total
        deviation = ((hist * values**2).sum() / total - mean**2) ** 0.5
        return np.array(mean, dtype=hist_edges.dtype), np.array(deviation, dtype=hist_edges.dtype)

    def compute_distribution(self) -> dict[str, TensorData]:
        """Mean and deviation of the values, or of their cube roots, for float8."""
        if self.num_bins < LEAST_DISTRIBUTION_BINS:
            raise ValueError(f"a distribution needs num_bins of {LEAST_DISTRIBUTION_BINS} at least, got {self.num_bins}")
        if self.scenario not in SCENARIOS:
            raise ValueError(f"scenario is one of {', '.join(SCENARIOS)}, got {self.scenario!r}")
        power = 1.0 if self.scenario == "same" else 1.0 / 3.0
        return {name: self._distribution_of(histogram, power) for name, histogram in self.histogram_dict.items()}

    def _distribution_of(self, histogram: Histogram, power: float) -> TensorData:
        counts, edges = histogram[:2]
        mean, deviation = self._avg_std(counts, edges, power)
        return TensorData(avg=mean, std=deviation, hist=counts, hist_edges=edges, lowest=edges.min(), highest=edges.max())


def _edge(edges: np.ndarray, shares: np.ndarray, share: float) -> Any:
    """The edge below which at least that share of the values lies."""
    return edges[min(int(np.searchsorted(shares, share)), len(edges) - 1)]


def _flat(arrays: Any) -> np.ndarray:
    """All values of an array or of a list of them, which need not have one shape."""
    if isinstance(arrays, (list, tuple)):
        arrays = np.concatenate([np.asarray(array).ravel() for array in arrays])
    return np.asarray(arrays).ravel()


def _extremes(values: np.ndarray) -> tuple[Any, Any]:
    if not values.size:
        return np.array(0, values.dtype), np.array(0, values.dtype)
    low, high = np.min(values), np.max(values)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("calibration met NaN or infinity; look for it in the calibration data and in the model's outputs")
    return low, high


def _extended_upwards(old: Histogram, magnitudes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts, edges = old[:2]
    top = magnitudes.max(initial=0)
    if top > edges[-1]:
        width = edges[1] - edges[0]
        edges = np.concatenate([edges, np.arange(edges[-1] + width, top + width, width, dtype=edges.dtype)])
    fresh, edges = np.histogram(magnitudes, bins=edges)
    fresh[: len(counts)] += counts
    return fresh, edges


def _quantization_loss(counts: np.ndarray, start: int, stop: int, quantized_bins: int) -> float:
    """How much is lost if counts outside the range move to its ends and those inside are spread evenly over quantized bins."""
    inside = counts[start:stop]
    real = inside.copy()
    real[0] += counts[:start].sum()
    real[-1] += counts[stop:].sum()
    width = len(inside) // quantized_bins
    starts = np.arange(quantized_bins) * width
    is_used = real != 0
    sums = np.add.reduceat(inside, starts)
    used = is_used[: quantized_bins * width].reshape(quantized_bins, width).sum(axis=1)
    even = np.zeros_like(inside)
    even[: quantized_bins * width] = np.repeat(np.where(used > 0, sums // np.maximum(used, 1), 0), width)
    smooth_real, smooth_even = smooth_distribution(real), smooth_distribution(even)
    if smooth_real is None or smooth_even is None:
        return float("inf")
    return float(entropy(smooth_real, smooth_even))


class HistogramCalibrater(CalibraterBase):
    """Makes the calibrated tensors themselves outputs, and counts what comes out."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: Any = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "percentile",
        symmetric: bool = False,
        num_bins: int = 128,
        num_quantized_bins: int = 2048,
        percentile: float = 99.999,
        scenario: str = "same",
    ):
        super().__init__(model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format)
        self.calibrate_tensors_range: Any = None
        self.num_model_outputs = len(self.model.graph.output)
        self.model_original_outputs = {value.name for value in self.model.graph.output}
        self.collector: HistogramCollector | None = None
        self.method, self.num_bins, self.num_quantized_bins = method, num_bins, num_quantized_bins
        self.percentile, self.scenario = percentile, scenario
        self.tensors_to_calibrate: set[str] = set()
        self.clear_collected_data()

    def augment_graph(self) -> None:
        self.tensors_to_calibrate, declared = self.select_tensors_to_calibrate(self.model)
        for name in sorted(self.tensors_to_calibrate - self.model_original_outputs):
            self.model.graph.output.append(helper.make_tensor_value_info(name, declared[name].type.tensor_type.elem_type, None))
        self.save_augmented()

    def clear_collected_data(self) -> None:
        self._waiting: dict[str, list[np.ndarray]] = {}
        self._bytes = 0

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        names = sorted(self.tensors_to_calibrate)
        for feed in self.batches(data_reader):
            for name, array in zip(names, self.infer_session.run(names, feed)):
                self._waiting.setdefault(name, []).append(array)
                self._bytes += array.nbytes
            if self._bytes >= BUDGET:
                self._count()
        if not self._waiting and self.collector is None:
            raise ValueError("the calibration reader gave no data")
        self._count()

    def _count(self) -> None:
        if self.collector is None:
            self.collector = HistogramCollector(
                self.method, self.symmetric, self.num_bins, self.num_quantized_bins, self.percentile, self.scenario
            )
        if self._waiting:
            self.collector.collect(self._waiting)
        self.clear_collected_data()

    def compute_data(self) -> TensorsData:
        if self.collector is None:
            raise ValueError("there is nothing to compute ranges of: collect_data comes first")
        return TensorsData(METHODS[self.method], self.collector.compute_collection_result())


METHODS = {
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
    "distribution": CalibrationMethod.Distribution,
}


class EntropyCalibrater(HistogramCalibrater):
    """Ranges that lose least of the distribution."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: Any = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "entropy",
        symmetric: bool = False,
        num_bins: int = 128,
        num_quantized_bins: int = 128,
    ):
        super().__init__(
            model_path,
            op_types_to_calibrate,
            augmented_model_path,
            use_external_data_format,
            method,
            symmetric,
            num_bins,
            num_quantized_bins,
        )


class PercentileCalibrater(HistogramCalibrater):
    """Ranges that hold most values."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: Any = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "percentile",
        symmetric: bool = False,
        num_bins: int = 2048,
        percentile: float = 99.999,
    ):
        super().__init__(
            model_path,
            op_types_to_calibrate,
            augmented_model_path,
            use_external_data_format,
            method,
            symmetric,
            num_bins,
            percentile=percentile,
        )


class DistributionCalibrater(HistogramCalibrater):
    """Mean and deviation, for float8."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: Any = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "distribution",
        num_bins: int = 128,
        scenario: str = "same",
    ):
        super().__init__(
            model_path,
            op_types_to_calibrate,
            augmented_model_path,
            use_external_data_format,
            method,
            num_bins=num_bins,
            scenario=scenario,
        )
