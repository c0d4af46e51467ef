"""Gemm as QGemm, and its marks."""

from __future__ import annotations

import logging

from onnx import NodeProto

from sardonyx.quantization.operators.matmul import QOpMatMul
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


def is_B_transposed(gemm_node: NodeProto) -> bool:
    return any(attribute.name == "transB" and attribute.i for attribute in gemm_node.attribute)


def get_beta(gemm_node: NodeProto) -> float:
    return next((float(attribute.f) for attribute in gemm_node.attribute if attribute.name == "beta"), 1.0)


def set_default_beta(gemm_node: NodeProto) -> float:
    """Set beta to 1 where the node has it; returns 1."""
    for attribute in gemm_node.attribute:
        if attribute.name == "beta":
            attribute.f = 1.0
    return 1.0


class QLinearGemm(QOpMatMul):
    """The bias, times beta, is int32 of the product's scale; QGemm itself has no beta."""

    def quantize(self) -> None:
        node = self.node
        output = self.quantizer.parameter_names(node.output[0])
        has_bias = len(node.input) > 2 and bool(node.input[2])
        if output is None or (has_bias and not self.quantizer.is_input_a_initializer(node.input[2])):
            self.keep_float()
            return
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(node, [0])
        weight = self.quantizer.quantize_weight(
            node,
            [1],
            reduce_range=self.quantizer.reduce_range,
            op_level_per_channel=True,
            axis=0 if is_B_transposed(node) else 1,
        )
        if codes is None or weight[0] is None:
            self.keep_float()
            return
        bias = ""
        if has_bias:
            bias = self.quantizer.quantize_bias_static(node.input[2], node.input[0], node.input[1], get_beta(node))
        inputs = [codes[0], scales[0], zero_points[0], weight[0][0], weight[2][0], weight[1][0], bias, *output]
        self.write("QGemm", inputs, [*nodes, *weight[3]], output)

    def attributes(self) -> dict[str, object]:
        return {name: value for name, value in super().attributes().items() if name != "beta"}


class QDQGemm(QDQOperatorBase):
    def quantize(self) -> None:
        node = self.node
        self.quantizer.quantize_activation_tensor(node.input[0])
        self.mark_output()
        self.mark_weight(node.input[1], 0 if is_B_transposed(node) else 1)
        if len(node.input) > 2 and node.input[2]:
            if self.quantizer.is_input_a_initializer(node.input[2]):
                beta = get_beta(node)
                self.quantizer.quantize_bias_tensor(node.name, node.input[2], node.input[0], node.input[1], beta)
                set_default_beta(node)
            else:
                logging.getLogger(__name__).warning(
                    "the bias of Gemm %r is not constant and stays in float; the node had better be excluded", node.name
                )
