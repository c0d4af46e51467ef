"""The names that other packages import from here; each stands in the module of its subject."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onnx import AttributeProto, NodeProto, TensorProto, helper

from sardonyx.quantization.arithmetic import (
    FLOAT8_DISTRIBUTIONS,
    FLOAT8_TYPES,
    ONNX_INT_TYPE_RANGE,
    ONNX_INT_TYPE_REDUCED_RANGE,
    ONNX_INT_TYPE_SYMMETRIC_RANGE,
    ONNX_TYPE_TO_NP_TYPE,
    compute_data_quant_params,
    compute_scale_zp,
    compute_scale_zp_blocked,
    compute_scale_zp_float8,
    get_qmin_qmax_for_qType,
    get_qrange_for_qType,
    normalize_axis,
    pack_bytes_to_4bit,
    quantize_data,
    quantize_nparray,
    quantize_onnx_initializer,
    smooth_distribution,
    snap_zero_point_to_uint8,
    tensor_proto_to_array,
)
from sardonyx.quantization.calibration_tables import write_calibration_table
from sardonyx.quantization.models import (
    MODEL_SIZE_THRESHOLD,
    add_infer_metadata,
    add_pre_process_metadata,
    get_opset_version,
    load_model_with_shape_infer,
    model_has_external_data,
    model_has_infer_metadata,
    model_has_pre_process_metadata,
    ms_domain,
    onnx_domain,
    save_and_reload_model_with_shape_infer,
    update_opset_version,
)
from sardonyx.quantization.optimized import optimize_model
from sardonyx.quantization.types import QuantFormat, QuantizationMode, QuantizedValueType, QuantType
from sardonyx.quantization.values import (
    DEQUANT_OP_NAME,
    DEQUANT_OUTPUT_SUFFIX,
    QUANT_INPUT_SUFFIX,
    QUANT_OP_NAME,
    TENSOR_NAME_QUANT_SUFFIX,
    BiasToQuantize,
    QuantizedInitializer,
    QuantizedValue,
    add_dequant_input_suffix,
    add_dequant_output_suffix,
    add_dequant_suffix,
    add_quant_input_suffix,
    add_quant_output_suffix,
    add_quant_suffix,
)

type_to_name = {int(number): name for name, number in TensorProto.DataType.items()}


def attribute_to_kwarg(attribute: AttributeProto) -> dict[str, Any]:
    """An attribute as the keyword argument that `onnx.helper.make_node` takes."""
    return {attribute.name: helper.get_attribute_value(attribute)}


def find_by_name(item_name: str, item_list: Iterable[Any]) -> Any:
    """The first item of that name, or None."""
    return next((item for item in item_list if item.name == item_name), None)


def get_elem_index(elem_name: str, elem_list: Sequence[str]) -> int:
    """Where a name stands last in a list, or -1."""
    return max((index for index, name in enumerate(elem_list) if name == elem_name), default=-1)


def get_mul_node(inputs: Sequence[str], output: str, name: str) -> NodeProto:
    return helper.make_node("Mul", inputs, [output], name)


def generate_identified_filename(filename: Path, identifier: str) -> Path:
    """The path with an identifier before its suffix."""
    return filename.parent.joinpath(filename.stem + identifier).with_suffix(filename.suffix)


def apply_plot(hist: Any, hist_edges: Any) -> None:
    """Show a histogram; needs matplotlib."""
    plot = importlib.import_module("matplotlib.pyplot")
    plot.stairs(hist, hist_edges, fill=True)
    plot.title("values seen by calibration")
    plot.show()


__all__ = [
    "DEQUANT_OP_NAME",
    "DEQUANT_OUTPUT_SUFFIX",
    "FLOAT8_DISTRIBUTIONS",
    "FLOAT8_TYPES",
    "MODEL_SIZE_THRESHOLD",
    "ONNX_INT_TYPE_RANGE",
    "ONNX_INT_TYPE_REDUCED_RANGE",
    "ONNX_INT_TYPE_SYMMETRIC_RANGE",
    "ONNX_TYPE_TO_NP_TYPE",
    "QUANT_INPUT_SUFFIX",
    "QUANT_OP_NAME",
    "TENSOR_NAME_QUANT_SUFFIX",
    "BiasToQuantize",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "QuantizedInitializer",
    "QuantizedValue",
    "QuantizedValueType",
    "add_dequant_input_suffix",
    "add_dequant_output_suffix",
    "add_dequant_suffix",
    "add_infer_metadata",
    "add_pre_process_metadata",
    "add_quant_input_suffix",
    "add_quant_output_suffix",
    "add_quant_suffix",
    "apply_plot",
    "attribute_to_kwarg",
    "compute_data_quant_params",
    "compute_scale_zp",
    "compute_scale_zp_blocked",
    "compute_scale_zp_float8",
    "find_by_name",
    "generate_identified_filename",
    "get_elem_index",
    "get_mul_node",
    "get_opset_version",
    "get_qmin_qmax_for_qType",
    "get_qrange_for_qType",
    "load_model_with_shape_infer",
    "model_has_external_data",
    "model_has_infer_metadata",
    "model_has_pre_process_metadata",
    "ms_domain",
    "normalize_axis",
    "onnx_domain",
    "optimize_model",
    "pack_bytes_to_4bit",
    "quantize_data",
    "quantize_nparray",
    "quantize_onnx_initializer",
    "save_and_reload_model_with_shape_infer",
    "smooth_distribution",
    "snap_zero_point_to_uint8",
    "tensor_proto_to_array",
    "type_to_name",
    "update_opset_version",
    "write_calibration_table",
]
