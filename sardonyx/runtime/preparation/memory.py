"""Which value lies in which buffer: `plan_memory` decides it from the ordered steps of a plan, before any size is known.

Sizes are symbolic: values share a buffer when their sizes are equal as expressions, so a plan holds for all shapes. `placement` turns
the buffers into offsets of one arena once the symbols have values; `peak` is what a run takes then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from sardonyx.errors import InvalidArgument
from sardonyx.ir import Dim, MapType, TensorType, Value, dim
from sardonyx.providers.arena import Placement, aligned, find_conflicts, place, side_by_side
from sardonyx.providers.steps import ANY, Workspace
from sardonyx.runtime.preparation.sizes import bytes_of, given_symbols, size_with
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.runtime.preparation.plan import Step


class Kind(Enum):
    """Where the memory of a value comes from."""

    ALLOCATE = "allocate"
    """A new buffer."""
    REUSE = "reuse"
    """A buffer that nobody needs any more: that of an operand (in place) or, without an arena, a free one of the same size."""
    SHARE = "share"
    """The memory of an operand that may go on being used: an alias or a view."""
    PRE_EXISTING = "pre-existing"
    """An input, or a value of a surrounding graph."""
    STATIC = "static"
    """A constant, there before the first run."""
    OUTPUT = "output"
    """Belongs to the caller after the run, so it is never in the arena."""
    EXTERNAL = "external"
    """The kernel allocates it: a text, a sequence, a map, or a tensor of unknown rank."""


@dataclass(frozen=True)
class Allocation:
    """What the plan decided for one value. Steps count from 0; an input is there at -1, an output still after the last step."""

    name: str
    slot: int
    bytes: Dim | None
    kind: Kind
    buffer: int | None
    source: int | None
    """Slot of the operand in whose memory the value lies."""
    first: int
    last: int


@dataclass(frozen=True)
class Buffer:
    """Memory for one value after another, or inside a step."""

    bytes: Dim | Workspace
    first: int
    last: int
    outside: bool
    """Whether it must outlive the run."""

    def size(self, symbols: Mapping[str, int]) -> int | None:
        """Its bytes for these values of symbols, None if one is missing."""
        if isinstance(self.bytes, (int, dim.Expression)):
            return size_with(self.bytes, symbols)
        try:
            return self.bytes.bytes_for(symbols)
        except KeyError:
            return None


@dataclass(frozen=True)
class MemoryOptions:
    """How memory is planned."""

    reuse: bool = True
    """Whether values that are not alive together may share memory (`enable_mem_reuse`). In place and aliases go without it."""
    pattern: bool = True
    """Whether all buffers lie in one arena (`enable_mem_pattern`, `enable_cpu_mem_arena`), where any of them may lie on memory given
    back. Otherwise each is allocated by itself, and used again only for values of the same size."""


DEFAULT_OPTIONS = MemoryOptions()

COPY_COST = 4
"""A copy takes time, so it must save this many times the memory (bytes times steps) that it takes."""


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of a plan's values. `peak` and `placement` take the sizes of the symbols in the inputs' shapes."""

    allocations: Sequence[Allocation]
    buffers: Sequence[Buffer]
    step_count: int
    symbols: frozenset[str]
    """Sizes that inputs bring. Others in the plan depend on data; what has such a size is in no arena made before the run."""
    inner: Mapping[int, Sequence[MemoryPlan]]
    """Plans of the graphs inside the steps."""
    copied: frozenset[int]
    """Slots of values that a kernel returns as small views of large buffers; copying them lets those go."""
    options: MemoryOptions

    @cached_property
    def late_symbols(self) -> set[str]:
        """Sizes that depend on data."""
        sizes = {allocation.bytes for allocation in self.allocations if allocation.bytes is not None}
        return {symbol.name for size in sizes for symbol in dim.symbols(size)} - self.symbols

    @cached_property
    def _conflicts(self) -> list[list[int]] | None:
        return find_conflicts([(buffer.first, buffer.last) for buffer in self.buffers if not buffer.outside])

    def placement(self, sizes: Mapping[str, int] | None = None, **named: int) -> Placement:
        """Offsets of the buffers in an arena for these sizes."""
        known_sizes = self._checked(sizes, named)
        if not self.options.pattern:
            return Placement(0, (None,) * len(self.buffers))
        inside = [buffer for buffer in self.buffers if not buffer.outside]
        lengths = [buffer.size(known_sizes) for buffer in inside]
        known = [length or 0 for length in lengths]
        spans = [(buffer.first, buffer.last) for buffer in inside]
        placed = place(known, spans, self._conflicts) if self.options.reuse else side_by_side(known)
        offsets = (None if length is None else at for length, at in zip(lengths, placed.offsets, strict=True))
        return Placement(placed.size, tuple(None if buffer.outside else next(offsets) for buffer in self.buffers))

    def peak(self, sizes: Mapping[str, int] | None = None, **named: int) -> int:
        """The most bytes that a run takes at once: arena and outputs, without inputs, constants and what kernels use inside.

        Without an arena it is the largest sum of what is in use at one step. Sizes that depend on data count if they are given.
        """
        known_sizes = self._checked(sizes, named)
        if not self.options.pattern:
            return max(self.in_use(known_sizes), default=0)
        inner = max((self._inner_peak(step, known_sizes) for step in self.inner), default=0)
        outside = sum(aligned(buffer.size(known_sizes) or 0) for buffer in self.buffers if buffer.outside)
        return self.placement(known_sizes).size + outside + inner

    def in_use(self, sizes: Mapping[str, int] | None = None, **named: int) -> list[int]:
        """The bytes in use at each step: buffers that hold something, outputs made so far, and what inner graphs take."""
        known_sizes = self._checked(sizes, named)
        changes = [0] * (self.step_count + 2)
        for buffer in self.buffers:
            size = aligned(buffer.size(known_sizes) or 0)
            changes[buffer.first] += size
            changes[buffer.last + 1] -= size
        total, result = 0, []
        for step in range(self.step_count):
            total += changes[step]
            result.append(total + self._inner_peak(step, known_sizes))
        return result

    def _inner_peak(self, step: int, sizes: Mapping[str, int]) -> int:
        return max((plan._peak_inside(sizes) for plan in self.inner.get(step, ())), default=0)

    def _peak_inside(self, outer: Mapping[str, int]) -> int:
        """The peak as part of another plan; 0 if that plan's sizes do not tell all of ours."""
        return self.peak(outer) if self.symbols <= outer.keys() else 0

    def _checked(self, sizes: Mapping[str, int] | None, named: Mapping[str, int]) -> Mapping[str, int]:
        known_sizes = {**(sizes or {}), **named}
        missing = sorted(self.symbols - known_sizes.keys())
        if missing:
            raise InvalidArgument(
                f"the memory of this model depends on {', '.join(sorted(self.symbols))}; {missing[0]} is not given"
            )
        return known_sizes


def plan_memory(
    steps: Sequence[Step],
    values: Sequence[Value],
    existing: Collection[int],
    outputs: Collection[int],
    options: MemoryOptions = DEFAULT_OPTIONS,
) -> MemoryPlan:
    """Decide the memory of `values`, by slot. `existing` are the slots of what is there before the run, constants aside."""
    planner = _Planner(steps, values, existing, outputs, options)
    for position, step in enumerate(steps):
        planner.step(position, step)
    return MemoryPlan(
        allocations=[planner.allocations[slot] for slot in sorted(planner.allocations)],
        buffers=[Buffer(buffer.bytes, buffer.first, buffer.last, buffer.outside) for buffer in planner.buffers]
        + planner.workspaces,
        step_count=len(steps),
        symbols=frozenset(name for slot in existing for name, _ in given_symbols(values[slot].type)),
        inner={position: [body.memory for body in step.bodies.values()] for position, step in enumerate(steps) if step.bodies},
        copied=frozenset(planner.copied),
        options=options,
    )


class _Open:
    """A buffer while the plan is made."""

    __slots__ = ("bytes", "first", "last", "outside", "is_output")

    def __init__(self, bytes: Dim, first: int, outside: bool):
        self.bytes = bytes
        self.first = self.last = first
        self.outside = outside
        self.is_output = False


class _Planner:
    def __init__(
        self,
        steps: Sequence[Step],
        values: Sequence[Value],
        existing: Collection[int],
        outputs: Collection[int],
        options: MemoryOptions,
    ):
        self.values = values
        self.outputs = frozenset(outputs)
        self.reuses = options.reuse and not options.pattern
        self.held = _held(steps, values)
        self.last = _last_reads(steps) | dict.fromkeys({*self.outputs, *self.held}, len(steps))
        self.becoming_output = _becoming_output(steps, self.outputs)
        self.buffers: list[_Open] = []
        self.workspaces: list[Buffer] = []
        self.buffer_of: dict[int, int] = {}
        self.permuted: set[int] = set()
        """Values that fill their buffer in another order. An alias of them is a copy."""
        self.partial: set[int] = set()
        """Values that are a part of their buffer, or the same part again and again. An alias of them is a copy, too."""
        self.copied: set[int] = set()
        self.free: dict[Dim, list[int]] = {}
        self.allocations: dict[int, Allocation] = {}
        for slot, value in enumerate(values):
            if slot in existing:
                self._record(slot, Kind.PRE_EXISTING, -1)
            elif value.constant is not None:
                self._record(slot, Kind.STATIC, -1)

    def _record(self, slot: int, kind: Kind, first: int, source: int | None = None) -> None:
        value = self.values[slot]
        last = max(self.last.get(slot, first), first)
        size = bytes_of(value.type)
        self.allocations[slot] = Allocation(value.name, slot, size, kind, self.buffer_of.get(slot), source, first, last)

    def step(self, position: int, step: Step) -> None:
        if step.call.workspace is not None:
            self.workspaces.append(Buffer(step.call.workspace, position, position, outside=False))
        for index, slot in enumerate(step.outputs):
            if slot >= 0:
                self._output(position, step, index, slot)
        touched = (*step.inputs, *step.captured, *step.outputs)
        for number in sorted({self.buffer_of[slot] for slot in touched if slot in self.buffer_of}):
            buffer = self.buffers[number]
            if buffer.last == position and not buffer.outside:
                self.free.setdefault(buffer.bytes, []).append(number)

    def _output(self, position: int, step: Step, index: int, slot: int) -> None:
        size = bytes_of(self.values[slot].type)
        if size is None:
            self._record(slot, Kind.EXTERNAL, position)
        elif slot in self.outputs or slot in self.becoming_output:
            self._leaving(position, step, index, slot, size)
        elif (source := self._shared(position, step, index)) is not None:
            if source in self.buffer_of:
                self._enter(slot, self.buffer_of[source], position)
            self._record(slot, Kind.SHARE, position, source)
        elif (source := self._overwritten(position, step, index, size)) is not None:
            self._enter(slot, self.buffer_of[source], position)
            self.permuted |= {slot} if source in self.permuted else set()
            self._record(slot, Kind.REUSE, position, source)
        elif self.reuses and slot not in self.held and self.free.get(size):
            self._enter(slot, self.free[size].pop(), position)
            self._record(slot, Kind.REUSE, position)
        else:
            self._enter(slot, self._new(size, position, outside=slot in self.held), position)
            self._record(slot, Kind.ALLOCATE, position)

    def _leaving(self, position: int, step: Step, index: int, slot: int, size: Dim) -> None:
        """Give an output, or a value that an output is an alias of, memory that belongs to the caller."""
        is_output = slot in self.outputs
        source = next(iter(self._aliased(step, index)), None)
        number = None if source is None else self.buffer_of.get(source)
        if number is None or not self.buffers[number].outside or self.buffers[number].is_output:
            source, number = None, self._new(size, position, outside=True)
        self._enter(slot, number, position)
        self.buffers[number].is_output |= is_output
        kind = Kind.OUTPUT if is_output else Kind.ALLOCATE if source is None else Kind.SHARE
        self._record(slot, kind, position, source)

    def _new(self, size: Dim, position: int, outside: bool) -> int:
        self.buffers.append(_Open(size, position, outside))
        return len(self.buffers) - 1

    def _enter(self, slot: int, number: int, position: int) -> None:
        self.buffer_of[slot] = number
        buffer = self.buffers[number]
        buffer.last = max(buffer.last, position, self.last.get(slot, position))

    def _aliased(self, step: Step, index: int) -> Iterable[int]:
        """The operand of which an output is an alias; not one whose elements lie in another order, for that means a copy."""
        sources = _paired(step, step.call.sharing.alias, index)
        return (source for source in sources if source not in self.permuted and source not in self.partial)

    def _shared(self, position: int, step: Step, index: int) -> int | None:
        """The operand of which an output is an alias or a view."""
        for source in self._aliased(step, index):
            return source
        slot = step.outputs[index]
        for source in _paired(step, step.call.sharing.view, index):
            whole = bytes_of(self.values[slot].type) == bytes_of(self.values[source].type) and source not in self.partial
            if not whole and self._holds_too_much(position, step, slot, source):
                self.copied.add(slot)
                return None
            (self.permuted if whole else self.partial).add(slot)
            return source
        return None

    def _holds_too_much(self, position: int, step: Step, slot: int, source: int) -> bool:
        """Whether a view would keep a larger buffer alive, so that a copy takes less memory."""
        number = self.buffer_of.get(source)
        size = bytes_of(self.values[slot].type)
        if number is None or size is None or self.buffers[number].outside:
            return False
        buffer = self.buffers[number]
        others = [self.last.get(output, position) for output in step.outputs if output >= 0 and output != slot]
        until = max(buffer.last, *others, position)
        part, whole = dim.supposed(size), dim.supposed(buffer.bytes)
        return (whole - part) * (self.last.get(slot, position) - until) > COPY_COST * part * (until - position + 1)

    def _overwritten(self, position: int, step: Step, index: int, size: Dim) -> int | None:
        """An operand of the same size that may be overwritten: no later step reads it, and this step reads no other alias of it."""
        readings = Counter(self.buffer_of.get(slot) for slot in {*step.inputs, *step.captured})
        taken = {self.buffer_of.get(slot) for slot in step.outputs[:index]}
        for source in _paired(step, step.call.sharing.inplace, index):
            number = self.buffer_of.get(source)
            if number is None or number in taken or source in self.partial or readings[number] > 1:
                continue
            buffer = self.buffers[number]
            if not buffer.outside and buffer.bytes == size and buffer.last == position:
                return source
        return None


def _paired(step: Step, pairs: Iterable[tuple[int, int]], index: int) -> Iterable[int]:
    for source, result in pairs:
        if result in (index, ANY):
            yield from (slot for at, slot in enumerate(step.inputs) if source in (at, ANY) and slot >= 0)


def _last_reads(steps: Sequence[Step]) -> dict[int, int]:
    return {slot: position for position, step in enumerate(steps) for slot in (*step.inputs, *step.captured)}


def _held(steps: Sequence[Step], values: Sequence[Value]) -> set[int]:
    """Values that end up in a sequence or an optional. How long they live is not known."""
    return {
        slot
        for step in steps
        if any(output >= 0 and not isinstance(values[output].type, (TensorType, MapType)) for output in step.outputs)
        for slot in (*step.inputs, *step.captured)
    }


def _becoming_output(steps: Sequence[Step], outputs: Collection[int]) -> set[int]:
    """Values of which an output, directly or through others, is an alias."""
    becoming: set[int] = set()
    for step in reversed(steps):
        for index, slot in enumerate(step.outputs):
            if slot in outputs or slot in becoming:
                becoming.update(_paired(step, step.call.sharing.alias, index))
    return becoming - set(outputs)
