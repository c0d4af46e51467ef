"""Questions about the graphs of a model: who makes and reads a value, paths of ops, constants. `OnnxModel` has them as methods."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Makers = Mapping[str, NodeProto]
Readers = Mapping[str, Sequence[NodeProto]]
Path = tuple[Sequence[str], Sequence[int | None] | None]


def bodies(node: NodeProto) -> list[GraphProto]:
    """The graphs among a node's attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            found += attribute.graphs
    return found


class GraphQueries:
    """What can be asked of a model; nothing here changes it."""

    model: ModelProto

    # --- the parts

    def graph(self) -> GraphProto:
        return self.model.graph

    def functions(self) -> list[Any]:
        return [self.model.functions]

    def graphs(self) -> list[GraphProto]:
        """All graphs: the main one, then level by level those inside."""
        found, pending = [], deque([self.model.graph])
        while pending:
            graph = pending.popleft()
            found.append(graph)
            pending += [body for node in graph.node for body in bodies(node)]
        return found

    def nodes(self) -> list[NodeProto]:
        """The nodes of all graphs."""
        return [node for graph in self.graphs() for node in graph.node]

    def _nodes_of(self, exclude_subgraphs: bool) -> list[NodeProto]:
        return list(self.model.graph.node) if exclude_subgraphs else self.nodes()

    def input_name_to_nodes(self, exclude_subgraphs: bool = False) -> dict[str, list[NodeProto]]:
        """The nodes that read each value."""
        readers: dict[str, list[NodeProto]] = {}
        for node in self._nodes_of(exclude_subgraphs):
            for name in node.input:
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def output_name_to_node(self, exclude_subgraphs: bool = False) -> dict[str, NodeProto]:
        """The node that makes each value."""
        return {name: node for node in self._nodes_of(exclude_subgraphs) for name in node.output if name}

    def get_graphs_input_names(self) -> list[str]:
        return [value.name for graph in self.graphs() for value in graph.input]

    def get_graphs_output_names(self) -> list[str]:
        return [value.name for graph in self.graphs() for value in graph.output]

    def get_graph_by_name(self, graph_name: str) -> GraphProto | None:
        return next((graph for graph in self.graphs() if graph.name == graph_name), None)

    def get_graph_by_node(self, node: NodeProto) -> GraphProto | None:
        """The graph in which a node stands."""
        return next((graph for graph in self.graphs() if node in graph.node), None)

    def get_nodes_by_op_type(self, op_type: str) -> list[NodeProto]:
        return [node for node in self.nodes() if node.op_type == op_type]

    def get_graph_inputs_excluding_initializers(self) -> list[ValueInfoProto]:
        """The inputs that must be fed."""
        constants = {tensor.name for tensor in self.model.graph.initializer}
        return [value for value in self.model.graph.input if value.name not in constants]

    def find_graph_input(self, input_name: str) -> ValueInfoProto | None:
        return next((value for value in self.model.graph.input if value.name == input_name), None)

    def find_graph_output(self, output_name: str) -> ValueInfoProto | None:
        return next((value for value in self.model.graph.output if value.name == output_name), None)

    def get_opset_version(self) -> int:
        """The opset of the standard domain."""
        for entry in self.model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                return entry.version
        raise RuntimeError("ONNX model has no opset for default domain")

    def get_operator_statistics(self, include_domain: bool = False) -> dict[str, int]:
        """How many nodes of each op there are."""
        return dict(Counter(_op_name(node, include_domain) for node in self.nodes()))

    # --- neighbours

    def get_children(
        self, node: NodeProto, input_name_to_nodes: Readers | None = None, output_index: int | None = None
    ) -> list[NodeProto]:
        """The nodes that read what a node makes."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        outputs = node.output if output_index is None else node.output[output_index : output_index + 1]
        return [child for name in outputs for child in readers.get(name, ())]

    def get_parents(self, node: NodeProto, output_name_to_node: Makers | None = None) -> list[NodeProto]:
        """The nodes that make what a node reads."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [makers[name] for name in node.input if name in makers]

    def get_parent(self, node: NodeProto, i: int, output_name_to_node: Makers | None = None) -> NodeProto | None:
        """The node that makes a node's input at a position."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return makers.get(node.input[i]) if i < len(node.input) else None

    def find_first_child_by_type(
        self, node: NodeProto, child_type: str, input_name_to_nodes: Readers | None = None, recursive: bool = True
    ) -> NodeProto | None:
        """The nearest node of an op that depends on a node."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return _nearest(node, child_type, lambda one: self.get_children(one, readers), recursive)

    def find_first_parent_by_type(
        self, node: NodeProto, parent_type: str, output_name_to_node: Makers | None = None, recursive: bool = True
    ) -> NodeProto | None:
        """The nearest node of an op on which a node depends."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return _nearest(node, parent_type, lambda one: self.get_parents(one, makers), recursive)

    def get_children_subgraph_nodes(
        self, root_node: NodeProto, stop_nodes: Sequence[NodeProto], input_name_to_nodes: Readers | None = None
    ) -> list[NodeProto]:
        """All nodes that depend on one, not beyond those given, of which none is among them."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        pending = deque(self.get_children(root_node, readers))
        found: list[NodeProto] = []
        while pending:
            node = pending.pop()
            if node not in stop_nodes and node not in found:
                found.append(node)
                pending.extendleft(self.get_children(node, readers))
        return found

    def get_parent_subgraph_nodes(
        self, node: NodeProto, stop_nodes: Sequence[NodeProto], output_name_to_node: Makers | None = None
    ) -> list[NodeProto]:
        """All nodes on which one depends, not beyond those given, of which none is among them."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        pending = deque(self.get_parents(node, makers))
        found: list[NodeProto] = []
        while pending:
            parent = pending.popleft()
            if parent not in stop_nodes and parent not in found:
                found.append(parent)
                pending += self.get_parents(parent, makers)
        return found

    def get_graph_inputs(self, current_node: NodeProto, recursive: bool = False) -> list[str]:
        """Names of graph inputs that a node reads, with `recursive` also through others."""
        names = set(self.get_graphs_input_names())
        nodes = [current_node, *(self.get_parent_subgraph_nodes(current_node, []) if recursive else [])]
        return list(dict.fromkeys(name for node in nodes for name in node.input if name in names))

    @staticmethod
    def input_index(node_output: str, child_node: NodeProto) -> int:
        """The position at which a node reads a value, -1 if it does not."""
        return next((index for index, name in enumerate(child_node.input) if name == node_output), -1)

    # --- paths

    def match_first_parent(
        self, node: NodeProto, parent_op_type: str, output_name_to_node: Makers, exclude: Sequence[NodeProto] = ()
    ) -> tuple[NodeProto | None, int | None]:
        """The first parent of an op, and the input at which it is read."""
        for index, name in enumerate(node.input):
            parent = output_name_to_node.get(name)
            if parent is not None and parent.op_type == parent_op_type and parent not in exclude:
                return parent, index
        return None, None

    def match_parent(
        self,
        node: NodeProto,
        parent_op_type: str,
        input_index: int | None = None,
        output_name_to_node: Makers | None = None,
        exclude: Sequence[NodeProto] = (),
        return_indice: list[int] | None = None,
    ) -> NodeProto | None:
        """The parent of an op at a position, or at any; then its position is added to `return_indice`."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        if input_index is None:
            parent, index = self.match_first_parent(node, parent_op_type, makers, exclude)
            if parent is not None and return_indice is not None and index is not None:
                return_indice.append(index)
            return parent
        parent = self.get_parent(node, input_index, makers)
        return parent if parent is not None and parent.op_type == parent_op_type and parent not in exclude else None

    def match_parent_path(
        self,
        node: NodeProto,
        parent_op_types: Sequence[str],
        parent_input_index: Sequence[int | None] | None = None,
        output_name_to_node: Makers | None = None,
        return_indice: list[int] | None = None,
    ) -> list[NodeProto] | None:
        """The chain of parents of these ops, each at its position; a position None stands for any."""
        positions = [None] * len(parent_op_types) if parent_input_index is None else parent_input_index
        if len(positions) != len(parent_op_types):
            raise ValueError(f"{len(parent_op_types)} ops and {len(positions)} positions")
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        path: list[NodeProto] = []
        current = node
        for op_type, position in zip(parent_op_types, positions, strict=True):
            parent = self.match_parent(current, op_type, position, makers, [], return_indice)
            if parent is None:
                return None
            path.append(parent)
            current = parent
        return path

    def match_parent_paths_all(
        self, node: NodeProto, paths: Sequence[Path], output_name_to_node: Makers
    ) -> tuple[list[int], list[list[NodeProto]], list[list[int]]]:
        """The numbers of all paths that match, their nodes, and the positions that were found."""
        matches: tuple[list[int], list[list[NodeProto]], list[list[int]]] = ([], [], [])
        for number, (op_types, positions) in enumerate(paths):
            found: list[int] = []
            nodes = self.match_parent_path(node, op_types, positions, output_name_to_node, found)
            if nodes is not None:
                for part, item in zip(matches, (number, nodes, found), strict=True):
                    part.append(item)  # type: ignore[attr-defined]
        return matches

    def match_parent_paths(
        self, node: NodeProto, paths: Sequence[Path], output_name_to_node: Makers
    ) -> tuple[int, list[NodeProto] | None, list[int] | None]:
        """The first path that matches; -1 and nothing if none does."""
        numbers, nodes, positions = self.match_parent_paths_all(node, paths, output_name_to_node)
        return (numbers[0], nodes[0], positions[0]) if numbers else (-1, None, None)

    def match_child_path(
        self,
        node: NodeProto,
        child_op_types: Sequence[str],
        edges: Sequence[tuple[int, int]] | None = None,
        input_name_to_nodes: Readers | None = None,
        exclude: Sequence[NodeProto] = (),
    ) -> list[NodeProto] | None:
        """The chain of children of these ops; an edge is the output of one and the input of the next."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        path: list[NodeProto] = []
        current = node
        for number, op_type in enumerate(child_op_types):
            output, position = edges[number] if edges is not None else (None, None)
            children = (child for child in self.get_children(current, readers, output) if child not in exclude)
            child = next((child for child in children if _is_read(child, op_type, current, output, position)), None)
            if child is None:
                return None
            path.append(child)
            current = child
        return path

    # --- constants and types

    def get_initializer(self, name: str) -> TensorProto | None:
        return next((tensor for graph in self.graphs() for tensor in graph.initializer if tensor.name == name), None)

    def get_constant_value(self, output_name: str) -> Any:
        """The array of a Constant node or an initializer; None if the value is neither."""
        node = self.output_name_to_node().get(output_name)
        if node is not None and node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    return numpy_helper.to_array(attribute.t)
                if attribute.name.startswith("value_"):
                    return np.asarray(helper.get_attribute_value(attribute))
        tensor = self.get_initializer(output_name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def get_constant_input(self, node: NodeProto) -> tuple[int | None, Any]:
        """The position and value of the first constant that a node reads."""
        for index, name in enumerate(node.input):
            value = self.get_constant_value(name)
            if value is not None:
                return index, value
        return None, None

    def find_constant_input(self, node: NodeProto, expected_value: float, delta: float = 0.000001) -> int:
        """The position of a constant of one element that is near a value, -1 if there is none."""
        index, value = self.get_constant_input(node)
        if index is None or np.size(value) != 1:
            return -1
        return index if abs(float(np.reshape(value, -1)[0]) - expected_value) < delta else -1

    def has_constant_input(self, node: NodeProto, expected_value: float, delta: float = 0.000001) -> bool:
        return self.find_constant_input(node, expected_value, delta) >= 0

    def is_constant_with_specified_dimension(self, output_name: str, dimensions: int, description: str) -> bool:
        """Whether a value is a constant of so many axes."""
        value = self.get_constant_value(output_name)
        return value is not None and np.ndim(value) == dimensions

    @staticmethod
    def get_node_attribute(node: NodeProto, attribute_name: str) -> Any:
        """The value of an attribute, None if it is not set."""
        for attribute in node.attribute:
            if attribute.name == attribute_name:
                return helper.get_attribute_value(attribute)
        return None

    def tensor_shape_to_list(self, tensor_type: Any) -> list[Any]:
        """Sizes: a number, a name, or "?"."""
        return [_size(size) for size in tensor_type.shape.dim]

    def _declared(self, name: str) -> Iterator[Any]:
        graph = self.model.graph
        yield from (value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output) if value.name == name)

    def get_dtype(self, name: str, symbolic_shape_helper: Any = None) -> int | None:
        """The element type of a value, as far as the model or the helper tells."""
        helped = _helped(symbolic_shape_helper, name)
        if helped is not None:
            return helped.elem_type
        tensor = self.get_initializer(name)
        declared = tensor.data_type if tensor is not None else next((type.elem_type for type in self._declared(name)), None)
        return declared or None

    def get_shape(self, name: str, symbolic_shape_helper: Any = None) -> list[Any] | None:
        """The sizes of a value, as far as the model or the helper tells."""
        helped = _helped(symbolic_shape_helper, name)
        if helped is not None:
            return self.tensor_shape_to_list(helped)
        tensor = self.get_initializer(name)
        if tensor is not None:
            return list(tensor.dims)
        return next((self.tensor_shape_to_list(type) for type in self._declared(name) if type.HasField("shape")), None)


def _op_name(node: NodeProto, with_domain: bool) -> str:
    return f"{node.domain}:{node.op_type}" if with_domain and node.domain not in ("", "ai.onnx") else node.op_type


def _nearest(node: NodeProto, op_type: str, neighbours: Any, recursive: bool) -> NodeProto | None:
    """The first node of an op, level by level."""
    pending, seen = deque(neighbours(node)), []
    while pending:
        found = pending.popleft()
        if found.op_type == op_type:
            return found
        if recursive and found not in seen:
            seen.append(found)
            pending += neighbours(found)
    return None


def _is_read(child: NodeProto, op_type: str, parent: NodeProto, output: int | None, position: int | None) -> bool:
    if child.op_type != op_type:
        return False
    return output is None or position is None or child.input[position] == parent.output[output]


def _size(size: Any) -> Any:
    return size.dim_value if size.HasField("dim_value") else size.dim_param or "?"


def _helped(shapes: Any, name: str) -> Any:
    known = getattr(shapes, "known_vi_", {}).get(name) if shapes is not None else None
    return None if known is None else known.type.tensor_type
