"""Add and Mul of two quantized values."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QLinearOperator


class QLinearBinaryOp(QLinearOperator):
    sources = (0, 1)
