"""Threads for `run_async`: made when first needed, made anew in a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sardonyx.startup.locks import Lock

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_lock = Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None


def submit(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in another thread. What it raises is lost, as there is nobody to catch it."""
    from concurrent.futures import ThreadPoolExecutor

    global _pool
    with _lock:
        if _pool is None or _pool[0] != os.getpid():
            _pool = os.getpid(), ThreadPoolExecutor(thread_name_prefix="sardonyx-run")
        _pool[1].submit(function, *arguments)
