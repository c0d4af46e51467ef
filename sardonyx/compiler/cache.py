"""A cache on disk: object code for `jit`, and the keys by which it is found. Many processes may share one folder.

The folder is `SARDONYX_CACHE_DIR`, else `sardonyx` in the user's cache folder; `SARDONYX_CACHE_DIR=` (empty) keeps nothing. An entry is
written to a file of its own and then renamed, and carries a checksum: one that was cut or damaged counts as absent.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence

from sardonyx.errors import InvalidArgument
from sardonyx.settings import CACHE_BYTES, CACHE_DIRECTORY, Setting
from sardonyx.startup.hashing import blake2b

MAGIC = b"sardonyx object 2\n"
CHECKSUM_BYTES = 32
PARTS = 256
"""Folders inside the cache's, by the first two digits of keys. Keys fall evenly into them."""
CHECKED = ("00", "40", "80", "c0")
"""The parts whose size is looked at when something is written to them: one entry in 64, whoever writes it."""
BLOCK_BYTES = 4096
"""What the smallest file takes."""


def key_of(text: str) -> str:
    """The key under which whatever this text describes is kept."""
    return blake2b(text.encode(), digest_size=20).hexdigest()


def default_folder() -> str | None:
    """Where entries are kept, None for nowhere."""
    folder = os.environ.get(CACHE_DIRECTORY)
    if folder is not None:
        return folder or None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "sardonyx") if base and os.path.isabs(base) else None


def given_bytes(setting: Setting = CACHE_BYTES) -> int:
    """How much a folder may hold before its oldest entries go, as an environment variable says."""
    limit = os.environ.get(setting) or setting.default
    if not (limit.isascii() and limit.isdecimal()):
        raise InvalidArgument(f"{setting} must be a number of bytes, not {limit!r}")
    return int(limit)


class ObjectCache:
    """Files by key under a folder. Whatever goes wrong with a file is as if it were not there."""

    def __init__(self, folder: str | os.PathLike[str] | None, max_bytes: int | None = None):
        self.folder = folder
        self.max_bytes = given_bytes() if max_bytes is None else max_bytes

    def _path(self, key: str) -> str | None:
        return None if self.folder is None else os.path.join(self.folder, key[:2], key[2:])

    def get(self, key: str) -> bytes | None:
        """The entry of a key, None if there is none that is whole."""
        path = self._path(key)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                    return None  # code that somebody else put there is not ours to run
                data = file.read()
        except OSError:
            return None
        payload = data[len(MAGIC) + CHECKSUM_BYTES :]
        return payload if data.startswith(_head(payload)) else None

    def put(self, key: str, payload: bytes) -> None:
        """Keep an entry, unless the disk refuses."""
        self.write(key, _head(payload) + payload)
        path = self._path(key)
        if path is not None and key.startswith(CHECKED):
            if _bytes_in(_entries(os.path.dirname(path))) * PARTS > self.max_bytes:
                self.shrink()

    def write(self, key: str, *parts: bytes | memoryview) -> None:
        """Make a file of a key, at once and whole, unless the disk refuses."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            folder = os.path.dirname(path)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            temporary = os.path.join(folder, f".new-{os.urandom(12).hex()}")  # `tempfile` loads much
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.writelines(parts)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise

    def drop(self, key: str) -> None:
        """Keep an entry no longer."""
        path = self._path(key)
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def entries(self) -> list[tuple[float, int, str]]:
        """When each entry was written or last used, how much disk it takes, and its path."""
        if self.folder is None:
            return []
        parts = [os.path.join(self.folder, f"{number:02x}") for number in range(PARTS)]
        return [entry for part in parts for entry in _entries(part)]

    def shrink(self) -> None:
        """Remove the oldest entries until the folder is below three quarters of its bound, if it is above that."""
        entries = self.entries()
        if _bytes_in(entries) > self.max_bytes:
            self.remove(entries, self.max_bytes * 3 // 4)

    def remove(self, entries: Sequence[tuple[float, int, str]], keep_bytes: int = 0) -> int:
        """Remove the oldest of some entries until they take no more than `keep_bytes`; returns how many those were."""
        total, removed = _bytes_in(entries), 0
        for _, size, path in sorted(entries):
            if total <= keep_bytes:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed += 1
            total -= size
        return removed


def _entries(part: str) -> list[tuple[float, int, str]]:
    """When each entry of a part was written, how much it takes, and its path."""
    found = []
    with contextlib.suppress(OSError), os.scandir(part) as files:
        for file in files:
            if not file.name.startswith("."):
                with contextlib.suppress(OSError):
                    status = file.stat()
                    found.append((status.st_mtime, max(status.st_size, BLOCK_BYTES), file.path))
    return found


def _bytes_in(entries: Sequence[tuple[float, int, str]]) -> int:
    return sum(size for _, size, _ in entries)


def _head(payload: bytes) -> bytes:
    """What stands before an entry's content."""
    return MAGIC + blake2b(payload, digest_size=CHECKSUM_BYTES).digest()


@functools.cache
def shared() -> ObjectCache:
    """The process's own."""
    return ObjectCache(default_folder())
