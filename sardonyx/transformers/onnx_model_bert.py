"""Models of the kind of BERT: encoders, and all types that have no class of their own."""

from __future__ import annotations

from typing import ClassVar

from onnx import TensorProto

from sardonyx.transformers.fused_model import FusedModel


class BertOnnxModel(FusedModel):
    """Models of the kind of BERT: encoders, and all types that have no class of their own."""

    model_type: ClassVar[str] = "bert"

    def get_graph_inputs_from_fused_nodes(self, casted: bool = True) -> list[str]:
        """Names of inputs that fused nodes read, through Casts or straight."""
        nodes = self.get_nodes_by_op_type("EmbedLayerNormalization") + self.get_nodes_by_op_type("Attention")
        names = {value.name for value in self.model.graph.input}
        found: list[str] = []
        for node in nodes:
            for index, name in enumerate(node.input):
                parent = self.get_parent(node, index)
                if casted and parent is not None and parent.op_type == "Cast" and parent.input[0] in names:
                    found.append(parent.input[0])
                elif not casted and name in names:
                    found.append(name)
        return list(dict.fromkeys(found))

    def change_graph_inputs_to_int32(self) -> None:
        """Let inputs of integers be int32."""
        for value in self.get_graph_inputs_excluding_initializers():
            if value.type.tensor_type.elem_type == TensorProto.INT64:
                self.change_graph_input_type(value, TensorProto.INT32)

    def use_dynamic_axes(self, dynamic_batch_dim: str = "batch_size", dynamic_seq_len: str = "max_seq_len") -> None:
        """Name the first axis of inputs and outputs, and the second one of inputs."""
        for value in self.get_graph_inputs_excluding_initializers():
            for size, name in zip(value.type.tensor_type.shape.dim, (dynamic_batch_dim, dynamic_seq_len), strict=False):
                size.dim_param = name
        for value in self.model.graph.output:
            for size in value.type.tensor_type.shape.dim[:1]:
                size.dim_param = dynamic_batch_dim
