"""Ops whose nodes are steps of their own: how much they give depends on data, so that no cluster can hold them.

The provider that compiles asks here, and the one that runs what was compiled before. That one has the kernels in its file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sardonyx.ir import Node
from sardonyx.ops import checking
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.ops.table import facts_of
from sardonyx.providers.provider import Cluster, Compiled
from sardonyx.records import dataclass

if TYPE_CHECKING:
    from sardonyx.compiler.jit import Kernel
    from sardonyx.compiler.target import Target

Step = Callable[[Cluster, int, int, object], Compiled]
"""Makes the step of a node from the address of its kernel, the number of threads, and what keeps the kernel in memory."""
StepKind = TypeVar("StepKind", bound=Callable[..., Any])


@dataclass(frozen=True)
class Alone(Entry):
    """What makes the step of a node, and the question whether it can."""

    step: Step
    claims: Callable[[Node], bool]
    kernel: Callable[[Target], Kernel]

    @property
    def key(self) -> str:
        """By this name files tell which kernel is its own."""
        return f"{self.domain}:{self.op}:{self.since}"


_table: Table[Alone] = Table("steps of their own")


def alone(
    *ops: str,
    claims: Callable[[Node], bool],
    kernel: Callable[[Target], Kernel],
    domain: str = "",
    since: int = 1,
    until: int = NEWEST,
) -> Callable[[StepKind], StepKind]:
    """Register the class of the steps of `ops`, of which it is a fact that they count.

    `kernel` writes their code, and is not asked where there is code already.
    """

    def register(step: StepKind) -> StepKind:
        for op in ops:
            _table.add(Alone(domain, op, since, until, step, claims, kernel))
        return step

    return register


def all_alone() -> Table[Alone]:
    """The table, with all that there is."""
    import sardonyx.providers.native.image.suppression  # noqa: F401  (registers itself)

    return _table


def alone_of(node: Node) -> Alone | None:
    """What makes a step of a node by itself; None if nothing does."""
    if not facts_of(node).counts:
        return None
    since_version = checking.signature_of(node).since_version
    candidates = all_alone().candidates(node.domain, node.op_type)
    return next((entry for entry in candidates if entry.covers(since_version) and entry.claims(node)), None)
