"""The table of lowerings: which nodes the native provider takes, and how they become steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sardonyx.families import Families
from sardonyx.ir import Node
from sardonyx.ops.schemas import normal_domain
from sardonyx.ops.table import NEWEST
from sardonyx.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.lowering import Lowerer

Lower = Callable[["Lowerer", Node], None]
Claims = Callable[[Node], bool]


@dataclass(frozen=True)
class Lowering:
    """A function that turns a node into steps, and the question whether it can."""

    function: Lower
    claims: Claims
    since: int
    until: int
    costly: bool
    """Whether nodes of it are worth a cluster; views and the like are taken along only."""
    packs: bool = False
    """Whether it must pack constants before runs."""


families = Families("sardonyx.providers.native")
_table: dict[tuple[str, str], list[Lowering]] = {}


def lower(
    *ops: str,
    domain: str = "",
    claims: Claims | None = None,
    since: int = 1,
    until: int = NEWEST,
    costly: bool = True,
    packs: bool = False,
) -> Callable[[Lower], Lower]:
    """Register the lowering of `ops`. `claims(node)` says whether this node's types, shapes and attributes are supported."""

    def register(function: Lower) -> Lower:
        entry = Lowering(function, claims or (lambda node: True), since, until, costly, packs)
        for op in ops:
            families.note(op)
            _table.setdefault((domain, op), []).append(entry)
        return function

    return register


def lowering_of(node: Node, since_version: int) -> Lowering | None:
    """The lowering that takes a node, None if there is none."""
    families.need(node.op_type)
    for entry in _table.get((normal_domain(node.domain), node.op_type), ()):
        if entry.since <= since_version <= entry.until and entry.claims(node):
            return entry
    return None


def lowered_ops() -> set[tuple[str, str]]:
    """Domains and names of all ops that have a lowering."""
    families.load_all()
    return set(_table)


def has_lowering(node: Node) -> bool:
    """Whether there is one for the node's op, if not for this node."""
    families.need(node.op_type)
    return (normal_domain(node.domain), node.op_type) in _table
