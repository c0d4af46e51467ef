"""Gather: a table of weights is kept as codes, and so is what is read from it."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class GatherQuant(QuantOperatorBase):
    def should_quantize(self) -> bool:
        node = self.node
        return bool(self.quantizer.should_quantize_node(node)) and bool(self.quantizer.is_valid_quantize_weight(node.input[0]))

    def quantize(self) -> None:
        codes, _, _, nodes = self.quantizer.quantize_activation(self.node, [0])
        if codes is None:
            self.keep_float()
            return
        self.quantizer.new_nodes += nodes
        self.pass_codes()


class QDQGather(QDQOperatorBase):
    def quantize(self) -> None:
        source, result = self.node.input[0], self.node.output[0]
        is_known = self.quantizer.is_valid_quantize_weight(source) or self.quantizer.force_quantize_no_input_check
        if is_known:
            self.quantizer.quantize_activation_tensor(source)
        elif not self.quantizer.is_tensor_quantized(source):
            return
        if not self.disable_qdq_for_node_output:
            self.quantizer.quantize_output_same_as_input(result, source, self.node.name)
