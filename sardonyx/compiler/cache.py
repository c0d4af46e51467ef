"""Object code on disk, so that what was compiled once is only loaded afterwards. `jit` asks it; many processes may share one folder.

The folder is `SARDONYX_CACHE_DIR`, else `sardonyx` in the user's cache folder; `SARDONYX_CACHE_DIR=` (empty) keeps nothing. An entry is
written to a file of its own and then renamed, and carries a checksum: one that was cut or damaged counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from pathlib import Path

MAGIC = b"sardonyx object 1\n"
MAX_BYTES = 256 << 20
"""How much the folder may hold before its oldest entries go; `SARDONYX_CACHE_BYTES` sets another bound."""
CHECK_EVERY = 64
"""After how many writes of this process the folder's size is looked at."""


def default_folder() -> Path | None:
    """Where entries are kept, None for nowhere."""
    given = os.environ.get("SARDONYX_CACHE_DIR")
    if given is not None:
        return Path(given) if given else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "sardonyx" if base and os.path.isabs(base) else None


class ObjectCache:
    """Files by key under a folder. Whatever goes wrong with a file is as if it were not there."""

    def __init__(self, folder: Path | None, max_bytes: int | None = None):
        self.folder = folder
        self.max_bytes = int(os.environ.get("SARDONYX_CACHE_BYTES", MAX_BYTES)) if max_bytes is None else max_bytes
        self._written = 0

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / key[:2] / key[2:]

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
        payload = data[len(MAGIC) + 32 :]
        if not data.startswith(MAGIC) or data[len(MAGIC) : len(MAGIC) + 32] != hashlib.sha256(payload).digest():
            return None
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep an entry, unless the disk refuses."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
            self._written += 1
            if self._written % CHECK_EVERY == 1:
                self.shrink()

    def shrink(self) -> None:
        """Remove the oldest entries until the folder is below three quarters of its bound, if it is above that."""
        if self.folder is None:
            return
        entries = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                found = path.stat()
                entries.append((found.st_mtime, found.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(entries):
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.max_bytes * 3 // 4:
                return
