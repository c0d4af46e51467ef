"""Clusters are convex, hold every supported node once, and no two neighbours could be one; also in graphs of many thousand nodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.ir import Graph, Node, Value
from sardonyx.providers.clustering import maximal_clusters
from tests.counting import executed_lines


def graph_of(edges: list[list[int]]) -> Graph:
    """A graph whose node n reads the outputs of the nodes edges[n]."""
    graph = Graph("g")
    values: list[Value] = []
    for number, sources in enumerate(edges):
        node = graph.append(Node("Op", [values[source] for source in sources], [f"v{number}"], name=str(number)))
        values.append(node.outputs[0])
    return graph


def clusters(edges: list[list[int]], wanted: set[int]) -> list[list[int]]:
    graph = graph_of(edges)
    found = maximal_clusters(graph, graph.nodes, lambda node: int(node.name) in wanted)
    return [[int(node.name) for node in cluster] for cluster in found]


def quotient_has_cycle(edges: list[list[int]], groups: list[list[int]]) -> bool:
    owner = {node: -1 - index for index, group in enumerate(groups) for node in group}
    after: dict[int, set[int]] = {}
    for node, sources in enumerate(edges):
        for source in sources:
            a, b = owner.get(source, source), owner.get(node, node)
            if a != b:
                after.setdefault(a, set()).add(b)
    state: dict[int, bool] = {}

    def visit(node: int) -> bool:
        if node in state:
            return not state[node]
        state[node] = False
        if any(visit(other) for other in after.get(node, ())):
            return True
        state[node] = True
        return False

    return any(visit(node) for node in list(after))


@pytest.mark.parametrize(
    ("edges", "wanted", "expected"),
    [
        ([[], [0], [1], [2]], {0, 1, 2, 3}, [[0, 1, 2, 3]]),
        ([[], [0], [1], [2]], {0, 1, 3}, [[0, 1], [3]]),
        ([[], [0], [0], [1, 2]], {0, 1, 3}, [[0, 1], [3]]),  # 0 → 2 → 3 leaves and comes back
        ([[], [], [0, 1]], {0, 2}, [[0, 2]]),  # what 2 waits for can run before 0
        ([[], [], [1], [0, 2]], {0, 1, 3}, [[0, 3], [1]]),
        ([[], []], {0, 1}, [[0], [1]]),
        ([[], [0]], set(), []),
    ],
)
def test_small_graphs(edges, wanted, expected):
    assert clusters(edges, wanted) == expected


def test_what_somebody_else_runs_at_once_counts_as_one():
    # 0 and 3 run at once for somebody else, so 2 must wait for both and cannot run with 1, which they wait for
    edges = [[], [], [0, 1], [0, 1]]
    graph = graph_of(edges)
    others = [node for node in graph.nodes if node.name in "03"]
    found = maximal_clusters(graph, graph.nodes, lambda node: node.name in "12", [others])
    assert [[node.name for node in cluster] for cluster in found] == [["1"], ["2"]]
    assert clusters(edges, {1, 2}) == [[1, 2]]


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    edges = [sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(count)]
    return edges, draw(st.sets(st.integers(0, count - 1)))


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_clusters_are_convex_and_maximal(case):
    edges, wanted = case
    found = clusters(edges, wanted)
    assert sorted(node for group in found for node in group) == sorted(wanted)
    assert not quotient_has_cycle(edges, found)
    for a in range(len(found)):
        for b in range(len(found)):
            adjacent = any(source in found[a] for node in found[b] for source in edges[node])
            if a != b and adjacent:
                rest = [group for n, group in enumerate(found) if n not in (a, b)]
                assert quotient_has_cycle(edges, [*rest, found[a] + found[b]]), f"{found[a]} and {found[b]} could be one"


def test_a_subgraph_reads_what_it_captures():
    graph = graph_of([[], [0]])
    first, second = graph.nodes
    body = Graph("b")
    body.append(Node("Op", [second.outputs[0]], ["inner"]))
    graph.append(Node("If", [first.outputs[0]], ["y"], {"then_branch": body}, name="2"))
    found = maximal_clusters(graph, graph.nodes, lambda node: node.name != "1")
    assert [[node.name for node in cluster] for cluster in found] == [["0"], ["2"]]


def test_the_work_is_linear_in_nodes():
    def work(count: int) -> int:
        """Residual blocks of which every seventh node is not supported, and one value that all of them read."""
        edges = [[] if n < 2 else sorted({0, n - 1, max(0, n - 9)}) for n in range(count)]
        graph = graph_of(edges)
        return executed_lines(maximal_clusters, graph, graph.nodes, lambda node: int(node.name) % 7 != 3)

    assert work(5000) < 11 * work(500)
