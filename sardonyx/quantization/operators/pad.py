"""Pad: codes are padded with the code of the padding value."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from sardonyx.quantization import arithmetic
from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase
from sardonyx.quantization.values import QUANT_OP_NAME, QuantizedValue, add_quant_suffix

VALUE = 2


class QPad(QuantOperatorBase):
    def quantize(self) -> None:
        value = self.quantizer.find_quantized_value(self.node.input[0])
        if value is None or self.quantizer.force_quantize_no_input_check:
            self.keep_float()
            return
        if self.attributes().get("mode", b"constant") == b"constant":
            self._set_padding(value)
        self.pass_codes()

    def _set_padding(self, value: QuantizedValue) -> None:
        node = self.node
        if len(node.input) <= VALUE or not node.input[VALUE]:
            node.input.extend([""] * (VALUE + 1 - len(node.input)))
            node.input[VALUE] = value.zp_name
            return
        name = node.input[VALUE]
        tensor = self.quantizer.find_initializer_in_path(name)
        scale = self.quantizer.find_initializer_in_path(value.scale_name)
        zero_point = self.quantizer.find_initializer_in_path(value.zp_name)
        if tensor is None or scale is None or zero_point is None:
            codes = f"{name}_{value.original_name}_quantized"
            self.quantizer.new_nodes.append(
                helper.make_node(QUANT_OP_NAME, [name, value.scale_name, value.zp_name], [codes], add_quant_suffix(codes))
            )
        else:
            codes = f"{name}_quantized"
            number = arithmetic.quantize_nparray(
                zero_point.data_type,
                numpy_helper.to_array(tensor),
                numpy_helper.to_array(scale),
                numpy_helper.to_array(zero_point),
            )
            codes = self._own_name(codes, number)
            self.quantizer.add_initializer(numpy_helper.from_array(np.asarray(number).reshape(tuple(tensor.dims)), codes))
        node.input[VALUE] = codes

    def _own_name(self, name: str, number: np.ndarray) -> str:
        """The name, or one with a number behind it where another padding has it."""
        present = self.quantizer.initializers.get(name)
        if present is None or np.array_equal(numpy_helper.to_array(present), number):
            return name
        return f"{name}{self.quantizer.model.get_largest_initializer_name_suffix(name) + 1}"


class QDQPad(QDQOperatorBase):
    def quantize(self) -> None:
        node = self.node
        is_constant = (
            next((attribute.s for attribute in node.attribute if attribute.name == "mode"), b"constant") == b"constant"
        )
        if not is_constant:  # mirrored or repeated numbers need no parameters of their own
            self.share_parameters()
            return
        super().quantize()
