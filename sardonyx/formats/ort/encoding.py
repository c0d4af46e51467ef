"""Trees -> buffers of the ORT format, through the `flatbuffers` package. `writer` makes the trees, `tables` says what they look like.

Large payloads begin at multiples of 64 bytes, which the format allows and does not ask for: who maps the file can use them in place.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import Fail
from sardonyx.formats.ort.tables import IDENTIFIER, ROOT, TABLES, UNIONS, Field, FieldKind

MAX_BYTES = 2**31 - 1
"""Offsets are signed 32-bit numbers in the original's reader."""
PAYLOAD_ALIGNMENT = 64
ALIGNED_FROM = 1024
"""Payloads below this many bytes stand where any number may, to the next 16 bytes."""

_SLOTS = {
    "?": "PrependBoolSlot",
    "b": "PrependInt8Slot",
    "B": "PrependUint8Slot",
    "i": "PrependInt32Slot",
    "I": "PrependUint32Slot",
    "q": "PrependInt64Slot",
    "Q": "PrependUint64Slot",
    "f": "PrependFloat32Slot",
}
"""The builder's method for a scalar of each struct code."""


def encode(tree: Mapping[str, Any], root: str = ROOT, identifier: bytes = IDENTIFIER) -> bytearray:
    """The buffer that holds `tree`, a table of kind `root`."""
    size = _bound(tree)
    if size > MAX_BYTES:
        raise too_large(size)
    encoder = _Encoder(size)
    return encoder.finish(encoder.table(root, tree), identifier)


def too_large(size: int) -> Fail:
    return Fail(
        f"The model takes {size} bytes, more than the 2 GB that one ORT format file can hold. "
        "Save it as .onnx with its weights in a file beside it."
    )


class _Encoder:
    """A buffer that is filled from its end, what a table points to before the table."""

    def __init__(self, size: int):
        try:
            import flatbuffers
        except ModuleNotFoundError as missing:
            raise Fail(
                "Writing models in the ORT format needs the package flatbuffers: 'pip install flatbuffers'."
            ) from missing
        self.builder: Any = flatbuffers.Builder(size)
        self.strings: dict[str, int] = {}

    def finish(self, root: int, identifier: bytes) -> bytearray:
        self.builder.Finish(root, file_identifier=identifier)
        buffer: bytearray = self.builder.Bytes
        del buffer[: self.builder.Head()]  # no copy: only the front moves
        return buffer

    def table(self, name: str, tree: Mapping[str, Any]) -> int:
        fields, builder = TABLES[name], self.builder
        offsets = {
            field.slot: self._offset(field, tree)
            for field in fields
            if field.kind is not FieldKind.SCALAR and field.name in tree
        }
        builder.StartObject(len(fields))
        # larger scalars first, so that little is lost to alignment
        for field in sorted(
            (field for field in fields if field.kind is FieldKind.SCALAR), key=lambda field: -struct.calcsize(field.code)
        ):
            self._scalar(field, tree.get(field.name, field.default))
        for slot, offset in offsets.items():
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        return int(builder.EndObject())

    def _scalar(self, field: Field, value: Any) -> None:
        if field.code == "f" and value == 0 and math.copysign(1, value) < 0:  # the default is +0
            self.builder.PrependFloat32(value)
            self.builder.Slot(field.slot)
        else:
            getattr(self.builder, _SLOTS[field.code])(field.slot, value, field.default)

    def _offset(self, field: Field, tree: Mapping[str, Any]) -> int:
        """Where the content of a field that is not a scalar has been put."""
        value = tree[field.name]
        match field.kind:
            case FieldKind.STRING:
                return self._string(value)
            case FieldKind.TABLE:
                return self.table(field.table, value)
            case FieldKind.UNION:
                return self.table(UNIONS[tree[f"{field.name}_type"]], value)
            case FieldKind.BYTES:
                return self._payload(value)
            case FieldKind.SCALARS:
                numbers = np.asarray(value, np.dtype(field.code).newbyteorder("<"))
                return self._block(numbers.view(np.uint8).data, len(numbers), numbers.itemsize)
            case FieldKind.STRUCTS:
                element = struct.Struct("<" + field.code)
                return self._block(
                    b"".join(element.pack(*struct_value) for struct_value in value), len(value), element.size, alignment=4
                )
            case FieldKind.STRINGS:
                return self._offsets([self._string(text) for text in value])
            case FieldKind.TABLES:
                return self._offsets([self.table(field.table, inner) for inner in value])
        raise ValueError(f"{field.name} cannot be written, it is {field.kind.value}")

    def _string(self, text: str) -> int:
        """Equal strings are stored once."""
        offset = self.strings.get(text)
        if offset is None:
            offset = self.strings[text] = self.builder.CreateString(text.encode("utf-8", "surrogateescape"))
        return offset

    def _payload(self, data: Any) -> int:
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        return self._block(view, view.nbytes, 1, PAYLOAD_ALIGNMENT if view.nbytes >= ALIGNED_FROM else 16)

    def _block(self, data: Any, count: int, size: int, alignment: int | None = None) -> int:
        """A vector whose `count` elements, each of `size` bytes, lie ready in `data`."""
        builder = self.builder
        builder.StartVector(size, count, alignment or size)
        start = builder.head - count * size
        builder.Bytes[start : builder.head] = data
        builder.head = start
        return int(builder.EndVector())

    def _offsets(self, offsets: Sequence[int]) -> int:
        """A vector of references: each says how far behind itself its target lies, while offsets count from the buffer's end."""
        self.builder.Prep(4, 4 * len(offsets))
        places = self.builder.Offset() + 4 * np.arange(len(offsets), 0, -1, dtype=np.int64)
        distances = (places - np.asarray(offsets, np.int64)).astype("<u4")
        return self._block(distances.view(np.uint8).data, len(offsets), 4)


def _bound(value: Any) -> int:
    """How many bytes a part of a tree takes at most: enough to make the buffer at once."""
    if isinstance(value, Mapping):
        return 32 + sum(24 + _bound(inner) for inner in value.values())
    if isinstance(value, str):
        return 4 * len(value) + 16
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str):
            return 16 + 8 * len(value) + sum(map(_bound, set(value)))
        if value and isinstance(value[0], Mapping):
            return 16 + sum(8 + _bound(inner) for inner in value)
        return 16 + 12 * len(value)
    return memoryview(value).nbytes + 2 * PAYLOAD_ALIGNMENT if _is_payload(value) else 0


def _is_payload(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview, np.ndarray))
