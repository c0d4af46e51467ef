"""The base of handlers that mark tensors for pairs of QuantizeLinear and DequantizeLinear; the node itself stays."""

from __future__ import annotations

import itertools
from typing import Any

from onnx import NodeProto


class QDQOperatorBase:
    """Marks everything that goes in and comes out as an activation."""

    def __init__(self, onnx_quantizer: Any, onnx_node: NodeProto):
        self.quantizer = onnx_quantizer
        self.node = onnx_node
        excluded = onnx_quantizer.op_types_to_exclude_output_quantization
        self.disable_qdq_for_node_output = onnx_node.op_type in excluded

    def quantize(self) -> None:
        outputs = () if self.disable_qdq_for_node_output else self.node.output
        for name in itertools.chain(self.node.input, outputs):
            self.quantizer.quantize_activation_tensor(name)

    def share_parameters(self) -> None:
        """Let the first output have the parameters of the first input, if that has some."""
        source, result = self.node.input[0], self.node.output[0]
        if self.quantizer.force_quantize_no_input_check:
            self.quantizer.quantize_activation_tensor(source)
        elif not self.quantizer.is_tensor_quantized(source):
            return
        if not self.disable_qdq_for_node_output:
            self.quantizer.quantize_output_same_as_input(result, source, self.node.name)

    def mark_output(self, index: int = 0) -> None:
        """Mark an output, unless the user wants none of this op quantized."""
        if not self.disable_qdq_for_node_output:
            self.quantizer.quantize_activation_tensor(self.node.output[index])

    def mark_weight(self, name: str, axis: int) -> None:
        """Mark an initializer as a weight, per channel where that is wanted; anything else is an activation."""
        is_per_channel, axis = self.quantizer.is_tensor_per_channel(name, axis, self.node.op_type)
        if not self.quantizer.is_input_a_initializer(name):
            self.quantizer.quantize_activation_tensor(name)
        elif is_per_channel:
            self.quantizer.quantize_weight_tensor_per_channel(name, axis)
        else:
            self.quantizer.quantize_weight_tensor(name)
