"""`ONNXModel` of neural compression's tools: that of the quantizers, with its tables as properties that `update` makes anew.

What cuts a model into parts for quantization layer by layer is not here: a model of any size is quantized in one piece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import models, onnx_model
from sardonyx.quantization.neural_compressor.util import MAXIMUM_PROTOBUF, find_by_name


class ONNXModel:
    """A model or the path of one. What is not here is asked of the quantizers' `ONNXModel`."""

    def __init__(self, model: ModelProto | str | Path, **kwargs: Any):
        is_path = isinstance(model, (str, Path))
        load_data = kwargs.get("load_external_data", True)
        self._inner = onnx_model.ONNXModel(onnx.load(model, load_external_data=load_data) if is_path else model)  # type: ignore[arg-type]
        self.model_path = str(model) if is_path else None
        self.q_config: Any = None
        self.hf_config: Any = None
        self.check_is_large_model()
        self.update()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    @property
    def model(self) -> ModelProto:
        """The message itself."""
        return self._inner.model

    @model.setter
    def model(self, model: ModelProto) -> None:
        self._inner.model = model
        self.update()

    def check_is_large_model(self) -> None:
        """Look whether the tensors are too large for one message."""
        self.is_large_model = models.model_size(self.model) > MAXIMUM_PROTOBUF

    def update(self) -> None:
        """Make the tables of readers, makers and ops anew, after changes."""
        self.input_name_to_nodes = self._inner.input_name_to_nodes()
        self.output_name_to_node = self._inner.output_name_to_node()
        self.graph_info = {node.name: node.op_type for node in self.nodes()}

    def framework(self) -> str:
        return "onnxruntime"

    def input(self) -> list[str]:
        return [value.name for value in self.model.graph.input]

    def output(self) -> list[str]:
        return [value.name for value in self.model.graph.output]

    def get_node(self, name: str) -> NodeProto | None:
        node: NodeProto | None = find_by_name(name, self.nodes())
        return node

    # --- tensors

    def add_initializers(self, tensors: Iterable[TensorProto]) -> None:
        """Add tensors whose names are not there yet."""
        for tensor in tensors:
            self.add_initializer(tensor)

    def get_initializer_share_num(self, name: str) -> int:
        """How many nodes read a tensor."""
        return 0 if self.get_initializer(name) is None else sum(name in node.input for node in self.nodes())

    def set_initializer(self, tensor: str, array: np.ndarray, raw: bool = False) -> None:
        """Other numbers in a tensor, in the type and with the sizes that it has."""
        old = self.get_initializer(tensor)
        dtype = helper.tensor_dtype_to_np_dtype(old.data_type)
        old.CopyFrom(numpy_helper.from_array(np.asarray(array).astype(dtype).reshape(tuple(old.dims)), tensor))

    def get_scale_zero(self, tensor: str) -> tuple[TensorProto | None, TensorProto | None]:
        """Scale and zero point with which a value is made of integers or turned into them."""
        nodes = [self.output_name_to_node.get(tensor), *self.input_name_to_nodes.get(tensor, ())]
        for node in nodes:
            if node is not None and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                names = [*node.input[1:], "", ""][:2]
                return self.get_initializer(names[0]), self.get_initializer(names[1])
        return None, None

    # --- nodes around a node

    def get_children(self, node: NodeProto, input_name_to_nodes: Mapping[str, Sequence[NodeProto]] | None = None) -> list[Any]:
        readers = self.input_name_to_nodes if input_name_to_nodes is None else input_name_to_nodes
        return [reader for name in node.output for reader in readers.get(name, ())]

    def get_siblings(self, node: NodeProto) -> list[NodeProto]:
        """The other nodes that read what the makers of a node's inputs make."""
        found = [child for parent in self.get_parents(node) for child in self.get_children(parent)]
        return [child for child in found if child.name != node.name]

    def replace_input_of_all_nodes(
        self,
        old_input_name: str,
        new_input_name: str,
        white_optype: Collection[str] | None = None,
        black_optype: Collection[str] | None = None,
    ) -> None:
        """Let nodes of some ops, or of all but some, read another value."""
        for node in self.nodes():
            if _is_meant(node, white_optype, black_optype):
                self.replace_node_input(node, old_input_name, new_input_name)

    def replace_output_of_all_nodes(
        self,
        old_output_name: str,
        new_output_name: str,
        white_optype: Collection[str] | None = None,
        black_optype: Collection[str] | None = None,
    ) -> None:
        """Let nodes of some ops, or of all but some, make another value."""
        for node in self.nodes():
            if _is_meant(node, white_optype, black_optype):
                self.replace_node_output(node, old_output_name, new_output_name)

    # --- outputs and what is left over

    def add_tensors_to_outputs(self, tensor_names: Iterable[str]) -> None:
        """Let inner values be outputs too."""
        present = set(self.output())
        self.model.graph.output.extend(
            helper.make_empty_tensor_value_info(name) for name in tensor_names if name not in present
        )

    def remove_tensors_from_outputs(self, tensor_names: Iterable[str]) -> None:
        """Let values no longer be outputs."""
        names = set(tensor_names)
        kept = [value for value in self.model.graph.output if value.name not in names]
        del self.model.graph.output[:]
        self.model.graph.output.extend(kept)

    def remove_unused_nodes(self) -> None:
        """Remove nodes that no output needs, and their tensors."""
        needed, waiting = set(), self.output()
        makers = self._inner.output_name_to_node()
        while waiting:
            node = makers.get(waiting.pop())
            if node is not None and id(node) not in needed:
                needed.add(id(node))
                waiting += onnx_model.names_read_by(node)
        self.remove_nodes([node for node in self.nodes() if id(node) not in needed])
        self.remove_unused_constant()
        self.update()

    def topological_sort(self, enable_subgraph: bool = False) -> None:
        """Put each node behind those that it reads."""
        self._inner.topological_sort()
        self.update()

    def save(self, root: str | Path) -> None:
        """Write the model; above 2 GB the weights stand in a file beside it."""
        models.save(self.model, root, self.is_large_model)


def _is_meant(node: NodeProto, only: Collection[str] | None, never: Collection[str] | None) -> bool:
    return (not only or node.op_type in only) and (not never or node.op_type not in never)
