"""What one case may use. Time is the CPU's, so that a busy machine makes no case late; memory is address space."""

from __future__ import annotations

import contextlib
import math
import resource
import signal
import time
from collections.abc import Iterator
from typing import Any

from tests.fuzz.driver import Hang, interrupt, limit_memory

__all__ = ["Hang", "cpu_limit", "limit_memory"]

GRACE = 20
"""CPU seconds after which the kernel ends a process that did not notice its own limit, as it is inside machine code."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise Hang in Python code that takes more CPU time than this; end the process a little later if it is not in Python code."""
    previous: Any = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds + GRACE), hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
        signal.signal(signal.SIGPROF, previous)
