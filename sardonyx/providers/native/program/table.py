"""The tables of native code: lowerings, which make steps of a cluster's nodes, and what makes a step of a node by itself.

The provider that compiles asks here. The one that runs what was compiled before has the kernels of single nodes in its file, and asks
for these alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sardonyx.ir import Node
from sardonyx.ops import checking
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.ops.table import facts_of
from sardonyx.providers.native.program.values import has_texts
from sardonyx.startup.families import Families
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.compiler.jit import Kernel
    from sardonyx.compiler.target import Target
    from sardonyx.providers.native.program.lowering import Lowerer
    from sardonyx.providers.provider import Cluster, Compiled

Lower = Callable[["Lowerer", Node], None]
Claims = Callable[[Node], bool]


@dataclass(frozen=True)
class Lowering(Entry):
    """A function that turns a node into steps, and the question whether it can."""

    function: Lower
    claims: Claims
    case: str
    costly: bool
    """Whether nodes of it are worth a cluster; views and the like are taken along only."""
    packs: bool
    """Whether it must pack constants before runs."""
    strided: bool
    """Whether it reads pixels with gaps between them as well as without."""
    composed: bool
    """Whether other nodes stand for it: see `composition`. It is asked after those with kernels."""
    settles: bool
    """Whether its steps settle sizes of what it makes: see `settling`."""
    text: bool
    """Whether it takes strings; any lowering does of an op that only moves elements."""
    passes: Claims
    """Whether what a node makes never lies in memory: the one node that reads it is lowered with it."""

    def overlaps(self, other: Entry) -> bool:
        assert isinstance(other, Lowering)
        return super().overlaps(other) and self.composed == other.composed


lowerings: Table[Lowering] = Table("lowerings", Families("sardonyx.providers.native", "lowerings"))


def lower(
    *ops: str,
    domain: str = "",
    claims: Claims | None = None,
    since: int = 1,
    until: int = NEWEST,
    case: str = "",
    costly: bool = True,
    packs: bool = False,
    strided: bool = False,
    composed: bool = False,
    settles: bool = False,
    text: bool = False,
    passes: Claims | None = None,
) -> Callable[[Lower], Lower]:
    """Register the lowering of `ops`. `claims(node)` says whether this node's types, shapes and attributes are supported."""

    def register(function: Lower) -> Lower:
        for op in ops:
            facts = (
                claims or (lambda node: True),
                case,
                costly,
                packs,
                strided,
                composed,
                settles,
                text,
                passes or (lambda node: False),
            )
            lowerings.add(Lowering(domain, op, since, until, function, *facts))
        return function

    return register


def lowering_of(node: Node, since_version: int) -> Lowering | None:
    """The lowering that takes a node, None if there is none."""
    takes_texts = facts_of(node).moves or not has_texts(node)
    for entry in sorted(lowerings.candidates(node.domain, node.op_type), key=lambda entry: entry.composed):
        if entry.covers(since_version) and (entry.text or takes_texts) and entry.claims(node):
            return entry
    return None


def takes_strides(node: Node) -> bool:
    """Whether the lowerings of a node's op read its first operand with gaps between pixels."""
    return any(entry.strided for entry in lowerings.candidates(node.domain, node.op_type))


def has_lowering(node: Node) -> bool:
    """Whether there is one for the node's op, if not for this node."""
    return bool(lowerings.candidates(node.domain, node.op_type))


# --- nodes that are steps of their own: how much they give depends on data, so that no cluster can hold them

Step = Callable[["Cluster", int, int, object], "Compiled"]
"""Makes the step of a node from the address of its kernel, the number of threads, and what keeps the kernel in memory."""
StepKind = TypeVar("StepKind", bound=Callable[..., Any])


@dataclass(frozen=True)
class Alone(Entry):
    """What makes the step of a node, and the question whether it can."""

    step: Step
    claims: Claims
    kernel: Callable[[Target], Kernel]

    @property
    def key(self) -> str:
        """By this name files tell which kernel is its own."""
        return f"{self.domain}:{self.op}:{self.since}"


_alone: Table[Alone] = Table("steps of their own", Families("sardonyx.providers.native", "steps"))


def alone(
    *ops: str,
    claims: Claims,
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
            _alone.add(Alone(domain, op, since, until, step, claims, kernel))
        return step

    return register


def all_alone() -> Table[Alone]:
    """The table, with all that there is."""
    _alone.load_all()
    return _alone


def alone_of(node: Node) -> Alone | None:
    """What makes a step of a node by itself; None if nothing does."""
    if not facts_of(node).counts:
        return None
    since_version = checking.signature_of(node).since_version
    candidates = _alone.candidates(node.domain, node.op_type)
    return next((entry for entry in candidates if entry.covers(since_version) and entry.claims(node)), None)
