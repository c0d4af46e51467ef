"""LSTM as DynamicQuantizeLSTM: int8 weights, transposed as that op wants them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from sardonyx.quantization import arithmetic
from sardonyx.quantization.models import ms_domain
from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.types import QuantizedValueType
from sardonyx.quantization.values import TENSOR_NAME_QUANT_SUFFIX, QuantizedValue

LAST_INPUT = 8


class LSTMQuant(QuantOperatorBase):
    def quantize(self) -> None:
        weights = [self.quantizer.find_initializer_in_path(self.node.input[index]) for index in (1, 2)]
        is_usable = all(
            tensor is not None and len(tensor.dims) == 3 and tensor.data_type == TensorProto.FLOAT for tensor in weights
        )
        if not is_usable:
            self.keep_float()
            return
        names = [self._quantized(tensor) for tensor in weights]
        inputs = list(self.node.input) + [""] * (LAST_INPUT - len(self.node.input))
        inputs[1], inputs[2] = names[0][0], names[1][0]
        for name in (*inputs[:1], *inputs[3:]):
            if name:
                self.quantizer.dequantize(name)
        inputs += [*names[0][1:], *names[1][1:]]
        attributes = {name: value for name, value in self.attributes().items() if name != "layout"}
        made = helper.make_node(
            "DynamicQuantizeLSTM", inputs, list(self.node.output), self.quantized_name, domain=ms_domain, **attributes
        )
        self.quantizer.new_nodes.append(made)

    def _quantized(self, tensor: TensorProto) -> tuple[str, str, str]:
        """(codes, scale, zero point) of a weight (directions, rows, columns), codes with the last two axes exchanged."""
        present = self.quantizer.quantized_value_map.get(tensor.name)
        if present is not None:
            return present.q_name, present.scale_name, present.zp_name
        data = numpy_helper.to_array(tensor)
        axes: tuple[int, ...] = (2,) if self.quantizer.is_per_channel() else (1, 2)
        top = np.abs(data).max(axis=axes, keepdims=True)
        scale = np.where(
            top > 0,
            2.0 * top.astype(np.float64) / arithmetic.get_qrange_for_qType(TensorProto.INT8, self.quantizer.reduce_range, True),
            1.0,
        )
        scale = scale.astype(np.float32)
        codes = arithmetic.quantize_nparray(TensorProto.INT8, data, scale, np.int8(0))
        name = tensor.name + TENSOR_NAME_QUANT_SUFFIX
        flat = scale.reshape(data.shape[0], -1) if self.quantizer.is_per_channel() else scale.reshape(-1)
        self.quantizer.add_initializer(numpy_helper.from_array(np.ascontiguousarray(codes.swapaxes(1, 2)), name))
        self.quantizer.add_initializer(numpy_helper.from_array(flat, f"{tensor.name}_scale"))
        self.quantizer.add_initializer(numpy_helper.from_array(np.zeros(flat.shape, np.int8), f"{tensor.name}_zero_point"))
        value = QuantizedValue(
            tensor.name, name, f"{tensor.name}_scale", f"{tensor.name}_zero_point", QuantizedValueType.Initializer
        )
        self.quantizer.quantized_value_map[tensor.name] = value
        return value.q_name, value.scale_name, value.zp_name
