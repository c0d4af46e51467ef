"""`ONNXQuantizer`: writes models of integer ops (dynamic) or QLinear ops (static), node after node.

A handler of `operators/` asks for the quantized form of its inputs and puts its own node behind; whoever stays in float gets its
inputs dequantized. `quantized_value_map` says which values have codes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import arithmetic, models
from sardonyx.quantization.base_quantizer import FLOAT_TYPES, BaseQuantizer
from sardonyx.quantization.dynamic_params import signed_quantize_nodes
from sardonyx.quantization.onnx_model import is_quantized_model
from sardonyx.quantization.registry import CreateOpQuantizer
from sardonyx.quantization.types import QuantizationMode, QuantizedValueType
from sardonyx.quantization.values import (
    DEQUANT_OP_NAME,
    QUANT_OP_NAME,
    TENSOR_NAME_QUANT_SUFFIX,
    QuantizationParams,
    QuantizedValue,
    add_dequant_suffix,
    add_quant_suffix,
)

Quantized = tuple[Any, Any, Any, Any]
"""Names of codes, zero points and scales, and the nodes that make them; four times None where an input cannot be quantized."""


class ONNXQuantizer(BaseQuantizer):
    def __init__(
        self,
        model: ModelProto,
        per_channel: bool,
        reduce_range: bool,
        mode: QuantizationMode,
        static: bool,
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
        self.mode, self.static = mode, static
        if not static:
            self.model.replace_gemm_with_matmul()
            models.infer_shapes(self.model.model)
            self.read_graph()
        self.fuse_dynamic_quant = self.opset_version > 10
        self.q_matmul_const_b_only = bool(self.extra_options.get("MatMulConstBOnly", False))
        self.new_nodes: list[NodeProto] = []
        self.graph_scope = "/"
        self.tensor_names = self._names_here()
        self.quantization_params = self.calculate_quantization_params()
        self.quantized_value_map: dict[str, QuantizedValue] = {}
        self.generated_value_names: set[str] = self.model.get_non_initializer_inputs()

    def _names_here(self) -> set[str]:
        graph = self.model.graph()
        return {value.name for value in graph.input} | {name for node in graph.node for name in node.output}

    # graphs inside nodes

    def quantize_subgraph(self, subgraph: Any, graph_key: str) -> Any:
        """A graph inside a node, quantized in the scope of this one."""
        model = helper.make_model(subgraph, opset_imports=list(self.model.opset_import()), ir_version=self.model.ir_version())
        models.add_infer_metadata(model)
        inner = ONNXQuantizer(
            model,
            self.per_channel,
            self.reduce_range,
            self.mode,
            self.static,
            self.weight_qType,
            self.activation_qType,
            self.tensors_range,
            self.nodes_to_quantize,
            self.nodes_to_exclude,
            self.op_types_to_quantize,
            self.extra_options,
        )
        inner.parent, inner.graph_scope = self, f"{self.graph_scope}{graph_key}/"
        inner.quantize_model()
        return inner.model.graph()

    def quantize_node_with_sub_graph(self, node: NodeProto) -> NodeProto:
        """The node with its graphs quantized; itself if it has none."""
        if not any(True for _ in models.inner_graphs(node)):
            return node
        quantized = NodeProto()
        quantized.CopyFrom(node)
        for attribute in quantized.attribute:
            key = f"{node.name or node.op_type}:{attribute.name}"
            if attribute.type == AttributeProto.GRAPH:
                attribute.g.CopyFrom(self.quantize_subgraph(attribute.g, key))
            elif attribute.type == AttributeProto.GRAPHS:
                for index, graph in enumerate(attribute.graphs):
                    graph.CopyFrom(self.quantize_subgraph(graph, f"{key}:{index}"))
        return quantized

    def has_QDQ_nodes(self) -> bool:
        return is_quantized_model(self.model.model)

    def find_initializer_in_path(self, initializer_name: str) -> TensorProto | None:
        """The tensor of that name, here or in a graph around."""
        tensor = self.initializers.get(initializer_name)
        if tensor is None and self.parent is not None:
            return self.parent.find_initializer_in_path(initializer_name)
        return tensor

    def add_new_nodes(self, nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            self.new_nodes.append(node)
            self.generated_value_names.update(name for name in node.output if name)

    def quantize_model(self) -> ModelProto:
        """Quantize what is wanted; the model is changed in place and returned."""
        if self.has_QDQ_nodes():
            logging.getLogger(__name__).warning("the model has Q/DQ nodes already; quantize the float model instead")
        for node in list(self.model.nodes()):
            whole = self.quantize_node_with_sub_graph(node) if self.enable_subgraph_quantization else node
            before = len(self.new_nodes)
            CreateOpQuantizer(self, whole).quantize()
            for new in self.new_nodes[before:]:
                self.generated_value_names.update(name for name in new.output if name)
        self._dequantize_outputs()
        del self.model.graph().node[:]
        self.model.graph().node.extend(self.new_nodes)
        if self.parent is None:
            self.remove_dead()
        if any(node.domain == models.ms_domain for graph in models.graphs_of(self.model.graph()) for node in graph.node):
            self._import_contrib_ops()
        return self.model.model

    def _import_contrib_ops(self) -> None:
        if all(opset.domain != models.ms_domain for opset in self.model.opset_import()):
            self.model.set_opset_import(models.ms_domain, 1)

    # types of values

    def get_tensor_type(self, tensor_name: str, mandatory: bool = False) -> Any:
        """The element type of a value, from its declaration, its initializer, a graph around, or the user's default."""
        value = self.value_infos.get(tensor_name)
        if value is not None and value.type.HasField("tensor_type"):
            return value.type.tensor_type.elem_type
        tensor = self.initializers.get(tensor_name)
        if tensor is not None:
            return tensor.data_type
        if self.parent is not None:
            inherited = self.parent.get_tensor_type(tensor_name)
            if inherited is not None:
                return inherited
        return self._get_default_tensor_type(tensor_name) if mandatory or self._has_default_type() else None

    def _has_default_type(self) -> bool:
        return "DefaultTensorType" in self.extra_options

    def _get_default_tensor_type(self, tensor_name: str) -> Any:
        if self._has_default_type():
            return self.extra_options["DefaultTensorType"]
        raise RuntimeError(
            f"the element type of {tensor_name!r} is not known: shape inference does not know the op that makes it. "
            "Give extra_options={'DefaultTensorType': onnx.TensorProto.FLOAT} if it is a float, or exclude the node."
        )

    def is_float_tensor(self, tensor_name: str) -> bool:
        if self.is_input_a_initializer(tensor_name):
            return self.is_valid_quantize_weight(tensor_name)
        return self.get_tensor_type(tensor_name, mandatory=True) in FLOAT_TYPES

    def contains_tensor(self, tensor_name: str) -> bool:
        """Whether this graph itself makes or takes the value."""
        return tensor_name in self.tensor_names or tensor_name in self.generated_value_names

    # parameters

    def calculate_quantization_params(self) -> dict[str, QuantizationParams] | None:
        """Scale and zero point of every tensor that was calibrated."""
        if self.tensors_range is None:
            return None
        overrides = self.tensor_quant_overrides
        return {
            name: self.activation_params(name, data, overrides.get_per_tensor_overrides(name, default_val={}) or {})
            for name, data in self.tensors_range.items()
            if name not in self.initializers
        }

    def parameter_names(self, name: str) -> tuple[str, str] | None:
        """The names of a value's calibrated scale and zero point, added as initializers; None if it was not calibrated."""
        params = (self.quantization_params or {}).get(name)
        if params is None:
            return None
        scale_name, zero_point_name = f"{name}_scale", f"{name}_zero_point"
        self.add_initializer(arithmetic.tensor_of_codes(params["zero_point"], params["quant_type"], zero_point_name))
        self.add_initializer(numpy_helper.from_array(params["scale"], scale_name))
        return scale_name, zero_point_name

    def _get_quantization_params(
        self, param_name: str, use_scale: Any = None, use_zeropoint: Any = None
    ) -> tuple[bool, str, str, Any, Any]:
        """(found, scale, zero point, and the shapes of both) of a value: the names of initializers."""
        if use_scale is not None and use_zeropoint is not None and self.quantization_params is not None:
            self.quantization_params[param_name] = QuantizationParams(
                scale=np.asarray(use_scale), zero_point=np.asarray(use_zeropoint), quant_type=int(self.activation_qType)
            )
        names = self.parameter_names(param_name)
        return (False, "", "", "", "") if names is None else (True, *names, [], [])

    # quantizing

    def find_quantized_value(self, input_name: str) -> QuantizedValue | None:
        value = self.quantized_value_map.get(input_name)
        if value is None and self.parent is not None:
            return self.parent.find_quantized_value(input_name)
        return value

    def quantize_activation(self, node: NodeProto, indices: Sequence[int], from_subgraph: bool = False) -> Quantized:
        """The quantized form of some inputs; initializers among them get the type of activations."""
        return self._quantize_inputs(node, indices, self.activation_qType, from_subgraph=from_subgraph)

    def quantize_weight(
        self,
        node: NodeProto,
        indices: Sequence[int],
        reduce_range: bool = False,
        op_level_per_channel: bool = False,
        axis: int = -1,
        from_subgraph: bool = False,
    ) -> Quantized:
        """The quantized form of some inputs; initializers among them get the type of weights, per channel if asked for."""
        return self._quantize_inputs(
            node,
            indices,
            self.weight_qType,
            reduce_range=reduce_range,
            axis=axis if op_level_per_channel and self.per_channel else None,
            from_subgraph=from_subgraph,
        )

    def _quantize_inputs(
        self,
        node: NodeProto,
        indices: Sequence[int],
        weight_type: Any,
        reduce_range: bool = False,
        axis: int | None = None,
        from_subgraph: bool = False,
    ) -> Quantized:
        codes, zero_points, scales = [], [], []
        nodes: list[NodeProto] = []
        for index in indices:
            name = node.input[index]
            value = self.find_quantized_value(name) if name else None
            if not name:
                names: tuple[str, str, str] = ("", "", "")
            elif value is not None:
                names = value.q_name, value.zp_name, value.scale_name
            elif self.find_initializer_in_path(name) is not None:
                names = self._quantize_found_initializer(name, weight_type, reduce_range, axis)
            elif self.contains_tensor(name):
                made = self._quantize_tensor(name)
                if made is None:
                    return None, None, None, None
                (self.add_new_nodes if from_subgraph else nodes.extend)(made)
                value = self.quantized_value_map[name]
                names = value.q_name, value.zp_name, value.scale_name
            elif self.parent is not None:
                outer = self.parent.quantize_activation(node, [index], from_subgraph=True)
                if outer[0] is None:
                    return outer
                names = outer[0][0], outer[1][0], outer[2][0]
            else:
                raise ValueError(f"{node.op_type} {node.name!r}: nothing in the model makes its input {name!r}")
            codes.append(names[0])
            zero_points.append(names[1])
            scales.append(names[2])
        return codes, zero_points, scales, nodes

    def _quantize_found_initializer(
        self, name: str, element_type: Any, reduce_range: bool, axis: int | None
    ) -> tuple[str, str, str]:
        if name not in self.initializers:
            return self.parent._quantize_found_initializer(name, element_type, reduce_range, axis)
        if axis is not None:
            return self.quantize_weight_per_channel(name, element_type, axis, reduce_range)
        return self.quantize_initializer(self.initializers[name], element_type, reduce_range)

    def _quantize_tensor(self, name: str) -> list[NodeProto] | None:
        """The nodes that quantize a value of this graph; None if it was not calibrated."""
        codes, scale_type = name + TENSOR_NAME_QUANT_SUFFIX, self.get_tensor_type(name, mandatory=True)
        if self.static:
            parameters = self.parameter_names(name)
            if parameters is None:
                logging.getLogger(__name__).warning("calibration has not seen %r; its reader stays in float", name)
                return None
            nodes = [helper.make_node(QUANT_OP_NAME, [name, *parameters], [codes], add_quant_suffix(name))]
        else:
            parameters = f"{name}_scale", f"{name}_zero_point"
            if self.activation_qType == TensorProto.UINT8 and self.fuse_dynamic_quant:
                nodes = [helper.make_node("DynamicQuantizeLinear", [name], [codes, *parameters], add_quant_suffix(name))]
            else:
                nodes = signed_quantize_nodes(self, name, codes, *parameters)
        self.quantized_value_map[name] = QuantizedValue(
            name, codes, *parameters, QuantizedValueType.Input, scale_type=scale_type
        )
        return nodes

    def quantize_initializer(
        self, weight: TensorProto, qType: Any, reduce_range: bool = False, keep_float_weight: bool = False
    ) -> tuple[str, str, str]:
        """Codes, zero point and scale of an initializer, made once."""
        value = self.quantized_value_map.get(weight.name)
        if value is not None:
            return value.q_name, value.zp_name, value.scale_name
        names = self.quantize_initializer_impl(weight, qType, reduce_range, keep_float_weight)
        self._note_initializer(weight.name, names, None)
        return names

    def quantize_weight_per_channel(
        self, weight_name: str, weight_qType: Any, channel_axis: int, reduce_range: bool = True, keep_float_weight: bool = False
    ) -> tuple[str, str, str]:
        """The same for each index of an axis."""
        value = self.find_quantized_value(weight_name)
        if value is not None:
            return value.q_name, value.zp_name, value.scale_name
        names = self.quantize_weight_per_channel_impl(weight_name, weight_qType, channel_axis, reduce_range, keep_float_weight)
        self._note_initializer(weight_name, names, channel_axis)
        return names

    def _note_initializer(self, name: str, names: tuple[str, str, str], axis: int | None) -> None:
        codes, zero_point, scale = names
        self.quantized_value_map[name] = QuantizedValue(name, codes, scale, zero_point, QuantizedValueType.Initializer, axis)

    def quantize_bias_static(self, bias_name: str, input_name: str, weight_name: str, beta: float = 1.0) -> str:
        """The name of a bias as int32 codes. A bias that has codes of another kind already gets a copy with its own."""
        present = self.quantized_value_map.get(bias_name)
        if present is not None and self.initializers[present.q_name].data_type == TensorProto.INT32:
            return present.q_name
        if present is not None:
            bias_name = self._copy_initializer(bias_name)
        input_scale = self._scale_of(input_name)
        weight_scale = self._scale_of(weight_name)
        fitting = self.bias_fitting_scale(bias_name, input_scale, weight_scale, beta)
        if fitting is not None and weight_name in self.initializers:
            self._requantize_weight(weight_name, fitting)
            weight_scale = fitting
        codes, scale, zero_point, *_ = self.quantize_bias_static_impl(bias_name, input_scale, weight_scale, beta)
        self.quantized_value_map[bias_name] = QuantizedValue(
            bias_name, codes, scale, zero_point, QuantizedValueType.Initializer
        )
        return codes

    def _copy_initializer(self, name: str) -> str:
        number = self.model.get_largest_initializer_name_suffix(name) + 1
        copy = TensorProto()
        copy.CopyFrom(self.initializers[name])
        copy.name = f"{name}{number}"
        self.add_initializer(copy)
        return copy.name

    def _scale_of(self, name: str) -> np.ndarray:
        value = self.find_quantized_value(name)
        scale_name = f"{name}_scale" if value is None else value.scale_name
        tensor = self.find_initializer_in_path(scale_name)
        if tensor is None:
            raise ValueError(f"a bias is quantized with the scale of {name!r}, which is not known")
        return np.asarray(numpy_helper.to_array(tensor))

    def _requantize_weight(self, weight_name: str, new_scale: np.ndarray) -> None:
        """Write the codes of a weight anew with another scale."""
        value = self.quantized_value_map[weight_name]
        zero_point = self.initializers[value.zp_name]
        self.replace_initializer(numpy_helper.from_array(new_scale, value.scale_name))
        self.replace_initializer(
            arithmetic.quantize_onnx_initializer(
                self.initializers[weight_name],
                zero_point.data_type,
                numpy_helper.to_array(zero_point),
                new_scale,
                value.axis,
                value.q_name,
            )
        )

    # back to float

    def _dequantize_value(self, value_name: str) -> NodeProto | None:
        """The node that makes the float form of a value; None if it is there or never was quantized."""
        value = self.quantized_value_map.get(value_name)
        if value is None or value_name in self.generated_value_names or value.value_type == QuantizedValueType.Initializer:
            return None
        return helper.make_node(DEQUANT_OP_NAME, value.operands, [value_name], add_dequant_suffix(value_name))

    def dequantize(self, value_name: str) -> None:
        """Make sure that the float form of a value exists, here or in the graph around that has its codes."""
        node = self._dequantize_value(value_name)
        if node is not None:
            self.add_new_nodes([node])
        elif value_name not in self.quantized_value_map and self.parent is not None and not self.contains_tensor(value_name):
            self.parent.dequantize(value_name)

    def _dequantize_outputs(self) -> None:
        for output in self.model.graph().output:
            self.dequantize(output.name)
