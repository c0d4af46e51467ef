"""One entry of a table: a tensor and a number, both as text."""

from __future__ import annotations

from typing import Any

import flatbuffers
from flatbuffers.table import Table

KEY, VALUE = 4, 6
"""Places in the table of fields."""
TEXT, OFFSET = flatbuffers.number_types.UOffsetTFlags, 4


class KeyValue:
    @classmethod
    def GetRootAs(cls, buf: bytes, offset: int = 0) -> KeyValue:
        entry = cls()
        entry.Init(buf, flatbuffers.encode.Get(TEXT.packer_type, buf, offset) + offset)
        return entry

    @classmethod
    def GetRootAsKeyValue(cls, buf: bytes, offset: int = 0) -> KeyValue:
        return cls.GetRootAs(buf, offset)

    def Init(self, buf: bytes, pos: int) -> None:
        self._tab = Table(buf, pos)

    def _text(self, field: int) -> bytes | None:
        offset = TEXT.py_type(self._tab.Offset(field))
        return self._tab.String(offset + self._tab.Pos) if offset else None

    def Key(self) -> bytes | None:
        return self._text(KEY)

    def Value(self) -> bytes | None:
        return self._text(VALUE)


def Start(builder: Any) -> None:
    builder.StartObject(2)


def AddKey(builder: Any, key: int) -> None:
    builder.PrependUOffsetTRelativeSlot(0, TEXT.py_type(key), 0)


def AddValue(builder: Any, value: int) -> None:
    builder.PrependUOffsetTRelativeSlot(1, TEXT.py_type(value), 0)


def End(builder: Any) -> Any:
    return builder.EndObject()


KeyValueStart, KeyValueAddKey, KeyValueAddValue, KeyValueEnd = Start, AddKey, AddValue, End
