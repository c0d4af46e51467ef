"""Work that nobody waits for: it is done when the process has had a moment for its first results, or at the latest when it ends.

A session writes what became of its model, which takes as long as to prepare a small one, and compiles well what it has compiled in a
hurry.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable

from sardonyx.startup.locks import Lock

DELAY = 0.25
"""How many seconds work waits. 0 lets nothing wait."""

_waiting: dict[str, Callable[[], None]] = {}
_is_watched = False
"""Whether a thread will do what waits."""
_lock = Lock()
_doing = Lock()
_done_now: str | None = None
"""The key of what is just being done."""


def put_off(key: str, work: Callable[[], None]) -> None:
    """Do some work later, once for each key."""
    if not DELAY:
        work()
        return
    global _is_watched
    with _lock:
        _waiting[key] = work
        starts, _is_watched = not _is_watched, True
    if starts:
        threading.Thread(target=_watch, name="sardonyx-later", daemon=True).start()


def finish(key: str | None = None) -> None:
    """Do what waits under a key, or everything, before this returns; what another thread is just doing is waited for."""
    global _done_now
    if key is not None and key not in _waiting and key != _done_now:
        return
    with _doing:
        for waiting in list(_waiting) if key is None else [key]:
            _done_now = waiting  # before it is taken out, so that nobody misses both
            try:
                if (work := _waiting.pop(waiting, None)) is not None:
                    work()
            finally:
                _done_now = None


def _watch() -> None:
    global _is_watched
    while True:
        time.sleep(DELAY)
        finish()
        with _lock:
            if not _waiting:
                _is_watched = False
                return


def _forget() -> None:
    """A child has no thread that watches, and leaves the work to its parent."""
    global _is_watched, _done_now
    _waiting.clear()
    _is_watched, _done_now = False, None


atexit.register(finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
