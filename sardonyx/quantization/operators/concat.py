"""Concat of quantized values, each with its own scale."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QuantOperatorBase


class QLinearConcat(QuantOperatorBase):
    def quantize(self) -> None:
        output = self.quantizer.parameter_names(self.node.output[0])
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, range(len(self.node.input)))
        if output is None or codes is None:
            self.keep_float()
            return
        inputs = [name for triple in zip(codes, scales, zero_points) for name in triple]
        self.write("QLinearConcat", [*output, *inputs], nodes, output)
