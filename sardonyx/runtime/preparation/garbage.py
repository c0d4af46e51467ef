"""The garbage collector while a session is made: nearly all that is made then stays, and looking through it again and again takes long.

`InferenceSession` makes its engine inside `rarely_collected`.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

ENOUGH = 200_000
"""So many objects may come before the youngest are looked through."""

_lock = threading.Lock()
_inside = 0
_usual = gc.get_threshold()


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Let the collector run rarely while some thread is inside; where it is off it stays off."""
    global _inside, _usual
    with _lock:
        if not _inside:
            _usual = gc.get_threshold()
            gc.set_threshold(max(_usual[0], ENOUGH) if _usual[0] else 0, *_usual[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_usual)
