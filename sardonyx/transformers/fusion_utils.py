"""What fusions that people write over `OnnxModel` need: casts of inputs, nodes that are skipped, constants that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.transformers.onnx_model import OnnxModel

CAST_TYPES = {"int32": TensorProto.INT32, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


class FusionUtils:
    """Edits of a model that several fusions share."""

    def __init__(self, model: OnnxModel):
        self.model = model

    # --- casts

    def cast_graph_input_to_int32(self, input_name: str) -> tuple[bool, str]:
        """An input of the graph as int32: whether there is such an input of another type, and the name of what is int32."""
        value = self.model.find_graph_input(input_name)
        if value is None or value.type.tensor_type.elem_type == TensorProto.INT32:
            return False, input_name
        return True, self.cast_input_to_int32(input_name)[0]

    def cast_input(self, input_name: str, target_type: str = "int32") -> tuple[str, NodeProto]:
        """A value in another type, with the Cast that makes it."""
        if target_type not in CAST_TYPES:
            raise ValueError(f"{target_type!r} is not one of {', '.join(CAST_TYPES)}")
        name = f"{input_name}_{target_type}"
        return name, self.add_cast_node(input_name, CAST_TYPES[target_type], name)

    def cast_input_to_int32(self, input_name: str) -> tuple[str, NodeProto]:
        """A value as int32, with the Cast that makes it."""
        return self.cast_input(input_name, "int32")

    def add_cast_node(
        self,
        input_name: str,
        to_type: int,
        output_name: str | None = None,
        output_name_to_node: Mapping[str, NodeProto] | None = None,
        graph_name: str | None = None,
    ) -> NodeProto:
        """A new Cast; one that has just been put before a value is read through where its input is an integer."""
        makers = self.model.output_name_to_node() if output_name_to_node is None else output_name_to_node
        source, parent = input_name, makers.get(input_name)
        if parent is not None and parent.op_type == "Cast" and self._is_widened(parent, to_type):
            source = parent.input[0]
        node = helper.make_node("Cast", [source], [output_name or f"{input_name}_cast_to_{to_type}"], to=to_type)
        self.model.add_node(node, graph_name)
        return node

    def _is_widened(self, cast: NodeProto, to_type: int) -> bool:
        """Whether a Cast from int32 to int64 is undone."""
        kinds = self.model.get_dtype(cast.input[0]), OnnxModel.get_node_attribute(cast, "to"), to_type
        return kinds == (TensorProto.INT32, TensorProto.INT64, TensorProto.INT32)

    def remove_cast_int32(self, input_name: str) -> None:
        """Let readers of an input's Casts to int32 read the input itself."""
        for node in self.model.input_name_to_nodes().get(input_name, []):
            if node.op_type == "Cast" and OnnxModel.get_node_attribute(node, "to") == TensorProto.INT32:
                self.model.remove_node(node)
                self.model.replace_input_of_all_nodes(node.output[0], input_name)

    # --- nodes

    @staticmethod
    def update_node_input(
        node: NodeProto, i: int, new_input_name: str, input_name_to_nodes: dict[str, list[NodeProto]]
    ) -> None:
        """Let a node read another value; the table of readers follows."""
        old = node.input[i]
        node.input[i] = new_input_name
        if old not in node.input and node in input_name_to_nodes.get(old, []):
            input_name_to_nodes[old].remove(node)
        input_name_to_nodes.setdefault(new_input_name, []).append(node)

    @staticmethod
    def skip_parent(
        model: OnnxModel,
        node: NodeProto,
        parent_node: NodeProto,
        input_name_to_nodes: dict[str, list[NodeProto]],
        node_input_index: int = 0,
        parent_input_index: int = 0,
    ) -> bool:
        """Let a node read what its parent reads; whether nobody needs the parent any more. The caller removes it then."""
        old = node.input[node_input_index]
        FusionUtils.update_node_input(node, node_input_index, parent_node.input[parent_input_index], input_name_to_nodes)
        return not input_name_to_nodes.get(old) and not model.find_graph_output(old)

    def get_squeeze_or_unsqueeze_axes(self, node: NodeProto) -> np.ndarray | list[int] | None:
        """The axes of Squeeze or Unsqueeze, whether they are an attribute or a constant; None if they are neither."""
        if node.op_type not in ("Squeeze", "Unsqueeze"):
            raise ValueError(f"{node.op_type} '{node.name}' is neither Squeeze nor Unsqueeze")
        if len(node.input) > 1:
            return self.model.get_constant_value(node.input[1])  # type: ignore[no-any-return]
        return OnnxModel.get_node_attribute(node, "axes")  # type: ignore[no-any-return]

    @staticmethod
    def check_node_attribute(node: NodeProto, attribute_name: str, expected_value: Any, default_value: Any = None) -> bool:
        """Whether an attribute, or its default, is what is expected."""
        value = OnnxModel.get_node_attribute(node, attribute_name)
        return np.array_equal(default_value if value is None else value, expected_value)

    def check_node_input_value(self, node: NodeProto, input_index: int, expected_value: Any) -> bool:
        """Whether an input is a constant of one value, or of a list of them."""
        value = self.model.get_constant_value(node.input[input_index])
        return value is not None and np.array_equal(value, expected_value)

    @staticmethod
    def check_qdq_node_for_fusion(node: NodeProto, model: OnnxModel, allow_per_tensor_quantization_only: bool = True) -> bool:
        """Whether QuantizeLinear or DequantizeLinear is symmetric, and has one scale unless more are allowed."""
        scale = model.get_constant_value(node.input[1])
        zero = model.get_constant_value(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros((), np.int8)
        if scale is None or zero is None or np.any(zero != 0):
            return False
        return not allow_per_tensor_quantization_only or scale.size == 1

    @staticmethod
    def transpose_2d_int8_tensor(tensor: TensorProto) -> TensorProto:
        """Transpose a matrix of int8 in its place."""
        if not isinstance(tensor, TensorProto):
            raise TypeError(f"expected a TensorProto, got {type(tensor).__name__}")
        if len(tensor.dims) != 2 or tensor.data_type != TensorProto.INT8:
            raise ValueError("Only INT8 2-D tensors can be transposed")
        turned = np.ascontiguousarray(numpy_helper.to_array(tensor).T)
        tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))
        return tensor

    # --- nodes that do nothing

    def remove_identity_nodes(self) -> None:
        """Remove Identity nodes, except for those that make an output of the graph."""
        outputs = {value.name for value in self.model.graph().output}
        unused = [node for node in self.model.get_nodes_by_op_type("Identity") if node.output[0] not in outputs]
        for node in unused:
            self.model.replace_input_of_all_nodes(node.output[0], node.input[0])
        self.model.remove_nodes(unused)

    def remove_cascaded_cast_nodes(self) -> None:
        """As the model does."""
        self.model.remove_cascaded_cast_nodes()

    def remove_useless_cast_nodes(self) -> None:
        """As the model does."""
        self.model.remove_useless_cast_nodes()

    def remove_useless_reshape_nodes(self) -> None:
        """Remove a Reshape to the shape that its input has."""
        shapes = self.model.infer_runtime_shape(update=True)
        outputs = {value.name for value in self.model.graph().output}
        useless = []
        for node in self.model.get_nodes_by_op_type("Reshape"):
            before, after = (self.model.get_shape(name, shapes) for name in (node.input[0], node.output[0]))
            if before is not None and before == after and "?" not in before and node.output[0] not in outputs:
                useless.append(node)
                self.model.replace_input_of_all_nodes(node.output[0], node.input[0])
        self.model.remove_nodes(useless)


class NumpyHelper:
    """Tensors as arrays."""

    @staticmethod
    def to_array(tensor: TensorProto, fill_zeros: bool = False) -> np.ndarray:
        """The numbers of a tensor, or zeros of its type and shape where the numbers are not there."""
        if fill_zeros:
            return np.zeros(tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type))
        return numpy_helper.to_array(tensor)
