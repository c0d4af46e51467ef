"""Just enough of protobuf's wire format to find the large initializers of a ModelProto and to leave their bytes where they are.

The reader parses what remains, the skeleton, with protobuf; so weights are never copied, and files beyond protobuf's 2 GB can be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from sardonyx.formats.files import Window
from sardonyx.startup.records import dataclass

Data = memoryview | Window

MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA = 7, 5, 9
MIN_SPAN = 1024
"""Shorter raw data stays in the skeleton."""

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


class Malformed(Exception):
    """The bytes are no protobuf message; protobuf itself will say so."""


@dataclass
class Skeleton:
    """A message without the raw data of its large initializers, and where that lies: (start, end) by the initializer's position."""

    data: bytes
    spans: dict[int, tuple[int, int]]


_Field = tuple[int, int, int, int, int]
"""A field's number and wire type, where its key begins, where its body does, and where it ends."""


def skeleton(data: Data) -> Skeleton | None:
    """Take the large initializers out of a ModelProto; None if there are none, or if the bytes make no sense."""
    spans: dict[int, tuple[int, int]] = {}
    try:
        pieces: list[bytes | memoryview] = []
        kept = count = 0
        for number, wire_type, start, body, end in _fields(data, 0, len(data)):
            if number == MODEL_GRAPH and wire_type == LENGTH_DELIMITED:
                inner, count = _graph_pieces(data, body, end, count, spans)
                pieces += [data[kept:start], _length_delimited(MODEL_GRAPH, inner)]
                kept = end
        pieces.append(data[kept:])
    except Malformed:
        return None
    return Skeleton(b"".join(pieces), spans) if spans else None


def _graph_pieces(data: Data, begin: int, finish: int, count: int, spans: dict[int, tuple[int, int]]) -> tuple[bytes, int]:
    """The bytes of the graph there without large raw data; `count` initializers came before it."""
    pieces: list[bytes | memoryview] = []
    kept = begin
    for number, wire_type, start, body, end in _fields(data, begin, finish):
        if number != GRAPH_INITIALIZER or wire_type != LENGTH_DELIMITED:
            continue
        raw = _raw_data(data, body, end) if end - body >= MIN_SPAN else None
        if raw is not None:
            _, _, raw_start, raw_body, raw_end = raw
            spans[count] = (raw_body, raw_end)
            rest = bytes(data[body:raw_start]) + bytes(data[raw_end:end])
            pieces += [data[kept:start], _length_delimited(GRAPH_INITIALIZER, rest)]
            kept = end
        count += 1
    pieces.append(data[kept:finish])
    return b"".join(pieces), count


def _raw_data(data: Data, begin: int, finish: int) -> _Field | None:
    """The raw data of the tensor there if it is large and there is exactly one (of several the last one counts: protobuf's business)."""
    raw_fields = [field for field in _fields(data, begin, finish) if field[0] == TENSOR_RAW_DATA]
    if len(raw_fields) != 1:
        return None
    _, wire_type, _, body, end = raw_fields[0]
    return raw_fields[0] if wire_type == LENGTH_DELIMITED and end - body >= MIN_SPAN else None


def _fields(data: Data, start: int, end: int) -> Iterator[_Field]:
    at = start
    while at < end:
        key, body = _varint(data, at, end)
        wire_type = key & 7
        if wire_type == LENGTH_DELIMITED:
            length, body = _varint(data, body, end)
            stop = body + length
        elif wire_type == VARINT:
            stop = _varint(data, body, end)[1]
        elif wire_type in (FIXED64, FIXED32):
            stop = body + (8 if wire_type == FIXED64 else 4)
        else:
            raise Malformed
        if stop > end or key >> 3 == 0:
            raise Malformed
        yield key >> 3, wire_type, at, body, stop
        at = stop


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """A number and the position after it."""
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise Malformed
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Malformed


def _length_delimited(number: int, body: bytes) -> bytes:
    return _encoded(number << 3 | LENGTH_DELIMITED) + _encoded(len(body)) + body


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
