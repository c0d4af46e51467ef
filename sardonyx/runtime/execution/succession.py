"""An engine in the place of another: a model may give one name to sizes that differ, as the first run with such shapes shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sardonyx.errors import CODED
from sardonyx.runtime.preparation.alternatives import Alternatives
from sardonyx.runtime.preparation.names import SharedNames
from sardonyx.startup.locks import Lock

if TYPE_CHECKING:
    from sardonyx.runtime.execution.engine import Engine

logger = logging.getLogger("sardonyx.runtime")
T = TypeVar("T")


class Succession:
    """Whom an engine gives way to. Any number of threads may ask.

    There is no need for both engines, nor for the weights of both: the second takes all that the first takes. So the first lets go of
    its own before the second is made, and runs that come meanwhile wait. Shapes may also be a caller's mistake: if the first run fails,
    everything is as it was, and it stays so. The engine is handed in: who held it would keep it alive until garbage is collected.
    """

    def __init__(self, names: SharedNames | None, others: Alternatives):
        self._names = names
        self._others = others
        self._lock = Lock()
        self._is_proven = False
        self.successor: Engine | None = None

    def unequal(self, values: Mapping[str, Any]) -> Sequence[str]:
        """Names that stand for sizes which differ: these values are not for this engine."""
        return () if self._names is None else self._names.contradicted(values)

    def current(self, first: Engine) -> Engine:
        """The engine that runs, once it is there."""
        with self._lock:
            return self.successor or first

    def run(self, first: Engine, names: Sequence[str], run: Callable[[Engine], T]) -> T:
        """One run with sizes of these names that differ."""
        engine = self._made(first, names)
        try:
            result = run(engine)
        except CODED:
            if engine is not first and not self._is_proven:
                self._take_back(first)
            raise
        self._is_proven = True
        return result

    def _made(self, first: Engine, names: Sequence[str]) -> Engine:
        """The engine that takes sizes of these names for different ones; the first one if there can be none."""
        with self._lock:
            if self.successor is None and self._names is not None:
                first.let_go()
                try:
                    self.successor = self._others.with_unequal_sizes(names)
                    first.direct = self._direct
                except CODED as error:
                    logger.info("No plan for sizes of %s that differ: %s", ", ".join(names), error)
                    self._restore(first)
            return self.successor or first

    def _direct(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The successor's fast path."""
        direct = None if self.successor is None else self.successor.direct
        return None if direct is None else direct(feeds)

    def _take_back(self, first: Engine) -> None:
        with self._lock:
            if self.successor is not None and not self._is_proven:
                self.successor = None
                self._restore(first)

    def _restore(self, first: Engine) -> None:
        self._names = None
        first.go_on(self._others.again())
