"""The bytes of a context: a header, a description in JSON, then sections of raw data. `writing` makes them, `contexts` opens them.

    header       magic, format, sizes, checksum                                    128 bytes
    description  JSON
    checked      code and tables, each at a multiple of 64 bytes
    constants    what programs read: weights as they are, or packed                at a multiple of a page, each at one of 64 bytes

The checksum covers everything but the constants, which are mapped and not read before they are used: as with the weights of any model,
only their extent is checked, unless somebody asks for more.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np

from sardonyx.startup.hashing import blake2b
from sardonyx.startup.records import dataclass

MAGIC = b"\x93SDNXCTX"
"""The first byte is not UTF-8: nobody takes a context for text."""
FORMAT = 6
"""Raise it with every change of what is stored here, or of how memory looks to generated code."""
_HEADER = struct.Struct("<8sIIQQQ32s")
HEADER_BYTES = 128
ALIGNMENT = 64
PAGE = 4096

Section = tuple[int, int]
"""Where something lies: offset and bytes."""


class BadContext(Exception):
    """The bytes are no context, or not one that this version reads."""


@dataclass(frozen=True)
class Container:
    """A context that was opened: its description, and its bytes wherever they lie."""

    description: Mapping[str, Any]
    data: memoryview
    digest: bytes
    """The checksum, by which a model knows the file that belongs to it."""

    def section(self, place: Any) -> memoryview:
        """The bytes of a section."""
        offset, size = place
        if type(offset) is not int or type(size) is not int or not 0 <= offset <= offset + size <= len(self.data):
            raise BadContext(f"a section at {offset!r} of {size!r} bytes is not inside")
        return self.data[offset : offset + size]

    def array(self, place: Any) -> np.ndarray:
        """A section of whole numbers."""
        return np.frombuffer(self.section(place), np.int64)

    def verify_constants(self) -> None:
        """Read all constants and compare their checksum."""
        digest = blake2b(digest_size=32)
        for place in self.description["constants"]:
            digest.update(self.section(place))
        if digest.hexdigest() != self.description["constants_digest"]:
            raise BadContext("the checksum of its constants is wrong")


def read(data: memoryview) -> Container:
    """Open a context; BadContext with the reason if that cannot be."""
    if len(data) < HEADER_BYTES or bytes(data[:8]) != MAGIC:
        raise BadContext("it does not begin like one")
    _, version, _, described, checked, total, digest = _HEADER.unpack_from(data)
    if version != FORMAT:
        raise BadContext(f"its format is {version}, this version reads {FORMAT}")
    if total != len(data) or not HEADER_BYTES <= HEADER_BYTES + described <= checked <= total:
        raise BadContext(f"it has {len(data)} bytes and should have {total}")
    if _digest(data[: _HEADER.size - 32], data[HEADER_BYTES:checked]) != digest:
        raise BadContext("its checksum is wrong")
    try:
        description = json.loads(bytes(data[HEADER_BYTES : HEADER_BYTES + described]))
    except (ValueError, RecursionError) as error:
        raise BadContext(f"its description cannot be read ({error})") from error
    if not isinstance(description, dict):
        raise BadContext("its description is no object")
    return Container(description, data, digest)


def _digest(header: bytes | memoryview, checked: bytes | memoryview) -> bytes:
    hashed = blake2b(bytes(header), digest_size=32)
    hashed.update(checked)
    return hashed.digest()


class Writer:
    """Collects sections while a context is made."""

    def __init__(self) -> None:
        self._sections: list[bytes] = []
        self._constants: list[np.ndarray] = []
        self._known: dict[tuple[int, int], int] = {}
        self._hash = blake2b(digest_size=32)
        self.digest = b""
        """The checksum of what was written."""

    def add(self, data: bytes) -> int:
        """The number of a section of checked data."""
        self._sections.append(data)
        return len(self._sections) - 1

    def add_constant(self, array: np.ndarray) -> int:
        """The number of a constant; the same one for the same memory."""
        key = array.ctypes.data, array.nbytes
        if key not in self._known:
            self._known[key] = len(self._constants)
            self._constants.append(array)  # which keeps the memory, so that the key stays true
            self._hash.update(_bytes_of(array))
        return self._known[key]

    def write(self, file: IO[bytes], description: dict[str, Any]) -> int:
        """Write everything; returns how many bytes that were. `description` gets to know where sections and constants are."""
        text, checked, total = self._describe(description)
        body = io.BytesIO()
        body.write(text)
        for offset, data in zip((section[0] for section in description["sections"]), self._sections):
            body.write(b"\0" * (offset - HEADER_BYTES - body.tell()))
            body.write(data)
        body.write(b"\0" * (checked - HEADER_BYTES - body.tell()))
        header = _HEADER.pack(MAGIC, FORMAT, 0, len(text), checked, total, b"")[: _HEADER.size - 32]
        self.digest = _digest(header, body.getbuffer())
        file.write((header + self.digest).ljust(HEADER_BYTES, b"\0"))
        file.write(body.getbuffer())
        position = checked
        for (offset, size), array in zip(description["constants"], self._constants):
            file.write(b"\0" * (offset - position))
            file.write(_bytes_of(array))
            position = offset + size
        file.write(b"\0" * (total - position))
        return total

    def _describe(self, description: dict[str, Any]) -> tuple[bytes, int, int]:
        """The description with all places, how much is checked, and how much there is. Places move with the text's own length."""
        description["constants_digest"] = self._hash.hexdigest()
        reserved = PAGE
        while True:
            sections, end = _placed(HEADER_BYTES + reserved, map(len, self._sections))
            checked = -(-end // PAGE) * PAGE
            constants, total = _placed(checked, (array.nbytes for array in self._constants))
            description["sections"], description["constants"] = sections, constants
            text = json.dumps(description, separators=(",", ":"), allow_nan=False).encode()
            if len(text) <= reserved:
                return text, checked, total
            reserved = -(-len(text) // PAGE) * PAGE + PAGE


def _placed(start: int, sizes: Iterable[int]) -> tuple[list[Section], int]:
    """Places one behind the other from `start` on, and where they end."""
    places = []
    for size in sizes:
        start = -(-start // ALIGNMENT) * ALIGNMENT
        places.append((start, size))
        start += size
    return places, -(-start // ALIGNMENT) * ALIGNMENT


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
