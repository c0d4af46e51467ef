"""MaxPool: codes have the order of their numbers; integers are taken from opset 12 on."""

from __future__ import annotations

from onnx import TensorProto

from sardonyx.quantization.operators.direct_q8 import Direct8BitOp, QDQDirect8BitOp

INTEGERS_SINCE = 12


class QMaxPool(Direct8BitOp):
    def quantize(self) -> None:
        if self.quantizer.opset_version < INTEGERS_SINCE:
            self.keep_float()
        else:
            super().quantize()


class QDQMaxPool(QDQDirect8BitOp):
    def quantize(self) -> None:
        is_integer = self.quantizer.activation_qType != TensorProto.FLOAT8E4M3FN
        if self.quantizer.opset_version >= INTEGERS_SINCE and is_integer:
            super().quantize()
