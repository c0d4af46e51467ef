"""Locks for programs that fork. A child has none of its parent's other threads, so what one of them held would never be released there."""

from __future__ import annotations

import os
import threading
import weakref

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """As `threading.Lock`. A forked child finds it open, whoever held it: what it guards must make sense after each statement."""

    __slots__ = ("_lock", "__weakref__")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class LockThatForksWaitFor(Lock):
    """A fork waits until nobody holds it: what it guards, as LLVM, cannot be left in the middle of something."""

    __slots__ = ()


_held_for_fork: list[LockThatForksWaitFor] = []


def _wait_for_holders() -> None:
    for lock in list(_locks):
        if isinstance(lock, LockThatForksWaitFor):
            lock.acquire()
            _held_for_fork.append(lock)


def _let_go() -> None:
    while _held_for_fork:
        _held_for_fork.pop().release()


def _open_all() -> None:
    _held_for_fork.clear()
    for lock in list(_locks):
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_holders, after_in_parent=_let_go, after_in_child=_open_all)
