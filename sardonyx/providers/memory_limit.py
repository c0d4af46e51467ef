"""How much memory one tensor may take at most. Kernels whose results are as large as a number in the model says ask before they allocate.

The system hands out more memory than there is, and ends the process that uses it: so we refuse what cannot be had.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sardonyx.errors import KernelError

LARGEST_BYTES = 1 << 40
"""More than this no tensor takes: a model that asks for it is broken or hostile."""
LARGEST_NUMBER = 1 << 62
"""Beyond this, sums of two numbers may not fit 64 bits."""
CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@functools.cache
def largest_bytes() -> int:
    """What the machine has, or the control group that we are in."""
    return min(LARGEST_BYTES, *_limits())


def _limits() -> Iterator[int]:
    """Nothing where the system does not tell."""
    try:
        with open("/proc/meminfo") as file:
            sizes = dict(line.split(":", 1) for line in file)
        yield 1024 * sum(int(sizes[name].split()[0]) for name in ("MemTotal", "SwapTotal"))
    except (OSError, KeyError, ValueError):
        yield LARGEST_BYTES
    for path in CONTROL_GROUPS:
        try:
            with open(path) as file:
                yield int(file.read())
        except (OSError, ValueError):  # another version of control groups, or no limit: "max"
            continue


def require(size: int, name: str) -> None:
    """Refuse what takes more bytes than there are."""
    if size > largest_bytes():
        raise KernelError(f"{name} takes {size} bytes, more than the {largest_bytes()} that there are")
