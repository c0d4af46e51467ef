"""Threads for `run_async`: made when first needed, made anew in a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_lock = threading.Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None


def submit(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in another thread. What it raises is lost, as there is nobody to catch it."""
    from concurrent.futures import ThreadPoolExecutor

    global _pool
    with _lock:
        if _pool is None or _pool[0] != os.getpid():
            _pool = os.getpid(), ThreadPoolExecutor(thread_name_prefix="sardonyx-run")
        _pool[1].submit(function, *arguments)


def _forget_lock() -> None:
    """A child must not inherit a lock that another thread of its parent held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
