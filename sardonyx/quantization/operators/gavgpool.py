"""GlobalAveragePool of codes."""

from __future__ import annotations

from typing import Any

from sardonyx.quantization.operators.base_operator import QLinearOperator


class QGlobalAveragePool(QLinearOperator):
    def quantize(self) -> None:
        if self.quantizer.find_quantized_value(self.node.input[0]) is None:
            self.keep_float()
        else:
            super().quantize()

    def extra_attributes(self) -> dict[str, Any]:
        return {"channels_last": 0}
