"""`ONNXModel`: a ModelProto with the questions and changes that quantizers and fusions need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import models
from sardonyx.quantization.values import DEQUANT_OP_NAME, QUANT_OP_NAME

NodesByName = dict[str, list[NodeProto]]


class ONNXModel:
    def __init__(self, model: ModelProto):
        self.model = model

    def nodes(self) -> Any:
        return self.model.graph.node

    def initializer(self) -> Any:
        return self.model.graph.initializer

    def initializer_extend(self, inits: Iterable[TensorProto]) -> None:
        """Add tensors; an input of the same name stays a default only where the model is older than that rule."""
        for tensor in inits:
            self._declare_old(tensor)
            self.model.graph.initializer.append(tensor)

    def _declare_old(self, tensor: TensorProto) -> None:
        """Before IR version 4 every initializer had to be an input too."""
        if self.model.ir_version < 4 and self.find_graph_input(tensor.name) is None:
            self.graph().input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))

    def graph(self) -> Any:
        return self.model.graph

    def ir_version(self) -> int:
        return int(self.model.ir_version)

    def opset_import(self) -> Any:
        return self.model.opset_import

    def set_opset_import(self, domain: str, version: int) -> None:
        for opset in self.model.opset_import:
            if opset.domain == domain:
                opset.version = version
                return
        self.model.opset_import.extend([helper.make_opsetid(domain, version)])

    def remove_node(self, node: NodeProto) -> None:
        if node in self.model.graph.node:
            self.model.graph.node.remove(node)

    def remove_nodes(self, nodes_to_remove: Iterable[NodeProto]) -> None:
        for node in nodes_to_remove:
            self.remove_node(node)

    def add_node(self, node: NodeProto) -> None:
        self.model.graph.node.extend([node])

    def add_nodes(self, nodes_to_add: Iterable[NodeProto]) -> None:
        self.model.graph.node.extend(nodes_to_add)

    def add_initializer(self, tensor: TensorProto) -> None:
        if self.get_initializer(tensor.name) is None:
            self.initializer_extend([tensor])

    def get_initializer(self, name: str) -> TensorProto | None:
        return next((tensor for tensor in self.model.graph.initializer if tensor.name == name), None)

    def find_graph_input(self, input_name: str) -> Any:
        return next((value for value in self.model.graph.input if value.name == input_name), None)

    def find_graph_output(self, output_name: str) -> Any:
        return next((value for value in self.model.graph.output if value.name == output_name), None)

    def get_tensor_type(self, tensor_name: str) -> Any:
        """The type of a value that the graph declares or inference has found; None if there is none."""
        graph = self.model.graph
        for values in (graph.value_info, graph.input, graph.output):
            for value in values:
                if value.name == tensor_name:
                    return value.type.tensor_type
        return None

    def get_constant_value(self, output_name: str) -> Any:
        """The array behind a name, from a Constant node or an initializer."""
        for node in self.model.graph.node:
            if node.op_type == "Constant" and node.output[0] == output_name:
                attribute = next((one for one in node.attribute if one.name == "value"), None)
                if attribute is not None:
                    return numpy_helper.to_array(attribute.t)
        tensor = self.get_initializer(output_name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def get_initializer_name_set(self) -> set[str]:
        return {tensor.name for tensor in self.model.graph.initializer}

    def remove_initializer(self, tensor: TensorProto) -> None:
        self.remove_initializers([tensor])

    def remove_initializers(self, init_to_remove: Iterable[TensorProto]) -> None:
        """Remove tensors, and the inputs whose defaults they were."""
        names = {tensor.name for tensor in init_to_remove}
        _keep(self.model.graph.initializer, lambda tensor: tensor.name not in names)
        _keep(self.model.graph.input, lambda value: value.name not in names)

    def get_non_initializer_inputs(self) -> set[str]:
        defaults = self.get_initializer_name_set()
        return {value.name for value in self.model.graph.input if value.name not in defaults}

    def input_name_to_nodes(self) -> NodesByName:
        readers: NodesByName = {}
        for node in self.model.graph.node:
            for name in node.input:
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def output_name_to_node(self) -> dict[str, NodeProto]:
        return {name: node for node in self.model.graph.node for name in node.output if name}

    def get_children(self, node: NodeProto, input_name_to_nodes: NodesByName | None = None) -> list[NodeProto]:
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return [reader for name in node.output for reader in readers.get(name, ())]

    def get_parents(self, node: NodeProto, output_name_to_node: dict[str, NodeProto] | None = None) -> list[NodeProto]:
        writers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [writers[name] for name in node.input if name in writers]

    def get_parent(
        self, node: NodeProto, idx: int, output_name_to_node: dict[str, NodeProto] | None = None
    ) -> NodeProto | None:
        if idx >= len(node.input):
            return None
        writers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return writers.get(node.input[idx])

    def find_node_by_name(self, node_name: str, new_nodes_list: Iterable[NodeProto], graph: Any) -> NodeProto | None:
        """The node of that name in a graph or among nodes that are not in it yet."""
        return next((node for node in [*graph.node, *new_nodes_list] if node.name == node_name), None)

    def get_largest_node_name_suffix(self, node_name_prefix: str) -> int:
        return largest_suffix((node.name for node in self.model.graph.node), node_name_prefix)

    def get_largest_initializer_name_suffix(self, initializer_name_prefix: str) -> int:
        return largest_suffix((tensor.name for tensor in self.model.graph.initializer), initializer_name_prefix)

    def find_nodes_by_initializer(self, graph: Any, initializer: TensorProto) -> list[NodeProto]:
        return [node for node in graph.node if initializer.name in node.input]

    def replace_gemm_with_matmul(self) -> None:
        """Gemm with alpha = beta = 1 as MatMul and Add, in this graph and those inside."""
        _replace_gemms([self.model.graph], self)

    def save_model_to_file(self, output_path: str | Path, use_external_data_format: bool = False) -> None:
        """Sort the nodes and write the model; above 2 GB the tensors go to a file beside it without being asked."""
        self.topological_sort()
        models.save(self.model, output_path, use_external_data_format, all_tensors_to_one_file=True)

    @staticmethod
    def replace_node_input(node: NodeProto, old_input_name: str, new_input_name: str) -> None:
        _rename(node.input, old_input_name, new_input_name)

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        for node in self.model.graph.node:
            _rename(node.input, old_input_name, new_input_name)

    def replace_input_of_nodes(self, old_input_name: str, new_input_name: str, node_names_set: set[str]) -> None:
        for node in self.model.graph.node:
            if node.name in node_names_set:
                _rename(node.input, old_input_name, new_input_name)

    @staticmethod
    def replace_node_output(node: NodeProto, old_output_name: str, new_output_name: str) -> None:
        _rename(node.output, old_output_name, new_output_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        for node in self.model.graph.node:
            _rename(node.output, old_output_name, new_output_name)

    def replace_output_of_nodes(self, old_output_name: str, new_output_name: str, node_names_set: set[str]) -> None:
        for node in self.model.graph.node:
            if node.name in node_names_set:
                _rename(node.output, old_output_name, new_output_name)

    def remove_unused_constant(self) -> None:
        """Remove Constant nodes and initializers that nobody reads."""
        read = names_read(self.model.graph)
        _keep(self.model.graph.node, lambda node: node.op_type != "Constant" or any(name in read for name in node.output))
        self.remove_initializers([tensor for tensor in self.model.graph.initializer if tensor.name not in read])

    def is_graph_output(self, output_name: str) -> bool:
        return any(value.name == output_name for value in self.model.graph.output)

    def is_graph_input(self, tensor_name: str) -> bool:
        return any(value.name == tensor_name for value in self.model.graph.input)

    def topological_sort(self) -> None:
        """Put the nodes in an order in which each comes after those it reads from."""
        ordered = list(topological_order(self.model.graph))
        del self.model.graph.node[:]
        self.model.graph.node.extend(ordered)

    def clean_initializers(self) -> Any:
        """Remove initializers that nobody reads, in this graph and those inside; names that nobody defines are an error."""
        clean_graph(self.model.graph, self.model, set())
        return self.model


def _keep(items: Any, wanted: Any) -> None:
    kept = [item for item in items if wanted(item)]
    if len(kept) != len(items):
        del items[:]
        items.extend(kept)


def _rename(names: Any, old: str, new: str) -> None:
    for position, name in enumerate(names):
        if name == old:
            names[position] = new


def largest_suffix(names: Iterable[str], prefix: str) -> int:
    """The largest number after the prefix; -1 if there is none."""
    suffixes = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return max((int(suffix) for suffix in suffixes if suffix.isdecimal()), default=-1)


def names_read(graph: Any) -> set[str]:
    """All names that a graph's nodes, its inner graphs and its outputs read."""
    read = {value.name for value in graph.output}
    for node in graph.node:
        read.update(names_read_by(node))
    return read


def names_read_by(node: NodeProto) -> set[str]:
    """What a node needs from outside: its inputs, and what its graphs read and do not define."""
    read = {name for name in node.input if name}
    for inner in models.inner_graphs(node):
        defined = {value.name for value in inner.input} | {tensor.name for tensor in inner.initializer}
        defined.update(name for one in inner.node for name in one.output)
        read |= names_read(inner) - defined
    return read


def topological_order(graph: Any) -> Iterator[NodeProto]:
    """The nodes, breadth first: those that need nothing, those fed by the graph's own values, then what these feed."""
    writers = {name for node in graph.node for name in node.output}
    missing: dict[int, int] = {}
    readers: dict[str, list[int]] = {}
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for index, node in enumerate(graph.node):
        needed = {name for name in names_read_by(node) if name in writers or name in own}
        missing[index] = len(needed)
        for name in needed:
            readers.setdefault(name, []).append(index)
    ready = [index for index, count in missing.items() if not count]
    ready += _freed(sorted(own), readers, missing)
    position = 0
    while position < len(ready):
        node = graph.node[ready[position]]
        yield node
        ready += _freed([name for name in node.output if name], readers, missing)
        position += 1
    if len(ready) != len(graph.node):
        stuck = next(node for index, node in enumerate(graph.node) if missing[index])
        raise ValueError(f"{stuck.op_type} {stuck.name!r} is part of a cycle")


def _freed(names: Iterable[str], readers: dict[str, list[int]], missing: dict[int, int]) -> list[int]:
    """The nodes for which these names were the last that were missing."""
    freed = []
    for name in names:
        for index in readers.get(name, ()):
            missing[index] -= 1
            if not missing[index]:
                freed.append(index)
    return freed


def clean_graph(graph: Any, model: ModelProto, outer: set[str]) -> None:
    """Remove a graph's unread initializers, those of inner graphs first."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    visible = outer | own | {name for node in graph.node for name in node.output}
    for node in graph.node:
        for inner in models.inner_graphs(node):
            clean_graph(inner, model, visible)
    read = names_read(graph)
    unknown = sorted(name for name in read if name and name not in visible)
    if unknown:
        raise RuntimeError(f"nothing in the model defines {', '.join(unknown)}")
    unread = {tensor.name for tensor in graph.initializer if tensor.name not in read}
    _keep(graph.initializer, lambda tensor: tensor.name not in unread)
    _keep(graph.input, lambda value: value.name not in unread)


def _replace_gemms(graph_path: list[Any], model: ONNXModel) -> None:
    graph = graph_path[-1]
    nodes: list[NodeProto] = []
    for node in list(graph.node):
        for inner in models.inner_graphs(node):
            _replace_gemms([*graph_path, inner], model)
        nodes += _split_gemm(node, graph_path, model) if node.op_type == "Gemm" else [node]
    del graph.node[:]
    graph.node.extend(nodes)


def _split_gemm(node: NodeProto, graph_path: list[Any], model: ONNXModel) -> list[NodeProto]:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    is_plain = attributes.get("alpha", 1.0) == 1.0 and attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
    if not is_plain:
        return [node]
    nodes: list[NodeProto] = []
    weight = node.input[1]
    if attributes.get("transB", 0):
        weight = _transposed(node, graph_path, nodes)
    has_bias = len(node.input) > 2 and bool(node.input[2])
    product = f"{node.output[0]}_MatMul" if has_bias else node.output[0]
    name = f"{node.name}_MatMul" if node.name else ""
    nodes.append(helper.make_node("MatMul", [node.input[0], weight], [product], name))
    if has_bias:
        name = f"{node.name}_Add" if node.name else ""
        nodes.append(helper.make_node("Add", [product, node.input[2]], list(node.output), name))
    return nodes


def _transposed(node: NodeProto, graph_path: list[Any], nodes: list[NodeProto]) -> str:
    """The name of the transposed weight: the initializer itself turned if this node alone reads it, else a copy or a node."""
    name = str(node.input[1])
    tensor, graph = find_initializer(name, graph_path)
    if tensor is None:
        turned = f"{name}_Transposed"
        nodes.append(
            helper.make_node("Transpose", [name], [turned], f"{node.name}_Transpose" if node.name else "", perm=[1, 0])
        )
        return turned
    array = np.ascontiguousarray(numpy_helper.to_array(tensor).T)
    if _is_read_once(name, graph):
        _keep(graph.input, lambda value: value.name != name)
        tensor.CopyFrom(numpy_helper.from_array(array, name))
        return name
    turned = f"{name}_Transposed"
    if find_initializer(turned, graph_path)[0] is None:
        graph.initializer.append(numpy_helper.from_array(array, turned))
    return turned


def _is_read_once(name: str, graph: Any) -> bool:
    reads = sum(list(node.input).count(name) for inner in models.graphs_of(graph) for node in inner.node)
    return reads == 1 and all(value.name != name for value in graph.output)


def find_initializer(name: str, graph_path: list[Any]) -> tuple[TensorProto | None, Any]:
    """The tensor of that name in the innermost graph that has it, and the graph."""
    for graph in reversed(graph_path):
        for tensor in graph.initializer:
            if tensor.name == name:
                return tensor, graph
    return None, None


def is_quantized_model(model: ModelProto) -> bool:
    """Whether pairs of QuantizeLinear and DequantizeLinear are there already."""
    return any(node.op_type in (QUANT_OP_NAME, DEQUANT_OP_NAME) for node in model.graph.node)
