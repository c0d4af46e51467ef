"""Models of PyTorch's dynamo exporter made plain: functions inlined, layers taken out, constants as initializers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx.inliner
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sardonyx.transformers.onnx_model import OnnxModel


class DynamoOnnxHelper:
    """Works on `model`, an OnnxModel."""

    def __init__(self, model: ModelProto):
        self.model = OnnxModel(model)

    def update_edges(self, edge_mapping: Mapping[str, str]) -> None:
        """Give values other names, in nodes and among the graph's inputs and outputs."""
        graph = self.model.model.graph
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [edge_mapping.get(name, name) for name in names]
        for value in (*graph.input, *graph.output):
            value.name = edge_mapping.get(value.name, value.name)

    def unroll_function(self, func_name: str) -> None:
        """Put the body of a function in the place of each of its calls."""
        wanted = [(function.domain, function.name) for function in self.model.model.functions if function.name == func_name]
        if wanted:
            self.model.initialize(onnx.inliner.inline_selected_functions(self.model.model, wanted))

    def remove_function(self, func_name: str, input_id: int, output_id: int) -> None:
        """Take out the nodes in whose op's name `func_name` occurs; who read such an output reads the input then."""
        graph = self.model.model.graph
        removed = [node for node in graph.node if func_name in node.op_type]
        sources = {node.output[output_id]: node.input[input_id] for node in removed}
        for node in removed:
            graph.node.remove(node)
        outputs = {value.name for value in graph.output}
        for name, source in sources.items():
            while source in sources:
                source = sources[source]
            # the graph's output keeps its name, so what feeds it takes that
            self.update_edges({source: name} if name in outputs else {name: source})

    def remove_dropout_layer(self) -> None:
        """Take out calls of Dropout."""
        self.remove_function("Dropout", 0, 0)

    def remove_lm_head_layer(self) -> None:
        """Take out the layer behind the last hidden state, which that becomes the output of."""
        self.remove_function("Linear_lm_head", 2, 0)

    def add_initializer(self, name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True) -> TensorProto:
        """Add a tensor of these values."""
        if raw:
            dtype = helper.tensor_dtype_to_np_dtype(data_type)
            tensor = helper.make_tensor(name, data_type, dims, np.asarray(vals).astype(dtype).tobytes(), raw=True)
        else:
            tensor = helper.make_tensor(name, data_type, dims, vals)
        self.model.add_initializer(tensor)
        return tensor

    def convert_constants_to_initializers(self, min_size: int = 1) -> None:
        """Make initializers of Constant nodes with at least so many elements."""
        converted = []
        for node in self.model.get_nodes_by_op_type("Constant"):
            value = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
            if value is not None and numpy_helper.to_array(value).size >= min_size:
                tensor = TensorProto()
                tensor.CopyFrom(value)
                tensor.name = node.output[0]
                self.model.add_initializer(tensor)
                converted.append(node)
        self.model.remove_nodes(converted)

    def clear_metadata(self) -> None:
        """Forget the metadata of graphs and nodes."""
        for holder in (*self.model.graphs(), *self.model.nodes()):
            holder.ClearField("metadata_props")

    @staticmethod
    def fold_transpose_initializers(model: ModelProto) -> None:
        """Transpose initializers whose only reader is a Transpose, and take that out; names of initializers stay."""
        graph = model.graph
        readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        outputs = {value.name for value in graph.output}
        for tensor in graph.initializer:
            users = readers.get(tensor.name, [])
            if len(users) == 1 and users[0].op_type == "Transpose" and users[0].output[0] not in outputs:
                (node,) = users
                perm = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).transpose(perm), tensor.name))
                for user in readers.get(node.output[0], []):
                    user.input[:] = [tensor.name if name == node.output[0] else name for name in user.input]
                graph.node.remove(node)
