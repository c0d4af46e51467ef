"""ONNX models with all floating-point numbers in float64: what `benchmarks.accuracy` takes for the true results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype")
DEFAULT_FLOAT = {"ConstantOfShape": "value", "HannWindow": "output_datatype", "HammingWindow": "output_datatype"}
DEFAULT_FLOAT |= {"BlackmanWindow": "output_datatype", "MelWeightMatrix": "output_datatype"}
"""Ops that make float32 if this attribute is left out."""
NOT_DATA = ("Resize", "Upsample", "NonMaxSuppression")
"""Ops that want scales, or what they choose by, in float32: no sums, and they stay so."""
QUANTIZED = ("Quantize", "QLinear", "Integer", "QGemm", "QAttention", "NBits")
"""Parts of names of ops that compute with integers."""
RANDOM = ("RandomNormal", "RandomUniform", "Bernoulli", "Multinomial")
ML = "ai.onnx.ml"


class Unconvertible(Exception):
    """A model has something in it that is not computed in float64; the message says what."""


def in_float64(model: ModelProto) -> ModelProto:
    """A copy of a model whose floats are float64, those of its inputs and outputs too."""
    _refuse(model)
    converted = ModelProto()
    converted.CopyFrom(model)
    versions = {opset.domain: opset.version for opset in model.opset_import}
    _convert_graph(converted.graph, versions)
    for function in converted.functions:
        _convert_nodes(function.node, versions)
    return converted


def _refuse(model: ModelProto) -> None:
    for node in _all_nodes(model):
        name = node.op_type
        if any(part in name for part in QUANTIZED):
            raise Unconvertible(f"quantized: {name} computes with integers")
        if name.startswith(RANDOM):
            raise Unconvertible(f"{name} is random")
        if node.domain == ML:
            raise Unconvertible(f"{name} gives float32 whatever it takes")


def _all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    yield from _nodes_of(model.graph.node)
    for function in model.functions:
        yield from _nodes_of(function.node)


def _nodes_of(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes_of(attribute.g.node)


def _convert_graph(graph: GraphProto, versions: dict[str, int]) -> None:
    if graph.sparse_initializer:
        raise Unconvertible("it has sparse initializers")
    for tensor in graph.initializer:
        _convert_tensor(tensor)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        _convert_type(value.type)
    _convert_nodes(graph.node, versions)


def _convert_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _convert_type(type: TypeProto) -> None:
    kind = type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(type, kind)
        tensor.elem_type = _widened(tensor.elem_type)
    elif kind in ("sequence_type", "optional_type"):
        _convert_type(getattr(type, kind).elem_type)
    elif kind == "map_type":
        _convert_type(type.map_type.value_type)


def _widened(type: int) -> int:
    return TensorProto.DOUBLE if type in NARROW else type


def _convert_nodes(nodes: Any, versions: dict[str, int]) -> None:
    converted: list[NodeProto] = []
    for node in nodes:
        for attribute in node.attribute:
            _convert_attribute(attribute, node, versions)
        _say_default(node)
        converted += [*_narrowed_inputs(node, versions), node]
    kept = [NodeProto.FromString(node.SerializeToString()) for node in converted]
    del nodes[:]
    nodes.extend(kept)


def _convert_attribute(attribute: AttributeProto, node: NodeProto, versions: dict[str, int]) -> None:
    if attribute.type == AttributeProto.GRAPH:
        _convert_graph(attribute.g, versions)
    elif attribute.type == AttributeProto.TENSOR:
        _convert_tensor(attribute.t)
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        numbers = np.array(helper.get_attribute_value(attribute), np.float64)
        attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers)))
    elif attribute.name in TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT:
        attribute.i = _widened(attribute.i)


def _say_default(node: NodeProto) -> None:
    name = DEFAULT_FLOAT.get(node.op_type)
    if name is None or any(attribute.name == name for attribute in node.attribute):
        return
    zero = numpy_helper.from_array(np.zeros(1)) if name == "value" else TensorProto.DOUBLE
    node.attribute.append(helper.make_attribute(name, zero))


def _narrowed_inputs(node: NodeProto, versions: dict[str, int]) -> Iterator[NodeProto]:
    """Casts back to float32 for inputs that take nothing else."""
    if node.op_type not in NOT_DATA or node.domain not in ("", "ai.onnx"):
        return
    parameters = onnx.defs.get_schema(node.op_type, versions.get(node.domain, versions.get("", 1))).inputs
    for number, (name, parameter) in enumerate(zip(node.input, parameters)):
        if name and parameter.types == {"tensor(float)"}:
            narrow = f"{node.output[0]}/{parameter.name}"
            node.input[number] = narrow
            yield helper.make_node("Cast", [name], [narrow], to=TensorProto.FLOAT)
