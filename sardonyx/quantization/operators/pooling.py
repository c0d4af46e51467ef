"""AveragePool of codes."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QLinearOperator

UNCHANGED_SINCE = 11


class QLinearPool(QLinearOperator):
    def quantize(self) -> None:
        is_known = self.quantizer.find_quantized_value(self.node.input[0]) is not None
        if self.quantizer.opset_version < UNCHANGED_SINCE or not is_known:
            self.keep_float()
        else:
            super().quantize()
