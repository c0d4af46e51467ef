"""Normalizations: the scale is a weight, the bias an int32 of input scale × weight scale."""

from __future__ import annotations

from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class QDQNormalization(QDQOperatorBase):
    def quantize(self) -> None:
        node = self.node
        self.quantizer.quantize_activation_tensor(node.input[0])
        self.mark_weight(node.input[1], 0 if node.op_type != "LayerNormalization" else -1)
        if len(node.input) > 2 and node.input[2]:
            self.quantizer.quantize_bias_tensor(node.name, node.input[2], node.input[0], node.input[1])
        self.mark_output()
