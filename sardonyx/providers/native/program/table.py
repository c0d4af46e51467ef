"""The table of native code: lowerings, which make steps of a cluster's nodes. The provider that compiles asks here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sardonyx.ir import Node
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.ops.table import facts_of
from sardonyx.providers.native.program.values import has_texts
from sardonyx.startup.families import Families
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.lowering import Lowerer

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
                passes or _never,
            )
            lowerings.add(Lowering(domain, op, since, until, function, *facts))
        return function

    return register


def _never(node: Node) -> bool:
    return False


def may_settle(node: Node) -> bool:
    """Whether a lowering of the node's op settles sizes. Which one takes a node is found out much more slowly."""
    return any(entry.settles for entry in lowerings.candidates(node.domain, node.op_type))


def may_pass(node: Node) -> bool:
    """Whether a lowering of the node's op may pass its result on."""
    return any(entry.passes is not _never for entry in lowerings.candidates(node.domain, node.op_type))


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
