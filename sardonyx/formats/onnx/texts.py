"""Text fields of protobuf messages, for the readers. Where a text is no UTF-8 some versions of protobuf hand out bytes: refused here."""

from __future__ import annotations

from typing import Any

from sardonyx.errors import InvalidProtobuf


def text(value: Any) -> str:
    """The text, or InvalidProtobuf if it is none."""
    if isinstance(value, str):
        return value
    raise InvalidProtobuf(f"Protobuf parsing failed. A name or text is not UTF-8: {value!r}")


def metadata(entries: Any) -> dict[str, str]:
    """Keys and values of StringStringEntryProtos."""
    texts = {entry.key: entry.value for entry in entries}
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            text(key), text(value)
    return texts


def normal_domain(domain: Any) -> str:
    """The default domain has two spellings; we use the empty one."""
    return "" if domain == "ai.onnx" else text(domain)
