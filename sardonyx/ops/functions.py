"""Bodies of standard ops that are defined through other ops, as functions of our IR. Expansion asks here when nobody has a kernel."""

from __future__ import annotations

from typing import Any

from sardonyx.ir import Attribute, Function, Node
from sardonyx.ops import checking, onnx_schemas, schemas
from sardonyx.ops.signatures import Signature


def body_of(node: Node) -> Function | None:
    """The body of a node's op at its version and, where the body depends on them, for its attributes and input types."""
    signature = checking.signature_of(node)
    if not signature.has_function:
        return None
    proto = _body_proto(node, signature)
    if proto is None:
        return None
    from sardonyx.formats.onnx.reader import read_function

    _complete(proto)
    function = read_function(proto)
    for name, definition in signature.attributes.items():
        if definition.default is not None:
            function.default_attributes.setdefault(name, Attribute(definition.kind, definition.default))
    return function


def _complete(proto: Any) -> None:
    """Give attributes that refer to the call's their types, which some bodies of the package leave out."""
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    for node in proto.node:
        signature = schemas.find(node.domain, node.op_type, opsets.get(node.domain, 0))
        for attribute in node.attribute:
            if not attribute.type and signature is not None and attribute.name in signature.attributes:
                attribute.type = signature.attributes[attribute.name].kind


def _body_proto(node: Node, signature: Signature) -> Any:
    """The body as the onnx package has it; none where that package is missing."""
    try:
        import onnx.defs
    except ImportError:
        return None
    schema = onnx_schemas.schema_of(signature)
    if schema is None:
        return None
    if schema.has_function:
        versions = [version for version in schema.function_opset_versions if version <= node.version]
        return (
            onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
            if versions
            else schema.function_body
        )
    versions = [version for version in schema.context_dependent_function_opset_versions if version <= node.version]
    if not versions:
        return None
    data = schema.get_context_dependent_function_with_opset_version(max(versions), *_call_bytes(node))
    return onnx.FunctionProto.FromString(data) if data else None


def _call_bytes(node: Node) -> tuple[bytes, list[bytes]]:
    """The node and its input types, as the onnx package wants to see them."""
    import onnx

    from sardonyx.formats.onnx.types import write_type
    from sardonyx.formats.onnx.writer import write_node

    types = []
    for value in node.inputs:
        proto = onnx.TypeProto()
        if value is not None:
            write_type(value.type, proto)
        types.append(proto.SerializeToString())
    return write_node(node).SerializeToString(), types
