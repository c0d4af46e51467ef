"""Where: the condition stays, both sides are codes."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QLinearOperator
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class QLinearWhere(QLinearOperator):
    sources = (1, 2)

    def should_quantize(self) -> bool:
        return bool(self.quantizer.should_quantize_node(self.node)) and bool(self.quantizer.is_float_tensor(self.node.input[1]))

    def quantize(self) -> None:
        known = [self.quantizer.find_quantized_value(self.node.input[index]) for index in self.sources]
        if not self.quantizer.force_quantize_no_input_check and not all(known):
            self.keep_float()
            return
        super().quantize()

    def leading_inputs(self) -> list[str]:
        return [self.node.input[0]]


class QDQWhere(QDQOperatorBase):
    def quantize(self) -> None:
        sides = self.node.input[1:3]
        if not self.quantizer.force_quantize_no_input_check and not any(map(self.quantizer.is_tensor_quantized, sides)):
            return
        for name in sides:
            self.quantizer.quantize_activation_tensor(name)
        self.mark_output()
