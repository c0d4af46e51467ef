"""Slows the garbage collector down while a session is made. Nearly all objects made then stay, so collecting them often is wasted time.

`InferenceSession` makes its engine inside `rarely_collected`.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from sardonyx.startup.locks import Lock

ENOUGH = 200_000
"""How many new objects trigger a collection of the youngest generation."""

_lock = Lock()
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
