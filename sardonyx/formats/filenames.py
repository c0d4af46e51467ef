"""Files named after values of a model: any name becomes that of a file, on any system, and no two become the same one."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 255
"""The longest name that file systems take."""
SUFFIX_BYTES = 40
"""Bytes of it that are left to numbers and the suffix."""
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names of devices on Windows, whatever their suffix."""


def stem_of(name: str) -> str:
    """A name as a part of a file's: what not every system takes is written as in addresses, `a/b` as `a%2Fb`.

    `urllib.parse.unquote` turns it back, unless it was too long.
    """
    text = re.sub(r"[^\w.-]|^[.-]", _quoted, name)
    if RESERVED.fullmatch(text):
        text = f"%{ord(text[0]):02X}{text[1:]}"
    return _cut(text, MAX_BYTES - SUFFIX_BYTES) or "%"


def _quoted(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


class FileNames:
    """The files of one folder that are about to be written."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._taken: set[str] = set()

    def new(self, stem: str, suffix: str) -> Path:
        """A file that no other has, also where large and small letters are the same: others get a number."""
        return self.folder / next(name for name in _numbered(stem, suffix) if self._take(name))

    def _take(self, name: str) -> bool:
        key = unicodedata.normalize("NFC", name).casefold()
        is_new = key not in self._taken
        self._taken.add(key)
        return is_new


def _numbered(stem: str, suffix: str) -> Iterator[str]:
    yield stem + suffix
    for number in itertools.count(2):
        yield f"{stem} ({number}){suffix}"
