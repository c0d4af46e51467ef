"""Who computes what: each provider, in the user's order, takes of the nodes still free what it can."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sardonyx.errors import EPFail
from sardonyx.ir import Graph, Node, Value
from sardonyx.providers.provider import Capability, Cluster, ExecutionProvider, missing_kernel


@dataclass(frozen=True)
class Assignment:
    """One step of the run to be: a single node with a kernel, or a cluster to compile, with its provider."""

    provider: ExecutionProvider
    nodes: Sequence[Node]
    cluster: Cluster | None = None


def partition(graph: Graph, providers: Sequence[ExecutionProvider]) -> list[Assignment]:
    """Assign every node of `graph` (not those of its subgraphs) and put the assignments in an order that can run."""
    owner: dict[Node, Assignment] = {}
    for provider in providers:
        free = [node for node in graph.nodes if node not in owner]
        for capability in provider.get_capability(graph, free):
            assignment = _claim(graph, provider, capability, owner)
            owner.update(dict.fromkeys(capability.nodes, assignment))
    for node in graph.nodes:
        if node not in owner:
            raise missing_kernel(node)
    return _ordered(graph, owner)


def _claim(graph: Graph, provider: ExecutionProvider, capability: Capability, owner: dict[Node, Assignment]) -> Assignment:
    for node in capability.nodes:
        if node.graph is not graph:
            raise EPFail(f"{provider.name} claims {node}, which is not in the graph it was asked about")
        if node in owner:
            raise EPFail(f"{provider.name} claims {node}, which {owner[node].provider.name} has already")
    if not capability.nodes or (len(capability.nodes) > 1 and not capability.fused):
        raise EPFail(f"{provider.name} claims {len(capability.nodes)} nodes without fusing them; a kernel computes exactly one")
    if not capability.fused:
        return Assignment(provider, capability.nodes)
    members = set(capability.nodes)
    nodes = [node for node in graph.nodes if node in members]
    name = f"{provider.name}_{graph.name or 'graph'}_{nodes[0].op_type}_{len(owner)}"
    return Assignment(provider, nodes, Cluster(name, nodes, _entering(nodes), _leaving(nodes)))


def _entering(nodes: Sequence[Node]) -> list[Value]:
    made = {id(output) for node in nodes for output in node.outputs}
    used = dict.fromkeys(value for node in nodes for value in (*node.inputs, *node.implicit_inputs()) if value is not None)
    return [value for value in used if id(value) not in made]


def _leaving(nodes: Sequence[Node]) -> list[Value]:
    members = set(nodes)
    return [
        output
        for node in nodes
        for output in node.outputs
        if output.is_graph_output or any(_outermost(user, node.graph) not in members for user in output.users)
    ]


def _outermost(node: Node, graph: Graph | None) -> Node:
    """The node of `graph` inside which `node` stands."""
    while node.graph is not graph and node.graph is not None and node.graph.parent is not None:
        node = node.graph.parent
    return node


def _ordered(graph: Graph, owner: dict[Node, Assignment]) -> list[Assignment]:
    """Assignments as near to the graph's order as dependencies allow; refuses a cluster that another step must interrupt."""
    assignments = _unique(owner[node] for node in graph.nodes)
    waiting = [_sources(assignment, owner) for assignment in assignments]
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
    if len(order) < len(assignments):
        done = {id(assignment) for assignment in order}
        raise _interrupted([assignment for assignment in assignments if id(assignment) not in done])
    return order


def _interrupted(stuck: Sequence[Assignment]) -> EPFail:
    bad = next((one for one in stuck if one.cluster is not None), stuck[0])
    names = ", ".join(str(node) for node in bad.nodes[:4])
    return EPFail(f"{bad.provider.name} claims nodes that cannot run as one step, a path leads out of and back into {names}")


def _sources(assignment: Assignment, owner: dict[Node, Assignment]) -> set[int]:
    found = set()
    for node in assignment.nodes:
        for value in (*node.inputs, *node.implicit_inputs()):
            if value is not None and value.producer in owner and owner[value.producer] is not assignment:
                found.add(id(owner[value.producer]))
    return found


def _unique(assignments: Iterable[Assignment]) -> list[Assignment]:
    return list({id(assignment): assignment for assignment in assignments}.values())
