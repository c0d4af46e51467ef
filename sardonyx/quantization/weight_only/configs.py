"""Which algorithm makes the weights, with its options."""

from __future__ import annotations

from typing import Any

from sardonyx.quantization.types import QuantFormat

OpTypes = tuple[str, ...] | None
Axes = tuple[tuple[str, int], ...] | None


class WeightOnlyQuantConfig:
    """`algorithm` is its name; the rest is what all have."""

    def __init__(
        self,
        algorithm: str,
        quant_format: QuantFormat,
        op_types_to_quantize: OpTypes = None,
        quant_axes: Axes = None,
        customized_weight_config: dict[str, Any] | None = None,
    ):
        self.algorithm, self.quant_format = algorithm, quant_format
        self.op_types_to_quantize = set(op_types_to_quantize) if op_types_to_quantize else {"MatMul"}
        self.quant_axes = dict(quant_axes) if quant_axes else {"MatMul": 0, "Gather": 1}
        self.customized_weight_config = customized_weight_config


class RTNWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Round to nearest; `ratios` narrow the ranges of single weights."""

    def __init__(
        self,
        ratios: dict[str, float] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: OpTypes = None,
        customized_weight_config: dict[str, Any] | None = None,
    ):
        _refuse_qdq("RTN", quant_format)
        super().__init__("RTN", quant_format, op_types_to_quantize, None, customized_weight_config)
        self.ratios = ratios or {}


class KQuantWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """k-quant; `customized_weight_config` gives single nodes other numbers of bits: {node: {"bits": 8}}."""

    def __init__(
        self,
        ratios: dict[str, float] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: OpTypes = None,
        customized_weight_config: dict[str, Any] | None = None,
    ):
        _refuse_qdq("k_quant", quant_format)
        super().__init__("k_quant", quant_format, op_types_to_quantize, None, customized_weight_config)
        self.ratios = ratios or {}


class GPTQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """GPTQ, which needs calibration data."""

    def __init__(
        self,
        calibration_data_reader: Any = None,
        percdamp: float = 0.01,
        block_size: int = 128,
        actorder: bool = False,
        mse: bool = False,
        perchannel: bool = True,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: OpTypes = None,
    ):
        _refuse_qdq("GPTQ", quant_format)
        super().__init__("GPTQ", quant_format, op_types_to_quantize)
        self.calibration_data_reader = calibration_data_reader
        self.percdamp, self.block_size = percdamp, block_size
        self.actorder, self.mse, self.perchannel = actorder, mse, perchannel


class HQQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """HQQ, with float zero points."""

    def __init__(
        self,
        block_size: int = 128,
        bits: int = 4,
        axis: int = 1,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: OpTypes = None,
        quant_axes: Axes = None,
    ):
        _refuse_qdq("HQQ", quant_format)
        super().__init__("HQQ", quant_format, op_types_to_quantize, quant_axes)
        self.block_size, self.bits, self.axis = block_size, bits, axis


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """The quantizer's own: scales from the extremes of each block."""

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: OpTypes = None,
        quant_axes: Axes = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ):
        super().__init__("DEFAULT", quant_format, op_types_to_quantize, quant_axes)
        self.block_size, self.is_symmetric, self.bits = block_size, is_symmetric, bits
        self.accuracy_level = accuracy_level
        self.channel_wised_quantize = channel_wised_quantize
        if channel_wised_quantize and quant_format is QuantFormat.QOperator:
            raise NotImplementedError("one block for each channel is written as QDQ alone, quant_format is QOperator")


class NVAWQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """AWQ by NVIDIA's ModelOpt; it needs that package and a GPU, so it can be described here, and not run."""

    def __init__(
        self,
        tokenizer_dir: str,
        dataset_name: str = "cnn",
        cache_dir: str = "./cache",
        calibration_method: str = "awq_lite",
    ):
        super().__init__("nvidia_awq", QuantFormat.QDQ)
        self.tokenizer_dir, self.dataset_name, self.cache_dir = tokenizer_dir, dataset_name, cache_dir
        self.calibration_method = calibration_method


def _refuse_qdq(algorithm: str, quant_format: QuantFormat) -> None:
    if quant_format is not QuantFormat.QOperator:
        raise ValueError(f"{algorithm} is written as QOperator alone, quant_format is {quant_format}")
