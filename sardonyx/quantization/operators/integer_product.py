"""What ConvInteger and MatMulInteger have in common: int32 sums, cast to float and multiplied by both scales."""

from __future__ import annotations

from typing import Any

from onnx import NodeProto, TensorProto, helper

from sardonyx.quantization.operators.base_operator import QuantOperatorBase


def product_nodes(
    handler: QuantOperatorBase, op_type: str, inputs: list[str], scales: list[str], output: str, **attributes: Any
) -> list[NodeProto]:
    """The integer op and what turns its int32 into floats under the name `output`."""
    sums = f"{handler.node.output[0]}_output_quantized"
    name = handler.quantized_name
    product = f"{name}_scales_mul" if name else f"{scales[0]}_{scales[1]}_mul"
    nodes = [helper.make_node(op_type, inputs, [sums], name, **attributes)]
    nodes.append(helper.make_node("Cast", [sums], [f"{sums}_cast_output"], f"{sums}_cast", to=TensorProto.FLOAT))
    if handler.quantizer.model.find_node_by_name(product, handler.quantizer.new_nodes, handler.quantizer.model.graph()) is None:
        nodes.append(helper.make_node("Mul", scales, [f"{product}:0"], product))
    scaling = f"{name}_output_scale_mul" if name else ""
    nodes.append(helper.make_node("Mul", [f"{sums}_cast_output", f"{product}:0"], [output], scaling))
    return nodes
