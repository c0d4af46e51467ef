"""The doors: `quantize_dynamic`, `quantize_static`, and `quantize`, which takes a config."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from sardonyx.quantization import models
from sardonyx.quantization.calibrate import CalibrationDataReader, create_calibrator
from sardonyx.quantization.configs import DynamicQuantConfig, Names, QuantConfig, StaticQuantConfig
from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from sardonyx.quantization.onnx_quantizer import ONNXQuantizer
from sardonyx.quantization.qdq_quantizer import QDQQuantizer
from sardonyx.quantization.ranges import TensorsData, load_tensors_data, save_tensors_data
from sardonyx.quantization.registry import IntegerOpsRegistry, QDQRegistry, QLinearOpsRegistry
from sardonyx.quantization.smooth_quant import smooth_model
from sardonyx.quantization.types import CalibrationMethod, QuantFormat, QuantizationMode, QuantType
from sardonyx.quantization.weight_only.configs import WeightOnlyQuantConfig

Source = Any
"""A path or an `onnx.ModelProto`."""
LOG = logging.getLogger(__name__)
CALIBRATION_OPTIONS = {
    "CalibTensorRangeSymmetric": "symmetric",
    "CalibMovingAverage": "moving_average",
    "CalibMovingAverageConstant": "averaging_constant",
    "CalibMaxIntermediateOutputs": "max_intermediate_outputs",
    "CalibPercentile": "percentile",
}
"""Names in `extra_options`, and those that `create_calibrator` knows."""


def check_static_quant_arguments(quant_format: QuantFormat, activation_type: QuantType, weight_type: QuantType) -> None:
    """Refuse combinations of types that no op computes."""
    types = f"activation_type={activation_type}, weight_type={weight_type}"
    if activation_type is QuantType.QInt8 and weight_type is QuantType.QUInt8:
        raise ValueError(f"signed activations with unsigned weights are computed by no op: {types}")
    float8 = QuantType.QFLOAT8E4M3FN
    if (activation_type is float8) != (weight_type is float8):
        raise ValueError(f"float8 is the type of activations and weights or of neither: {types}")
    if activation_type is float8 and weight_type is float8 and quant_format is not QuantFormat.QDQ:
        raise ValueError(f"float8 is written as QDQ alone, quant_format is {quant_format}")
    if quant_format is not QuantFormat.QDQ and {activation_type, weight_type} & models.SIXTEEN_BITS:
        raise ValueError(f"16 bits are written as QDQ alone, quant_format is {quant_format}: {types}")
    if activation_type in (QuantType.QInt4, QuantType.QUInt4):
        raise ValueError(f"4 bits are a type of weights, not of activations: {types}")


def quantize_static(
    model_input: Source,
    model_output: str | Path,
    calibration_data_reader: CalibrationDataReader | None = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Names = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Names = None,
    nodes_to_exclude: Names = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: Sequence[str] | None = None,
    extra_options: dict[str, Any] | None = None,
    calibration_cache_path: str | Path | None = None,
) -> None:
    """Quantize weights and activations, whose ranges calibration finds, and write the model.

    With a `calibration_cache_path` that exists nothing is calibrated; one that does not exist is written.
    """
    if QuantType.QFLOAT8E4M3FN in (activation_type, weight_type) and calibrate_method is not CalibrationMethod.Distribution:
        raise ValueError(f"float8 is calibrated by Distribution, calibrate_method is {calibrate_method}")
    options = dict(extra_options or {})
    cache = None if calibration_cache_path is None else Path(calibration_cache_path)
    if calibration_data_reader is None and (cache is None or not cache.exists()):
        raise ValueError("static quantization needs a calibration_data_reader, or a calibration_cache_path that exists")
    check_static_quant_arguments(quant_format, activation_type, weight_type)
    op_types = list(op_types_to_quantize or {**QLinearOpsRegistry, **QDQRegistry})
    model = _prepared(model_input, weight_type, activation_type, options)
    if options.get("SmoothQuant", False):
        model = _smoothed(model, calibration_data_reader, options)
    ranges = _ranges(
        model,
        op_types,
        calibration_data_reader,
        calibrate_method,
        calibration_providers,
        options,
        cache,
        use_external_data_format,
    )
    common = (
        weight_type,
        activation_type,
        ranges,
        list(nodes_to_quantize or []),
        list(nodes_to_exclude or []),
        op_types,
        options,
    )
    quantizer: QDQQuantizer | ONNXQuantizer
    if quant_format is QuantFormat.QOperator:
        quantizer = ONNXQuantizer(model, per_channel, reduce_range, QuantizationMode.QLinearOps, True, *common)
    else:
        quantizer = QDQQuantizer(model, per_channel, reduce_range, *common)
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(model_output, use_external_data_format)


def _prepared(source: Source, weight_type: QuantType, activation_type: QuantType, options: dict[str, Any]) -> ModelProto:
    """The model with shapes, in an opset that has the types."""
    model = models.load(source)
    _hint_at_pre_processing(model)
    overrides = options.get("TensorQuantOverrides", {})
    model = models.update_opset_version(model, weight_type, activation_type, overrides, int(options.get("BlockSize", 0)))
    models.infer_shapes(model)
    models.add_infer_metadata(model)
    return model


def _hint_at_pre_processing(model: ModelProto) -> None:
    if not models.model_has_pre_process_metadata(model):
        LOG.warning(
            "the model was not pre-processed: quant_pre_process infers shapes and folds what quantization stumbles over"
        )


def _smoothed(model: ModelProto, reader: Any, options: dict[str, Any]) -> ModelProto:
    if reader is None:
        raise ValueError("SmoothQuant looks at activations and needs a calibration_data_reader")
    alpha, folding = options.get("SmoothQuantAlpha", 0.5), options.get("SmoothQuantFolding", True)
    smoothed = smooth_model(model, reader, alpha=float(alpha), folding=bool(folding))
    models.infer_shapes(smoothed)
    return smoothed


def _ranges(
    model: ModelProto,
    op_types: list[str],
    reader: Any,
    method: CalibrationMethod,
    providers: Sequence[str] | None,
    options: dict[str, Any],
    cache: Path | None,
    external: bool,
) -> TensorsData:
    """What calibration finds, or the cache holds."""
    if cache is not None and cache.exists():
        return load_tensors_data(cache)
    calibration_options = {own: options[name] for name, own in CALIBRATION_OPTIONS.items() if name in options}
    with models.temporary_folder() as folder:
        path = Path(folder) / "float.onnx"
        copy = models.load(model)
        models.save(copy, path, external)
        calibrator = create_calibrator(
            path, op_types, Path(folder) / "augmented.onnx", method, external, providers, calibration_options
        )
        _collect(calibrator, reader, options.get("CalibStridedMinMax"))
        ranges = calibrator.compute_data()
        calibrator.infer_session = None  # a session keeps the folder's files open
    if cache is not None:
        save_tensors_data(ranges, cache, smooth_quant=bool(options.get("SmoothQuant", False)))
    return ranges


def _collect(calibrator: Any, reader: Any, stride: int | None) -> None:
    if stride is None:
        calibrator.collect_data(reader)
        return
    total = len(reader)
    if stride <= 0 or total % stride:
        raise ValueError(f"CalibStridedMinMax is {stride}, which does not divide the reader's {total} batches")
    for start in range(0, total, stride):
        reader.set_range(start_index=start, end_index=start + stride)
        calibrator.collect_data(reader)


def quantize_dynamic(
    model_input: Source,
    model_output: str | Path,
    op_types_to_quantize: Names = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Names = None,
    nodes_to_exclude: Names = None,
    use_external_data_format: bool = False,
    extra_options: dict[str, Any] | None = None,
) -> None:
    """Quantize weights, and activations in each run, and write the model. Needs no data."""
    options = {"MatMulConstBOnly": True, **(extra_options or {})}
    model = models.load(model_input)
    _hint_at_pre_processing(model)
    model = models.update_opset_version(model, weight_type)
    models.infer_shapes(model)
    models.add_infer_metadata(model)
    quantizer = ONNXQuantizer(
        model,
        per_channel,
        reduce_range,
        QuantizationMode.IntegerOps,
        False,
        weight_type,
        QuantType.QUInt8,
        None,
        list(nodes_to_quantize or []),
        list(nodes_to_exclude or []),
        list(op_types_to_quantize or IntegerOpsRegistry),
        options,
    )
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(model_output, use_external_data_format)


def quantize(model_input: Source, model_output: str | Path, quant_config: QuantConfig) -> None:
    """Quantize as a config says."""
    config = quant_config
    if isinstance(config, StaticQuantConfig):
        quantize_static(
            model_input,
            model_output,
            config.calibration_data_reader,
            calibrate_method=config.calibrate_method,
            quant_format=config.quant_format,
            activation_type=config.activation_type,
            weight_type=config.weight_type,
            op_types_to_quantize=config.op_types_to_quantize,
            nodes_to_quantize=config.nodes_to_quantize,
            nodes_to_exclude=config.nodes_to_exclude,
            per_channel=config.per_channel,
            reduce_range=config.reduce_range,
            use_external_data_format=config.use_external_data_format,
            calibration_providers=config.calibration_providers,
            extra_options=config.extra_options,
        )
    elif isinstance(config, DynamicQuantConfig):
        quantize_dynamic(
            model_input,
            model_output,
            weight_type=config.weight_type,
            op_types_to_quantize=config.op_types_to_quantize,
            nodes_to_quantize=config.nodes_to_quantize,
            nodes_to_exclude=config.nodes_to_exclude,
            per_channel=config.per_channel,
            reduce_range=config.reduce_range,
            use_external_data_format=config.use_external_data_format,
            extra_options=config.extra_options,
        )
    else:
        _quantize_weights(model_input, model_output, config)


def _quantize_weights(source: Source, target: str | Path, config: Any) -> None:
    if not isinstance(config, WeightOnlyQuantConfig):
        raise TypeError(f"a config is a StaticQuantConfig, a DynamicQuantConfig or a WeightOnlyQuantConfig, got {type(config)}")
    quantizer = MatMulNBitsQuantizer(models.load(source), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(target, True)


def get_qdq_config(
    model_input: Source,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibrate_args: dict[str, Any] | None = None,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: dict[str, list[dict[str, Any]]] | None = None,
    calibration_providers: Sequence[str] | None = None,
    op_types_to_quantize: Names = None,
    nodes_to_exclude: Sequence[str] | Callable[[ModelProto, onnx.NodeProto], bool] | None = None,
    extra_options: dict[str, Any] | None = None,
) -> StaticQuantConfig:
    """A config that quantizes all ops of a model as QDQ. `nodes_to_exclude` may be a function of model and node."""
    model = model_input if isinstance(model_input, ModelProto) else onnx.load(str(model_input), load_external_data=False)
    excluded = _excluded(model, nodes_to_exclude)
    wanted = {node.op_type for node in model.graph.node if node.name not in excluded} - NEVER_QUANTIZED
    if op_types_to_quantize is not None:
        wanted &= set(op_types_to_quantize)
    options = {
        "MinimumRealRange": min_real_range,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "ForceQuantizeNoInputCheck": True,
        "TensorQuantOverrides": tensor_quant_overrides or {},
        **_calibration_options(calibrate_args),
        **(extra_options or {}),
    }
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        quant_format=QuantFormat.QDQ,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=sorted(wanted),
        nodes_to_exclude=excluded,
        per_channel=per_channel,
        reduce_range=reduce_range,
        use_external_data_format=is_large(model_input),
        calibration_providers=calibration_providers,
        extra_options=options,
    )


NEVER_QUANTIZED = {"Cast", "DequantizeLinear", "QuantizeLinear"}


def _excluded(model: ModelProto, wanted: Any) -> list[str]:
    if callable(wanted):
        return [node.name for node in model.graph.node if wanted(model, node)]
    return list(wanted or [])


def _calibration_options(arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Options of a calibrator under the names they have in `extra_options`."""
    return {name: arguments[own] for name, own in CALIBRATION_OPTIONS.items() if arguments and own in arguments}


def is_large(source: Source) -> bool:
    """Whether a model's tensors are, or have to be, in a file beside it."""
    if isinstance(source, ModelProto):
        return models.model_size(source) >= models.MODEL_SIZE_THRESHOLD
    return models.model_has_external_data(Path(source))


__all__ = [
    "DynamicQuantConfig",
    "QuantConfig",
    "StaticQuantConfig",
    "check_static_quant_arguments",
    "get_qdq_config",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
]
