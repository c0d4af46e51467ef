"""MatMul in all three forms."""

from __future__ import annotations

from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.integer_product import product_nodes
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase


class QOpMatMul(QuantOperatorBase):
    """Products of floats; with `MatMulConstBOnly` those alone whose second factor is a weight."""

    def should_quantize(self) -> bool:
        node = self.node
        if not self.quantizer.should_quantize_node(node):
            return False
        if not (self.quantizer.is_float_tensor(node.input[0]) and self.quantizer.is_float_tensor(node.input[1])):
            return False
        return not self.quantizer.q_matmul_const_b_only or self.quantizer.find_initializer_in_path(node.input[1]) is not None


class MatMulInteger(QOpMatMul):
    def quantize(self) -> None:
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, [0])
        weight = self.quantizer.quantize_weight(self.node, [1], reduce_range=True, op_level_per_channel=True)
        if codes is None or weight[0] is None:
            self.keep_float()
            return
        inputs = [codes[0], weight[0][0], zero_points[0], weight[1][0]]
        made = product_nodes(self, "MatMulInteger", inputs, [scales[0], weight[2][0]], self.node.output[0])
        self.quantizer.new_nodes += [*nodes, *weight[3], *made]


class QLinearMatMul(QOpMatMul):
    def quantize(self) -> None:
        output = self.quantizer.parameter_names(self.node.output[0])
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, [0])
        weight = self.quantizer.quantize_weight(
            self.node, [1], reduce_range=self.quantizer.reduce_range, op_level_per_channel=True
        )
        if output is None or codes is None or weight[0] is None:
            self.keep_float()
            return
        inputs = [codes[0], scales[0], zero_points[0], weight[0][0], weight[2][0], weight[1][0], *output]
        self.write("QLinearMatMul", inputs, [*nodes, *weight[3]], output, domain="")


class QDQMatMul(QDQOperatorBase):
    def quantize(self) -> None:
        for name in self.node.input:
            if self.quantizer.is_input_a_initializer(name):
                self.mark_weight(name, self._column_axis(name))
            else:
                self.quantizer.quantize_activation_tensor(name)
        self.mark_output()

    def _column_axis(self, name: str) -> int:
        return max(len(self.quantizer.initializers[name].dims) - 1, 0)
