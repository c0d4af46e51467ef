"""A memory plan for people: `session.memory_plan()` returns a `MemoryReport`, which prints as a table and draws itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sardonyx.errors import InvalidArgument
from sardonyx.ir import Dim, described
from sardonyx.providers.arena import Placement
from sardonyx.runtime.api.memory_halves import Halves, halves_of
from sardonyx.runtime.preparation.memory import Allocation, Kind, MemoryPlan
from sardonyx.runtime.preparation.plan import Plan
from sardonyx.runtime.preparation.sizes import size_with
from sardonyx.startup.records import dataclass, field, replace

HEADINGS = ("value", "type", "bytes", "kind", "buffer", "offset", "steps")
LONGEST_NAME = 48


@dataclass(frozen=True)
class Row:
    """One value: what the plan decided, and the numbers behind it where the sizes are known."""

    allocation: Allocation
    type: str
    source: str
    """Name of the value in whose memory it lies."""
    bytes: int | None
    offset: int | None


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a session's runs. Without sizes it is symbolic; `at(N=8)` is the same with numbers and offsets.

    `peak(N=8)` is the most that a run with these sizes takes: the arena and the outputs. `halves(N=8)` tells it of forward and backward
    of a training model.
    """

    memory: MemoryPlan
    steps: Sequence[str]
    """What each step computes."""
    types: Mapping[int, str]
    """Type of the value in each slot."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    plan: Plan | None = None
    """What the memory is that of; for the halves of training models."""

    @staticmethod
    def of(plan: Plan) -> MemoryReport:
        """The report of a plan."""
        types = {slot: described(value.type) for slot, value in enumerate(plan.values)}
        return MemoryReport(plan.memory, [_step_text(step.nodes) for step in plan.steps], types, plan=plan)

    @property
    def symbols(self) -> list[str]:
        """The sizes on which the memory depends."""
        return sorted(self.memory.symbols)

    @property
    def is_numeric(self) -> bool:
        """Whether all sizes that inputs bring are known, so that there are offsets."""
        return self.memory.symbols <= self.sizes.keys()

    def at(self, sizes: Mapping[str, int] | None = None, **named: int) -> MemoryReport:
        """The report for these sizes."""
        return replace(self, sizes=self._given(sizes, named))

    def peak(self, sizes: Mapping[str, int] | None = None, **named: int) -> int:
        """The most bytes that a run takes at once."""
        return self.memory.peak(self._given(sizes, named))

    def in_use(self, sizes: Mapping[str, int] | None = None, **named: int) -> list[int]:
        """The bytes in use at each step."""
        return self.memory.in_use(self._given(sizes, named))

    def halves(self, sizes: Mapping[str, int] | None = None, **named: int) -> Halves | None:
        """Forward and backward of a training model, and what crosses; None for other models."""
        return None if self.plan is None else halves_of(self.plan, self._given(sizes, named))

    def _given(self, sizes: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
        all_sizes = {**self.sizes, **(sizes or {}), **named}
        known = {*self.memory.symbols, *self.late}
        for name in all_sizes:
            if name not in known:
                raise InvalidArgument(f"no size of this model is called {name}; there are {', '.join(sorted(known)) or 'none'}")
        return all_sizes

    @property
    def late(self) -> set[str]:
        """Sizes that depend on data: known only in a run."""
        return self.memory.late_symbols

    def rows(self) -> Iterator[Row]:
        """All values but constants, in the order in which they come to be."""
        placement = self.memory.placement(self.sizes) if self.is_numeric else Placement(0, (None,) * len(self.memory.buffers))
        names = {allocation.slot: allocation.name for allocation in self.memory.allocations}
        for allocation in sorted(self.memory.allocations, key=lambda allocation: (allocation.first, allocation.slot)):
            if allocation.kind is not Kind.STATIC:
                yield Row(
                    allocation,
                    self.types[allocation.slot],
                    "" if allocation.source is None else names[allocation.source],
                    None if allocation.bytes is None else size_with(allocation.bytes, self.sizes),
                    None if allocation.buffer is None else placement.offsets[allocation.buffer],
                )

    def cells(self) -> list[tuple[str, ...]]:
        """The table's rows as text, under `HEADINGS`."""
        return [
            (
                _shortened(row.allocation.name),
                row.type,
                _size_text(row.allocation.bytes, row.bytes),
                f"{row.allocation.kind.value} of {_shortened(row.source)}" if row.source else row.allocation.kind.value,
                "" if row.allocation.buffer is None else str(row.allocation.buffer),
                "" if row.offset is None else f"{row.offset:,}",
                self._span(row.allocation),
            )
            for row in self.rows()
        ]

    def _span(self, allocation: Allocation) -> str:
        first = "before" if allocation.first < 0 else str(allocation.first)
        last = "after" if allocation.last >= len(self.steps) else "never" if allocation.last < 0 else str(allocation.last)
        return f"{first}…{last}"

    def summary(self) -> list[str]:
        """What the plan comes to, in a few lines."""
        buffers, memory = self.memory.buffers, self.memory
        outputs = sum(buffer.outside for buffer in buffers)
        lines = [f"{len(self.steps)} steps, {len(buffers) - outputs} buffers, {outputs} for outputs"]
        if self.is_numeric:
            arena = memory.placement(self.sizes).size
            sizes = ", ".join(f"{name}={self.sizes[name]}" for name in self.symbols)
            lines.append(f"peak {memory.peak(self.sizes):,} bytes, arena {arena:,} bytes" + (f" with {sizes}" if sizes else ""))
            halves = self.halves()
            lines += [] if halves is None else halves.lines()
        else:
            lines.append(f"sizes depend on {', '.join(self.symbols)}; .at({self.symbols[0]}=…) shows numbers and offsets")
        late = sum(
            allocation.bytes is not None and size_with(allocation.bytes, self._probe()) is None
            for allocation in memory.allocations
        )
        if late:
            lines.append(f"{late} values have sizes that depend on data; they are allocated when they are known")
        return lines

    def _probe(self) -> dict[str, int]:
        return {**dict.fromkeys(self.memory.symbols, 1), **self.sizes}

    def svg(self, sizes: Mapping[str, int] | None = None, **named: int) -> str:
        """A picture: steps to the right, the arena upwards, a rectangle for each buffer."""
        from sardonyx.runtime.api.memory_picture import svg

        return svg(self.at(sizes, **named))

    def html(self, sizes: Mapping[str, int] | None = None, **named: int) -> str:
        """The picture and the table as a page that needs nothing else."""
        from sardonyx.runtime.api.memory_picture import html

        return html(self.at(sizes, **named))

    def __str__(self) -> str:
        rows = [HEADINGS, *self.cells()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*self.summary(), "", *lines])

    def __repr__(self) -> str:
        return f"<MemoryReport: {'; '.join(self.summary())}>"


def _step_text(nodes: Sequence[object]) -> str:
    return str(nodes[0]) if len(nodes) == 1 else f"{len(nodes)} nodes from {nodes[0]}"


def _size_text(size: Dim | None, number: int | None) -> str:
    if size is None:
        return "?"
    if number is None:
        return str(size)
    return f"{number:,}" if isinstance(size, int) else f"{number:,} = {size}"


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2 - 1]}…{name[-LONGEST_NAME // 2 :]}"
