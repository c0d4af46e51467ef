"""The caches of a CPU: how large they are, asked of the system. Choices that depend on what stays near are fractions of these."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from sardonyx.startup.records import dataclass

SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of the first CPU, which speaks for all."""
MAC_NAMES = {"first": "hw.l1dcachesize", "second": "hw.l2cachesize", "last": "hw.l3cachesize"}
LARGEST_LAST = 64 << 20
"""Last-level caches are shared among many cores. What one model can hope for is no more than this."""


@dataclass(frozen=True)
class Caches:
    """Sizes in bytes; where the system does not tell, those of a common server."""

    first: int = 32 << 10
    """The data cache of a core."""
    second: int = 1 << 20
    """The second-level cache of a core, in bytes."""
    last: int = 32 << 20
    """The last-level cache, which all cores share, in bytes."""
    ways: int = 8
    """How many lines of the first-level cache may have the same place."""
    line: int = 64

    @property
    def distance(self) -> int:
        """Places in memory that are a multiple of this apart compete for the same lines of the first-level cache."""
        return self.first // self.ways


@functools.cache
def here() -> Caches:
    """The caches of this machine."""
    sizes = dict(_linux() if sys.platform == "linux" else _mac() if sys.platform == "darwin" else ())
    return sensible(sizes)


def sensible(sizes: dict[str, int]) -> Caches:
    """What a system tells, without what cannot be: a virtual machine may tell anything."""
    usual = Caches()
    second = sizes.get("second", usual.second)
    last = min(max(sizes.get("last", usual.last), second), LARGEST_LAST)
    first, ways = sizes.get("first", usual.first), sizes.get("ways", usual.ways)
    if not 8 << 10 <= first <= 1 << 20 or not 128 << 10 <= second <= 64 << 20 or not 2 <= ways <= 32 or first % ways:
        return usual
    return Caches(first, second, last, ways, sizes.get("line", usual.line))


def _linux() -> Iterator[tuple[str, int]]:
    names = {"1": "first", "2": "second", "3": "last"}
    for folder in sorted(SYSTEM.glob("index*")):
        try:
            kind, level, size = ((folder / name).read_text().strip() for name in ("type", "level", "size"))
            if kind == "Instruction" or level not in names:
                continue
            yield names[level], int(size.removesuffix("K")) << 10
            if level == "1":
                yield "ways", int((folder / "ways_of_associativity").read_text())
                yield "line", int((folder / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue


def _mac() -> Iterator[tuple[str, int]]:
    import ctypes

    system = ctypes.CDLL(None)
    for name, key in MAC_NAMES.items():
        size, length = ctypes.c_int64(0), ctypes.c_size_t(8)
        if system.sysctlbyname(key.encode(), ctypes.byref(size), ctypes.byref(length), None, 0) == 0 and size.value > 0:
            yield name, size.value
