"""The plan of a QDQ quantization: which tensors are marked, by the handlers of `operators/`, and their parameters.

`QDQQuantizer` writes the graph that follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto

from sardonyx.quantization import arithmetic, models
from sardonyx.quantization.base_quantizer import FLOAT_TYPES, BaseQuantizer
from sardonyx.quantization.qdq_plan import (
    QDQBiasQuantInfo,
    QDQQuantParamProvider,
    QDQQuantTensorType,
    QDQTensorQuantInfo,
    QDQTensorQuantizedValue,
    QDQTensorQuantParams,
)
from sardonyx.quantization.ranges import TensorData
from sardonyx.quantization.values import QuantizationParams

STANDARD_WIDE_OPSET = 21
"""From here on QuantizeLinear itself has 16- and 4-bit types; before, the op of com.microsoft does."""
WIDE = (TensorProto.INT16, TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4)


class QDQPlanner(BaseQuantizer):
    """Marks and parameters; a mark of an earlier node stays where a later one says less."""

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
        overrides = (
            self.tensor_quant_overrides.get_per_tensor_overrides(name, default_val={}) or {} for name in (upstream, output)
        )
        return any("convert" in wanted for wanted in overrides)

    def is_tensor_quantized(self, tensor_name: str) -> bool:
        return tensor_name in self.tensors_to_quantize or tensor_name in self.bias_to_quantize

    def is_tensor_per_channel(self, tensor_name: str, default_axis: int, op_type: str | None = None) -> tuple[bool, int | None]:
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
        return QuantizationParams(
            zero_point=zero_point.reshape(()), scale=scale.reshape(()), quant_type=int(element_type), axis=None
        )

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
