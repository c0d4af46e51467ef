"""An engine in the place of another: a model may give one name to sizes that differ, as the first run with such shapes shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sardonyx.errors import CODED
from sardonyx.providers.steps import StepCall
from sardonyx.runtime.preparation.alternatives import Alternatives
from sardonyx.runtime.preparation.names import COMPUTED, SharedNames
from sardonyx.startup.locks import Lock

if TYPE_CHECKING:
    from sardonyx.runtime.execution.engine import Engine

logger = logging.getLogger("sardonyx.runtime")
T = TypeVar("T")


class Succession:
    """Whom an engine gives way to. Any number of threads may ask.

    There is no need for both engines, nor for the weights of both: the second takes all that the first takes. So the first lets go of
    its own before the second is made, and runs that come meanwhile wait. Shapes may also be a caller's mistake: if the first run fails,
    everything is as it was, and it stays so; only in the place of remembered code comes the model that it was made from. The engine is
    handed in: who held it would keep it alive until garbage is collected.
    """

    def __init__(self, names: SharedNames | None, calls: Sequence[StepCall], others: Alternatives):
        """Without names that inputs share, and without calls that may tell of sizes which differ, there is no successor."""
        self._names = names
        self._calls = calls
        self._computed_differ = False
        self._others = others
        self._lock = Lock()
        self._is_proven = False
        self.successor: Engine | None = None

    def unequal(self, values: Mapping[str, Any]) -> Sequence[str]:
        """Names that stand for sizes which differ: these values are not for this engine."""
        if self._computed_differ:
            return (COMPUTED,)
        return () if self._names is None else self._names.contradicted(values)

    def look_back(self) -> bool:
        """Whether a run was left to NumPy as sizes that the model computes differ, though they have one name: no further run shall be."""
        if self._calls and any(call.had_unequal_sizes for call in self._calls):
            with self._lock:
                self._calls = ()
                try:
                    self._computed_differ = self._others.may_name_wrongly
                except CODED as error:
                    logger.info("The model cannot be loaded once more: %s", error)
        return self._computed_differ

    def give_way(self, first: Engine, other: Engine) -> None:
        """Let another engine run from now on, which has shown that it can."""
        with self._lock:
            self._calls = ()
            first.let_go()
            self.successor, self._is_proven = other, True
            first.direct = self._direct

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
            if self.successor is None and (self._names is not None or self._computed_differ):
                self._calls = ()
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
        self._names, self._calls, self._computed_differ = None, (), False
        if self._others.code_is_remembered:  # its plan was not made from the source, so it cannot be made again
            self.successor, self._is_proven = self._others.from_source(), True
            first.direct = self._direct
        else:
            first.go_on(self._others.again())
