"""Softmax of codes; the op has to know which opset's axis is meant."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.quantization import arithmetic
from sardonyx.quantization.operators.base_operator import QLinearOperator

LAST_AXIS_SINCE = 13


class QLinearSoftmax(QLinearOperator):
    def quantize(self) -> None:
        params = (self.quantizer.quantization_params or {}).get(self.node.output[0])
        if params is not None:
            lowest = arithmetic.get_qmin_qmax_for_qType(params["quant_type"])[0]
            params["scale"], params["zero_point"] = np.array(1 / 256, params["scale"].dtype), lowest  # what the op itself uses
        super().quantize()

    def extra_attributes(self) -> dict[str, Any]:
        opset = self.quantizer.opset_version
        axis = self.attributes().get("axis", -1 if opset >= LAST_AXIS_SINCE else 1)
        return {"axis": axis, "opset": opset}
