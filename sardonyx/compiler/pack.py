"""Packs of kernels that were compiled ahead: files of object code by the digests of kernels' texts, which `jit` asks before it compiles.

The distribution `sardonyx-kernels` (`packaging/kernels`) is a package without code, with one pack for each level of CPUs. It is installed
code like any other, so it is trusted like any other; checksums are there for damage. An object is the one of a text, whoever compiled
it: a pack of an older release is good for the kernels that have not changed since.

A pack also knows which text the sources that it was built with write for which arguments, so that texts need not be written at all. That
half is used only where the sources are the same.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sardonyx.compiler.target import X86_LEVELS
from sardonyx.startup.hashing import blake2b

PACKAGE = "sardonyx_kernels"
"""Where packs are looked for, if it is installed. It is never imported."""
ENDING = ".kernels"
MAGIC = b"sardonyx kernels 1\n"
DIGEST_BYTES = 16
KEY_BYTES = 20
_HEAD_SIZE = struct.Struct("<I")
_TEXT = struct.Struct(f"<{KEY_BYTES}s{DIGEST_BYTES}s")
"""Key of the arguments, digest of the text."""
_OBJECT = struct.Struct(f"<{DIGEST_BYTES}sQI{DIGEST_BYTES}s")
"""Digest of the text, where its object begins, how many bytes it has, and their checksum."""


class BadPack(Exception):
    """A file is no pack, not a whole one, or not one for us."""


class Pack:
    """An open pack."""

    def __init__(self, path: str, layout: int):
        """`layout` is the version of objects that can be used."""
        try:
            with open(path, "rb") as file:
                self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise BadPack(f"it cannot be read ({error})") from error
        start = len(MAGIC) + _HEAD_SIZE.size
        if len(self._data) < start or self._data[: len(MAGIC)] != MAGIC:
            raise BadPack("it does not begin like one")
        (head_bytes,) = _HEAD_SIZE.unpack_from(self._data, len(MAGIC))
        try:
            head = json.loads(bytes(self._data[start : start + head_bytes]))
            self.level, self.sources = str(head["level"]), str(head["sources"])
            self.needs: list[str] = head["needs"]
            """LLVM's names of what a CPU must have."""
            texts, objects, content = (int(head[name]) for name in ("texts", "objects", "bytes"))
            index, is_for_us = bytes.fromhex(head["index"]), (head["layout"], head["machine"]) == (layout, platform.machine())
        except (KeyError, TypeError, ValueError) as error:
            raise BadPack("its head is damaged") from error
        if not is_for_us or self.level not in X86_LEVELS:
            raise BadPack("it is for other machines or another release")
        middle = start + head_bytes + texts * _TEXT.size
        self._content = middle + objects * _OBJECT.size
        if min(texts, objects, content) < 0 or self._content + content != len(self._data):
            raise BadPack("it is cut off, or too long")
        if _checksum(self._data[start + head_bytes : self._content]) != index:
            raise BadPack("its index is damaged")
        self._texts = self._data[start + head_bytes : middle]
        self._objects = self._data[middle : self._content]

    def digest_of(self, key: str) -> str | None:
        """The digest of the text that the sources of this pack write for some arguments, if it is known."""
        row = _find(self._texts, _TEXT, bytes.fromhex(key))
        return None if row is None else row[1].hex()

    def object_of(self, digest: str) -> bytes | None:
        """The object code of a text, None if there is none that is whole."""
        row = _find(self._objects, _OBJECT, bytes.fromhex(digest))
        if row is None:
            return None
        import zlib

        _, start, size, checksum = row
        packed = self._data[self._content + start : self._content + start + size]
        return zlib.decompress(packed) if _checksum(packed) == checksum else None


def _find(table: memoryview, row: struct.Struct, key: bytes) -> tuple[bytes, ...] | None:
    """The row of a sorted table that begins with a key."""
    low, high = 0, len(table) // row.size
    while low < high:
        middle = (low + high) // 2
        found = row.unpack_from(table, middle * row.size)
        if found[0] == key:
            return found
        if found[0] < key:
            low = middle + 1
        else:
            high = middle
    return None


def write(
    path: str,
    level: str,
    needs: Sequence[str],
    texts: Mapping[str, str],
    objects: Mapping[str, bytes],
    *,
    layout: int,
    sources: str,
) -> None:
    """Write a pack: digests of texts by key, object code by digest."""
    import zlib

    content, rows = bytearray(), []
    for digest, object_code in sorted(objects.items()):
        packed = zlib.compress(object_code, 9)
        rows.append(_OBJECT.pack(bytes.fromhex(digest), len(content), len(packed), _checksum(packed)))
        content += packed
    index = b"".join([_TEXT.pack(bytes.fromhex(key), bytes.fromhex(digest)) for key, digest in sorted(texts.items())] + rows)
    head = {
        "level": level,
        "needs": list(needs),
        "machine": platform.machine(),
        "layout": layout,
        "sources": sources,
        "texts": len(texts),
        "objects": len(objects),
        "bytes": len(content),
        "index": _checksum(index).hex(),
    }
    encoded = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(b"".join([MAGIC, _HEAD_SIZE.pack(len(encoded)), encoded, index, content]))


def _checksum(data: bytes | bytearray | memoryview) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def find_folder() -> str | None:
    """The folder of the installed packs, None if there is none."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(PACKAGE)
    locations = spec.submodule_search_locations if spec is not None else None
    return next(iter(locations), None) if locations else None


def usable(
    folder: str, levels: Iterable[str], layout: int, features: Collection[str], complain: Callable[[str], None]
) -> list[Pack]:
    """The packs of a folder for some levels, in their order, whose code a CPU with these features can run."""
    packs = []
    for level in levels:
        path = os.path.join(folder, level + ENDING)
        try:
            pack = Pack(path, layout)
        except BadPack as error:
            if os.path.exists(path):
                complain(f"The kernels of {path} are not used: {error}")
            continue
        if pack.level == level and set(pack.needs).issubset(features):
            packs.append(pack)
    return packs
