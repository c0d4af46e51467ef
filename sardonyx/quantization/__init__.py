"""Quantization of ONNX models, in place of `onnxruntime.quantization`: calibrate, quantize, and see what it costs.

Works on `onnx.ModelProto`. `quantize_dynamic` needs no data, `quantize_static` a `CalibrationDataReader`, and
`matmul_nbits_quantizer` makes weights of 2 to 8 bits. What stands in which module follows onnxruntime's package.
"""

from __future__ import annotations

from sardonyx.quantization.calibrate import (
    CalibraterBase,
    CalibrationDataReader,
    CalibrationMethod,
    MinMaxCalibrater,
    TensorData,
    TensorsData,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.cuda_quantizer import CudaQuantizer
from sardonyx.quantization.qdq_quantizer import QDQQuantizer
from sardonyx.quantization.quant_utils import QuantFormat, QuantType, write_calibration_table
from sardonyx.quantization.quantize import (
    DynamicQuantConfig,
    StaticQuantConfig,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from sardonyx.quantization.shape_inference import quant_pre_process
from sardonyx.quantization.types import QuantizationMode

__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationMethod",
    "CudaQuantizer",
    "DynamicQuantConfig",
    "MinMaxCalibrater",
    "QDQQuantizer",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "StaticQuantConfig",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "get_qdq_config",
    "load_tensors_data",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
    "save_tensors_data",
    "write_calibration_table",
]
