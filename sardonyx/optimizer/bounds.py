"""Bounds on rewriting: whoever repeats something until nothing changes counts its changes here.

Rules that undo each other, or that let a graph grow for ever, then end with their names. In production that is a warning, and the
graph stays as the last rewrite left it, which is correct; in tests it is an error.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable

from sardonyx.errors import Fail, is_strict
from sardonyx.ir import Node

logger = logging.getLogger("sardonyx.optimizer")

APPLICATIONS_PER_NODE = 32
"""How often the rules of one stage may be applied, for each node that a graph had at first."""
LEAST_ROUNDS = 10
"""A level may be repeated so often in any graph."""
GROWTH = 32
"""How many nodes there may be in the end, for each that a graph had at first."""
EDITS_PER_NODE = 512
"""How often nodes may be linked and get or lose operands during one optimization, for each node that a graph had at first."""
SMALL = 64
"""Graphs of fewer nodes count as this many."""
RECENT = 16
"""So many of the last changes tell who keeps changing a graph."""


class Endless(Fail):
    """A graph changes again and again."""


def applications(nodes: int) -> int:
    """How often the rules of one stage may be applied to a graph of so many nodes."""
    return APPLICATIONS_PER_NODE * max(nodes, SMALL)


def rounds(nodes: int) -> int:
    """How often a level may be repeated: what one round makes possible for the next goes along a graph, but seldom all of it."""
    return LEAST_ROUNDS + math.isqrt(nodes)


class Bound:
    """Counts changes up to a limit, and remembers who made the last ones."""

    def __init__(self, where: str, limit: int):
        self.where = where
        self.limit = limit
        self.count = 0
        self.is_spent = False
        self._recent: deque[str] = deque(maxlen=RECENT)

    def note(self, name: str) -> None:
        """A rule or pass has changed something."""
        self._recent.append(name)

    def spend(self, name: str | None = None) -> bool:
        """Count a change, by a rule or pass that is noted; False if there were too many, and whoever asks stops."""
        if name is not None:
            self.note(name)
        self.count += 1
        if self.count > self.limit:
            self.stop(f"after {self.limit} changes")
        return not self.is_spent

    def stop(self, reason: str) -> None:
        """Say who made the last changes, and that no more are made."""
        self.is_spent = True
        names = ", ".join(dict.fromkeys(self._recent))
        text = f"{self.where}: rewriting does not come to an end and is stopped {reason}. Still at work: {names or 'nobody'}"
        if is_strict():
            raise Endless(text)
        logger.warning("%s", text)


class Edits(list[Node]):
    """The edits of a model's graphs, which end a pass that makes them without end."""

    def __init__(self, nodes: int):
        super().__init__()
        self.limit = EDITS_PER_NODE * max(nodes, SMALL)

    def __iadd__(self, nodes: Iterable[Node]) -> Edits:  # type: ignore[override,misc]
        self.extend(nodes)
        if len(self) > self.limit:
            raise Endless(f"a pass edits a graph again and again, {self.limit} times so far, the last time at {self[-1]}")
        return self
