"""How kernels that loop in Python hear that their run shall end: the executor says who can ask for it, kernels go through `watched`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from sardonyx.errors import Fail

TERMINATED = "Exiting due to terminate flag being set to true."
T = TypeVar("T")
_asked: ContextVar[Callable[[], bool] | None] = ContextVar("_asked", default=None)


@contextlib.contextmanager
def heard(terminated: Callable[[], bool] | None) -> Iterator[None]:
    """While it lasts, kernels of this thread look whether their run shall end."""
    token = _asked.set(terminated)
    try:
        yield
    finally:
        _asked.reset(token)


def watched(items: Iterable[T]) -> Iterable[T]:
    """The items of a long loop; before each of them the run may end."""
    terminated = _asked.get()
    return items if terminated is None else _watched(items, terminated)


def _watched(items: Iterable[T], terminated: Callable[[], bool]) -> Iterator[T]:
    for item in items:
        if terminated():
            raise Fail(TERMINATED)
        yield item
