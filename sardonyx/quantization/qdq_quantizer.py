"""`QDQQuantizer`: writes models whose float ops stand between pairs of QuantizeLinear and DequantizeLinear.

First the plan: the handlers of `operators/` mark tensors and biases. Then parameters for everything that is marked. Then the graph:
weights become codes, activations get their pairs, biases become int32, and nodes that codes make superfluous go.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import arithmetic, models
from sardonyx.quantization.base_quantizer import FLOAT_TYPES, BaseQuantizer
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
from sardonyx.quantization.ranges import TensorData
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

STANDARD_WIDE_OPSET = 21
"""From here on QuantizeLinear itself has 16- and 4-bit types; before, the op of com.microsoft does."""
WIDE = (TensorProto.INT16, TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4)


class QDQQuantizer(BaseQuantizer):
    def __init__(
        self,
        model: ModelProto,
        per_channel: bool,
        reduce_range: bool,
        weight_qType: Any,
        activation_qType: Any,
        tensors_range: Any,
        nodes_to_quantize: Sequence[str] | None,
        nodes_to_exclude: Sequence[str] | None,
        op_types_to_quantize: Sequence[str] | None,
        extra_options: dict[str, Any] | None = None,
    ):
        super().__init__(
            model,
            per_channel,
            reduce_range,
            weight_qType,
            activation_qType,
            tensors_range,
            nodes_to_quantize,
            nodes_to_exclude,
            op_types_to_quantize,
            extra_options,
        )
        self.tensors_to_quantize: dict[str, QDQTensorQuantInfo] = {}
        self.bias_to_quantize: dict[str, QDQBiasQuantInfo] = {}
        self.nodes_to_remove: list[NodeProto] = []
        self.replaced_biases: list[TensorProto] = []
        self.quantized_value_map: dict[str, QDQTensorQuantizedValue] = {}
        self.quantization_params: dict[str, QDQTensorQuantParams] = {}
        self.initializer_quant_params: dict[str, QuantizationParams] = {}
        self._read_qdq_options()
        self.tensor_to_its_receiving_nodes: dict[str, list[NodeProto]] = {}

    def _read_qdq_options(self) -> None:
        option = self.extra_options.get
        self.op_types_to_exclude_output_quantization = list(option("OpTypesToExcludeOutputQuantization", []))
        self.quantize_bias = bool(option("QuantizeBias", True))
        self.add_qdq_pair_to_weight = bool(option("AddQDQPairToWeight", False))
        self.dedicated_qdq_pair = bool(option("DedicatedQDQPair", False))
        self.qdq_op_type_per_channel_support_to_axis = dict(option("QDQOpTypePerChannelSupportToAxis", {}))
        self.qdq_keep_removable_activations = bool(option("QDQKeepRemovableActivations", False))
        self.qdq_disable_weight_adjust_for_int32_bias = bool(option("QDQDisableWeightAdjustForInt32Bias", False))
        self.q_matmul_const_b_only = bool(option("MatMulConstBOnly", False))
        self.block_size = int(option("BlockSize", 0))
        self.qdq_op_domain = models.ms_domain if option("UseQDQContribOps", False) or self._needs_contrib_ops() else None

    def _needs_contrib_ops(self) -> bool:
        """Whether 16- or 4-bit types meet an opset whose own ops do not have them."""
        wanted = {one.tensor_type for one in self.tensor_quant_overrides.get_quant_types()}
        wanted |= {self.activation_qType, self.weight_qType}
        is_needed = self.opset_version < STANDARD_WIDE_OPSET and any(one in WIDE for one in wanted)
        if is_needed:
            logging.getLogger(__name__).warning(
                "16- and 4-bit types are in the ops of com.microsoft below opset %d", STANDARD_WIDE_OPSET
            )
        return is_needed

    # the plan: marks, set by the handlers

    def _get_tensor_type(self, tensor_name: str) -> Any:
        value = self.value_infos.get(tensor_name)
        if value is not None and value.type.HasField("tensor_type"):
            return value.type.tensor_type.elem_type
        tensor = self.initializers.get(tensor_name)
        return None if tensor is None else tensor.data_type

    def _is_tensor_quantizable(self, tensor_name: str) -> bool:
        """Whether a name is a value of floats; what has no known type is not."""
        return bool(tensor_name) and self._get_tensor_type(tensor_name) in FLOAT_TYPES

    def _mark(self, name: str, kind: QDQQuantTensorType, provider: Any = None, axis: int | None = None) -> None:
        if not self._is_tensor_quantizable(name):
            return
        if name in self.tensors_to_quantize and kind == QDQQuantTensorType.ACTIVATION and provider is None:
            return  # whoever came first has said more
        data_type = self._get_tensor_type(name)
        if provider is not None or name not in self.tensors_to_quantize:
            self.tensors_to_quantize[name] = QDQTensorQuantInfo(kind, provider, axis, data_type)

    def quantize_activation_tensor(self, tensor_name: str) -> None:
        """Mark a value, or an initializer that is used like one."""
        self._mark(tensor_name, QDQQuantTensorType.ACTIVATION)

    def quantize_output_same_as_input(self, output_name: str, input_name: str, node_name: str) -> None:
        """Mark a value that has the parameters with which a node reads another."""
        self._mark(output_name, QDQQuantTensorType.ACTIVATION, QDQQuantParamProvider(input_name, node_name))

    def quantize_weight_tensor(self, tensor_name: str) -> None:
        """Mark an initializer as a weight."""
        self._mark(tensor_name, QDQQuantTensorType.WEIGHT)

    def quantize_weight_tensor_per_channel(self, tensor_name: str, axis: int) -> None:
        """Mark an initializer as a weight with parameters for each index of an axis."""
        weight = self.initializers.get(tensor_name)
        if weight is None:
            logging.getLogger(__name__).warning("%r is no initializer and has no channels to quantize", tensor_name)
        elif weight.data_type in FLOAT_TYPES:
            self._mark(tensor_name, QDQQuantTensorType.WEIGHT, axis=axis)

    def quantize_bias_tensor(
        self, node_name: str, bias_name: str, input_name: str, weight_name: str, beta: float = 1.0
    ) -> None:
        """Mark a bias, whose scale is that of input × weight; one that another node has marked is copied."""
        if not self.quantize_bias:
            return
        bias = self.initializers.get(bias_name)
        if bias is None or bias.data_type not in FLOAT_TYPES:
            return
        info = QDQBiasQuantInfo(node_name, input_name, weight_name, beta)
        if bias_name in self.bias_to_quantize:
            copy = self._dup_initializer(bias)
            self._use_copy(node_name, bias_name, copy.name, input_name)
            bias_name = copy.name
        self.bias_to_quantize[bias_name] = info

    def _dup_initializer(self, initializer: TensorProto) -> TensorProto:
        copy = TensorProto()
        copy.CopyFrom(initializer)
        copy.name = f"{initializer.name}{self.model.get_largest_initializer_name_suffix(initializer.name) + 1}"
        self.add_initializer(copy)
        return copy

    def _use_copy(self, node_name: str, bias_name: str, copy_name: str, input_name: str) -> None:
        for node in self.model.nodes():
            if node.name == node_name and input_name in node.input and bias_name in node.input:
                self.model.replace_node_input(node, bias_name, copy_name)
                return

    def remove_node(self, node: NodeProto) -> None:
        self.nodes_to_remove.append(node)

    def remove_nodes(self) -> None:
        self.model.remove_nodes(self.nodes_to_remove)

    def try_replacing_upstream_output(self, upstream_output_name: str, output_name: str) -> bool:
        """Let whoever writes one value write another instead, if nobody else reads the first."""
        is_free = (
            upstream_output_name in self.tensors_to_quantize
            and len(self.model.input_name_to_nodes().get(upstream_output_name, ())) == 1
            and not self.model.is_graph_output(upstream_output_name)
            and not self._is_shared_or_converted(upstream_output_name, output_name)
        )
        if not is_free:
            return False
        self.model.replace_output_of_all_nodes(upstream_output_name, output_name)
        del self.tensors_to_quantize[upstream_output_name]
        self.quantize_activation_tensor(output_name)
        return True

    def _is_shared_or_converted(self, upstream: str, output: str) -> bool:
        """Parameters that come from elsewhere cannot change; a conversion belongs to the value that the user has named."""
        if self.tensors_to_quantize[upstream].is_shared:
            return True
        overrides = (self.tensor_quant_overrides.get_per_tensor_overrides(name, default_val={}) or {} for name in (upstream, output))
        return any("convert" in wanted for wanted in overrides)

    def is_tensor_quantized(self, tensor_name: str) -> bool:
        return tensor_name in self.tensors_to_quantize or tensor_name in self.bias_to_quantize

    def is_tensor_per_channel(
        self, tensor_name: str, default_axis: int, op_type: str | None = None
    ) -> tuple[bool, int | None]:
        """(whether a tensor gets parameters by channel, along which axis)."""
        weight = self.initializers.get(tensor_name)
        if weight is None or self.tensor_quant_overrides.has_per_tensor_overrides(tensor_name):
            return False, None
        if self.tensor_quant_overrides.has_per_channel_overrides(tensor_name):
            axis = self.tensor_quant_overrides[tensor_name][0]["axis"]
        elif self.per_channel:
            axis = self.qdq_op_type_per_channel_support_to_axis.get(op_type or "", default_axis)
        else:
            return False, None
        is_axis, front = arithmetic.normalize_axis(axis, len(weight.dims))
        if not is_axis:
            logging.getLogger(__name__).warning("weight %r has no axis %d and is quantized as a whole", tensor_name, axis)
        return is_axis, front if is_axis else None

    # parameters of what is marked

    def calc_quant_params(self, tensor_data: TensorData, quant_overrides: dict[str, Any]) -> QuantizationParams:
        return self.activation_params("a tensor", tensor_data, quant_overrides)

    def calc_graph_quant_params(self) -> dict[str, QDQTensorQuantParams]:
        """Parameters of all marked values, and of the forms that some are converted to."""
        if self.tensors_range is None:
            return {}
        marked = [name for name in self.tensors_to_quantize if name in self.tensors_range and name not in self.initializers]
        return {name: self._value_params(name) for name in marked}

    def _value_params(self, name: str) -> QDQTensorQuantParams:
        overrides = self.tensor_quant_overrides.get_per_tensor_overrides(name, default_val={}) or {}
        data = self.tensors_range[name]
        original = self.activation_params(name, data, overrides)
        if "convert" not in overrides:
            return QDQTensorQuantParams(original, None, None)
        receivers = overrides["convert"].get("recv_nodes")
        if receivers is None:
            receivers = {node.name for node in self.model.input_name_to_nodes().get(name, ())}
        converted = self.activation_params(name, data, overrides["convert"])
        return QDQTensorQuantParams(original, converted, set(receivers))

    def _calc_initializer_quant_params(self) -> dict[str, QuantizationParams]:
        """Parameters of all marked initializers."""
        marked = {name: info for name, info in self.tensors_to_quantize.items() if name in self.initializers}
        return {name: self._marked_initializer_params(self.initializers[name], info) for name, info in marked.items()}

    def _marked_initializer_params(self, tensor: TensorProto, info: QDQTensorQuantInfo) -> QuantizationParams:
        is_weight = info.tensor_type is QDQQuantTensorType.WEIGHT
        element_type = self.weight_qType if is_weight else self.activation_qType
        if info.axis is not None:
            element_type, axis, zero_points, scales = self.channel_params(tensor, element_type, info.axis, is_weight, True)
            return QuantizationParams(zero_point=zero_points, scale=scales, quant_type=int(element_type), axis=axis)
        overrides = self.tensor_quant_overrides.get_per_tensor_overrides(tensor.name, default_val={}) or {}
        if is_weight and not overrides and self._is_blocked(tensor):
            return self._block_params(tensor, element_type)
        element_type = overrides["quant_type"].tensor_type if "quant_type" in overrides else element_type
        symmetric = self.is_weight_symmetric(element_type) if is_weight else self.is_activation_symmetric
        data = arithmetic.tensor_proto_to_array(tensor)
        zero_point, scale = self.initializer_params(tensor.name, data, element_type, is_weight, overrides, symmetric)
        return QuantizationParams(zero_point=zero_point.reshape(()), scale=scale.reshape(()), quant_type=int(element_type), axis=None)

    def _is_blocked(self, tensor: TensorProto) -> bool:
        readers = self.model.input_name_to_nodes().get(tensor.name, ())
        return self.block_size > 0 and len(tensor.dims) == 2 and all(node.op_type in ("MatMul", "Gemm") for node in readers)

    def _block_params(self, tensor: TensorProto, element_type: Any) -> QuantizationParams:
        axis = self._inner_axis(tensor.name)
        data = arithmetic.tensor_proto_to_array(tensor)
        symmetric = self.is_weight_symmetric(element_type)
        scales, zero_points = arithmetic.compute_scale_zp_blocked(data, element_type, axis, self.block_size, symmetric)
        return QuantizationParams(
            zero_point=zero_points, scale=scales, quant_type=int(element_type), axis=axis, block_size=self.block_size
        )

    def _inner_axis(self, name: str) -> int:
        """The axis over which products are summed: the second of a transposed weight, else the first."""
        reader = self.model.input_name_to_nodes()[name][0]
        return int(any(attribute.name == "transB" and attribute.i for attribute in reader.attribute))

    def _adjust_weight_quant_params_for_bias_tensors(self) -> None:
        """Widen the scales of weights with which a bias would not fit into int32."""
        if self.qdq_disable_weight_adjust_for_int32_bias or self.weight_qType == TensorProto.FLOAT8E4M3FN:
            return
        for bias_name, info in self.bias_to_quantize.items():
            weight = self.initializer_quant_params.get(info.weight_name)
            source = self.quantization_params.get(self._provider_of(info.input_name))
            if weight is None or source is None or bias_name in self.tensors_to_quantize or "block_size" in weight.data:
                continue
            input_scale = source.get_for_consumer(info.node_name)["scale"]
            fitting = self.bias_fitting_scale(bias_name, input_scale, weight["scale"], info.beta)
            if fitting is not None:
                weight["scale"] = fitting

    def _provider_of(self, name: str) -> str:
        """The value whose parameters a value has: its own name, or where the chain of sharers begins."""
        seen = set()
        while name in self.tensors_to_quantize and self.tensors_to_quantize[name].is_shared and name not in seen:
            seen.add(name)
            name = self.tensors_to_quantize[name].quant_para_provider.input_name
        return name

    # the graph

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
        others = [node for node in self.tensor_to_its_receiving_nodes.get(tensor_name, []) if node.name not in convert_recv_nodes]
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
        self._note(bias_name, codes, scale, zero_point, QuantizedValueType.Initializer, 0 if weight_scale.ndim else None, scale_type)
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
    "onnx",
]
