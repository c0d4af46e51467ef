"""TypeProto <-> Type, and the denotations beside it, which types do not carry."""

from __future__ import annotations

from typing import Any

from sardonyx import dtypes, ir
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.onnx.texts import text

MAX_DEPTH = 32
"""How deep sequences of optionals of maps may nest."""


def read_type(proto: Any, owner: str, depth: int = 0) -> ir.Type | None:
    """The type that `proto` means, None if it is empty; `owner` is named in errors."""
    if depth > MAX_DEPTH:
        raise Fail(f"Type of {owner} is nested deeper than {MAX_DEPTH} levels.")
    which = proto.WhichOneof("value")
    if which == "tensor_type":
        tensor = proto.tensor_type
        return ir.TensorType(_element(tensor.elem_type, owner), _shape(tensor))
    match which:
        case None:
            return None
        case "sparse_tensor_type":
            return ir.SparseTensorType(_element(proto.sparse_tensor_type.elem_type, owner), _shape(proto.sparse_tensor_type))
        case "sequence_type":
            return ir.SequenceType(_inner(proto.sequence_type.elem_type, owner, depth))
        case "optional_type":
            return ir.OptionalType(_inner(proto.optional_type.elem_type, owner, depth))
        case "map_type":
            return ir.MapType(_map_key(proto.map_type.key_type, owner), _inner(proto.map_type.value_type, owner, depth))
    return ir.OpaqueType(text(proto.opaque_type.domain), text(proto.opaque_type.name))


def read_denotation(proto: Any) -> ir.Denotation | None:
    """What a type and its sizes stand for, None if it does not say."""
    sizes = [size.denotation for size in proto.tensor_type.shape.dim] if proto.HasField("tensor_type") else []
    return (text(proto.denotation), tuple(map(text, sizes))) if proto.denotation or any(sizes) else None


def write_denotation(denotation: ir.Denotation | None, proto: Any) -> None:
    """Fill in what a type that has been written and its sizes stand for."""
    if denotation is None:
        return
    word, sizes = denotation
    if word:
        proto.denotation = word
    dims = proto.tensor_type.shape.dim if proto.HasField("tensor_type") else ()
    for dim, size in zip(dims, sizes, strict=False):
        if size:
            dim.denotation = size


def element_type(code: int, owner: str) -> ElementType:
    """The element type of a TensorProto.DataType number, which must not be UNDEFINED."""
    try:
        return dtypes.from_code(code)
    except KeyError:
        raise InvalidArgument(f"Failed to load model with error: Invalid tensor data type {code} of {owner}.") from None


def _element(code: int, owner: str) -> ElementType | None:
    return element_type(code, owner) if code else None


def _map_key(code: int, owner: str) -> ElementType:
    key = element_type(code, owner)
    if key is not dtypes.string and key not in dtypes.INTS:
        raise InvalidArgument(f"Failed to load model with error: {key} cannot be the key type of the map {owner}.")
    return key


def _inner(proto: Any, owner: str, depth: int) -> ir.Type:
    return read_type(proto, owner, depth + 1) or ir.TensorType(None)


def _shape(proto: Any) -> ir.Shape | None:
    return tuple(map(_dim, proto.shape.dim)) if proto.HasField("shape") else None


def _dim(proto: Any) -> ir.Dim:
    """A negative size is an unknown one: old converters wrote -1 and onnxruntime lets it pass."""
    if proto.HasField("dim_value"):
        size: int = proto.dim_value
        if size >= 0:
            return size
    name = proto.dim_param
    return ir.dim.named(text(name))


def write_type(type: ir.Type | None, proto: Any) -> None:
    """Fill `proto`; an unknown type leaves it empty."""
    match type:
        case ir.TensorType(dtype, shape):
            _write_tensor(proto.tensor_type, dtype, shape)
        case ir.SparseTensorType(dtype, shape):
            _write_tensor(proto.sparse_tensor_type, dtype, shape)
        case ir.SequenceType(element):
            proto.sequence_type.elem_type.SetInParent()
            write_type(element, proto.sequence_type.elem_type)
        case ir.OptionalType(element):
            proto.optional_type.elem_type.SetInParent()
            write_type(element, proto.optional_type.elem_type)
        case ir.MapType(key, value):
            proto.map_type.key_type = key.code
            write_type(value, proto.map_type.value_type)
        case ir.OpaqueType(domain, name):
            proto.opaque_type.domain = domain
            proto.opaque_type.name = name


def _write_tensor(proto: Any, dtype: ElementType | None, shape: ir.Shape | None) -> None:
    proto.elem_type = dtype.code if dtype else 0
    if shape is None:
        return
    proto.shape.SetInParent()
    for size in shape:
        dim = proto.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif not any(symbol.is_anonymous for symbol in ir.dim.symbols(size)):
            dim.dim_param = str(size)
