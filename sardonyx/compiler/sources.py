"""A fingerprint of the package's sources. What they generated once stays valid in the cache until one of them changes.

`jit` asks, for what it keeps in the cache.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator

from sardonyx.compiler import IMPORTED, cache
from sardonyx.startup.hashing import blake2b

FOLDERS = ("compiler", "ops", "providers")
"""Where all that stands that generates code, inside the package."""
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@functools.cache
def fingerprint() -> str | None:
    """Changes with every edit, by which Python, too, knows that a module is to be compiled again.

    None where sources cannot be looked at, and if some were edited since this process began.
    """
    try:
        files = sorted(file for folder in FOLDERS for file in _sources(os.path.join(PACKAGE, folder)))
    except OSError:
        return None
    if not files or max(changed for _, changed, _ in files) >= IMPORTED * 1e9:
        return None
    return cache.key_of(repr([sys.version, files]))


@functools.cache
def content_digest() -> str | None:
    """What tells the content of the sources, wherever and whenever they were installed.

    It is kept in the cache, for reading all takes a while. None where `fingerprint` is None.
    """
    known = fingerprint()
    if known is None:
        return None
    key = cache.key_of(f"content/{known}")
    kept = cache.shared().get(key)
    if kept is not None:
        return kept.decode()
    hashed = blake2b(digest_size=20)
    try:
        for path in sorted(path for folder in FOLDERS for path, _, _ in _sources(os.path.join(PACKAGE, folder))):
            with open(path, "rb") as file:
                content = file.read()
            hashed.update(f"{os.path.relpath(path, PACKAGE)} {len(content)} ".replace(os.sep, "/").encode())
            hashed.update(content)
    except OSError:
        return None
    cache.shared().put(key, hashed.hexdigest().encode())
    return hashed.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    """Name, time of the last change and size of every source in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)
