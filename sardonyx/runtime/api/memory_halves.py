"""The memory of a training model by its halves: forward, which computes the loss, backward, which computes gradients, and what crosses.

`memory_plan()` of a session shows them if the model has gradients among its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sardonyx.ir import Node, Value, edit
from sardonyx.providers.arena import aligned
from sardonyx.providers.steps import Piece
from sardonyx.runtime.preparation.memory import Buffer, Kind
from sardonyx.runtime.preparation.plan import Plan, Step
from sardonyx.startup.records import dataclass

GRADIENT_OUTPUTS = ("_grad.accumulation.out", "_grad.returned")
"""How names of outputs end that are gradients, or say that one was added to its buffer."""


@dataclass(frozen=True)
class Half:
    """Forward or backward."""

    kernels: int
    """How many kernels run, one after the other."""
    peak: int
    """The most bytes in use while one of them runs: what memory plans tell, with the outputs of the run."""


@dataclass(frozen=True)
class Halves:
    """Both, and the values that forward makes and backward reads, with their bytes, besides inputs and outputs."""

    forward: Half
    backward: Half
    crossing: Mapping[str, int]

    def lines(self) -> list[str]:
        """For people."""
        halves = {"forward": self.forward, "backward": self.backward}
        lines = [f"{name}: {half.kernels} kernels, peak {half.peak:,} bytes" for name, half in halves.items()]
        names = ", ".join(f"{name} ({size:,})" for name, size in self.crossing.items())
        return [*lines, f"{sum(self.crossing.values()):,} bytes cross from forward to backward: {names or 'nothing'}"]


def nodes_of_forward(outputs: Iterable[Value]) -> set[Node]:
    """The nodes that outputs depend on which are no gradients."""
    nodes: set[Node] = set()
    stack = [value for value in outputs if not value.name.endswith(GRADIENT_OUTPUTS)]
    while stack:
        producer = stack.pop().producer
        if producer is not None and producer not in nodes:
            nodes.add(producer)
            stack.extend(edit.operands(producer))
    return nodes


def halves_of(plan: Plan, sizes: Mapping[str, int]) -> Halves | None:
    """Cut a plan, for these sizes; None if it has no gradients, or if it is not known what its kernels compute."""
    outputs = [plan.values[slot] for slot in plan.outputs]
    if not any(value.name.endswith(GRADIENT_OUTPUTS) for value in outputs):
        return None
    moments = list(_moments(plan, nodes_of_forward(outputs), sizes))
    if any(moment is None for moment in moments):
        return None
    known = [moment for moment in moments if moment is not None]
    forward, backward = (
        Half(len(peaks), max(peaks, default=0))
        for peaks in ([one.bytes for one in known if one.is_forward is which] for which in (True, False))
    )
    return Halves(forward, backward, dict(_crossing(plan, known, sizes)))


@dataclass(frozen=True)
class _Moment:
    """One kernel."""

    step: int
    is_forward: bool
    bytes: int
    """In use while it runs."""
    pieces: Sequence[Piece]
    """Those of its step that are there for the first time."""


def _moments(plan: Plan, forward: set[Node], sizes: Mapping[str, int]) -> Iterator[_Moment | None]:
    in_use = plan.memory.in_use(sizes)
    for position, step in enumerate(plan.steps):
        workspace = step.call.workspace
        if workspace is None:
            yield _Moment(position, step.node in forward, in_use[position], ())
        elif len(workspace.nodes) == 0:
            yield None
        else:
            yield from _moments_inside(position, step, forward, in_use[position], sizes)


def _moments_inside(position: int, step: Step, forward: set[Node], in_use: int, sizes: Mapping[str, int]) -> Iterator[_Moment]:
    workspace = step.call.workspace
    assert workspace is not None
    pieces = workspace.pieces(sizes)
    around = in_use - aligned(Buffer(workspace, position, position, outside=False).size(sizes) or 0)
    is_forward = True
    for number, nodes in enumerate(workspace.nodes):
        if nodes:  # a kernel that prepares the next one has none
            is_forward = any(node in forward for node in nodes)
        alive = sum(aligned(piece.bytes) for piece in pieces if piece.first <= number <= piece.last)
        yield _Moment(position, is_forward, around + alive, [piece for piece in pieces if piece.first == number])


def _crossing(plan: Plan, moments: Sequence[_Moment], sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    starts: dict[int, int] = {}
    for index, moment in enumerate(moments):
        starts.setdefault(moment.step, index)
        if moment.is_forward:
            for piece in moment.pieces:
                if not moments[starts[moment.step] + piece.last].is_forward:
                    yield piece.name, piece.bytes
    ends = {moment.step: moment.is_forward for moment in moments}
    for allocation in plan.memory.allocations:
        if allocation.kind is Kind.ALLOCATE and allocation.last < len(plan.steps):
            is_made_forward = moments[starts[allocation.first]].is_forward
            if is_made_forward and not ends[allocation.last] and allocation.buffer is not None:
                yield allocation.name, plan.memory.buffers[allocation.buffer].size(sizes) or 0
