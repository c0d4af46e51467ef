"""Mixed precision: where a user gives a tensor another type, its node computes in that type, and neighbours get conversions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from sardonyx.quantization import models
from sardonyx.quantization.tensor_quant_overrides import QuantTypeInfo, TensorQuantOverridesHelper
from sardonyx.quantization.types import QuantType

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass
class TensorTypeRequest:
    """The type in which a tensor is made, and the one in which some nodes want it."""

    producer: QuantTypeInfo | None
    consumers: tuple[QuantTypeInfo, set[str]] | None


class MixedPrecisionTensorQuantOverridesFixer:
    def __init__(
        self,
        overrides: TensorQuantOverridesHelper,
        producers: dict[str, NodeProto],
        consumers: dict[str, list[NodeProto]],
        value_infos: dict[str, ValueInfoProto],
        initializers: dict[str, TensorProto],
    ):
        self.overrides = overrides
        self.producers, self.consumers = producers, consumers
        self.value_infos, self.initializers = value_infos, initializers

    @staticmethod
    def create_from_model(
        overrides: TensorQuantOverridesHelper, model: ModelProto, default_activation_qtype: QuantType
    ) -> MixedPrecisionTensorQuantOverridesFixer:
        """From a model, whose types are inferred first; overrides that do not fit it are an error."""
        inferred = models.load(model)
        models.infer_shapes(inferred)
        graph = inferred.graph
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        value_infos = {value.name: value for values in (graph.value_info, graph.output, graph.input) for value in values}
        is_valid, fault = overrides.is_valid(initializers, set(value_infos), default_activation_qtype.tensor_type)
        if not is_valid:
            raise ValueError(fault)
        producers = {name: node for node in graph.node for name in node.output}
        consumers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                consumers.setdefault(name, []).append(node)
        return MixedPrecisionTensorQuantOverridesFixer(overrides, producers, consumers, value_infos, initializers)

    def apply(self, default_activation_qtype: QuantType, default_activation_symmetric: bool) -> None:
        """Write the types and conversions that follow from the overrides into them."""
        default = QuantTypeInfo(default_activation_qtype, default_activation_symmetric)
        requests = self.get_desired_tensor_types(default_activation_qtype, default_activation_symmetric)
        for name, request in requests.items():
            made = request.producer or default
            if request.producer is not None:
                wanted: dict[str, Any] = {}
                made.save_to_dict(wanted)
                self.overrides.update_tensor_overrides(name, wanted, overwrite=False)
            if request.consumers is not None:
                self._update_converted_tensor(name, made, *request.consumers)
            elif request.producer is not None and made.quant_type != default.quant_type:
                others = {node.name for node in self.consumers.get(name, ()) if not self._runs_in(node, made.quant_type)}
                self._update_converted_tensor(name, made, default, others)

    def get_desired_tensor_types(
        self, default_activation_qtype: QuantType, default_activation_symmetric: bool
    ) -> dict[str, TensorTypeRequest]:
        """What the nodes around each overridden tensor want."""
        requests: dict[str, TensorTypeRequest] = {}
        for name, entries in list(self.overrides.items()):
            if name in self.initializers or not entries:
                continue
            info = QuantTypeInfo.load_from_dict(entries[0], default_activation_qtype, default_activation_symmetric)
            if info.quant_type == default_activation_qtype:
                continue
            node = self.producers.get(name)
            if node is None:
                requests[name] = TensorTypeRequest(info, None)
            else:
                self._add_type_requests_for_node(requests, info, node)
        return requests

    def _add_type_requests_for_node(
        self, type_requests: dict[str, TensorTypeRequest], quant_type_info: QuantTypeInfo, node: NodeProto
    ) -> None:
        for name in filter(self._is_tensor_quantizable, node.output):
            type_requests.setdefault(name, TensorTypeRequest(None, None)).producer = quant_type_info
        for name in filter(self._is_tensor_quantizable, node.input):
            made = self.overrides.get_node_output_qtype_info(name, None)
            if name in self.initializers or made.quant_type == quant_type_info.quant_type:
                continue
            request = type_requests.setdefault(name, TensorTypeRequest(None, None))
            receivers = request.consumers[1] if request.consumers is not None else set()
            request.consumers = (quant_type_info, receivers | {node.name})

    def _runs_in(self, node: NodeProto, quant_type: QuantType) -> bool:
        """Whether a node's outputs have that type, so that it reads its inputs in it too."""
        infos = [self.overrides.get_node_output_qtype_info(name, None) for name in node.output]
        return any(info.quant_type == quant_type for info in infos)

    def _update_converted_tensor(
        self, tensor_name: str, producer_type_info: QuantTypeInfo, consumer_type_info: QuantTypeInfo, consumer_names: set[str]
    ) -> None:
        if not consumer_names or producer_type_info.quant_type == consumer_type_info.quant_type:
            return
        wanted: dict[str, Any] = {}
        producer_type_info.save_to_dict(wanted)
        convert: dict[str, Any] = {"recv_nodes": set(consumer_names)}
        consumer_type_info.save_to_dict(convert)
        present = self.overrides.get(tensor_name)
        if present and "convert" in present[0]:
            present[0]["convert"]["recv_nodes"] |= consumer_names
            return
        self.overrides.update_tensor_overrides(tensor_name, {**wanted, "convert": convert})

    def _is_tensor_quantizable(self, tensor_name: str) -> bool:
        if tensor_name in self.initializers:
            return self.initializers[tensor_name].data_type in FLOATS
        value = self.value_infos.get(tensor_name)
        return value is not None and value.type.tensor_type.elem_type in FLOATS
