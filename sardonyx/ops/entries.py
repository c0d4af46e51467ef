"""The one kind of table on which things are registered by op: inference functions, kernels, lowerings and the like.

An entry says for which versions of its op it holds, and two that could serve the same node are refused. So it never matters which
module is imported first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sardonyx.ir import Node
from sardonyx.ops import schemas
from sardonyx.ops.schemas import normal_domain
from sardonyx.startup import authors
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.startup.families import Families

NEWEST = 2**31 - 1
"""The end of a range of versions that has none."""


@dataclass(frozen=True)
class Entry:
    """What a table has for one op in the versions `since`…`until`."""

    domain: str
    op: str
    since: int
    until: int

    case = ""
    """Which nodes of the op alone it serves, in words; "" for all. Cases exclude each other, and are asked before the rest."""

    def covers(self, since_version: int) -> bool:
        """Whether it holds for the op version that dates from `since_version`."""
        return self.since <= since_version <= self.until

    def overlaps(self, other: Entry) -> bool:
        """Whether some node could have both."""
        return max(self.since, other.since) <= min(self.until, other.until) and self.case == other.case

    def __str__(self) -> str:
        until = "" if self.until == NEWEST else self.until
        case = f" where {self.case}" if self.case else ""
        return f"{self.domain or 'ai.onnx'}:{self.op}[{self.since}…{until}]{case}"


EntryKind = TypeVar("EntryKind", bound=Entry)


class Table(Generic[EntryKind]):
    """Entries by domain and op."""

    def __init__(self, name: str, families: Families | None = None):
        """`families` are the modules that register the entries, if they are to be imported when an op is asked for."""
        self.name = name
        self.families = families
        self._entries: dict[tuple[str, str], list[EntryKind]] = {}

    def add(self, entry: EntryKind) -> None:
        """Register an entry; one that overlaps another is refused."""
        authors.note(getattr(entry, "function", None))
        known = self._entries.setdefault((normal_domain(entry.domain), entry.op), [])
        for other in known:
            if entry.overlaps(other):
                raise ValueError(f"{self.name}: {entry} overlaps {other}")
        known.insert(0 if entry.case else len(known), entry)

    def remove(self, domain: str, op: str, since: int | None = None) -> None:
        """Forget the entries of an op, all or those that begin at `since`; for custom ops that are withdrawn, and for tests."""
        key = normal_domain(domain), op
        self._entries[key] = [entry for entry in self._entries.get(key, ()) if since is not None and entry.since != since]

    def candidates(self, domain: str, op: str) -> Sequence[EntryKind]:
        """The entries of an op, of all versions."""
        key = normal_domain(domain), op
        if self.families is not None:
            self.families.need(*key)
            if not self._entries.get(key) and self.families.expects(*key):
                self.load_all()  # what it has for the op moved to another module since
        return self._entries.get(key, ())

    def entry_of(self, domain: str, op: str, since_version: int) -> EntryKind | None:
        """The first entry for an op version."""
        return next((entry for entry in self.candidates(domain, op) if entry.covers(since_version)), None)

    def load_all(self) -> None:
        """Import all modules that register entries."""
        if self.families is not None:
            self.families.load_all()

    def operators(self) -> set[tuple[str, str]]:
        """Domains and names of all ops that have an entry."""
        self.load_all()
        return {key for key, entries in self._entries.items() if entries}

    def __iter__(self) -> Iterator[EntryKind]:
        """The entries of all modules that have been imported so far."""
        return (entry for entries in self._entries.values() for entry in entries)


@dataclass(frozen=True)
class FunctionEntry(Entry):
    """A function, and nothing else."""

    function: Callable[..., Any]


Function = TypeVar("Function", bound=Callable[..., Any])


class FunctionTable(Table[FunctionEntry]):
    """Functions by op."""

    def function_of(self, node: Node) -> Callable[..., Any] | None:
        """The function for a node's op version."""
        signature = schemas.find(node.domain, node.op_type, node.version)
        entry = None if signature is None else self.entry_of(node.domain, node.op_type, signature.since_version)
        return None if entry is None else entry.function

    def register(self, *ops: str, domain: str = "", since: int = 1, until: int = NEWEST) -> Callable[[Function], Function]:
        """Decorates the function of `ops` for op versions `since`…`until`."""

        def register(function: Function) -> Function:
            for op in ops:
                self.add(FunctionEntry(domain, op, since, until, function))
            return function

        return register
