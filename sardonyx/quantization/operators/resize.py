"""Resize of codes, from the opset on in which it takes integers."""

from __future__ import annotations

from sardonyx.quantization.operators.direct_q8 import Direct8BitOp, QDQDirect8BitOp

INTEGERS_SINCE = 11


class QResize(Direct8BitOp):
    def quantize(self) -> None:
        if self.quantizer.opset_version < INTEGERS_SINCE:
            self.keep_float()
        else:
            super().quantize()


class QDQResize(QDQDirect8BitOp):
    def quantize(self) -> None:
        if self.quantizer.opset_version >= INTEGERS_SINCE:
            super().quantize()
