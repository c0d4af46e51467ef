"""The names of calibration under which other packages import them, and `create_calibrator`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sardonyx.quantization.calibraters import CalibraterBase, CalibrationDataReader, MinMaxCalibrater
from sardonyx.quantization.histograms import (
    CalibrationDataCollector,
    DistributionCalibrater,
    EntropyCalibrater,
    HistogramCalibrater,
    HistogramCollector,
    PercentileCalibrater,
    entropy,
    rel_entr,
)
from sardonyx.quantization.ranges import (
    CalibrationCacheEncoder,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.types import CalibrationMethod


def create_calibrator(
    model: str | Path,
    op_types_to_calibrate: Sequence[str] | None = None,
    augmented_model_path: Any = "augmented_model.onnx",
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    use_external_data_format: bool = False,
    providers: Sequence[str] | None = None,
    extra_options: dict[str, Any] = {},  # noqa: B006  only read
) -> CalibraterBase:
    """A calibrator of a model, with its session ready."""
    common = (model, op_types_to_calibrate, augmented_model_path)
    option = extra_options.get
    calibrator: CalibraterBase
    match calibrate_method:
        case CalibrationMethod.MinMax:
            calibrator = MinMaxCalibrater(
                *common,
                use_external_data_format=use_external_data_format,
                symmetric=option("symmetric", False),
                moving_average=option("moving_average", False),
                averaging_constant=option("averaging_constant", 0.01),
                max_intermediate_outputs=option("max_intermediate_outputs"),
                per_channel=option("per_channel", False),
            )
        case CalibrationMethod.Entropy:
            calibrator = EntropyCalibrater(
                *common,
                use_external_data_format=use_external_data_format,
                symmetric=option("symmetric", False),
                num_bins=option("num_bins", 128),
                num_quantized_bins=option("num_quantized_bins", 128),
            )
        case CalibrationMethod.Percentile:
            calibrator = PercentileCalibrater(
                *common,
                use_external_data_format=use_external_data_format,
                symmetric=option("symmetric", True),
                num_bins=option("num_bins", 2048),
                percentile=option("percentile", 99.999),
            )
        case CalibrationMethod.Distribution:
            calibrator = DistributionCalibrater(
                *common,
                use_external_data_format=use_external_data_format,
                num_bins=option("num_bins", 2048),
                scenario=option("scenario", "same"),
            )
        case _:
            raise ValueError(f"{calibrate_method!r} is no way to calibrate; there are {', '.join(map(str, CalibrationMethod))}")
    calibrator.augment_graph()
    if providers:
        calibrator.execution_providers = list(providers)
    calibrator.create_inference_session()
    return calibrator


__all__ = [
    "CalibraterBase",
    "CalibrationCacheEncoder",
    "CalibrationDataCollector",
    "CalibrationDataReader",
    "CalibrationMethod",
    "DistributionCalibrater",
    "EntropyCalibrater",
    "HistogramCalibrater",
    "HistogramCollector",
    "MinMaxCalibrater",
    "PercentileCalibrater",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "entropy",
    "load_tensors_data",
    "rel_entr",
    "save_tensors_data",
]
