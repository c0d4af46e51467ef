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
        self.share_parameters()
