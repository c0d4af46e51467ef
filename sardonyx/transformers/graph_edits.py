"""Changes of the graphs of a model: nodes, names, constants, order, dead parts. `OnnxModel` has them as methods."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sardonyx.tools.graph_queries import GraphQueries, Makers, Readers, bodies

logger = logging.getLogger(__name__)

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


class GraphEdits(GraphQueries):
    """What can be done to a model."""

    def __init__(self) -> None:
        self._suffixes: dict[str, int] = {}

    # --- nodes and constants

    def _graph_named(self, name: str | None) -> GraphProto:
        graph = self.model.graph if name is None else self.get_graph_by_name(name)
        if graph is None:
            raise ValueError(f"there is no graph {name!r}; there are {', '.join(graph.name for graph in self.graphs())}")
        return graph

    def remove_node(self, node: NodeProto) -> None:
        for graph in self.graphs():
            if node in graph.node:
                graph.node.remove(node)
                return
        logger.warning("The node %s is in no graph.", node.name)

    def remove_nodes(self, nodes_to_remove: Iterable[NodeProto]) -> None:
        for node in nodes_to_remove:
            self.remove_node(node)

    def add_node(self, node: NodeProto, graph_name: str | None = None) -> None:
        """Append a node to the main graph or another."""
        self._graph_named(graph_name).node.append(node)

    def add_nodes(self, nodes_to_add: Iterable[NodeProto], node_name_to_graph_name: Mapping[str, str] | None = None) -> None:
        for node in nodes_to_add:
            self.add_node(node, (node_name_to_graph_name or {}).get(node.name))

    def add_initializer(self, tensor: TensorProto, graph_name: str | None = None) -> None:
        self._graph_named(graph_name).initializer.append(tensor)

    def remove_initializer(self, tensor: TensorProto) -> None:
        for graph in self.graphs():
            if tensor in graph.initializer:
                graph.initializer.remove(tensor)
                return
        logger.warning("The initializer %s is in no graph.", tensor.name)

    def add_input(self, input: ValueInfoProto, graph_name: str | None = None) -> None:
        self._graph_named(graph_name).input.append(input)

    def create_node_name(self, op_type: str, name_prefix: str | None = None) -> str:
        """A name that no node bears: the prefix, or the op, with a number."""
        prefix = name_prefix or f"{op_type}_"
        if prefix not in self._suffixes:
            rests = (node.name.removeprefix(prefix) for node in self.nodes() if node.name.startswith(prefix))
            self._suffixes[prefix] = max((int(rest) + 1 for rest in rests if rest.isdecimal()), default=0)
        self._suffixes[prefix] += 1
        return f"{prefix}{self._suffixes[prefix] - 1}"

    # --- names

    @staticmethod
    def replace_node_input(node: NodeProto, old_input_name: str, new_input_name: str) -> None:
        assert isinstance(old_input_name, str) and isinstance(new_input_name, str)
        node.input[:] = [new_input_name if name == old_input_name else name for name in node.input]

    @staticmethod
    def replace_node_output(node: NodeProto, old_output_name: str, new_output_name: str) -> None:
        assert isinstance(old_output_name, str) and isinstance(new_output_name, str)
        node.output[:] = [new_output_name if name == old_output_name else name for name in node.output]

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        for node in self.nodes():
            self.replace_node_input(node, old_input_name, new_input_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        for node in self.nodes():
            self.replace_node_output(node, old_output_name, new_output_name)

    def rename_graph_output(self, old_name: str, new_name: str) -> None:
        """Give an output of the model another name."""
        taken = {name for node in self.nodes() for name in (*node.input, *node.output)}
        if new_name in taken:
            raise RuntimeError("{new_name} exists in graph")
        for value in self.model.graph.output:
            if value.name == old_name:
                value.name = new_name
        self.replace_input_of_all_nodes(old_name, new_name)
        self.replace_output_of_all_nodes(old_name, new_name)

    def add_prefix_to_names(self, prefix: str) -> None:
        """Let all names of the main graph begin so, except for those of its inputs and outputs."""
        graph = self.model.graph
        kept = {value.name for value in (*graph.input, *graph.output)}
        made = {name for node in graph.node for name in node.output} | {tensor.name for tensor in graph.initializer}
        renamed = {name: prefix + name for name in made if name and name not in kept}
        for node in self.nodes():
            node.input[:] = [renamed.get(name, name) for name in node.input]
        for node in graph.node:
            node.output[:] = [renamed.get(name, name) for name in node.output]
        for named in (*graph.initializer, *graph.value_info):
            named.name = renamed.get(named.name, named.name)

    # --- types of inputs and outputs

    def change_graph_input_type(self, graph_input: ValueInfoProto, new_type: int) -> tuple[NodeProto | None, list[NodeProto]]:
        """Give an input another type: a Cast to the old one where others read it, and no more Casts to the new one."""
        old_type = graph_input.type.tensor_type.elem_type
        if old_type == new_type:
            return None, []
        readers = self.input_name_to_nodes().get(graph_input.name, [])
        graph_input.type.tensor_type.elem_type = new_type
        casts = [node for node in readers if node.op_type == "Cast"]
        useless = [node for node in casts if self.get_node_attribute(node, "to") == new_type]
        for node in useless:
            self.replace_input_of_all_nodes(node.output[0], graph_input.name)
            self.remove_node(node)
        others = [node for node in readers if node.op_type != "Cast"]
        if not others:
            return None, useless
        name = self.create_node_name("Cast")
        cast = helper.make_node("Cast", [graph_input.name], [f"{name}_{graph_input.name}"], name=name, to=old_type)
        for node in others:
            self.replace_node_input(node, graph_input.name, cast.output[0])
        self.add_node(cast)
        inner = self.model.graph.value_info.add()
        inner.CopyFrom(graph_input)
        inner.name, inner.type.tensor_type.elem_type = cast.output[0], old_type
        return cast, useless

    def change_graph_output_type(self, graph_output: ValueInfoProto, new_type: int) -> NodeProto | None:
        """Give an output another type through a Cast."""
        if graph_output.type.tensor_type.elem_type == new_type:
            return None
        name = self.create_node_name("Cast")
        inner = f"{name}_{graph_output.name}"
        self.replace_input_of_all_nodes(graph_output.name, inner)
        self.replace_output_of_all_nodes(graph_output.name, inner)
        cast = helper.make_node("Cast", [inner], [graph_output.name], name=name, to=new_type)
        self.add_node(cast)
        graph_output.type.tensor_type.elem_type = new_type
        return cast

    # --- what is not needed

    def remove_unused_constant(self) -> None:
        """Remove Constant nodes that nobody reads."""
        needed = set(self.input_name_to_nodes()) | set(self.get_graphs_output_names())
        nodes = [node for node in self.nodes() if node.op_type == "Constant" and node.output[0] not in needed]
        self.remove_nodes(nodes)

    def update_graph(self, verbose: bool = False, allow_remove_graph_inputs: bool = False) -> None:
        """Remove constants that nobody reads, and inputs of the model too if that is allowed."""
        self.remove_unused_constant()
        needed = set(self.input_name_to_nodes()) | set(self.get_graphs_output_names())
        for graph in self.graphs():
            _keep(graph.initializer, needed)
        if allow_remove_graph_inputs:
            _keep(self.model.graph.input, needed)

    def prune_graph(self, outputs: Sequence[str] | None = None, allow_remove_graph_inputs: bool = True) -> None:
        """Keep what these outputs need; all outputs, if none are named."""
        graph = self.model.graph
        if outputs is not None:
            _keep(graph.output, set(outputs))
        needed = {value.name for value in graph.output}
        kept = []
        for node in reversed(_sorted_nodes(graph, set())):
            if needed.intersection(filter(None, node.output)):
                needed |= _read_names(node)
                kept.append(node.output[0] or next(filter(None, node.output)))
        names = set(kept)
        dead = [node for node in graph.node if not names.intersection(filter(None, node.output))]
        for node in dead:
            graph.node.remove(node)
        self.update_graph(allow_remove_graph_inputs=allow_remove_graph_inputs)

    def remove_cascaded_cast_nodes(self) -> None:
        """Let a Cast read what the Cast before it reads, where floats become floats."""
        makers = self.output_name_to_node()
        changed = False
        for node in self.get_nodes_by_op_type("Cast"):
            parent = self.get_parent(node, 0, makers)
            if parent is not None and parent.op_type == "Cast" and self._is_among_floats(parent):
                node.input[0] = parent.input[0]
                changed = True
        if changed:
            self.prune_graph()

    def _is_among_floats(self, cast: NodeProto) -> bool:
        """A Cast to an integer cuts, and to a bool compares; one between floats rounds at most."""
        return self.get_node_attribute(cast, "to") in FLOATS and self._known_type(cast.input[0]) in FLOATS

    def _known_type(self, name: str) -> int | None:
        """The type of a value, inferred if the model does not declare it."""
        declared = self.get_dtype(name)
        return declared if declared is not None else self.get_dtype(name, self._shapes())

    def _shapes(self) -> Any:
        raise NotImplementedError("the model class knows its shapes")

    def remove_useless_cast_nodes(self) -> None:
        """Remove a Cast to the type that its input has."""
        shapes = self._shapes()
        outputs = set(self.get_graphs_output_names())
        for node in self.get_nodes_by_op_type("Cast"):
            type = self.get_dtype(node.input[0], shapes)
            if type != self.get_node_attribute(node, "to"):
                continue
            if node.output[0] not in outputs:
                self.replace_input_of_all_nodes(node.output[0], node.input[0])
                self.remove_node(node)
            elif node.input[0] not in outputs and node.input[0] in self.output_name_to_node():
                self.replace_output_of_all_nodes(node.input[0], node.output[0])
                self.remove_node(node)
                self.replace_input_of_all_nodes(node.input[0], node.output[0])

    def remove_duplicated_initializer(self, cache: dict[str, Any] | None = None) -> None:
        """Keep one of equal initializers of the main graph; `cache` holds their arrays."""
        arrays = {} if cache is None else cache
        tensors = list(self.model.graph.initializer)
        for number, tensor in enumerate(tensors):
            same = next((one for one in tensors[:number] if self.has_same_value(one, tensor, arrays, arrays)), None)
            if same is not None:
                self.replace_input_of_all_nodes(tensor.name, same.name)
        self.update_graph()

    @staticmethod
    def to_data_hash(tensor: TensorProto, base_dir: str = "") -> int:
        """A number that equal tensors share."""
        array = numpy_helper.to_array(tensor, base_dir)
        return hash((tensor.data_type, array.shape, array.tobytes()))

    @staticmethod
    def has_same_value(
        tensor1: TensorProto,
        tensor2: TensorProto,
        signature_cache1: dict[str, Any] | None = None,
        signature_cache2: dict[str, Any] | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-8,
    ) -> bool:
        """Whether two tensors have the same type and shape, and nearly the same numbers."""
        if tensor1.data_type != tensor2.data_type or list(tensor1.dims) != list(tensor2.dims):
            return False
        first, second = _cached(tensor1, signature_cache1), _cached(tensor2, signature_cache2)
        if first.dtype.kind not in "biuf":
            return bool(np.array_equal(first, second))
        return bool(np.allclose(first, second, rtol=rtol, atol=atol))

    def is_safe_to_fuse_nodes(
        self,
        nodes_to_remove: Sequence[NodeProto],
        keep_outputs: Sequence[str],
        input_name_to_nodes: Readers,
        output_name_to_node: Makers,
    ) -> bool:
        """Whether nobody else reads what these nodes make, except for some outputs."""
        return all(
            reader in nodes_to_remove
            for node in nodes_to_remove
            for name in node.output
            if name not in keep_outputs
            for reader in input_name_to_nodes.get(name, ())
        )

    # --- order

    def get_topological_insert_id(self, graph: GraphProto, outputs: Sequence[str]) -> int:
        """The position of the first node that reads one of these values, or behind all nodes."""
        wanted = set(outputs)
        return next((index for index, node in enumerate(graph.node) if wanted & set(node.input)), len(graph.node))

    @staticmethod
    def graph_topological_sort(graph: GraphProto, is_deterministic: bool = False) -> None:
        """Put each node behind those that it reads from; in the order of names, if that is to be deterministic."""
        _sort(graph, is_deterministic)

    def topological_sort(self, is_deterministic: bool = False, dump_model_on_failure: bool = False) -> None:
        """Sort the nodes of all graphs."""
        for graph in self.graphs():
            _sort(graph, is_deterministic)


def _keep(items: Any, names: set[str]) -> None:
    """Remove from a field of a message what does not bear one of the names."""
    for index in reversed(range(len(items))):
        if items[index].name not in names:
            del items[index]


def _cached(tensor: TensorProto, cache: dict[str, Any] | None) -> np.ndarray:
    if cache is None:
        return numpy_helper.to_array(tensor)
    if tensor.name not in cache:
        cache[tensor.name] = numpy_helper.to_array(tensor)
    return np.asarray(cache[tensor.name])


def _read_names(node: NodeProto) -> set[str]:
    """What a node reads, also inside of its graphs."""
    names = set(filter(None, node.input))
    for body in bodies(node):
        names |= {name for inner in body.node for name in _read_names(inner)} | {value.name for value in body.output}
    return names


def _sort(graph: GraphProto, by_name: bool) -> None:
    nodes = _sorted_nodes(graph, set(), by_name)
    copies = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def _sorted_nodes(graph: GraphProto, known: set[str], by_name: bool = False) -> list[NodeProto]:
    """Nodes in rounds: each round takes those, in order, whose operands are there."""
    pending = sorted(graph.node, key=lambda node: node.name) if by_name else list(graph.node)
    made = {name for node in pending for name in node.output if name}
    there: set[str] = set(known)
    ordered: list[NodeProto] = []
    while pending:
        left = []
        for node in pending:
            if all(name in there or name not in made for name in _read_names(node)):
                ordered.append(node)
                there.update(node.output)
            else:
                left.append(node)
        if len(left) == len(pending):
            raise RuntimeError(f"Graph {graph.name!r} is not a DAG: {left[0].name or left[0].op_type} depends on itself")
        pending = left
    return ordered
