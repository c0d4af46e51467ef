"""Softmax of codes; the op has to know which opset's axis is meant."""

from __future__ import annotations

from typing import Any

from sardonyx.quantization.operators.base_operator import QLinearOperator

LAST_AXIS_SINCE = 13


class QLinearSoftmax(QLinearOperator):
    def extra_attributes(self) -> dict[str, Any]:
        opset = self.quantizer.opset_version
        axis = self.attributes().get("axis", -1 if opset >= LAST_AXIS_SINCE else 1)
        return {"axis": axis, "opset": opset}
