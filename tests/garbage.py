"""What stays behind some work until Python's collector comes: objects of ours that hold each other in circles."""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable

from sardonyx.startup import later


def left_behind(work: Callable[[], object]) -> dict[str, int]:
    """How many objects of which types of ours are left for the collector. Work that is put off is done, too."""
    later.finish()
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        later.finish()
        gc.collect()
        ours = [type(left) for left in gc.garbage if type(left).__module__.startswith("sardonyx.")]
        return dict(collections.Counter(f"{left.__module__}.{left.__qualname__}" for left in ours))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_on:
            gc.enable()
