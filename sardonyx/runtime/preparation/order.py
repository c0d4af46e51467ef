"""In which order steps run: `arrange` puts what `partition` assigned into one of three orders. `plan` calls it once per graph.

A unit is one assignment: a node, or the nodes of a cluster. Its index is the position of its first node in the graph. All orders are
iterative and take about as long as there are edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from sardonyx.ir import Graph, Value, dim
from sardonyx.runtime.api.enums import ExecutionOrder
from sardonyx.runtime.preparation.partition import Assignment
from sardonyx.runtime.preparation.sizes import bytes_of


def arrange(
    graph: Graph, assignments: Sequence[Assignment], order: ExecutionOrder, *, shapes_first: bool = False
) -> list[Assignment]:
    """The same assignments in the order in which they shall run; `shapes_first` puts Shape and Size right after their parents."""
    units = Units(graph, assignments)
    match order:
        case ExecutionOrder.PRIORITY_BASED:
            indices = priority_based(units)
        case ExecutionOrder.MEMORY_EFFICIENT:
            indices = memory_efficient(units)
        case _:
            indices = reverse_depth_first(units)
    if shapes_first:
        indices = with_shapes_after_parents(units, indices)
    return [units.assignments[index] for index in indices]


class Units:
    """Assignments by index, with the edges between them."""

    def __init__(self, graph: Graph, assignments: Sequence[Assignment]):
        self.kept = set(graph.outputs)
        position = {node: number for number, node in enumerate(graph.nodes)}
        self.assignments = sorted(assignments, key=lambda assignment: min(position[node] for node in assignment.nodes))
        self.owner = {node: index for index, assignment in enumerate(self.assignments) for node in assignment.nodes}
        self.sources = [list(self._sources(index)) for index in range(len(self.assignments))]
        """For each unit the units that it reads from, one entry per edge."""
        self.readers: list[list[int]] = [[] for _ in self.sources]
        for index, sources in enumerate(self.sources):
            for source in sources:
                self.readers[source].append(index)

    def __len__(self) -> int:
        return len(self.assignments)

    def _sources(self, index: int) -> Iterator[int]:
        for value in self.read(index):
            source = None if value.producer is None else self.owner.get(value.producer)
            if source is not None and source != index:
                yield source

    def read(self, index: int) -> Iterator[Value]:
        """What a unit reads, once per operand, values of surrounding graphs included."""
        for node in self.assignments[index].nodes:
            yield from (value for value in node.inputs if value is not None)
            yield from node.implicit_inputs()

    def made(self, index: int) -> Iterator[Value]:
        """The outputs of a unit."""
        assignment = self.assignments[index]
        yield from assignment.nodes[0].outputs if assignment.cluster is None else assignment.cluster.outputs

    def reads_shape(self, index: int) -> bool:
        from sardonyx.ops.table import facts_of

        nodes = self.assignments[index].nodes
        return len(nodes) == 1 and facts_of(nodes[0]).reads_shapes


def reverse_depth_first(units: Units) -> list[int]:
    """From the last leaf backwards, the operand with the highest index first; a unit comes when all it needs has come.

    This is onnxruntime's default: it finishes one branch before it begins the next, which keeps few values alive.
    """
    order: list[int] = []
    visited = [False] * len(units)
    stack = [(index, False) for index, readers in enumerate(units.readers) if not readers]
    while stack:
        index, leaving = stack.pop()
        if leaving:
            order.append(index)
        elif not visited[index]:
            visited[index] = True
            stack.append((index, True))
            stack.extend((source, False) for source in sorted(units.sources[index]) if not visited[source])
    return order


def priority_based(units: Units) -> list[int]:
    """Of the units that can run, Shape and Size come first, then the lowest index: breadth-first, so branches advance together."""
    waiting = [len(sources) for sources in units.sources]
    ready = [(not units.reads_shape(index), index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for reader in units.readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (not units.reads_shape(reader), reader))
    return order


def with_shapes_after_parents(units: Units, order: Iterable[int]) -> list[int]:
    """`order` with each Shape and Size right behind the unit whose result it reads. That result may then be freed sooner."""
    moved: list[int] = []
    done = [False] * len(units)
    for index in order:
        if not done[index]:
            followers = sorted(reader for reader in set(units.readers[index]) if units.reads_shape(reader))
            for unit in (index, *followers):
                done[unit] = True
                moved.append(unit)
    return moved


def memory_efficient(units: Units) -> list[int]:
    """Of three orders the one that keeps the fewest bytes alive at once: the default, the same with shapes first, and a greedy one.

    The greedy order runs, of the units that can, the one after which the fewest bytes are alive.
    """
    memory = _Memory(units)
    default = reverse_depth_first(units)
    candidates = [default, with_shapes_after_parents(units, default), _greedy(units, memory, default)]
    return min(candidates, key=memory.peak)


class _Memory:
    """How many bytes each unit makes and who reads them, with symbolic sizes supposed."""

    def __init__(self, units: Units):
        self.made = [list(units.made(index)) for index in range(len(units))]
        self.size = {value: _supposed_bytes(value) for values in self.made for value in values}
        self.read = [
            list(dict.fromkeys(value for value in units.read(index) if value in self.size)) for index in range(len(units))
        ]
        self.readers: dict[Value, list[int]] = {value: [] for value in self.size}
        for index, values in enumerate(self.read):
            for value in values:
                self.readers[value].append(index)
        self.left = {value: len(readers) + (value in units.kept) for value, readers in self.readers.items()}
        """How many readers each value has; the graph's outputs have one that never comes."""

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes alive at once; what nobody reads, as outputs of the graph, stays."""
        left = dict(self.left)
        alive = most = 0
        for index in order:
            alive += sum(self.size[value] for value in self.made[index])
            most = max(most, alive)
            for value in self.read[index]:
                left[value] -= 1
                alive -= 0 if left[value] else self.size[value]
        return most


def _supposed_bytes(value: Value) -> int:
    size = bytes_of(value.type)
    return 0 if size is None else dim.supposed(size)


def _greedy(units: Units, memory: _Memory, default: Sequence[int]) -> list[int]:
    rank = {index: place for place, index in enumerate(default)}
    left, done = dict(memory.left), [False] * len(units)
    growth = [sum(memory.size[value] for value in outputs) for outputs in memory.made]
    for index, values in enumerate(memory.read):
        growth[index] -= sum(memory.size[value] for value in values if left[value] == 1)
    waiting = [len(sources) for sources in units.sources]
    ready = [(growth[index], rank[index], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, _, index = heapq.heappop(ready)
        if done[index]:  # an entry from before its growth changed
            continue
        done[index] = True
        order.append(index)
        changed = []
        for value in memory.read[index]:
            left[value] -= 1
            if left[value] == 1 and value not in units.kept:
                sole = next(reader for reader in memory.readers[value] if not done[reader])
                growth[sole] -= memory.size[value]
                changed.append(sole)
        for reader in units.readers[index]:
            waiting[reader] -= 1
            changed.append(reader)
        for unit in dict.fromkeys(changed):
            if not waiting[unit]:
                heapq.heappush(ready, (growth[unit], rank[unit], unit))
    return order
