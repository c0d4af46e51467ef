"""Fusions over `OnnxModel`: the class that people derive their own from, and the one behind which stages of our optimizer stand.

The names of onnxruntime's fusions are in modules of theirs (`fusion_gelu`, `fusion_attention`, …); each is a `StageFusion`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.optimizer.rewrite import Rule
from sardonyx.tools.fusing import fused
from sardonyx.transformers.onnx_model import OnnxModel

logger = logging.getLogger(__name__)

Readers = Mapping[str, Sequence[NodeProto]]
Makers = Mapping[str, NodeProto]


class Fusion(ABC):
    """Nodes that become others. `fuse` looks at one node of `search_op_types`, and says what goes and what comes."""

    def __init__(self, model: OnnxModel, fused_op_type: str, search_op_types: str | list[str], description: str = ""):
        self.model = model
        self.fused_op_type = fused_op_type
        self.search_op_types = [search_op_types] if isinstance(search_op_types, str) else search_op_types
        self.description = f"{fused_op_type}({description})" if description else fused_op_type
        self.nodes_to_remove: list[NodeProto] = []
        self.nodes_to_add: list[NodeProto] = []
        self.prune_graph = False
        """Set by `fuse` where nodes are left over that nobody reads."""
        self.node_name_to_graph_name: dict[str, str] = {}
        """The graph into which a new node goes; each has to be there."""
        self.this_graph_name: str | None = None
        self.fused_count: Counter[str] = Counter()

    def increase_counter(self, fused_op_name: str) -> None:
        """Count one fusion."""
        self.fused_count[fused_op_name] += 1

    @abstractmethod
    def fuse(self, node: NodeProto, input_name_to_nodes: Readers, output_name_to_node: Makers) -> None:
        """Look at one node; what is found goes into `nodes_to_remove` and `nodes_to_add`."""

    def apply(self) -> None:
        """Fuse in all graphs of the model."""
        readers, makers = self.model.input_name_to_nodes(), self.model.output_name_to_node()
        for op_type in self.search_op_types:
            for node in self.model.get_nodes_by_op_type(op_type):
                graph = self.model.get_graph_by_node(node)
                if graph is None:
                    raise ValueError(f"{op_type} '{node.name}' is in no graph of the model")
                self.this_graph_name = graph.name
                self.fuse(node, readers, makers)
        count = sum(self.fused_count.values()) or len(self.nodes_to_add)
        if count:
            logger.info("Fused %s: %d", self.description, count)
        self.model.remove_nodes(self.nodes_to_remove)
        self.model.add_nodes(self.nodes_to_add, self.node_name_to_graph_name)
        if self.prune_graph:
            self.model.prune_graph()
        elif self.nodes_to_remove or self.nodes_to_add:
            self.model.update_graph()

    def add_initializer(self, name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True) -> TensorProto:
        """A new weight in the graph of the node that is looked at."""
        if raw:
            tensor = numpy_helper.from_array(np.asarray(vals, helper.tensor_dtype_to_np_dtype(data_type)).reshape(dims), name)
        else:
            tensor = helper.make_tensor(name, data_type, dims, vals)
        self.model.add_initializer(tensor, self.this_graph_name)
        return tensor

    def remove_initializer(self, tensor: TensorProto) -> None:
        """Take a weight away."""
        self.model.remove_initializer(tensor)

    def add_nodes_to_remove(self, nodes: Iterable[NodeProto]) -> None:
        """Remember nodes that go, each once."""
        self.nodes_to_remove += [node for node in nodes if node not in self.nodes_to_remove]

    def add_nodes_to_remove_with_nodes_to_keep(self, nodes: Iterable[NodeProto], nodes_to_keep: Collection[NodeProto]) -> None:
        """Remember nodes that go, except for some."""
        self.add_nodes_to_remove(node for node in nodes if node not in nodes_to_keep)


class StageFusion:
    """Stages of our optimizer alone, under the name of one of onnxruntime's fusions."""

    stages: ClassVar[tuple[str, ...]] = ()
    switches: ClassVar[Mapping[str, str]] = {}
    """Settings without which a stage does nothing."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules that no level has, because on CPUs nothing is gained by them."""

    def __init__(self, model: OnnxModel, *_arguments: Any, **_options: Any):
        """Whatever else onnxruntime's classes take (heads, sizes, masks), the graph tells."""
        self.model = model

    def apply(self) -> None:
        """Fuse in all graphs of the model."""
        self.model.initialize(fused(self.model.model, self.stages, self.switches, self.rules))
