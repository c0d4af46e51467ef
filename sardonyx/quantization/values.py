"""What a quantizer knows about a value it has quantized, and the names of the tensors that come with it."""

from __future__ import annotations

from typing import Any

import numpy as np

QUANT_OP_NAME = "QuantizeLinear"
DEQUANT_OP_NAME = "DequantizeLinear"
QUANT_INPUT_SUFFIX = "_QuantizeLinear_Input"
DEQUANT_OUTPUT_SUFFIX = "_DequantizeLinear_Output"
TENSOR_NAME_QUANT_SUFFIX = "_quantized"


def add_quant_suffix(tensor_name: str) -> str:
    return f"{tensor_name}_{QUANT_OP_NAME}"


def add_quant_input_suffix(tensor_name: str) -> str:
    return tensor_name + QUANT_INPUT_SUFFIX


def add_quant_output_suffix(tensor_name: str) -> str:
    return f"{tensor_name}_{QUANT_OP_NAME}_Output"


def add_dequant_suffix(tensor_name: str) -> str:
    return f"{tensor_name}_{DEQUANT_OP_NAME}"


def add_dequant_input_suffix(tensor_name: str) -> str:
    return f"{tensor_name}_{DEQUANT_OP_NAME}_Input"


def add_dequant_output_suffix(tensor_name: str) -> str:
    return tensor_name + DEQUANT_OUTPUT_SUFFIX


class QuantizedInitializer:
    """An initializer with the ranges, parameters and codes of its quantization."""

    def __init__(
        self,
        name: str,
        initializer: Any,
        rmins: Any,
        rmaxs: Any,
        zero_points: Any,
        scales: Any,
        data: Any = (),
        quantized_data: Any = (),
        axis: int | None = None,
    ):
        self.name = name
        self.initializer = initializer
        self.rmins, self.rmaxs = rmins, rmaxs
        self.zero_points, self.scales = zero_points, scales
        self.data, self.quantized_data = data, quantized_data
        self.axis = axis


class QuantizedValue:
    """The names under which a value's codes, scale and zero point stand."""

    def __init__(
        self,
        name: str,
        new_quantized_name: str,
        scale_name: str,
        zero_point_name: str,
        quantized_value_type: Any,
        axis: int | None = None,
        node_type: str | None = None,
        node_qtype: Any = None,
        scale_type: Any = None,
    ):
        self.original_name = name
        self.q_name = new_quantized_name
        self.scale_name, self.zp_name = scale_name, zero_point_name
        self.value_type = quantized_value_type
        self.axis = axis
        self.node_type, self.node_qtype = node_type, node_qtype
        self.scale_type = scale_type

    @property
    def operands(self) -> list[str]:
        """Codes, scale and zero point in the order in which QLinear ops take them."""
        return [self.q_name, self.scale_name, self.zp_name]


class BiasToQuantize:
    """A bias, and the two values whose scales give its own."""

    def __init__(self, bias_name: str, input_name: str, weight_name: str):
        self.bias_name = bias_name
        self.input_name = input_name
        self.weight_name = weight_name


FLOATS = {np.dtype("float32"), np.dtype("float16")}


class QuantizationParams:
    """Scale, zero point and whatever else belongs to a tensor's quantization; read by name like a dict."""

    def __init__(self, **data: Any):
        self.data: dict[str, Any] = {}
        for name, value in data.items():
            _check(name, value)
            self.data[name] = value

    def get(self, key: str, default_value: Any = None) -> Any:
        return self.data.get(key, default_value)

    def __iter__(self) -> Any:
        yield from self.data

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.data[key] = value

    def __len__(self) -> int:
        return len(self.data)


def _check(name: str, value: Any) -> None:
    if name == "axis":
        if value is not None and not isinstance(value, int):
            raise TypeError(f"axis is a number or None, got {type(value)}")
    elif not isinstance(value, (int, str, np.ndarray)):
        raise TypeError(f"{name!r} is a number, a text or an array, got {type(value)}")
    elif name == "scale" and isinstance(value, np.ndarray) and value.dtype not in FLOATS:
        raise ValueError(f"a scale is float32 or float16, got {value.dtype}")
