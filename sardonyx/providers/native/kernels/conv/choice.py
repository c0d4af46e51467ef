"""Which algorithm computes a convolution: those that can are listed with an estimate of their time, and the quickest is taken.

An algorithm is a function that gives candidates for a convolution, or none. `inspect --after native` prints what they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from sardonyx.ir import Dim
from sardonyx.providers.native.kernels.conv.filters import Filters
from sardonyx.providers.native.kernels.conv.form import Geometry, even_step
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

SUPPOSED_SIZE, SUPPOSED_LENGTH = 56, 1000
"""For how large an image, and for how long a signal, an algorithm must pay if sizes are not known."""


@dataclass(frozen=True)
class Convolution:
    """What an algorithm may look at."""

    lowerer: Lowerer
    geometry: Geometry
    view: View
    filters: Filters
    has_slack: bool = False
    """Whether memory behind the last window of a row may be read, as far as the pixels of a tile reach."""

    @property
    def flat(self) -> Dim | None:
        """How far pixels lie apart that can be counted in one go; None if they cannot."""
        # with rows folded into channels the last pixels of a row have no window of their own
        covers_all = self.geometry.is_pointwise and tuple(self.geometry.output) == tuple(self.view.shape[2:])
        return even_step(self.view) if covers_all else None

    @property
    def packs(self) -> bool:
        """Whether filters are constant, in their usual order."""
        return self.filters.arrange is None and self.lowerer.can_pack(self.filters.W, self.filters.B)

    @property
    def direct_cycles(self) -> float:
        """What the direct sum takes."""
        geometry, lanes = self.geometry, self.lowerer.target.lanes(self.view.type)
        sizes = (geometry.output, (geometry.channels, *geometry.kernel))
        pixels, depth = (math.prod(supposed(some)) for some in sizes)
        return pixels * depth * -(-self.supposed_filters // lanes)

    @property
    def supposed_filters(self) -> int:
        """The filters of a group; where only a run tells, as many as fill the vectors of a tile, or one where there are several groups."""
        geometry, lanes = self.geometry, self.lowerer.target.lanes(self.view.type)
        return geometry.filters if isinstance(geometry.filters, int) else lanes if geometry.groups > 1 else 2 * lanes


def supposed(sizes: Sequence[Dim]) -> list[int]:
    """The sizes of axes, or what to reckon with."""
    open_size = SUPPOSED_LENGTH if len(sizes) == 1 else SUPPOSED_SIZE
    return [size if isinstance(size, int) else open_size for size in sizes]


@dataclass(frozen=True)
class Candidate:
    """An algorithm for one convolution."""

    name: str
    cycles: float
    """About what a group of an image takes, where a vector multiplication takes one."""
    add: Callable[[Sink], None]
    """Adds the step that writes to a sink."""
    is_accurate: Callable[[], bool] = lambda: True
    """Whether it keeps enough digits with these filters; asked of those alone that are quicker than all others."""
    waits: bool = False
    """Whether its step may wait for a depthwise convolution that reads its result, and become one with it: see `fused`."""


Algorithm = Callable[[Convolution], Iterable[Candidate]]


@dataclass(frozen=True)
class Choice:
    """The quickest of some candidates."""

    candidate: Candidate
    candidates: Sequence[Candidate]
    """All of them, the quickest first."""

    def add(self, lowerer: Lowerer, sink: Sink) -> None:
        """Add its step, with the estimates for people."""
        self.candidate.add(sink)
        lowerer.program.steps[-1].estimates = [(candidate.name, candidate.cycles) for candidate in self.candidates]


def quickest(convolution: Convolution, algorithms: Sequence[Algorithm]) -> Choice:
    """The candidate with the lowest estimate that is accurate enough; one of them always is."""
    candidates = [candidate for algorithm in algorithms for candidate in algorithm(convolution)]
    candidates.sort(key=lambda candidate: candidate.cycles)
    return Choice(next(candidate for candidate in candidates if candidate.is_accurate()), candidates)
