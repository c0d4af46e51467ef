"""Classes that read an ORT file table by table, where it lies. They are made from the schema of `formats.ort.tables`.

The method of a field has its name in capitals, RawData for raw_data. That of a vector takes an index; others beside it end in Length,
IsNone and, for numbers, AsNumpy. Texts are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from flatbuffers import encode, number_types, packer, table, util

from sardonyx.formats.ort.tables import (
    IDENTIFIER,
    STRUCTS,
    TABLES,
    ArgType,
    DimensionValueType,
    Field,
    FieldKind,
    NodeType,
    TypeInfoValue,
)

Accessor = Callable[..., Any]

FLAGS = {
    "?": number_types.BoolFlags,
    "b": number_types.Int8Flags,
    "B": number_types.Uint8Flags,
    "i": number_types.Int32Flags,
    "I": number_types.Uint32Flags,
    "q": number_types.Int64Flags,
    "Q": number_types.Uint64Flags,
    "f": number_types.Float32Flags,
}
STRUCT_FIELDS = {"EdgeEnd": ("NodeIndex", "SrcArgIndex", "DstArgIndex")}
ATTRIBUTE_TYPES = """
UNDEFINED FLOAT INT STRING TENSOR GRAPH FLOATS INTS STRINGS TENSORS GRAPHS SPARSE_TENSOR SPARSE_TENSORS
"""
TENSOR_TYPES = """
UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16
FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ
"""
ENUMS = {
    "ArgType": {member.name: member.value for member in ArgType},
    "AttributeType": {name: number for number, name in enumerate(ATTRIBUTE_TYPES.split())},
    "DimensionValueType": {member.name: member.value for member in DimensionValueType},
    "NodeType": {member.name.capitalize(): member.value for member in NodeType},
    "TensorDataType": {name: number for number, name in enumerate(TENSOR_TYPES.split())},
    "TypeInfoValue": {member.name.lower() if member else member.name: member.value for member in TypeInfoValue},
}
OTHER_FILES = ("LoraParameter", "Adapter")
"""Tables of files that have readers of their own."""


class Reader:
    """A table or struct in a buffer."""

    __slots__ = ("_tab",)
    _tab: table.Table

    @classmethod
    def GetRootAs(cls, buf: Any, offset: int = 0) -> Any:  # noqa: N802 - the original's name
        """The table at the root of a buffer."""
        return _placed(cls, buf, encode.Get(packer.uoffset, buf, offset) + offset)

    def Init(self, buf: Any, pos: int) -> None:  # noqa: N802 - the original's name
        """Read from this place on."""
        self._tab = table.Table(buf, pos)

    def _offset(self, field: Field) -> int:
        """Where a field lies from here, 0 if it is not there."""
        return int(self._tab.Offset(4 + 2 * field.slot))


def _placed(kind: type, buf: Any, pos: int) -> Any:
    reader = kind()
    reader.Init(buf, pos)
    return reader


def _has_identifier(cls: type, buf: Any, offset: int, size_prefixed: bool = False) -> bool:
    """Whether a buffer is an ORT file."""
    return bool(util.BufferHasIdentifier(buf, offset, IDENTIFIER, size_prefixed=size_prefixed))


# --- what reads a field


def _scalar(field: Field) -> Accessor:
    def read(self: Reader) -> Any:
        offset = self._offset(field)
        return self._tab.Get(FLAGS[field.code], offset + self._tab.Pos) if offset else field.default

    return read


def _string(field: Field) -> Accessor:
    def read(self: Reader) -> bytes | None:
        offset = self._offset(field)
        return self._tab.String(offset + self._tab.Pos) if offset else None

    return read


def _table(field: Field) -> Accessor:
    def read(self: Reader) -> Any:
        offset = self._offset(field)
        return _placed(CLASSES[field.table], self._tab.Bytes, self._tab.Indirect(offset + self._tab.Pos)) if offset else None

    return read


def _union(field: Field) -> Accessor:
    def read(self: Reader) -> table.Table | None:
        offset = self._offset(field)
        if not offset:
            return None
        value = table.Table(bytearray(), 0)
        self._tab.Union(value, offset)
        return value

    return read


def _element(field: Field) -> Accessor:
    """What reads one element of a vector; elements of a vector that is not there are 0, b"" or None."""
    sizes = {FieldKind.STRUCTS: struct.calcsize(f"<{field.code}"), FieldKind.TABLES: 4, FieldKind.STRINGS: 4}
    size = sizes.get(field.kind) or struct.calcsize(f"<{field.code}")
    absent = {FieldKind.STRINGS: b"", FieldKind.TABLES: None, FieldKind.STRUCTS: None}.get(field.kind, 0)

    def read(self: Reader, j: int) -> Any:
        offset = self._offset(field)
        if not offset:
            return absent
        place = self._tab.Vector(offset) + j * size
        match field.kind:
            case FieldKind.STRINGS:
                return self._tab.String(place)
            case FieldKind.TABLES:
                return _placed(CLASSES[field.table], self._tab.Bytes, self._tab.Indirect(place))
            case FieldKind.STRUCTS:
                return _placed(
                    CLASSES[next(name for name, code in STRUCTS.items() if code == field.code)], self._tab.Bytes, place
                )
            case _:
                return self._tab.Get(FLAGS[field.code], place)

    return read


def _length(field: Field) -> Accessor:
    def read(self: Reader) -> int:
        offset = self._offset(field)
        return int(self._tab.VectorLen(offset)) if offset else 0

    return read


def _is_none(field: Field) -> Accessor:
    return lambda self: self._offset(field) == 0


def _as_numpy(field: Field) -> Accessor:
    def read(self: Reader) -> Any:
        offset = self._offset(field)
        return self._tab.GetVectorAsNumpy(FLAGS[field.code], offset) if offset else 0

    return read


SINGLE = {FieldKind.SCALAR: _scalar, FieldKind.STRING: _string, FieldKind.TABLE: _table, FieldKind.UNION: _union}


def _accessors(field: Field) -> Iterator[tuple[str, Accessor]]:
    """The methods of a field by their names."""
    name = "".join(word.capitalize() for word in field.name.split("_"))
    if field.kind is FieldKind.DEPRECATED:
        return
    if field.kind in SINGLE:
        yield name, SINGLE[field.kind](field)
        return
    yield name, _element(field)
    yield f"{name}Length", _length(field)
    yield f"{name}IsNone", _is_none(field)
    if field.kind in (FieldKind.BYTES, FieldKind.SCALARS):
        yield f"{name}AsNumpy", _as_numpy(field)


def _table_class(name: str, fields: tuple[Field, ...]) -> type:
    accessors = dict(accessor for field in fields for accessor in _accessors(field))
    members: dict[str, Any] = {"__slots__": (), "__doc__": f"A table {name} of an ORT file.", **accessors}
    members[f"GetRootAs{name}"] = classmethod(lambda cls, buf, offset=0: cls.GetRootAs(buf, offset))
    members[f"{name}BufferHasIdentifier"] = classmethod(_has_identifier)
    return type(name, (Reader,), members)


def _struct_class(name: str, code: str) -> type:
    members: dict[str, Any] = {"__slots__": (), "__doc__": f"A struct {name} of an ORT file."}
    for place, (letter, field) in enumerate(zip(code, STRUCT_FIELDS[name], strict=True)):
        offset = struct.calcsize(f"<{code[:place]}")
        members[field] = lambda self, flags=FLAGS[letter], offset=offset: self._tab.Get(flags, self._tab.Pos + offset)
    members["SizeOf"] = classmethod(lambda cls: struct.calcsize(f"<{code}"))
    return type(name, (Reader,), members)


CLASSES: dict[str, type] = {
    **{name: _table_class(name, fields) for name, fields in TABLES.items() if name not in OTHER_FILES},
    **{name: _struct_class(name, code) for name, code in STRUCTS.items()},
    **{name: type(name, (), {"__doc__": f"Numbers of {name}.", **members}) for name, members in ENUMS.items()},
}
"""All classes by their names."""
