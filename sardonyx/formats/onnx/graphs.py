"""GraphProto and the bodies of FunctionProtos -> Graph: names become links between values and nodes.

The reader of models calls `read_graph` and `read_body`; subgraphs come back here through the attributes of nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx import ir
from sardonyx.errors import Fail, InvalidArgument, InvalidGraph
from sardonyx.formats.files import Part
from sardonyx.formats.onnx.attributes import read_attribute
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.formats.onnx.tensors import read_sparse_tensor, read_tensor
from sardonyx.formats.onnx.texts import metadata, normal_domain, text
from sardonyx.formats.onnx.types import read_denotation, read_type
from sardonyx.ir import edit
from sardonyx.ir.opsets import NEWEST
from sardonyx.ir.scope import Scope
from sardonyx.startup.records import dataclass

logger = logging.getLogger("sardonyx.formats")

OVERRIDABLE_SINCE = 4
"""Up to IR version 3 every initializer had to be listed among the inputs, which said nothing about feeding it."""


@dataclass
class Reading:
    """What holds for a whole model, or for one function of it."""

    folder: ExternalFolder
    opsets: dict[str, int]
    ir_version: int
    function: str | None = None
    """The function whose body is being read."""
    lenient: bool = False
    """For bodies of standard ops: an output may be absent, since they leave out what a node does not ask for (then it is a value
    without name and producer), and the standard domain need not be imported."""


def read_graph(
    proto: Any, reading: Reading, outer: Scope | None = None, raw: Mapping[int, memoryview | Part] | None = None
) -> ir.Graph:
    """A main graph, or one inside the graph whose scope is `outer`; `raw` is raw data of initializers that was left in the file."""
    scope = Scope.inside(outer, proto.name)
    with ir.released_on_failure(ir.Graph(text(proto.name))) as graph:
        graph.doc = text(proto.doc_string)
        graph.metadata = metadata(proto.metadata_props)
        for annotation in proto.quantization_annotation:
            graph.quantization[text(annotation.tensor_name)] = metadata(annotation.quant_parameter_tensor_names)
        inputs = [_read_input(info, scope) for info in proto.input]
        _read_initializers(proto, graph, scope, reading, raw or {})
        for value in inputs:
            _check_input(value, is_main=outer is None)
            if value.constant is None or reading.ir_version >= OVERRIDABLE_SINCE:
                graph.add_input(value)
            else:
                value.type = value.constant.type
        _read_nodes(proto.node, graph, scope, reading)
        _read_value_info(proto.value_info, scope)
        for info in proto.output:
            graph.outputs.append(_read_output(info, graph, scope, reading))
        return _sorted(graph, scope)


def read_body(proto: Any, reading: Reading) -> ir.Graph:
    """The body of a FunctionProto."""
    scope = Scope()
    with ir.released_on_failure(ir.Graph(text(proto.name))) as graph:
        for name in proto.input:
            if not name:
                raise InvalidGraph(f"This is an invalid model. An input of function {proto.name} has no name.")
            graph.add_input(scope.define(text(name)))
        _read_nodes(proto.node, graph, scope, reading)
        _read_value_info(proto.value_info, scope)
        for name in proto.output:
            value = scope.find(name) or (ir.Value("") if reading.lenient else None)
            if value is None:
                raise Fail(f"This is an invalid model. Output ({name}) of function {proto.name} does not exist in its body.")
            graph.outputs.append(value)
        return _sorted(graph, scope)


def _sorted(graph: ir.Graph, scope: Scope) -> ir.Graph:
    if not scope.is_sorted:
        edit.topological_sort(graph)
    return graph


# --- values


def _read_input(info: Any, scope: Scope) -> ir.Value:
    if not info.name:
        raise InvalidGraph("This is an invalid model. A graph input has no name.")
    value = scope.define(text(info.name))
    _describe(value, info)
    return value


def _describe(value: ir.Value, info: Any) -> None:
    """Take over what a ValueInfoProto says, where nothing has been said."""
    if info.HasField("type"):
        type = info.type
        declared = read_type(type, f"'{value.name}'")
        if value.declared is None:
            value.declared = declared
            value.type = value.type or declared
        value.denotation = value.denotation or read_denotation(type)
    value.doc = value.doc or text(info.doc_string)
    value.metadata.update(metadata(info.metadata_props))


def _read_value_info(infos: Any, scope: Scope) -> None:
    for info in infos:
        value = scope.values.get(info.name)
        if value is not None:
            _describe(value, info)


def _read_output(info: Any, graph: ir.Graph, scope: Scope, reading: Reading) -> ir.Value:
    value = scope.find_output(info.name, graph, reading.opsets.get("", 1))
    if value is None:
        raise Fail(f"This is an invalid model. Graph output ({info.name}) does not exist in the graph.")
    _describe(value, info)
    return value


def _check_input(value: ir.Value, is_main: bool) -> None:
    if is_main and (value.declared is None or getattr(value.declared, "dtype", value) is None):
        raise Fail(f"This is an invalid model. Model input ({value.name}) does not have type information.")
    if value.constant is None or not isinstance(value.declared, ir.TensorType):
        return
    dtype, shape, actual = value.declared.dtype, value.declared.shape, value.constant.shape
    if dtype is not None and dtype is not value.constant.dtype:
        raise Fail(
            f"Type Error: Data in initializer '{value.name}' has element type tensor({value.constant.dtype}) "
            f"but usage of initializer in graph expects tensor({dtype})"
        )
    if shape is not None and not _fits(shape, actual):
        raise Fail(f"Type Error: Shape of initializer {value.name} does not match. {_braced(shape)} != {_braced(actual)}")


def _fits(shape: ir.Shape, actual: tuple[int, ...]) -> bool:
    return len(shape) == len(actual) and all(a == b for a, b in zip(shape, actual, strict=True) if isinstance(a, int))


def _braced(shape: Sequence[ir.Dim]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"


# --- initializers


def _read_initializers(
    proto: Any, graph: ir.Graph, scope: Scope, reading: Reading, raw: Mapping[int, memoryview | Part]
) -> None:
    for position, initializer in enumerate(proto.initializer):
        tensor = read_tensor(initializer, reading.folder, f"initializer: {initializer.name}", raw.get(position))
        _add_initializer(graph, scope, initializer.name, tensor)
    for initializer in proto.sparse_initializer:
        sparse = read_sparse_tensor(initializer, reading.folder, f"sparse initializer: {initializer.values.name}")
        dense = ir.Tensor(sparse.type.dtype, sparse.dense_shape, sparse.to_dense, name=sparse.name)  # type: ignore[arg-type]
        _add_initializer(graph, scope, sparse.name, dense, sparse)


def _add_initializer(
    graph: ir.Graph, scope: Scope, name: str, tensor: ir.Tensor, sparse: ir.SparseTensor | None = None
) -> None:
    if not name:
        logger.warning("An initializer has no name, so nothing can read it; it is left out.")
        return
    value = scope.values.get(name)
    if value is None:
        value = scope.define(name)
    elif value.constant is not None:
        if value.constant.type != tensor.type:
            raise Fail(
                f"This is an invalid model. Error: Duplicate definition of name ({name}): its initializers are "
                f"{value.constant.type} and {tensor.type}."
            )
        logger.warning("Duplicate initializer '%s': the last one is used.", name)
    value.constant, value.sparse = tensor, sparse
    value.type = value.type or tensor.type
    value.graph = graph
    graph.initializers[name] = value


# --- nodes


def _read_nodes(protos: Any, graph: ir.Graph, scope: Scope, reading: Reading) -> None:
    for proto in protos:
        for name in proto.output:
            if name:
                scope.define_later(text(name))
    names: set[str] = set()
    for proto in protos:
        name = proto.name
        if name in names:
            raise Fail(f"This is an invalid model. Error: two nodes with same node name ({name}).")
        if name and proto.op_type != "Constant":  # exporters name all constants alike, and the original lets them
            names.add(name)
        graph.append(_read_node(proto, scope, reading))
        scope.later.difference_update(proto.output)


def _read_node(proto: Any, scope: Scope, reading: Reading) -> ir.Node:
    label = _Label(proto)
    op_type, domain = text(proto.op_type), normal_domain(proto.domain)
    if not op_type:
        raise InvalidGraph(f"This is an invalid model. In Node, {label}, Error it has no op_type.")
    inputs = [_read_operand(name, scope, label) if name else None for name in proto.input]
    attributes: dict[str, ir.Attribute] = {}
    for attribute in proto.attribute:
        name = text(attribute.name)
        if name in attributes:
            raise InvalidGraph(f"This is an invalid model. In Node, {label}, Error Attribute '{name}' appeared multiple times.")
        attributes[name] = read_attribute(attribute, label, reading, scope)
    node = ir.Node(
        op_type,
        inputs,
        [scope.values[name] if name else "" for name in proto.output],
        attributes,
        domain=domain,
        version=_version(op_type, domain, label, reading),
        name=text(proto.name),
        overload=text(proto.overload),
    )
    node.doc = text(proto.doc_string)
    node.metadata = metadata(proto.metadata_props)
    return node


class _Label:
    """What errors call a node, spelled out when there is one."""

    def __init__(self, proto: Any):
        self.proto = proto

    def __str__(self) -> str:
        proto = self.proto
        name = proto.name or next((name for name in proto.output if name), "")
        domain = normal_domain(proto.domain)
        return f"{domain}::{proto.op_type} '{name}'" if domain else f"{proto.op_type} '{name}'"


def _read_operand(name: str, scope: Scope, label: _Label) -> ir.Value:
    value = scope.find(name)
    if value is None:
        raise InvalidArgument(
            f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous node. It is of {label}."
        )
    return value


def _version(op_type: str, domain: str, label: _Label, reading: Reading) -> int:
    version = reading.opsets.get(domain)
    if version is not None:
        return version
    if domain == "com.microsoft":
        return 1
    if reading.lenient and not domain:
        return NEWEST[""]
    if reading.function is None and domain in NEWEST:
        logger.warning(
            "The model does not import the domain '%s', which %s needs; its newest opset %d is taken.",
            domain or "ai.onnx",
            label,
            NEWEST[domain],
        )
        reading.opsets[domain] = NEWEST[domain]
        return NEWEST[domain]
    if reading.function is not None:
        raise Fail(f"No opset registered for domain {domain or 'ai.onnx'} in function {reading.function}, which {label} needs.")
    raise InvalidGraph(
        f"This is an invalid model. In Node, {label}, Error No opset import for domain '{domain}': "
        f"the model says no version of it, so what {op_type} means is unknown."
    )
