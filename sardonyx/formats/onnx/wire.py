"""Just enough of protobuf's wire format to find the large initializers of a ModelProto and to leave their bytes where they are.

The reader parses what remains, the skeleton, with protobuf; so weights are never copied, and files beyond protobuf's 2 GB can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass
class _Field:
    number: int
    wire_type: int
    start: int
    """Where the key begins."""
    body: int
    end: int


def skeleton(data: memoryview) -> Skeleton | None:
    """Take the large initializers out of a ModelProto; None if there are none, or if the bytes make no sense."""
    spans: dict[int, tuple[int, int]] = {}
    try:
        pieces: list[bytes | memoryview] = []
        kept = count = 0
        for field in _fields(data, 0, len(data)):
            if field.number == MODEL_GRAPH and field.wire_type == LENGTH_DELIMITED:
                inner, count = _graph_pieces(data, field, count, spans)
                pieces += [data[kept : field.start], _length_delimited(MODEL_GRAPH, inner)]
                kept = field.end
        pieces.append(data[kept:])
    except Malformed:
        return None
    return Skeleton(b"".join(pieces), spans) if spans else None


def _graph_pieces(data: memoryview, graph: _Field, count: int, spans: dict[int, tuple[int, int]]) -> tuple[bytes, int]:
    """The graph's bytes without large raw data; `count` initializers came before it."""
    pieces: list[bytes | memoryview] = []
    kept = graph.body
    for field in _fields(data, graph.body, graph.end):
        if field.number != GRAPH_INITIALIZER or field.wire_type != LENGTH_DELIMITED:
            continue
        raw = _raw_data(data, field) if field.end - field.body >= MIN_SPAN else None
        if raw is not None:
            spans[count] = (raw.body, raw.end)
            rest = bytes(data[field.body : raw.start]) + bytes(data[raw.end : field.end])
            pieces += [data[kept : field.start], _length_delimited(GRAPH_INITIALIZER, rest)]
            kept = field.end
        count += 1
    pieces.append(data[kept : graph.end])
    return b"".join(pieces), count


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    """The tensor's raw data if it is large and there is exactly one (of several the last one counts: protobuf's business)."""
    found = [field for field in _fields(data, tensor.body, tensor.end) if field.number == TENSOR_RAW_DATA]
    if len(found) == 1 and found[0].wire_type == LENGTH_DELIMITED and found[0].end - found[0].body >= MIN_SPAN:
        return found[0]
    return None


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
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
        yield _Field(key >> 3, wire_type, at, body, stop)
        at = stop


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number and the position after it."""
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
