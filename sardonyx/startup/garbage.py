"""Slows the garbage collector down while modules are imported and a session is made, until there has been a moment for first results.

Nearly all objects made then stay. Looking at them often is wasted time, and looking at them once, at the end, takes a tenth of what a
small model needs to start. `InferenceSession` makes its engine inside `rarely_collected`, and so are our modules imported.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

from sardonyx.startup import later
from sardonyx.startup.locks import Lock

ENOUGH = 200_000
"""How many new objects trigger a collection of the youngest generation."""

AS_USUAL = "collecting as usual"

_lock = Lock()
_inside = 0
_usual: tuple[int, int, int] | None = None
"""The thresholds of the program, while there are others in their place."""
_have_waited: set[str] = set()
"""For what the collector has been put off: once for each. Who makes one session after the other needs the memory of the first ones."""


@contextlib.contextmanager
def rarely_collected(what: str) -> Iterator[None]:
    """Let the collector run rarely while some thread is inside, a moment longer the first time that this is for `what`.

    Imports come some time before a session, so each of them waits on its own. Where the collector is off it stays off.
    """
    global _inside, _usual
    with _lock:
        given = gc.get_threshold()
        if 0 < given[0] < ENOUGH:
            _usual = given
            gc.set_threshold(ENOUGH, *given[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            is_last = not _inside
            waits = is_last and what not in _have_waited
            if is_last:
                _have_waited.add(what)
        if waits:
            later.put_off(AS_USUAL, _collect_as_usual)
        elif is_last and not later.is_waiting(AS_USUAL):
            _collect_as_usual()


def _collect_as_usual() -> None:
    """Give the program its thresholds back, unless it has chosen others meanwhile."""
    global _usual
    with _lock:
        if _usual is None or _inside:
            return  # who is inside comes here later
        if gc.get_threshold() == (ENOUGH, *_usual[1:]):
            gc.set_threshold(*_usual)
        _usual = None


def _begin_child() -> None:
    """A child has none of the threads that were inside, and none that would come back later."""
    global _inside
    _inside = 0
    _collect_as_usual()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
