"""Convolutions in all three forms."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.integer_product import product_nodes
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class ConvInteger(QuantOperatorBase):
    """Dynamic: ConvInteger, scaled, and the bias added in float."""

    def quantize(self) -> None:
        rank = self._weight_rank()
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, [0])
        weight = self.quantizer.quantize_weight(self.node, [1], reduce_range=self.quantizer.reduce_range)
        if codes is None or weight[0] is None or rank is None:
            self.keep_float()
            return
        has_bias = len(self.node.input) > 2 and bool(self.node.input[2])
        output = self.node.output[0]
        scaled = f"{output}quant_scaled_output" if has_bias else output
        inputs = [codes[0], weight[0][0], zero_points[0], weight[1][0]]
        made = product_nodes(self, "ConvInteger", inputs, [scales[0], weight[2][0]], scaled, **self.attributes())
        if has_bias:
            made += self._bias_nodes(scaled, rank)
        self.quantizer.new_nodes += [*nodes, *weight[3], *made]

    def _weight_rank(self) -> int | None:
        tensor = self.quantizer.find_initializer_in_path(self.node.input[1])
        if tensor is not None:
            return len(tensor.dims)
        declared = self.quantizer.model.get_tensor_type(self.node.input[1])
        return len(declared.shape.dim) if declared is not None and declared.HasField("shape") else None

    def _bias_nodes(self, scaled: str, rank: int) -> list[NodeProto]:
        output = self.node.output[0]
        shape, reshaped = f"{output}_bias_reshape_shape", f"{output}_bias_reshape_output"
        sizes = np.array([1, -1] + [1] * (rank - 2), dtype=np.int64)
        self.quantizer.add_initializer(numpy_helper.from_array(sizes, shape))
        return [
            helper.make_node("Reshape", [self.node.input[2], shape], [reshaped]),
            helper.make_node("Add", [scaled, reshaped], [output], f"{output}_bias_add"),
        ]


class QLinearConv(QuantOperatorBase):
    """Static: QLinearConv, the bias in int32."""

    def quantize(self) -> None:
        node = self.node
        output = self.quantizer.parameter_names(node.output[0])
        if output is None or self._has_another_bias():
            self.keep_float()
            return
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(node, [0])
        weight = self.quantizer.quantize_weight(
            node, [1], reduce_range=self.quantizer.reduce_range, op_level_per_channel=True, axis=0
        )
        if codes is None or weight[0] is None:
            self.keep_float()
            return
        has_bias = len(node.input) > 2 and bool(node.input[2])
        bias = [self.quantizer.quantize_bias_static(node.input[2], node.input[0], node.input[1])] if has_bias else []
        inputs = [codes[0], scales[0], zero_points[0], weight[0][0], weight[2][0], weight[1][0], *output, *bias]
        self.write("QLinearConv", inputs, [*nodes, *weight[3]], output, domain="")

    def _has_another_bias(self) -> bool:
        """A bias that is computed has no codes."""
        has_bias = len(self.node.input) > 2 and bool(self.node.input[2])
        return has_bias and not self.quantizer.is_input_a_initializer(self.node.input[2])


class QDQConv(QDQOperatorBase):
    """Also ConvTranspose, whose filters lie along axis 1."""

    def quantize(self) -> None:
        node = self.node
        self.quantizer.quantize_activation_tensor(node.input[0])
        self.mark_output()
        self.mark_weight(node.input[1], 0 if node.op_type == "Conv" else 1)
        if len(node.input) > 2 and node.input[2]:
            self.quantizer.quantize_bias_tensor(node.name, node.input[2], node.input[0], node.input[1])
