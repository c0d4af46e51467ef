"""Activations: Relu and Clip vanish where codes end at their bounds anyway; Sigmoid and LeakyRelu have ops of their own."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QLinearOperator
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class QLinearActivation(QLinearOperator):
    def quantize(self) -> None:
        if self.node.op_type not in ("Relu", "Clip"):
            super().quantize()
            return
        value = self.quantizer.quantized_value_map.get(self.node.input[0])
        if value is None or self.quantizer.is_activation_symmetric:
            self.keep_float()  # symmetric codes reach below zero, so they need the node
        else:
            self.quantizer.quantized_value_map[self.node.output[0]] = value


class QDQRemovableActivation(QDQOperatorBase):
    def quantize(self) -> None:
        source, result = self.node.input[0], self.node.output[0]
        if not self.quantizer.is_tensor_quantized(source):
            return
        may_go = not (self.quantizer.is_activation_symmetric or self.quantizer.qdq_keep_removable_activations)
        if may_go and self.quantizer.try_replacing_upstream_output(source, result):
            self.quantizer.remove_node(self.node)
            return
        self.quantizer.quantize_activation_tensor(source)
        self.mark_output()
