"""The CPUs on which this process may run, kept and restored."""

from __future__ import annotations

import os
import sys


class AffinitySetting:
    """What `get_affinity` found, `set_affinity` sets again. Systems that know no affinities are left alone."""

    def __init__(self) -> None:
        self.affinity: set[int] = set()

    def get_affinity(self) -> None:
        """Remember the CPUs of now."""
        if sys.platform == "linux":
            self.affinity = os.sched_getaffinity(0)

    def set_affinity(self) -> None:
        """Go back to the CPUs that were remembered, if they are others now."""
        if sys.platform == "linux" and self.affinity and os.sched_getaffinity(0) != self.affinity:
            os.sched_setaffinity(0, self.affinity)
