"""A sequence of tensors inside a program: its elements lie behind each other in one buffer, and a table tells where, and their shapes.

Lowerings of sequences and of control flow make them. Both buffers grow like all whose size data decides.
"""

from __future__ import annotations

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass, replace


@dataclass(frozen=True)
class HeldSequence:
    """Where a sequence lies, and how long it is."""

    type: Type
    """That of the elements of its tensors."""
    rank: int | None
    """How many axes its tensors have; None if it has no tensors."""
    data: Buffer
    """The tensors without gaps, in any order."""
    table: Buffer
    """A row of int64 for each tensor: where in the data it begins, counted in elements, and its sizes."""
    count: Dim
    """How many tensors there are."""
    total: Dim
    """How many elements they have together."""

    @property
    def columns(self) -> int:
        """Words of a row of the table."""
        return 1 + (self.rank or 0)

    @property
    def elements(self) -> View:
        """All elements as one row."""
        return View(self.data, self.type, (self.total,), (1,))

    @property
    def rows(self) -> View:
        """The whole table as one row."""
        return View(self.table, I64, (self.count * self.columns,), (1,))

    def room_for(self, count: Dim, total: Dim) -> None:
        """Let the buffers be large enough for so many tensors with so many elements."""
        self.data.bytes = dim.maximum(self.data.bytes, total * self.type.bytes)
        self.table.bytes = dim.maximum(self.table.bytes, count * self.columns * I64.bytes)

    def with_sizes(self, count: Dim, total: Dim) -> HeldSequence:
        """The same memory with other contents."""
        self.room_for(count, total)
        return replace(self, count=count, total=total)


def held_sequence(type: Type, rank: int | None, count: Dim, total: Dim) -> HeldSequence:
    """Memory for a sequence."""
    held = HeldSequence(type, rank, Buffer("tensors", 0), Buffer("table", 0), count, total)
    held.room_for(count, total)
    return held
