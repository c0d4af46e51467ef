"""Split: all parts have the parameters of the whole."""

from __future__ import annotations

from onnx import helper

from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase
from sardonyx.quantization.types import QuantizedValueType
from sardonyx.quantization.values import QuantizedValue


class QSplit(QuantOperatorBase):
    def quantize(self) -> None:
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, [0])
        if codes is None:
            self.keep_float()
            return
        outputs = []
        for name in self.node.output:
            outputs.append(f"{name}quantized")
            self.quantizer.quantized_value_map[name] = QuantizedValue(
                name, outputs[-1], scales[0], zero_points[0], QuantizedValueType.Input
            )
        inputs = [codes[0], *self.node.input[1:]]
        made = helper.make_node("Split", inputs, outputs, self.quantized_name, **self.attributes())
        self.quantizer.new_nodes += [*nodes, made]


class QDQSplit(QDQOperatorBase):
    def quantize(self) -> None:
        source = self.node.input[0]
        if self.quantizer.force_quantize_no_input_check:
            self.quantizer.quantize_activation_tensor(source)
        elif not self.quantizer.is_tensor_quantized(source):
            return
        if not self.disable_qdq_for_node_output:
            for result in self.node.output:
                self.quantizer.quantize_output_same_as_input(result, source, self.node.name)
