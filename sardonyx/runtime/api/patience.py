"""A sign of life on a terminal while a session is being made that takes its time."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Iterator

from sardonyx import settings

SECONDS = 1.0
"""Whatever takes less says nothing."""

_silent = contextvars.ContextVar("sardonyx_silent", default=False)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Sessions made inside say nothing, because the caller shows that something goes on."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


@contextlib.contextmanager
def shown(text: str) -> Iterator[None]:
    """Write a line to a terminal if what goes on inside takes long, and take it back at the end."""
    if not _is_wanted():
        yield
        return
    said = threading.Event()
    timer = threading.Timer(SECONDS, _say, (text, said))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            _write("\r\x1b[K")


def _is_wanted() -> bool:
    return not _silent.get() and sys.stderr is not None and sys.stderr.isatty() and settings.PROGRESS.is_on(os.environ)


def _say(text: str, said: threading.Event) -> None:
    said.set()
    _write(f"sardonyx: {text} …")


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a closed or missing stderr
        sys.stderr.write(text)
        sys.stderr.flush()
