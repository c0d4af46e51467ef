"""`QDQQuantizer`: writes models whose float ops stand between pairs of QuantizeLinear and DequantizeLinear.

First the plan: the handlers of `operators/` mark tensors and biases. Then parameters for everything that is marked. Then the graph:
weights become codes, activations get their pairs, biases become int32, and nodes that codes make superfluous go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import arithmetic, models
from sardonyx.quantization.qdq_plan import (
    QDQBiasQuantInfo,
    QDQQuantParamProvider,
    QDQQuantTensorType,
    QDQScaleZpInitializers,
    QDQTensorQuantInfo,
    QDQTensorQuantizedValue,
    QDQTensorQuantParams,
    QDQTensorScaleZpInitializers,
)
from sardonyx.quantization.qdq_planner import QDQPlanner
from sardonyx.quantization.registry import CreateQDQQuantizer
from sardonyx.quantization.types import QuantizedValueType
from sardonyx.quantization.values import (
    DEQUANT_OP_NAME,
    QUANT_OP_NAME,
    TENSOR_NAME_QUANT_SUFFIX,
    QuantizationParams,
    QuantizedValue,
    add_dequant_output_suffix,
    add_dequant_suffix,
    add_quant_input_suffix,
    add_quant_output_suffix,
    add_quant_suffix,
)


class QDQQuantizer(QDQPlanner):
    """Follows the plan."""

    def quantize_model(self) -> ModelProto:
        """Mark, compute parameters, and write; the model is changed in place and returned."""
        for node in self.model.nodes():
            if self.should_quantize_node(node):
                CreateQDQQuantizer(self, node).quantize()
            for name in node.input:
                self.tensor_to_its_receiving_nodes.setdefault(name, []).append(node)
        self.quantization_params = self.calc_graph_quant_params()
        self.initializer_quant_params = self._calc_initializer_quant_params()
        self._adjust_weight_quant_params_for_bias_tensors()
        self._quantize_normal_tensors()
        self._quantize_sharing_param_tensors()
        self._quantize_bias_tensors()
        self.model.remove_initializers(self.replaced_biases)
        self.remove_nodes()
        self.remove_dead()
        if self.qdq_op_domain == models.ms_domain:
            self.model.set_opset_import(models.ms_domain, 1)
        return self.model.model

    def _create_q_node(
        self,
        q_input: str,
        q_output: str,
        quant_node_name: str,
        scale_name: str,
        zp_name: str,
        axis: int | None = None,
        block_size: int = 0,
    ) -> None:
        self._add_linear(QUANT_OP_NAME, q_input, q_output, quant_node_name, scale_name, zp_name, axis, block_size)

    def _create_dq_node(
        self,
        dq_input: str,
        dq_output: str,
        dequant_node_name: str,
        scale_name: str,
        zp_name: str,
        axis: int | None = None,
        block_size: int = 0,
    ) -> None:
        self._add_linear(DEQUANT_OP_NAME, dq_input, dq_output, dequant_node_name, scale_name, zp_name, axis, block_size)

    def _add_linear(
        self, op_type: str, source: str, result: str, name: str, scale: str, zero_point: str, axis: int | None, block_size: int
    ) -> None:
        attributes = {"axis": axis} if axis is not None else {}
        if block_size:
            attributes["block_size"] = block_size
        self.model.add_node(
            helper.make_node(op_type, [source, scale, zero_point], [result], name, domain=self.qdq_op_domain, **attributes)
        )

    def _make_scale_zp_initializers(
        self, param_name: str, quant_params: QuantizationParams, init_name_suffix: str = ""
    ) -> QDQScaleZpInitializers:
        """Add scale and zero point of a value to the graph."""
        zero_point = arithmetic.tensor_of_codes(
            quant_params["zero_point"], quant_params["quant_type"], f"{param_name}_zero_point{init_name_suffix}"
        )
        scale = numpy_helper.from_array(quant_params["scale"], f"{param_name}_scale{init_name_suffix}")
        self.add_initializer(zero_point)
        self.add_initializer(scale)
        return QDQScaleZpInitializers(scale, zero_point)

    def _make_tensor_scale_zp_initializers(self, tensor_name: str) -> QDQTensorScaleZpInitializers | None:
        params = self.quantization_params.get(tensor_name)
        if params is None:
            return None
        original = self._make_scale_zp_initializers(tensor_name, params.original)
        converted = None
        if params.converted is not None:
            converted = self._make_scale_zp_initializers(tensor_name, params.converted, "_convert")
        return QDQTensorScaleZpInitializers(original, converted, params.converted_recv_nodes)

    def _quantize_normal_tensors(self) -> None:
        """All that is marked with parameters of its own."""
        for name, info in list(self.tensors_to_quantize.items()):
            if name in self.quantized_value_map or info.is_shared:
                continue
            tensor = self.initializers.get(name)
            if tensor is not None:
                self._add_qdq_nodes_for_initializer(tensor)
            else:
                self._quantize_value(name, info)
            del self.tensors_to_quantize[name]

    def _quantize_value(self, name: str, info: QDQTensorQuantInfo) -> None:
        parameters = self._make_tensor_scale_zp_initializers(name)
        if parameters is None:
            raise ValueError(f"calibration has not seen the tensor {name!r}, which is to be quantized")
        original, converted = parameters.original, parameters.converted
        if converted is None:
            self._add_qdq_pair_for_activation(name, original.scale.name, original.zero_point.name, info.data_type)
            return
        self._add_qdq_ops_for_converted_activation(
            name,
            original.scale.name,
            original.zero_point.name,
            info.data_type,
            converted.scale.name,
            converted.zero_point.name,
            parameters.converted_recv_nodes or set(),
        )

    def _add_qdq_nodes_for_initializer(self, weight_proto: TensorProto) -> None:
        """Codes and a DequantizeLinear in the place of an initializer, or a whole pair behind it."""
        name = weight_proto.name
        params = self.initializer_quant_params[name]
        initializers = self._make_scale_zp_initializers(name, params)
        scale, zero_point = initializers.scale.name, initializers.zero_point.name
        axis, block_size = params.get("axis"), int(params.get("block_size", 0))
        result = add_dequant_output_suffix(name)
        if self.add_qdq_pair_to_weight:
            codes = add_quant_output_suffix(name)
            self._create_q_node(name, codes, add_quant_suffix(name), scale, zero_point, axis, block_size)
        else:
            codes = name + TENSOR_NAME_QUANT_SUFFIX
            self.add_initializer(
                arithmetic.quantize_onnx_initializer(
                    weight_proto, params["quant_type"], params["zero_point"], params["scale"], axis, codes, block_size
                )
            )
        self._replace_readers(name, result)
        if self.add_qdq_pair_to_weight:
            self._restore_reader(add_quant_suffix(name), result, name)
        self._create_dq_node(codes, result, add_dequant_suffix(name), scale, zero_point, axis, block_size)
        self._note(name, result, scale, zero_point, QuantizedValueType.Initializer, axis, weight_proto.data_type)

    def _replace_readers(self, old: str, new: str) -> None:
        self.model.replace_input_of_all_nodes(old, new)

    def _restore_reader(self, node_name: str, old: str, new: str) -> None:
        for node in self.model.nodes():
            if node.name == node_name and node.op_type == QUANT_OP_NAME:
                self.model.replace_node_input(node, old, new)

    def _note(self, name: str, codes: str, scale: str, zero_point: str, kind: Any, axis: int | None, scale_type: Any) -> None:
        value = QuantizedValue(name, codes, scale, zero_point, kind, axis, scale_type=scale_type)
        self.quantized_value_map[name] = QDQTensorQuantizedValue(value, None, None)

    def _add_qdq_pair_for_activation(self, tensor_name: str, scale_name: str, zp_name: str, data_type: Any = None) -> None:
        """One pair for all readers of a value, or one for each where that is wanted."""
        readers = self.tensor_to_its_receiving_nodes.get(tensor_name, [])
        if self.dedicated_qdq_pair and len(readers) > 1:
            self._add_dedicated_pairs(tensor_name, readers, scale_name, zp_name)
        else:
            self._add_pair(tensor_name, scale_name, zp_name)
        self._note(tensor_name, tensor_name, scale_name, zp_name, QuantizedValueType.Input, None, data_type)

    def _add_dedicated_pairs(self, name: str, readers: list[NodeProto], scale: str, zero_point: str) -> None:
        source = self._source_of_output(name)
        for number, reader in enumerate(readers, 1):
            codes, result = f"{add_quant_output_suffix(name)}_{number}", f"{add_dequant_output_suffix(name)}_{number}"
            self.model.replace_node_input(reader, name, result)
            self._create_q_node(source, codes, f"{add_quant_suffix(name)}_{number}", scale, zero_point)
            self._create_dq_node(codes, result, f"{add_dequant_suffix(name)}_{number}", scale, zero_point)
        if source != name:
            codes = add_quant_output_suffix(name)
            self._create_q_node(source, codes, add_quant_suffix(name), scale, zero_point)
            self._create_dq_node(codes, name, add_dequant_suffix(name), scale, zero_point)

    def _source_of_output(self, name: str) -> str:
        """The name of a value before its pair: another one if the graph's output has to keep its own."""
        if not self.model.is_graph_output(name):
            return name
        source = add_quant_input_suffix(name)
        self.model.replace_output_of_all_nodes(name, source)
        return source

    def _add_pair(self, name: str, scale: str, zero_point: str) -> None:
        source = self._source_of_output(name)
        result = add_dequant_output_suffix(name) if source == name else name
        if source == name:
            self._replace_readers(name, result)
        codes = add_quant_output_suffix(name)
        self._create_q_node(source, codes, add_quant_suffix(name), scale, zero_point)
        self._create_dq_node(codes, result, add_dequant_suffix(name), scale, zero_point)

    def _add_qdq_ops_for_converted_activation(
        self,
        tensor_name: str,
        first_scale_name: str,
        first_zp_name: str,
        scale_data_type: Any,
        convert_scale_name: str,
        convert_zp_name: str,
        convert_recv_nodes: set[str],
    ) -> None:
        """A pair for most readers; for some, the codes are dequantized and quantized again in another type."""
        for node in self.model.nodes():
            if node.name in convert_recv_nodes:
                self.model.replace_node_input(node, tensor_name, f"{tensor_name}_convert_DequantizeLinear_Output")
        first, again = add_quant_output_suffix(tensor_name), f"{tensor_name}_convert"
        others = [
            node for node in self.tensor_to_its_receiving_nodes.get(tensor_name, []) if node.name not in convert_recv_nodes
        ]
        if others or self.model.is_graph_output(tensor_name):
            self._add_pair(tensor_name, first_scale_name, first_zp_name)
        else:
            self._create_q_node(tensor_name, first, add_quant_suffix(tensor_name), first_scale_name, first_zp_name)
        middle = add_quant_input_suffix(again)
        self._create_dq_node(first, middle, f"{again}_clone_{DEQUANT_OP_NAME}", first_scale_name, first_zp_name)
        codes = add_quant_output_suffix(again)
        self._create_q_node(middle, codes, add_quant_suffix(again), convert_scale_name, convert_zp_name)
        self._create_dq_node(
            codes, add_dequant_output_suffix(again), add_dequant_suffix(again), convert_scale_name, convert_zp_name
        )
        self._note(tensor_name, tensor_name, first_scale_name, first_zp_name, QuantizedValueType.Input, None, scale_data_type)
        entry = self.quantized_value_map[tensor_name]
        entry.converted = QuantizedValue(
            tensor_name, codes, convert_scale_name, convert_zp_name, QuantizedValueType.Input, scale_type=scale_data_type
        )
        entry.converted_recv_nodes = convert_recv_nodes

    def _quantize_sharing_param_tensors(self) -> None:
        """All that is marked with the parameters of another value, in the order in which these are known."""
        while self.tensors_to_quantize:
            ready = [
                (name, info)
                for name, info in self.tensors_to_quantize.items()
                if info.quant_para_provider.input_name in self.quantized_value_map
            ]
            if not ready:
                raise ValueError(f"no tensor gives parameters to {', '.join(self.tensors_to_quantize)}")
            for name, info in ready:
                self._share(name, info)
                del self.tensors_to_quantize[name]

    def _share(self, name: str, info: QDQTensorQuantInfo) -> None:
        provider = info.quant_para_provider
        if self.tensor_quant_overrides.get(name):
            self._quantize_value(name, info)  # the user wants parameters of its own
            return
        value = self.quantized_value_map[provider.input_name].get_for_consumer(provider.node_name)
        if name in self.initializers:
            raise ValueError(f"{name!r} is an initializer and shares no parameters")
        self._add_qdq_pair_for_activation(name, value.scale_name, value.zp_name, info.data_type)

    def _quantize_bias_tensors(self) -> None:
        """Biases as int32, dequantized under their own names."""
        for name, info in self.bias_to_quantize.items():
            if name not in self.quantized_value_map:
                self.quantize_bias_static(name, info)

    def _get_tensor_quantization_scale(self, tensor_name: str, consumer_node_name: str) -> np.ndarray | None:
        """The scale with which a node reads a value; None if that is not an initializer."""
        entry = self.quantized_value_map.get(tensor_name)
        if entry is None:
            return None
        tensor = self.initializers.get(entry.get_for_consumer(consumer_node_name).scale_name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def quantize_bias_static(self, bias_name: str, bias_info: QDQBiasQuantInfo) -> str:
        """The name of a bias' codes; the bias itself, still in float, where a scale is missing."""
        input_scale = self._get_tensor_quantization_scale(bias_info.input_name, bias_info.node_name)
        weight_scale = self._get_tensor_quantization_scale(bias_info.weight_name, bias_info.node_name)
        if input_scale is None or weight_scale is None or weight_scale.ndim > 1:
            return bias_name
        codes, scale, zero_point, scale_type, op_type, _ = self.quantize_bias_static_impl(
            bias_name, input_scale, weight_scale, bias_info.beta
        )
        name = add_dequant_suffix(bias_name)
        self.replaced_biases.append(self.initializers.pop(bias_name))
        if op_type == "Cast":
            self.model.add_node(helper.make_node("Cast", [codes], [bias_name], name, to=scale_type))
        else:
            self._create_dq_node(codes, bias_name, name, scale, zero_point, 0 if weight_scale.ndim else None)
        self._note(
            bias_name, codes, scale, zero_point, QuantizedValueType.Initializer, 0 if weight_scale.ndim else None, scale_type
        )
        return codes


__all__ = [
    "QDQBiasQuantInfo",
    "QDQQuantParamProvider",
    "QDQQuantTensorType",
    "QDQQuantizer",
    "QDQScaleZpInitializers",
    "QDQTensorQuantInfo",
    "QDQTensorQuantParams",
    "QDQTensorQuantizedValue",
    "QDQTensorScaleZpInitializers",
]
