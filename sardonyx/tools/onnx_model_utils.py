"""Edits of models that other tools and users call: sizes made fixed, newer opsets, graphs walked through, optimized copies."""

from __future__ import annotations

import logging
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, version_converter

from sardonyx import settings
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession

LEVELS = {
    "disable": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def get_optimization_level(level: str) -> GraphOptimizationLevel:
    """The level by its name."""
    if level not in LEVELS:
        raise ValueError(f"Invalid optimization level of {level}")
    return LEVELS[level]


# --- walks


def iterate_graph_per_node_func(graph: GraphProto, per_node_func: Callable[..., Any], **func_args: Any) -> None:
    """Call a function with each node, a node before those of the graphs inside it."""
    for node in graph.node:
        per_node_func(node, **func_args)
        for body in _bodies(node):
            iterate_graph_per_node_func(body, per_node_func, **func_args)


def iterate_graph_per_graph_func(graph: GraphProto, per_graph_func: Callable[..., Any], **func_args: Any) -> None:
    """Call a function with each graph, outer ones first."""
    per_graph_func(graph, **func_args)
    for node in graph.node:
        for body in _bodies(node):
            iterate_graph_per_graph_func(body, per_graph_func, **func_args)


def _bodies(node: NodeProto) -> list[GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH]


class NodesByNode(dict[int, list[NodeProto]]):
    """Nodes by the identity of another: nodes cannot be keys. It keeps them all alive, so that identities stay."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []

    def add(self, key: NodeProto, node: NodeProto) -> None:
        self._nodes.append(key)
        self.setdefault(id(key), []).append(node)

    def of(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that stand with a node."""
        return self.get(id(node), [])


def get_producer_consumer_maps(graph: GraphProto) -> tuple[NodesByNode, NodesByNode]:
    """The nodes that a node reads from, and those that read from it; a body reads what is around it for the node that holds it."""
    producers, consumers = NodesByNode(), NodesByNode()

    def connect(producer: NodeProto, consumer: NodeProto) -> None:
        producers.add(consumer, producer)
        consumers.add(producer, consumer)

    _connect_graph(graph, connect)
    return producers, consumers


def _connect_graph(graph: GraphProto, connect: Callable[[NodeProto, NodeProto], None]) -> set[str]:
    """Connect the nodes of a graph and of those inside; the names that it reads from around it."""
    makers: dict[str, NodeProto] = {}
    inner = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    outer: set[str] = set()
    for node in graph.node:
        read = set(node.input)
        for body in _bodies(node):
            read |= _connect_graph(body, connect)
        for name in filter(None, read):
            if name in makers:
                connect(makers[name], node)
            elif name not in inner:
                outer.add(name)
        makers |= {name: node for name in node.output if name}
    return outer


# --- opsets


def get_opsets_imported(model: ModelProto) -> dict[str, int]:
    """Versions by domain; that of the standard is called ai.onnx."""
    return {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}


def update_onnx_opset(
    model_path: pathlib.Path, opset: int, out_path: pathlib.Path | None = None, logger: logging.Logger | None = None
) -> ModelProto:
    """The model in a newer opset, which is also written to `out_path`."""
    path = str(pathlib.Path(model_path).resolve(strict=True))
    if logger is not None:
        logger.info("Updating %s to opset %d", path, opset)
    updated = version_converter.convert_version(onnx.load(path), opset)
    if out_path is not None:
        onnx.save(updated, str(out_path))
        if logger is not None:
            logger.info("Saved updated model to %s", out_path)
    return updated


def optimize_model(
    model_path: pathlib.Path,
    output_path: pathlib.Path,
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_BASIC,
    log_level: int = 3,
    use_external_initializers: bool = False,
) -> None:
    """Write the model as a session of this level has it."""
    options = SessionOptions()
    options.optimized_model_filepath = str(output_path)
    options.graph_optimization_level = level
    options.log_severity_level = log_level
    if use_external_initializers:
        name = f"{pathlib.Path(output_path).name}.data"
        options.add_session_config_entry(settings.OPTIMIZED_MODEL_EXTERNAL_FILE, name)
    InferenceSession(str(model_path), options, providers=["CPUExecutionProvider"])


# --- sizes


def _sizes(value: ValueInfoProto) -> Any:
    return value.type.tensor_type.shape.dim


def remove_invalid_dim_values(graph: GraphProto) -> None:
    """Leave sizes open that are not above 0."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in _sizes(value):
            if size.HasField("dim_value") and size.dim_value < 1:
                size.Clear()


def make_dim_param_fixed(graph: GraphProto, param_name: str, value: int) -> None:
    """Let a symbolic size be a number everywhere."""
    _replace_symbols(graph, {param_name: value})


def _replace_symbols(graph: GraphProto, sizes: Mapping[str, int]) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        for size in _sizes(info):
            if size.HasField("dim_param") and size.dim_param in sizes:
                size.dim_value = sizes[size.dim_param]


def make_input_shape_fixed(graph: GraphProto, input_name: str, fixed_shape: Sequence[int]) -> None:
    """Give an input these sizes, and the same to all others that bear its symbols."""
    remove_invalid_dim_values(graph)
    inputs = {value.name: value for value in graph.input}
    if input_name not in inputs:
        raise ValueError(f"Input {input_name} was not found in graph inputs. Valid input names are: {','.join(inputs)}")
    declared = inputs[input_name].type.tensor_type
    if not declared.HasField("shape"):
        declared.shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in fixed_shape)
        return
    if len(declared.shape.dim) != len(fixed_shape):
        raise ValueError(f"Rank mismatch. Existing:{len(declared.shape.dim)} Replacement:{len(fixed_shape)}")
    symbols = {}
    for number, (size, fixed) in enumerate(zip(declared.shape.dim, fixed_shape, strict=True), 1):
        if size.HasField("dim_value") and size.dim_value != fixed:
            raise ValueError(f"Can't replace existing fixed size of {size.dim_value} with {fixed} for dimension {number}")
        if size.HasField("dim_param"):
            symbols[size.dim_param] = fixed
        size.dim_value = fixed
    _replace_symbols(graph, symbols)


def fix_output_shapes(model: ModelProto) -> None:
    """Give outputs the sizes that follow from those of the inputs."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    for value, known in zip(model.graph.output, inferred.graph.output, strict=True):
        if not is_fixed_size_tensor(value) and known.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(known.type.tensor_type.shape)


def is_fixed_size_tensor(value: ValueInfoProto) -> bool:
    """Whether no size of a tensor is open."""
    if not value.type.HasField("tensor_type"):
        return False
    return all(size.HasField("dim_value") and size.dim_value > 0 for size in _sizes(value))


class ModelProtoWithShapeInfo:
    """A model with the types of its inner values, as onnx infers them; large models are too."""

    def __init__(self, model_path: pathlib.Path):
        with tempfile.TemporaryDirectory() as folder:
            inferred = pathlib.Path(folder) / "inferred.onnx"
            onnx.shape_inference.infer_shapes_path(str(model_path), str(inferred), strict_mode=True)
            self.model_with_shape_info = onnx.load(str(inferred), load_external_data=False)
