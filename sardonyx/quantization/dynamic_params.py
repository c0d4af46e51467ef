"""Signed codes of a value whose range is seen in each run only; unsigned ones have the op DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import arithmetic
from sardonyx.quantization.values import QUANT_OP_NAME, add_quant_suffix


def signed_quantize_nodes(quantizer: Any, name: str, codes: str, scale: str, zero_point: str) -> list[NodeProto]:
    """Nodes for scale = max |x| / highest code, and the codes; all zeros get a scale of 1."""
    element_type = quantizer.activation_qType
    if element_type not in (TensorProto.INT8, TensorProto.UINT8):
        raise ValueError(f"dynamic quantization has 8 bits, not {arithmetic.type_name(element_type)}")
    is_signed = element_type == TensorProto.INT8
    steps = np.array(arithmetic.get_qrange_for_qType(element_type, symmetric=True) / 2, dtype=np.float32)
    quantizer.add_initializer(numpy_helper.from_array(steps, f"{name}_steps"))
    quantizer.add_initializer(numpy_helper.from_array(np.float32(0).reshape(()), f"{name}_nothing"))
    quantizer.add_initializer(numpy_helper.from_array(np.float32(1).reshape(()), f"{name}_unit"))
    middle = np.array(0, np.int8) if is_signed else np.array(128, np.uint8)
    quantizer.add_initializer(numpy_helper.from_array(middle, zero_point))
    label = add_quant_suffix(name)
    return [
        helper.make_node("Abs", [name], [f"{name}_magnitude"], f"{label}_Abs"),
        helper.make_node("ReduceMax", [f"{name}_magnitude"], [f"{name}_top"], f"{label}_ReduceMax", keepdims=0),
        helper.make_node("Div", [f"{name}_top", f"{name}_steps"], [f"{name}_step"], f"{label}_Div"),
        helper.make_node("Equal", [f"{name}_step", f"{name}_nothing"], [f"{name}_flat"], f"{label}_Equal"),
        helper.make_node("Where", [f"{name}_flat", f"{name}_unit", f"{name}_step"], [scale], f"{label}_Where"),
        helper.make_node(QUANT_OP_NAME, [name, scale, zero_point], [codes], label),
    ]
