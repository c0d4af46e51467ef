"""The base of people's own fusions over the quantizers' model, and the one behind which our optimizer stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import ModelProto, NodeProto

from sardonyx.optimizer.rewrite import Rule
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.tools.fusing import fused
from sardonyx.tools.graph_queries import GraphQueries


class _Queries(GraphQueries):
    """Questions about a model as it is now."""

    def __init__(self, model: ModelProto):
        self.model = model


class Fusion:
    """Nodes that become others. `fuse` looks at one node of `search_op_type`, and says what goes and what comes.

    Questions about paths, constants and children (`match_parent_path`, `find_constant_input`, …) are those of `GraphQueries`.
    """

    def __init__(self, model: ONNXModel, fused_op_type: str, search_op_type: str):
        self.model = model
        self.fused_op_type, self.search_op_type = fused_op_type, search_op_type
        self.nodes_to_remove: list[NodeProto] = []
        self.nodes_to_add: list[NodeProto] = []
        self._next_number: int | None = None

    def fuse(
        self,
        node: NodeProto,
        input_name_to_nodes: Mapping[str, Sequence[NodeProto]],
        output_name_to_node: Mapping[str, NodeProto],
    ) -> None:
        """Look at one node; what is found goes into `nodes_to_remove` and `nodes_to_add`."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it fuses {self.search_op_type}")

    def apply(self) -> bool:
        """Fuse in the main graph; whether that changed it."""
        readers, makers = self.model.input_name_to_nodes(), self.model.output_name_to_node()
        for node in self.model.nodes():
            if node.op_type == self.search_op_type:
                self.fuse(node, readers, makers)
        self.model.remove_nodes(self.nodes_to_remove)
        self.model.add_nodes(self.nodes_to_add)
        is_changed = bool(self.nodes_to_remove or self.nodes_to_add)
        if is_changed:
            self.model.remove_unused_constant()
        return is_changed

    def create_unique_node_name(self) -> str:
        """A name for a new node that no other has."""
        prefix = f"{self.fused_op_type}_fused_{self.search_op_type}_"
        if self._next_number is None:
            self._next_number = self.model.get_largest_node_name_suffix(prefix) + 1
        self._next_number += 1
        return f"{prefix}{self._next_number - 1}"

    @staticmethod
    def is_safe_to_fuse_nodes(
        nodes_to_remove: Sequence[NodeProto],
        keep_outputs: Iterable[str],
        input_name_to_nodes: Mapping[str, Sequence[NodeProto]],
        output_name_to_node: Mapping[str, NodeProto],
    ) -> bool:
        """Whether nobody but the nodes that go reads what they make, outputs that are kept aside."""
        inner = {name for node in nodes_to_remove for name in node.output} - set(keep_outputs)
        return all(reader in nodes_to_remove for name in inner for reader in input_name_to_nodes.get(name, ()))

    def is_constant_with_specified_rank(self, output_name: str, rank: int) -> bool:
        """Whether a value is a constant of so many axes."""
        value = self.model.get_constant_value(output_name)
        return value is not None and np.ndim(value) == rank

    get_node_attribute = staticmethod(GraphQueries.get_node_attribute)
    input_index = staticmethod(GraphQueries.input_index)

    @staticmethod
    def tensor_shape_to_list(tensor_type: Any) -> list[Any]:
        """Sizes: a number, a name, or "?"."""
        return GraphQueries.tensor_shape_to_list(_Queries(ModelProto()), tensor_type)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_Queries(self.model.model), name)


class StageFusion:
    """Stages and rules of our optimizer alone, under the name of one of onnxruntime's fusions over the quantizers' model."""

    stages: ClassVar[tuple[str, ...]] = ()
    rules: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, model: ONNXModel, *_arguments: Any, **_options: Any):
        self.model = model

    def apply(self) -> bool:
        """Fuse in all graphs of the model; whether there is something new in it."""
        before = sorted(node.op_type for node in self.model.nodes())
        changed = fused(self.model.model, self.stages, rules=self.rules)
        if sorted(node.op_type for node in changed.graph.node) == before:
            return False
        self.model.model.CopyFrom(changed)
        return True
