"""A bar on a terminal for what takes long; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def progress(items: Iterable[Item], total: int | None, what: str) -> Iterator[Item]:
    """The items, counted on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import track
    except ModuleNotFoundError:  # a minimal install
        yield from items
        return
    yield from track(items, what, total=total, console=Console(stderr=True), transient=True)
