"""The table: a list of entries."""

from __future__ import annotations

from typing import Any

import flatbuffers
from flatbuffers.table import Table

from sardonyx.quantization.CalTableFlatBuffers.KeyValue import OFFSET, TEXT, KeyValue

DICT = 4
"""The place of the list in the table of fields."""


class TrtTable:
    @classmethod
    def GetRootAs(cls, buf: bytes, offset: int = 0) -> TrtTable:
        table = cls()
        table.Init(buf, flatbuffers.encode.Get(TEXT.packer_type, buf, offset) + offset)
        return table

    @classmethod
    def GetRootAsTrtTable(cls, buf: bytes, offset: int = 0) -> TrtTable:
        return cls.GetRootAs(buf, offset)

    def Init(self, buf: bytes, pos: int) -> None:
        self._tab = Table(buf, pos)

    def _offset(self) -> Any:
        return TEXT.py_type(self._tab.Offset(DICT))

    def Dict(self, j: int) -> KeyValue | None:
        if self.DictIsNone():
            return None
        entry = KeyValue()
        place = self._tab.Vector(self._offset()) + TEXT.py_type(j) * OFFSET
        entry.Init(self._tab.Bytes, self._tab.Indirect(place))
        return entry

    def DictLength(self) -> int:
        return 0 if self.DictIsNone() else int(self._tab.VectorLen(self._offset()))

    def DictIsNone(self) -> bool:
        return bool(self._offset() == 0)


def Start(builder: Any) -> None:
    builder.StartObject(1)


def AddDict(builder: Any, dict: int) -> None:
    builder.PrependUOffsetTRelativeSlot(0, TEXT.py_type(dict), 0)


def StartDictVector(builder: Any, numElems: int) -> Any:
    return builder.StartVector(OFFSET, numElems, OFFSET)


def End(builder: Any) -> Any:
    return builder.EndObject()


TrtTableStart, TrtTableAddDict, TrtTableStartDictVector, TrtTableEnd = Start, AddDict, StartDictVector, End
