"""Model -> ModelProto: `write_model` for protobuf objects, `saving` for files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.errors import Fail, InvalidGraph
from sardonyx.formats.onnx.attributes import FIELDS, SINGLE
from sardonyx.formats.onnx.messages import messages
from sardonyx.formats.onnx.types import write_denotation, write_type
from sardonyx.ir import Kind, packing
from sardonyx.ir.scope import ScopedNames
from sardonyx.startup.records import dataclass

LISTED_BEFORE = 4
"""Up to IR version 3 initializers must be listed among the inputs."""

Place = Callable[[ir.Tensor, str], ir.ExternalLocation | None]
"""Where the data of an initializer goes, given its name; None is into the model."""


@dataclass
class _Writing:
    """What holds for a whole model, or for one function of it."""

    opsets: dict[str, int]
    """The domains that nodes need are added."""
    ir_version: int
    place: Place


def write_model(model: ir.Model, place: Place = lambda tensor, name: None) -> Any:
    """The model as an `onnx.ModelProto`, with all data in it unless `place` sends some initializers elsewhere."""
    proto = messages().ModelProto()
    writing = _Writing(dict(model.opsets), model.ir_version, place)
    proto.ir_version = model.ir_version
    _write_texts(
        proto,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        doc_string=model.doc,
    )
    if model.model_version is not None:
        proto.model_version = model.model_version
    write_metadata(proto.metadata_props, model.metadata)
    write_graph(model.graph, proto.graph, writing, None)
    for function in model.functions.values():
        write_function(function, proto.functions.add(), model.ir_version)
    write_opsets(proto.opset_import, writing.opsets)
    return proto


def write_function(function: ir.Function, proto: Any, ir_version: int = 10) -> None:
    """Fill a FunctionProto."""
    writing = _Writing(dict(function.opsets), ir_version, lambda tensor, name: None)
    names = ScopedNames.of(function.graph)
    _write_texts(proto, name=function.name, domain=function.domain, overload=function.overload, doc_string=function.doc)
    proto.input.extend(names[value] for value in function.graph.inputs)
    proto.output.extend(names[value] for value in function.graph.outputs)
    proto.attribute.extend(function.required_attributes)
    for name, attribute in function.default_attributes.items():
        write_attribute(attribute, name, proto.attribute_proto.add(), writing, names)
    if function.graph.initializers:
        raise InvalidGraph(f"Function {function.name} has initializers, which the format does not allow.")
    _write_nodes(function.graph, proto.node, writing, names)
    for value in function.graph.values():
        _write_value_info(value, proto.value_info, names)
    write_metadata(proto.metadata_props, function.metadata)
    write_opsets(proto.opset_import, writing.opsets)


def write_node(node: ir.Node) -> Any:
    """A node by itself as an `onnx.NodeProto`."""
    proto = messages().NodeProto()
    _write_node(node, proto, _Writing({}, ir_version=10, place=lambda tensor, name: None), ScopedNames.of_node(node))
    return proto


def write_opsets(protos: Any, opsets: Mapping[str, int]) -> None:
    for domain, version in opsets.items():
        entry = protos.add()
        entry.domain, entry.version = domain, version


def write_metadata(protos: Any, metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        entry = protos.add()
        entry.key, entry.value = key, value


def _write_texts(proto: Any, **texts: str) -> None:
    """Set the fields whose text is not empty."""
    for field_name, text in texts.items():
        if text:
            setattr(proto, field_name, text)


# --- graphs


def write_graph(graph: ir.Graph, proto: Any, writing: _Writing, outer: ScopedNames | None) -> None:
    """Fill a GraphProto; `outer` are the names around it."""
    names = ScopedNames.of(graph, outer)
    _write_texts(proto, name=graph.name, doc_string=graph.doc)
    write_metadata(proto.metadata_props, graph.metadata)
    for value in graph.inputs:
        _fill_value_info(value, proto.input.add(), names)
    _write_initializers(graph, proto, writing, names)
    _write_nodes(graph, proto.node, writing, names)
    for value in graph.outputs:
        _fill_value_info(value, proto.output.add(), names)
    outputs = set(graph.outputs)
    for value in graph.values():
        is_listed = value.is_input or (value.constant is not None and writing.ir_version < LISTED_BEFORE)
        if not is_listed and value not in outputs:
            _write_value_info(value, proto.value_info, names)
    _write_quantization(graph, proto, names)


def _write_quantization(graph: ir.Graph, proto: Any, names: ScopedNames) -> None:
    written = {value.name: names[value] for value in graph.values()}
    for name, parameters in graph.quantization.items():
        annotation = proto.quantization_annotation.add()
        annotation.tensor_name = written.get(name, name)
        write_metadata(
            annotation.quant_parameter_tensor_names, {key: written.get(name, name) for key, name in parameters.items()}
        )


def _write_value_info(value: ir.Value, protos: Any, names: ScopedNames) -> None:
    """Add an entry if there is anything to say; of an initializer its tensor says the type."""
    type = value.declared if value.constant is not None else value.type or value.declared
    if names[value] and (type is not None or value.doc or value.metadata):
        _fill_value_info(value, protos.add(), names)


def _fill_value_info(value: ir.Value, proto: Any, names: ScopedNames) -> None:
    proto.name = names[value]
    type = value.type or value.declared
    if type is not None:
        write_type(type, proto.type)
        write_denotation(value.denotation, proto.type)
    _write_texts(proto, doc_string=value.doc)
    write_metadata(proto.metadata_props, value.metadata)


def _write_initializers(graph: ir.Graph, proto: Any, writing: _Writing, names: ScopedNames) -> None:
    for value in graph.initializers.values():
        if value.constant is None:
            raise InvalidGraph(f"Initializer {value.name!r} has no data.")
        if value.sparse is not None:
            write_sparse_tensor(value.sparse, proto.sparse_initializer.add(), names[value])
        else:
            tensor = proto.initializer.add()
            write_tensor(value.constant, tensor, writing.place(value.constant, names[value]))
            tensor.name = names[value]
        if writing.ir_version < LISTED_BEFORE and not value.is_input:
            _fill_value_info(value, proto.input.add(), names)


# --- nodes


def _write_nodes(graph: ir.Graph, protos: Any, writing: _Writing, names: ScopedNames) -> None:
    for node in graph.nodes:
        _write_node(node, protos.add(), writing, names)


def _write_node(node: ir.Node, proto: Any, writing: _Writing, names: ScopedNames) -> None:
    _check_version(node, writing)
    proto.op_type = node.op_type
    proto.input.extend("" if value is None else names[value] for value in node.inputs)
    proto.output.extend(names[value] for value in node.outputs)
    _write_texts(proto, name=node.name, domain=node.domain, overload=node.overload, doc_string=node.doc)
    for name, attribute in node.attributes.items():
        try:
            write_attribute(attribute, name, proto.attribute.add(), writing, names)
        except (TypeError, ValueError) as error:
            raise InvalidGraph(f"{node}: attribute '{name}' cannot be written as {attribute.kind.name}: {error}") from error
    write_metadata(proto.metadata_props, node.metadata)


def _check_version(node: ir.Node, writing: _Writing) -> None:
    """A file has one version per domain: a node of another one can be written only if the op did not change in between."""
    if node.version <= 0:
        return
    version = writing.opsets.setdefault(node.domain, node.version)
    if version != node.version and _since(node, version) != _since(node, node.version):
        raise Fail(
            f"{node} is written for opset {node.version} of domain '{node.domain or 'ai.onnx'}', the model imports {version}, "
            "and the op differs between the two."
        )


def _since(node: ir.Node, version: int) -> int | None:
    import onnx.defs

    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain).since_version
    except onnx.defs.SchemaError:
        return None


def write_attribute(attribute: ir.Attribute, name: str, proto: Any, writing: _Writing, names: ScopedNames) -> None:
    """Fill an AttributeProto."""
    proto.name, proto.type = name, int(attribute.kind)
    _write_texts(proto, doc_string=attribute.doc)
    if attribute.reference is not None:
        proto.ref_attr_name = attribute.reference
        return
    value, target = attribute.value, getattr(proto, FIELDS[attribute.kind])
    match attribute.kind:
        case Kind.FLOAT | Kind.INT:
            setattr(proto, FIELDS[attribute.kind], value)
        case Kind.STRING:
            proto.s = _encoded(value)
        case Kind.FLOATS | Kind.INTS:
            target.extend(value)
        case Kind.STRINGS:
            target.extend(_encoded(text) for text in value)
        case Kind.TENSOR | Kind.GRAPH | Kind.SPARSE_TENSOR | Kind.TYPE_PROTO:
            target.SetInParent()
            _write_message(value, attribute.kind, target, writing, names)
        case _:
            for item in value:
                _write_message(item, SINGLE[attribute.kind], target.add(), writing, names)


def _write_message(value: Any, kind: Kind, proto: Any, writing: _Writing, names: ScopedNames) -> None:
    match kind:
        case Kind.TENSOR:
            write_tensor(value, proto)
        case Kind.SPARSE_TENSOR:
            write_sparse_tensor(value, proto, value.name)
        case Kind.TYPE_PROTO:
            write_type(value, proto)
        case Kind.GRAPH:
            write_graph(value, proto, writing, names)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


# --- tensors


def write_tensor(tensor: ir.Tensor, proto: Any, external: ir.ExternalLocation | None = None) -> None:
    """Fill a TensorProto, with the data or with where it is."""
    proto.data_type = tensor.dtype.code
    proto.dims.extend(tensor.shape)
    _write_texts(proto, name=tensor.name, doc_string=tensor.doc)
    write_metadata(proto.metadata_props, tensor.metadata)
    if external is not None:
        proto.data_location = 1
        entries = {"location": external.location, "offset": external.offset, "length": external.length}
        entries |= {f"prepacked_{number}": _packed_entry(packed) for number, packed in enumerate(external.prepacked)}
        write_metadata(proto.external_data, {key: str(value) for key, value in entries.items() if value is not None})
    elif tensor.dtype is dtypes.string:
        proto.string_data.extend(_encoded(text) for text in tensor.numpy().reshape(-1))
    else:
        proto.raw_data = bytes(packing.encode(tensor.numpy(), tensor.dtype))


def _packed_entry(packed: ir.PackedLocation) -> str:
    return "|".join([packed.key, *(f"{offset};{length};{checksum}" for offset, length, checksum in packed.buffers)])


def write_sparse_tensor(sparse: ir.SparseTensor, proto: Any, name: str) -> None:
    """Fill a SparseTensorProto."""
    write_tensor(ir.Tensor.of(sparse.values, name), proto.values)
    write_tensor(ir.Tensor.of(np.asarray(sparse.indices, np.int64)), proto.indices)
    proto.dims.extend(sparse.dense_shape)
