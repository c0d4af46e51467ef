"""How the time of a run divides between machine code and NumPy.

An engine measures its first run, and a profile each of its runs; `InferenceSession.explain` and the profile show what was found.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from sardonyx.ir import Node
from sardonyx.runtime.preparation.plan import Step

WARNED_SHARE = 0.1
"""From here on users are told that a part of their model is slow."""
WARNED_NANOSECONDS = 1_000_000
"""Below a millisecond nobody notices, and what is measured is the clock and the first touch of memory."""
SHOWN_NODES = 3

logger = logging.getLogger("sardonyx.runtime")


class TimeShares:
    """Times of one run by node. What runs inside of a graph, as the body of a Loop, counts for its own nodes."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns):
        self.native = 0
        """Nanoseconds in machine code, and in what other providers compute."""
        self.numpy: dict[Node, int] = {}
        """Nanoseconds in NumPy by node."""
        self._clock = clock
        self._inside = 0

    @contextlib.contextmanager
    def measure(self, step: Step) -> Iterator[None]:
        """Count what happens inside as time of a step."""
        around, self._inside = self._inside, 0
        start = self._clock()
        try:
            yield
        finally:
            elapsed = self._clock() - start
            self._add(step, elapsed - self._inside)
            self._inside = around + elapsed

    def _add(self, step: Step, elapsed: int) -> None:
        if step.in_numpy:
            self.numpy[step.node] = self.numpy.get(step.node, 0) + elapsed
        else:
            self.native += elapsed

    @property
    def outside(self) -> int:
        """Nanoseconds outside of machine code."""
        return sum(self.numpy.values())

    @property
    def outside_share(self) -> float:
        """The part of the steps' time that was spent outside of machine code."""
        total = self.native + self.outside
        return self.outside / total if total else 0.0

    def __str__(self) -> str:
        total = self.native + self.outside or 1
        slowest = sorted(self.numpy.items(), key=lambda entry: -entry[1])[:SHOWN_NODES]
        nodes = ", ".join(f"{node} {100 * elapsed / total:.0f} %" for node, elapsed in slowest)
        return f"NumPy took {100 * self.outside_share:.0f} % of the time" + (f" ({nodes})" if nodes else "")

    def warn(self) -> None:
        """Tell users where a part of their model is slow that they would notice."""
        if self.outside_share > WARNED_SHARE and self.outside >= WARNED_NANOSECONDS:
            logger.warning("%s; session.explain() says why these nodes are not machine code.", self)
