"""Ops that only move numbers: they work on codes as they are."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class Direct8BitOp(QuantOperatorBase):
    def quantize(self) -> None:
        value = self.quantizer.find_quantized_value(self.node.input[0])
        if value is None or self.quantizer.force_quantize_no_input_check:
            self.keep_float()
        else:
            self.pass_codes()


class QDQDirect8BitOp(QDQOperatorBase):
    def quantize(self) -> None:
        source, result = self.node.input[0], self.node.output[0]
        if self.quantizer.force_quantize_no_input_check:
            self.quantizer.quantize_activation_tensor(source)
        elif not self.quantizer.is_tensor_quantized(source):
            return
        if not self.disable_qdq_for_node_output:
            self.quantizer.quantize_output_same_as_input(result, source, self.node.name)
