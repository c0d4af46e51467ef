"""A fingerprint of the package's sources. What they generated once stays valid in the cache until one of them changes.

`jit` asks, for what it keeps in the cache.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator

from sardonyx.compiler import IMPORTED, cache

FOLDERS = ("compiler", "ops", "providers")
"""Where all that stands that generates code, inside the package."""


@functools.cache
def fingerprint() -> str | None:
    """Changes with every edit, by which Python, too, knows that a module is to be compiled again.

    None where sources cannot be looked at, and if some were edited since this process began.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        files = sorted(file for folder in FOLDERS for file in _sources(os.path.join(package, folder)))
    except OSError:
        return None
    if not files or max(changed for _, changed, _ in files) >= IMPORTED * 1e9:
        return None
    return cache.key_of(repr([sys.version, files]))


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    """Name, time of the last change and size of every source in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)
