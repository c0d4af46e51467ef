"""Decides which provider computes which nodes. In the user's order, each provider takes what it can of the nodes that are still free, in
all graphs, inner ones first.

`prepare` calls `partition_graphs` with a way to expand nodes that nobody takes; plans are made from what it returns.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from sardonyx.errors import EPFail
from sardonyx.ir import Graph, Node, Value
from sardonyx.ir.graph import all_graphs
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.provider import CannotCompile, Capability, Cluster, Compiled, ExecutionProvider
from sardonyx.startup.records import dataclass, field, replace

logger = logging.getLogger("sardonyx.runtime")

Expand = Callable[[Sequence[Node]], bool]
"""Replaces those of the given nodes that can be expressed by others, and says whether there were any."""


@dataclass(frozen=True)
class Assignment:
    """A future step with its provider: a single node with a kernel, or a cluster to compile."""

    provider: ExecutionProvider
    nodes: Sequence[Node]
    cluster: Cluster | None = None
    call: Compiled | None = None
    """What runs it, where that is decided already."""
    reason: str = ""
    """Why no provider before has it, as far as they tell."""


Refused = dict[ExecutionProvider, dict[Node, str]]
"""What a provider could not compile, and why: it is not offered to it any more."""

MAX_ROUNDS = 32
"""How often a provider may claim in another way what it could not compile; then it loses all of the cluster."""

Assigned = Mapping[Graph, Sequence[Assignment]]
"""The assignments of each graph in an order that can run. A graph inside a cluster has none of its own."""


def partition(graph: Graph, providers: Sequence[ExecutionProvider]) -> list[Assignment]:
    """Assign every node of `graph`; see `partition_graphs` for those of its subgraphs."""
    return list(partition_graphs(graph, providers, compiling=False)[graph])


def partition_graphs(
    graph: Graph, providers: Sequence[ExecutionProvider], expand: Expand = lambda nodes: False, *, compiling: bool = True
) -> Assigned:
    """Assign every node of `graph` and of all graphs inside it, and compile the clusters.

    Nodes that nobody takes are given to `expand`, then all providers are asked again; so they are when a provider finds that it
    cannot compile what it took, which is not offered to it any more.
    """
    refused: Refused = {}
    compiler, numbers = _Compiler(refused), itertools.count(1)
    while True:  # ends: bodies unfold so deep at most, and each time a node is refused or set apart that was not before
        claims = claim(graph, providers, refused, numbers)
        free = claims.free()
        if free:
            if expand(free):
                continue
            from sardonyx.providers.kernel_search import missing_kernel

            raise missing_kernel(free[0])
        ordered = {inner: _ordered(inner, claims.owner) for inner in claims.graphs()}
        if compiling and not compiler.compile(ordered):
            continue
        return {
            inner: [_with_reason(compiler.done(assignment), providers, refused) for assignment in assignments]
            for inner, assignments in ordered.items()
        }


def _with_reason(assignment: Assignment, providers: Sequence[ExecutionProvider], refused: Refused) -> Assignment:
    """An assignment with the reasons why the providers before its own refused the node."""
    if assignment.cluster is not None:
        return assignment
    (node,) = assignment.nodes
    before = itertools.takewhile(lambda provider: provider is not assignment.provider, providers)
    reasons = [(provider.name, refused.get(provider, {}).get(node) or provider.reason(node)) for provider in before]
    return replace(assignment, reason="; ".join(f"{name}: {reason}" for name, reason in reasons if reason))


def claim(
    graph: Graph,
    providers: Sequence[ExecutionProvider],
    refused: Refused | None = None,
    numbers: Iterator[int] | None = None,
) -> Claims:
    """Ask all providers once. `numbers` go into the names of clusters."""
    claims = Claims(graph, numbers or itertools.count(1))
    for provider in providers:
        claims.ask(provider, (refused or {}).get(provider, {}))
    return claims


@dataclass
class Claims:
    """Which assignment each node belongs to, while providers are asked."""

    root: Graph
    numbers: Iterator[int]
    owner: dict[Node, Assignment] = field(default_factory=dict)
    borders: dict[Graph, _Borders] = field(default_factory=dict)

    def graphs(self) -> list[Graph]:
        """The graphs that are not inside a cluster, outer ones first."""
        return [graph for graph in all_graphs(self.root) if not self._is_absorbed(graph)]

    def _is_absorbed(self, graph: Graph) -> bool:
        assignment = None if graph.parent is None else self.owner.get(graph.parent)
        return assignment is not None and assignment.cluster is not None

    def free(self) -> list[Node]:
        return [node for graph in self.graphs() for node in graph.nodes if node not in self.owner]

    def ask(self, provider: ExecutionProvider, refused: Container[Node]) -> None:
        """Let one provider take what it can, in inner graphs first."""
        budget = _Budget(provider)
        for graph in reversed(self.graphs()):
            free = [node for node in graph.nodes if node not in self.owner and node not in refused]
            taken: list[Assignment] = []
            for capability in provider.get_capability(graph, free):
                assignment = self._claim(graph, provider, capability, refused)
                if assignment is not None and budget.allows(assignment):
                    self._take(assignment)
                    taken.append(assignment)
            self._disentangle(graph, provider, taken)

    def _claim(
        self, graph: Graph, provider: ExecutionProvider, capability: Capability, refused: Container[Node]
    ) -> Assignment | None:
        """The assignment that a capability asks for; None if nodes inside of it belong to another provider."""
        nodes = list(dict.fromkeys(capability.nodes))
        for node in nodes:
            if node.graph is not graph:
                raise EPFail(f"{provider.name} claims {node}, which is not in the graph it was asked about")
            if node in self.owner:
                raise EPFail(f"{provider.name} claims {node}, which {self.owner[node].provider.name} has already")
            if node in refused:
                raise EPFail(f"{provider.name} claims {node}, which it could not compile and was not offered again")
        if not nodes or (len(nodes) > 1 and not capability.fused):
            raise EPFail(f"{provider.name} claims {len(nodes)} nodes without fusing them; a kernel computes exactly one")
        if not capability.fused:
            return Assignment(provider, nodes)
        for inner in (member for node in nodes for subgraph in node.subgraphs for member in subgraph.all_nodes()):
            if inner in self.owner and self.owner[inner].provider is not provider:
                logger.info("%s does not get %s: %s inside is another's", provider.name, nodes[0], inner)
                return None
        return self._fused(graph, provider, nodes, capability.name, capability.witnesses)

    def _fused(
        self, graph: Graph, provider: ExecutionProvider, nodes: Iterable[Node], name: str, witnesses: Sequence[Value]
    ) -> Assignment:
        borders = self.borders.get(graph) or self.borders.setdefault(graph, _Borders(graph))
        ordered = sorted(nodes, key=borders.positions.__getitem__)
        inputs, constants = _entering(ordered)
        label = f"{provider.name}_{name}_{next(self.numbers)}"
        added = [value for value in witnesses if value not in inputs]
        cluster = Cluster(label, ordered, [*inputs, *added], borders.leaving(ordered), constants, added)
        return Assignment(provider, ordered, cluster)

    def _take(self, assignment: Assignment) -> None:
        for node in assignment.nodes:
            self.owner[node] = assignment
            if assignment.cluster is not None:
                for subgraph in node.subgraphs:
                    self.owner.update(dict.fromkeys(subgraph.all_nodes(), assignment))

    def _disentangle(self, graph: Graph, provider: ExecutionProvider, taken: Sequence[Assignment]) -> None:
        """Split new clusters that would wait for clusters of earlier providers which wait for them."""
        clusters = [assignment for assignment in taken if assignment.cluster is not None]
        if not clusters or not _stuck(graph, self.owner)[1]:
            return
        own = {node: assignment for assignment in clusters for node in assignment.nodes}
        alone = _stuck(graph, own)[1]
        if alone:
            raise _interrupted(alone)
        for assignment in clusters:
            for node in assignment.nodes:
                del self.owner[node]
        for assignment in clusters:
            assert assignment.cluster is not None
            groups = _unique(owner for node in graph.nodes if (owner := self.owner.get(node)) and owner.cluster)
            name = assignment.cluster.name.removeprefix(f"{provider.name}_").rpartition("_")[0]
            for part in maximal_clusters(graph, assignment.nodes, lambda node: True, [group.nodes for group in groups]):
                self._take(self._fused(graph, provider, part, name, assignment.cluster.witnesses))


class _Budget:
    """Counts the bytes of constants that a provider takes, each constant once."""

    def __init__(self, provider: ExecutionProvider):
        self.provider = provider
        self.limit = provider.constant_limit
        self.counted: set[Value] = set()
        self.used = 0

    def allows(self, assignment: Assignment) -> bool:
        if self.limit is None:
            return True
        constants = set(_entering(assignment.nodes)[1]) - self.counted
        size = sum(value.constant.dtype.stored_bytes(value.constant.size) for value in constants if value.constant is not None)
        if self.used + size > self.limit:
            logger.info(
                "%s does not get %s: %d bytes of constants, %d of %d left",
                *(self.provider.name, assignment.nodes[0], size, self.limit - self.used, self.limit),
            )
            return False
        self.counted |= constants
        self.used += size
        return True


class _Compiler:
    """Compiles clusters, each once, however often providers are asked again. What cannot be compiled is added to `refused`."""

    def __init__(self, refused: Refused) -> None:
        self._made: dict[tuple[ExecutionProvider, frozenset[Node]], Assignment] = {}
        self._refused = refused
        self._rounds = 0

    def compile(self, assigned: Assigned) -> bool:
        """Compile what is not compiled yet. False if a cluster could not be compiled, so that providers must be asked again."""
        self._rounds += 1
        is_complete = True
        for assignment in (
            candidate for assignments in assigned.values() for candidate in assignments if candidate.cluster is not None
        ):
            key = assignment.provider, frozenset(assignment.nodes)
            if key in self._made or assignment.cluster is None:
                continue
            try:
                call = assignment.provider.compile(assignment.cluster)
            except CannotCompile as error:
                self._refuse(assignment, error)
                is_complete = False
            else:
                self._made[key] = replace(assignment, call=call)
        return is_complete

    def _refuse(self, assignment: Assignment, error: CannotCompile) -> None:
        """Take the nodes that cannot be compiled from a provider; all of the cluster if it does not know which."""
        assert assignment.cluster is not None
        members = set(assignment.nodes)
        reasons = {node: reason or repr(error) for node, reason in error.reasons.items() if node in members}
        level = logging.INFO if error.quiet else logging.WARNING
        for reason, nodes in _by_reason(reasons):
            more = f" and {len(nodes) - 1} nodes more" if len(nodes) > 1 else ""
            logger.log(level, "%s gives up %s%s: %s", assignment.provider.name, nodes[0], more, reason)
        if (not reasons and not error.again) or self._rounds > MAX_ROUNDS:
            reason = str(error) or repr(error)
            logger.log(level, "%s gives up %s: %s", assignment.provider.name, assignment.cluster.name, reason)
            reasons = dict.fromkeys(assignment.nodes, reason) | reasons
        self._refused.setdefault(assignment.provider, {}).update(reasons)

    def done(self, assignment: Assignment) -> Assignment:
        return self._made.get((assignment.provider, frozenset(assignment.nodes)), assignment)


def _by_reason(reasons: Mapping[Node, str]) -> list[tuple[str, list[Node]]]:
    groups: dict[str, list[Node]] = {}
    for node, reason in reasons.items():
        groups.setdefault(reason, []).append(node)
    return list(groups.items())


# --- the borders of a cluster


def _entering(nodes: Sequence[Node]) -> tuple[list[Value], list[Value]]:
    """What nodes read and do not compute: values of the run, and constants."""
    outputs = {id(output) for node in nodes for output in node.outputs}
    used = dict.fromkeys(value for node in nodes for value in (*node.inputs, *node.implicit_inputs()) if value is not None)
    entering = [value for value in used if id(value) not in outputs]
    return [value for value in entering if not value.is_constant], [value for value in entering if value.is_constant]


class _Borders:
    """What decides which values of a cluster are outputs: positions of nodes, outputs of the graph, values that subgraphs return."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.positions = {node: position for position, node in enumerate(graph.nodes)}
        self.outputs = set(graph.outputs)
        self.given_on: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for inner in (nested for subgraph in node.subgraphs for nested in all_graphs(subgraph)):
                for value in inner.outputs:
                    if value.graph is graph:
                        self.given_on.setdefault(value, []).append(node)

    def leaving(self, nodes: Sequence[Node]) -> list[Value]:
        members = set(nodes)
        return [output for node in nodes for output in node.outputs if output in self.outputs or self._is_read(output, members)]

    def _is_read(self, value: Value, members: set[Node]) -> bool:
        """Whether a node that is not among `members` uses the value."""
        readers = (_outermost(user, self.graph) for user in value.users)
        return any(node not in members for node in (*readers, *self.given_on.get(value, ())))


def _outermost(node: Node, graph: Graph | None) -> Node:
    """The node of `graph` inside which `node` stands."""
    while node.graph is not graph and node.graph is not None and node.graph.parent is not None:
        node = node.graph.parent
    return node


# --- order


def _ordered(graph: Graph, owner: Mapping[Node, Assignment]) -> list[Assignment]:
    """Assignments as near to the graph's order as dependencies allow; refuses a cluster that another step must interrupt."""
    order, stuck = _stuck(graph, owner)
    if stuck:
        raise _interrupted(stuck)
    return order


def _stuck(graph: Graph, owner: Mapping[Node, Assignment]) -> tuple[list[Assignment], list[Assignment]]:
    """Assignments in an order that can run, and those that wait for each other. A node that is nobody's counts as one by itself."""
    by_node = {node: owner.get(node) or Assignment(_NOBODY, [node]) for node in graph.nodes}
    assignments = _unique(by_node.values())
    waiting = [_sources(assignment, by_node) for assignment in assignments]
    followers: dict[int, list[int]] = {}
    for index, sources in enumerate(waiting):
        for source in sources:
            followers.setdefault(source, []).append(index)
    ready = [index for index, sources in enumerate(waiting) if not sources]
    order: list[Assignment] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(assignments[index])
        for follower in followers.get(id(assignments[index]), ()):
            waiting[follower].discard(id(assignments[index]))
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    if len(order) == len(assignments):
        return order, []
    done = {id(assignment) for assignment in order}
    return order, [assignment for assignment in assignments if id(assignment) not in done]


_NOBODY = ExecutionProvider()


def _interrupted(stuck: Sequence[Assignment]) -> EPFail:
    bad = next((assignment for assignment in stuck if assignment.cluster is not None), stuck[0])
    names = ", ".join(str(node) for node in bad.nodes[:4])
    return EPFail(f"{bad.provider.name} claims nodes that cannot run as one step, a path leads out of and back into {names}")


def _sources(assignment: Assignment, owner: Mapping[Node, Assignment]) -> set[int]:
    sources = set()
    for node in assignment.nodes:
        for value in (*node.inputs, *node.implicit_inputs()):
            producer = None if value is None else value.producer
            if producer is not None and owner.get(producer, assignment) is not assignment:
                sources.add(id(owner[producer]))
    return sources


def _unique(assignments: Iterable[Assignment]) -> list[Assignment]:
    return list({id(assignment): assignment for assignment in assignments}.values())
