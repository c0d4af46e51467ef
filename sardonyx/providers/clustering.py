"""Few large clusters of the nodes that a provider supports, each of which can run as one step. Providers that compile ask here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sardonyx.ir import Graph, Node

SEARCH_LIMIT = 512
"""How many neighbours a search for a second path looks at before it takes one for granted: keeps the time linear in nodes."""


def maximal_clusters(
    graph: Graph, nodes: Iterable[Node], supported: Callable[[Node], bool], taken: Iterable[Collection[Node]] = ()
) -> list[list[Node]]:
    """Those of `nodes` that are `supported`, in connected convex groups, none of which could be joined with a neighbour.

    Convex means that no path leaves a group and comes back, so that the group can run at once. `taken` are groups of other nodes that
    run at once already. Groups stand in the order of their first nodes, nodes in the graph's.
    """
    order = _units(graph, taken)
    numbers = {node: number for number, unit in enumerate(order) for node in unit}
    wanted = [False] * len(order)
    for node in nodes:
        wanted[numbers[node]] = supported(node)
    sources = [_sources(number, unit, numbers) for number, unit in enumerate(order)]
    levels = _levels(sources, wanted)
    groups = _Groups(wanted)
    for number, before in enumerate(sources):
        for source in before:
            if wanted[number] and wanted[source] and levels[source] == levels[number]:
                groups.join(source, number)
    groups.connect((source, number) for number, before in enumerate(sources) for source in before)
    groups.join_neighbours()
    clusters: dict[int, list[Node]] = {}
    for node in graph.nodes:
        number = numbers[node]
        if wanted[number]:
            clusters.setdefault(groups.root(number), []).append(node)
    return list(clusters.values())


def _units(graph: Graph, taken: Iterable[Collection[Node]]) -> list[Sequence[Node]]:
    """Taken groups, and all other nodes by themselves, in an order in which they could run."""
    group_of = {node: group for group in map(list, taken) for node in group}
    units = {id(group_of.get(node, node)): group_of.get(node, [node]) for node in graph.nodes}
    if not group_of:
        return list(units.values())
    from graphlib import TopologicalSorter

    numbers = {node: key for key, unit in units.items() for node in unit}
    order = TopologicalSorter({key: _sources(key, unit, numbers) for key, unit in units.items()}).static_order()
    return [units[key] for key in order]


def _sources(number: int, unit: Sequence[Node], numbers: Mapping[Node, int]) -> list[int]:
    """The numbers of the units that a unit depends on."""
    reached: dict[int, None] = {}
    for node in unit:
        for value in (*node.inputs, *(node.implicit_inputs() if node.attributes else ())):
            source = None if value is None or value.producer is None else numbers.get(value.producer)
            if source is not None and source != number:
                reached[source] = None
    return list(reached)


def _levels(sources: Sequence[Sequence[int]], wanted: Sequence[bool]) -> list[int]:
    """For each node how often a path to it leaves the wanted nodes, at most.

    Wanted nodes of one level that hang together are convex: a path that leaves them comes back on a higher level.
    """
    levels: list[int] = []
    for number, before in enumerate(sources):
        levels.append(max((levels[source] + (wanted[source] and not wanted[number]) for source in before), default=0))
    return levels


class _Groups:
    """A graph of numbered nodes that are being joined: `before` and `after` hold the roots next to a root."""

    def __init__(self, wanted: Sequence[bool]):
        self.wanted = wanted
        self.parents = list(range(len(wanted)))
        self.before: dict[int, set[int]] = {}
        self.after: dict[int, set[int]] = {}

    def root(self, node: int) -> int:
        while self.parents[node] != node:
            self.parents[node] = node = self.parents[self.parents[node]]
        return node

    def join(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parents[max(a, b)] = min(a, b)

    def connect(self, edges: Iterable[tuple[int, int]]) -> None:
        for node, parent in enumerate(self.parents):
            if node == parent:
                self.before[node], self.after[node] = set(), set()
        for source, node in edges:
            a, b = self.root(source), self.root(node)
            if a != b:
                self.after[a].add(b)
                self.before[b].add(a)

    def join_neighbours(self) -> None:
        """Join clusters along edges for as long as no second path leads from one to the other."""
        pending = [(a, b) for a, after in self.after.items() if self.wanted[a] for b in self._clusters_in(after)]
        while pending:
            a, b = (self.root(node) for node in pending.pop())
            if b in self.after[a] and not self._has_second_path(a, b):
                merged = self._contract(a, b)
                pending += [(merged, other) for other in self._clusters_in(self.after[merged])]
                pending += [(other, merged) for other in self._clusters_in(self.before[merged])]

    def _clusters_in(self, nodes: set[int]) -> list[int]:
        return [node for node in nodes if self.wanted[node]]

    def _contract(self, a: int, b: int) -> int:
        """Make one of two neighbours."""
        kept, gone = min(a, b), max(a, b)
        self.join(kept, gone)
        for here, there in ((self.before, self.after), (self.after, self.before)):
            for other in here.pop(gone):
                there[other].discard(gone)
                if other != kept:
                    here[kept].add(other)
                    there[other].add(kept)
            here[kept].discard(gone)
        return kept

    def _has_second_path(self, a: int, b: int) -> bool:
        """Whether `b` can be reached from `a` other than along their edge; searches from both ends, the smaller side first."""
        if len(self.after[a]) == 1 or len(self.before[b]) == 1:
            return False
        if len(self.after[a]) + len(self.before[b]) > SEARCH_LIMIT:
            return True
        ahead, behind = self.after[a] - {b}, self.before[b] - {a}
        seen_ahead, seen_behind = set(ahead), set(behind)
        for _ in range(SEARCH_LIMIT):
            if not seen_ahead.isdisjoint(seen_behind):
                return True
            if not ahead or not behind:
                return False
            if len(ahead) <= len(behind):
                ahead = self._step(ahead, self.after, seen_ahead)
            else:
                behind = self._step(behind, self.before, seen_behind)
            if len(seen_ahead) + len(seen_behind) > SEARCH_LIMIT:
                return True
        return True

    @staticmethod
    def _step(frontier: set[int], edges: dict[int, set[int]], reached: set[int]) -> set[int]:
        following = {following_node for start in frontier for following_node in edges[start]} - reached
        reached |= following
        return following
