"""What a quantization is asked to do, as objects: `StaticQuantConfig`, `DynamicQuantConfig`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.quantization.types import CalibrationMethod, QuantFormat, QuantType

Names = Sequence[str] | None


class QuantConfig:
    def __init__(
        self,
        activation_type: QuantType = QuantType.QUInt8,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Names = None,
        nodes_to_quantize: Names = None,
        nodes_to_exclude: Names = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
    ):
        self.activation_type, self.weight_type = activation_type, weight_type
        self.op_types_to_quantize = list(op_types_to_quantize or [])
        self.nodes_to_quantize = list(nodes_to_quantize or [])
        self.nodes_to_exclude = list(nodes_to_exclude or [])
        self.per_channel, self.reduce_range = per_channel, reduce_range
        self.use_external_data_format = use_external_data_format


class StaticQuantConfig(QuantConfig):
    """Ranges of activations come from calibration."""

    def __init__(
        self,
        calibration_data_reader: Any,
        calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
        quant_format: QuantFormat = QuantFormat.QDQ,
        activation_type: QuantType = QuantType.QInt8,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Names = None,
        nodes_to_quantize: Names = None,
        nodes_to_exclude: Names = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
        calibration_providers: Sequence[str] | None = None,
        extra_options: dict[str, Any] | None = None,
    ):
        super().__init__(
            activation_type,
            weight_type,
            op_types_to_quantize,
            nodes_to_quantize,
            nodes_to_exclude,
            per_channel,
            reduce_range,
            use_external_data_format,
        )
        self.calibration_data_reader = calibration_data_reader
        self.calibrate_method, self.quant_format = calibrate_method, quant_format
        self.calibration_providers = calibration_providers
        self.extra_options = extra_options or {}


class DynamicQuantConfig(QuantConfig):
    """Ranges of activations are seen in each run."""

    def __init__(
        self,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Names = None,
        nodes_to_quantize: Names = None,
        nodes_to_exclude: Names = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
        extra_options: dict[str, Any] | None = None,
    ):
        super().__init__(
            QuantType.QUInt8,
            weight_type,
            op_types_to_quantize,
            nodes_to_quantize,
            nodes_to_exclude,
            per_channel,
            reduce_range,
            use_external_data_format,
        )
        self.extra_options = extra_options or {}
