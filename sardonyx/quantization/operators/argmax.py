"""ArgMax: codes have the order of their numbers, so it works on them as they are."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QuantOperatorBase


class QArgMax(QuantOperatorBase):
    def quantize(self) -> None:
        value = self.quantizer.find_quantized_value(self.node.input[0])
        if value is None:
            self.keep_float()
            return
        self.node.input[0] = value.q_name
        self.quantizer.new_nodes.append(self.node)
