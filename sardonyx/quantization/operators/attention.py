"""Attention as QAttention, with dynamic or calibrated scales of its input."""

from __future__ import annotations

from onnx import helper

from sardonyx.quantization.models import ms_domain
from sardonyx.quantization.operators.base_operator import QuantOperatorBase

MASK, PAST = 3, 4


class AttentionQuant(QuantOperatorBase):
    def should_quantize(self) -> bool:
        return bool(self.quantizer.should_quantize_node(self.node))

    def quantize(self) -> None:
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, [0])
        weight = self.quantizer.quantize_weight(self.node, [1], reduce_range=True, op_level_per_channel=True)
        if codes is None or weight[0] is None:
            self.keep_float()
            return
        inputs = [codes[0], weight[0][0], self._optional(2), scales[0], weight[2][0], self._optional(MASK)]
        inputs += [zero_points[0], weight[1][0], self._optional(PAST)]
        node = helper.make_node(
            "QAttention", inputs, list(self.node.output), self.quantized_name, domain=ms_domain, **self.attributes()
        )
        self.quantizer.new_nodes += [*nodes, *weight[3], node]

    def _optional(self, index: int) -> str:
        """An input that stays in float, if the node has it."""
        name = str(self.node.input[index]) if index < len(self.node.input) else ""
        if name:
            self.quantizer.dequantize(name)
        return name
