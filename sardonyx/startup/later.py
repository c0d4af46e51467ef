"""Work that nobody waits for: it is done when the process has had a moment for its first results, or at its end.

A session writes what became of its model, which takes as long as to prepare a small one, and compiles well what it has compiled in a
hurry. Work that takes long asks between its parts whether there `is_time`, and gives up when there is none: a process that ends does
not go on for long.
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
DELAY_IN_CHILDREN = 2.0
"""How many seconds it waits in a forked child: what its parent has done meanwhile is in the cache."""
SECONDS_AT_END = 1.0
"""How long a process that ends goes on with what waits."""


class _Work:
    """Something to be done once, whoever comes to it first."""

    __slots__ = ("call", "in_children", "_lock", "_is_done")

    def __init__(self, call: Callable[[], None], in_children: bool):
        self.call = call
        self.in_children = in_children
        self._lock = Lock()
        self._is_done = False

    def do(self) -> None:
        """Do it, or wait for who is just doing it."""
        with self._lock:
            if not self._is_done:
                self._is_done = True
                self.call()


_waiting: dict[str, _Work] = {}
_is_watched = False
"""Whether a thread will do what waits."""
_lock = Lock()
_is_child = False
_end: float | None = None
"""When there will be no more time, as the clock of `time.monotonic` shows it; None as long as the process does not end."""


def put_off(key: str, work: Callable[[], None], in_children: bool = False) -> None:
    """Do some work later, once for each key. `in_children` has forked children do it for themselves."""
    if _end is not None:
        return
    if not DELAY:
        work()
        return
    with _lock:
        _waiting.pop(key, None)  # it comes behind what was put off meanwhile
        _waiting[key] = _Work(work, in_children)
    _have_watched(DELAY)


def is_waiting(key: str) -> bool:
    """Whether work of a key is still to be done."""
    return key in _waiting


def is_time() -> bool:
    """Whether work may go on."""
    return _end is None or time.monotonic() < _end


def is_ending() -> bool:
    """Whether the process is about to end, so that work is for others alone."""
    return _end is not None


def finish(key: str | None = None) -> None:
    """Do what waits under a key, or everything, before this returns; what another thread is just doing is waited for."""
    for waiting in list(_waiting) if key is None else [key]:
        work = _waiting.get(waiting)
        if work is not None:
            try:
                work.do()
            finally:
                with _lock:
                    if _waiting.get(waiting) is work:  # it may have put itself off once more
                        del _waiting[waiting]


def _have_watched(delay: float) -> None:
    global _is_watched
    with _lock:
        starts, _is_watched = not _is_watched, True
    if starts:
        threading.Thread(target=_watch, args=(delay,), name="sardonyx-later", daemon=True).start()


def _watch(delay: float) -> None:
    global _is_watched
    while True:
        time.sleep(delay)
        finish()
        with _lock:
            if not _waiting:
                _is_watched = False
                return


def _finish_at_end() -> None:
    """Go on a little while, and stop whoever goes on: nothing may be under way when the process is taken apart."""
    global _end
    _end = time.monotonic() + (0 if _is_child else SECONDS_AT_END)
    finish()


def _begin_child() -> None:
    """A child has no thread that watches. It leaves to its parent what one process can do for both."""
    global _is_watched, _is_child
    _is_watched, _is_child = False, True
    waiting = {key: _Work(work.call, True) for key, work in _waiting.items() if work.in_children}
    _waiting.clear()
    _waiting.update(waiting)
    if waiting:
        _have_watched(DELAY_IN_CHILDREN)


atexit.register(_finish_at_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
