"""AttributeProto -> Attribute; the graph reader calls this for every node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sardonyx import ir
from sardonyx.errors import Fail, InvalidGraph
from sardonyx.formats.onnx.tensors import read_sparse_tensor, read_tensor
from sardonyx.formats.onnx.texts import text
from sardonyx.formats.onnx.types import read_type
from sardonyx.ir import Kind

if TYPE_CHECKING:
    from sardonyx.formats.onnx.graphs import Reading
    from sardonyx.ir.scope import Scope

FIELDS = {
    Kind.FLOAT: "f",
    Kind.INT: "i",
    Kind.STRING: "s",
    Kind.TENSOR: "t",
    Kind.GRAPH: "g",
    Kind.FLOATS: "floats",
    Kind.INTS: "ints",
    Kind.STRINGS: "strings",
    Kind.TENSORS: "tensors",
    Kind.GRAPHS: "graphs",
    Kind.SPARSE_TENSOR: "sparse_tensor",
    Kind.SPARSE_TENSORS: "sparse_tensors",
    Kind.TYPE_PROTO: "tp",
    Kind.TYPE_PROTOS: "type_protos",
}
"""The field of AttributeProto that holds a value of each kind."""
_KINDS = {name: kind for kind, name in FIELDS.items()}
MESSAGES = (Kind.TENSOR, Kind.GRAPH, Kind.SPARSE_TENSOR, Kind.TYPE_PROTO)
"""Kinds whose value has no default when the field is absent."""
SINGLE = {
    Kind.STRINGS: Kind.STRING,
    Kind.TENSORS: Kind.TENSOR,
    Kind.GRAPHS: Kind.GRAPH,
    Kind.SPARSE_TENSORS: Kind.SPARSE_TENSOR,
    Kind.TYPE_PROTOS: Kind.TYPE_PROTO,
}
"""What lists of messages and texts hold."""
FEW = 1000
"""Up to so many integers of a list each have an object of their own."""
MOST_SHARED = 1 << 14
"""How many integers of a list are looked for again."""


def read_attribute(proto: Any, owner: object, reading: Reading, scope: Scope | None) -> ir.Attribute:
    """An attribute of the node (or function) that errors call `owner`; graphs in it see the values of `scope`."""
    if not proto.name:
        raise InvalidGraph(f"This is an invalid model. In Node, {owner}, Error an attribute has no name.")
    if proto.ref_attr_name:
        return _read_reference(proto, owner, reading)
    kind = _kind(proto, owner, reading.ir_version)
    value, doc = getattr(proto, FIELDS[kind]), text(proto.doc_string)
    if kind is Kind.INT or kind is Kind.FLOAT:
        return ir.Attribute(kind, value, doc=doc)
    if kind is Kind.INTS:
        return ir.Attribute(kind, list(map(_Numbers().__getitem__, value) if len(value) > FEW else value), doc=doc)
    if kind is Kind.FLOATS:
        return ir.Attribute(kind, list(value), doc=doc)
    if kind is Kind.STRINGS:
        return ir.Attribute(kind, list(map(_Texts().__getitem__, value)), doc=doc)
    single, label = SINGLE.get(kind), f"attribute '{proto.name}' of {owner}"
    if single is not None:
        return ir.Attribute(kind, [_read_value(item, single, label, reading, scope) for item in value], doc=doc)
    return ir.Attribute(kind, _read_value(value, kind, label, reading, scope), doc=doc)


def _read_reference(proto: Any, owner: object, reading: Reading) -> ir.Attribute:
    if reading.function is None:
        raise InvalidGraph(
            f"This is an invalid model. In Node, {owner}, Error attribute '{proto.name}' refers to '{proto.ref_attr_name}', "
            "which is possible inside a function only."
        )
    try:
        return ir.Attribute(Kind(proto.type), None, reference=text(proto.ref_attr_name), doc=text(proto.doc_string))
    except ValueError:
        raise InvalidGraph(_missing_type(proto, owner)) from None


def _kind(proto: Any, owner: object, ir_version: int) -> Kind:
    names = [field.name for field, _ in proto.ListFields()]
    filled = [_KINDS[name] for name in names if name in _KINDS]
    if not proto.type:
        if ir_version < 2 and len(filled) == 1:
            return filled[0]
        raise InvalidGraph(_missing_type(proto, owner))
    kind = Kind(proto.type)
    if filled not in ([], [kind]) or (kind in MESSAGES and not filled):
        raise InvalidGraph(
            f"This is an invalid model. In Node, {owner}, Error type field and data field mismatch in attribute {proto.name}. "
            f"Its type is {kind.name}, its data {', '.join(data_kind.name for data_kind in filled) or 'absent'}."
        )
    return kind


def _missing_type(proto: Any, owner: object) -> str:
    return (
        f"This is an invalid model. In Node, {owner}, Error Field 'type' of attribute '{proto.name}' is required but missing."
    )


def _read_value(value: Any, kind: Kind, label: str, reading: Reading, scope: Scope | None) -> Any:
    match kind:
        case Kind.STRING:
            return _text(value)
        case Kind.TENSOR:
            return read_tensor(value, reading.folder, label)
        case Kind.SPARSE_TENSOR:
            return read_sparse_tensor(value, reading.folder, label)
        case Kind.TYPE_PROTO:
            return read_type(value, label)
        case Kind.GRAPH:
            return _read_subgraph(value, label, reading, scope)
    return value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


class _Numbers(dict[int, int]):
    """One object for equal numbers: tree ensembles count the nodes of every tree from 0."""

    def __missing__(self, value: int) -> int:
        if len(self) < MOST_SHARED:  # where hardly any are equal, the table would be larger than what it saves
            self[value] = value
        return value


class _Texts(dict[bytes, str | bytes]):
    """One object for equal texts: tree ensembles name the mode of every node."""

    def __missing__(self, value: bytes) -> str | bytes:
        self[value] = _text(value)
        return self[value]


def _read_subgraph(value: Any, label: str, reading: Reading, scope: Scope | None) -> ir.Graph:
    from sardonyx.formats.onnx.graphs import read_graph

    if scope is None:
        raise Fail(f"The default of {label} is a graph, which is not supported.")
    return read_graph(value, reading, scope)
