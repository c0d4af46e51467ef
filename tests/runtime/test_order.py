"""Orders of steps: as onnxruntime's where it has them, topological always, quick on large graphs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx import formats, ops
from sardonyx.ir import Graph, Node, TensorType, Value
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.provider import Cluster
from sardonyx.runtime.api.enums import ExecutionOrder
from sardonyx.runtime.preparation.order import Units, arrange, memory_efficient, reverse_depth_first, with_shapes_after_parents
from sardonyx.runtime.preparation.partition import Assignment
from sardonyx.runtime.preparation.plan import PlanOptions, make_plan
from tests.counting import executed_lines
from tests.runtime.models import parsed

RECORDED = json.loads((Path(__file__).parent / "data" / "node_order.json").read_text())["graphs"]
PROVIDER = CPUExecutionProvider()


def graph_of(nodes, inputs, outputs) -> Graph:
    """A graph from (op, inputs, outputs) triples."""
    values = {name: Value(name) for name in inputs}
    graph = Graph("g", list(values.values()))
    for op, reads, makes in nodes:
        made = [Value(name) for name in makes]
        values.update((value.name, value) for value in made)
        graph.append(Node(op, [values[name] for name in reads], made, version=17))
    graph.outputs = [values[name] for name in outputs]
    return graph


def singles(graph: Graph) -> list[Assignment]:
    return [Assignment(PROVIDER, [node]) for node in graph.nodes]


def positions(graph: Graph, arranged: list[Assignment]) -> list[int]:
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    return [numbers[one.nodes[0]] for one in arranged]


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_orders_are_those_that_onnxruntime_was_seen_to_take(number):
    recorded = RECORDED[number]
    graph = graph_of(recorded["nodes"], recorded["graph_inputs"], recorded["graph_outputs"])
    for order, key in ((ExecutionOrder.DEFAULT, "default"), (ExecutionOrder.PRIORITY_BASED, "priority_based")):
        assert positions(graph, arrange(graph, singles(graph), order)) == recorded[key]


@st.composite
def graphs(draw) -> Graph:
    """Random graphs of one-output nodes, some of which read shapes."""
    count = draw(st.integers(1, 24))
    names, nodes = ["x"], []
    for number in range(count):
        op = draw(st.sampled_from(["Add", "Relu", "Shape", "Size"]))
        reads = [draw(st.sampled_from(names)) for _ in range(2 if op == "Add" else 1)]
        nodes.append((op, reads, [f"v{number}"]))
        names.append(f"v{number}")
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=3, unique=True))
    graph = graph_of(nodes, ["x"], outputs)
    for value in graph.values():
        value.type = TensorType(sardonyx.dtypes.float32, (draw(st.integers(1, 1000)),))
    return graph


def clusters(graph: Graph, size: int) -> list[Assignment]:
    """Runs of consecutive nodes as clusters."""
    nodes = list(graph.nodes)
    parts = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    return [
        Assignment(PROVIDER, part, Cluster("c", part, [], [value for node in part for value in node.outputs])) for part in parts
    ]


@settings(max_examples=150, deadline=None)
@given(graphs(), st.sampled_from(list(ExecutionOrder)), st.booleans(), st.integers(1, 4))
def test_every_order_is_topological_and_complete(graph, order, shapes_first, size):
    assignments = clusters(graph, size) if size > 1 else singles(graph)
    done: set[Node] = set()
    arranged = arrange(graph, assignments, order, shapes_first=shapes_first)
    for one in arranged:
        for node in one.nodes:
            assert all(value.producer is None or value.producer in done or value.producer in one.nodes for value in node.inputs)
        done.update(one.nodes)
    assert len(arranged) == len(assignments) and len(done) == len(graph)


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_the_memory_efficient_order_never_keeps_more_alive_than_the_default(graph):
    units = Units(graph, singles(graph))

    def most_alive(order: list[int]) -> int:
        nodes = list(graph.nodes)
        size = {node.outputs[0]: node.outputs[0].type.shape[0] * 4 for node in nodes}
        alive, most, done = set(), 0, set()
        for index in order:
            done.add(nodes[index])
            alive.add(nodes[index].outputs[0])
            most = max(most, sum(size[value] for value in alive))
            alive = {value for value in alive if value in graph.outputs or not value.uses or not set(value.users) <= done}
        return most

    assert most_alive(memory_efficient(units)) <= most_alive(reverse_depth_first(units))


def test_shapes_follow_their_parents():
    graph = graph_of(
        [
            ("Relu", ["x"], ["a"]),
            ("Neg", ["a"], ["b"]),
            ("Size", ["a"], ["s"]),
            ("Shape", ["x"], ["t"]),
            ("Shape", ["a"], ["u"]),
        ],
        ["x"],
        ["b", "s", "t", "u"],
    )
    units = Units(graph, singles(graph))
    assert reverse_depth_first(units) == [0, 4, 3, 2, 1]
    assert with_shapes_after_parents(units, [0, 1, 3, 2, 4]) == [0, 2, 4, 1, 3]


def test_the_greedy_order_reduces_before_it_makes_more():
    branches = " ".join(f"e{i} = Exp(x{i}) r{i} = ReduceSum(e{i})" for i in range(4))
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1024] x) => (float y) {{ {" ".join(f"x{i} = Neg(x)" for i in range(4))} {branches} y = Sum(r0, r1, r2, r3) }}"""
    model = formats.load(onnx.parser.parse_model(text))
    ops.infer(model, evaluate)
    peaks = {order: make_plan(model.graph, [PROVIDER], PlanOptions(order)).memory.peak() for order in ExecutionOrder}
    assert peaks[ExecutionOrder.MEMORY_EFFICIENT] <= peaks[ExecutionOrder.DEFAULT] < peaks[ExecutionOrder.PRIORITY_BASED]


TWO_BRANCHES = parsed("g (float[N] x) => (float[N] y) { a = Neg(x) b = Exp(a) c = Abs(x) d = Sqrt(c) y = Add(b, d) }")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (ExecutionOrder.DEFAULT, ["Abs", "Sqrt", "Neg", "Exp", "Add"]),
        (ExecutionOrder.PRIORITY_BASED, ["Neg", "Exp", "Abs", "Sqrt", "Add"]),
    ],
)
def test_a_session_runs_in_the_order_of_its_options(order, expected):
    options = sardonyx.SessionOptions()
    options.execution_order = order
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = sardonyx.InferenceSession(TWO_BRANCHES, options, providers=[("CPUExecutionProvider", {"native": "0"})])
    assert [step.node.op_type for step in session._sess.plan.steps] == expected


@pytest.mark.parametrize("order", list(ExecutionOrder))
def test_the_work_of_ordering_grows_with_the_nodes(order):
    def work(count: int) -> int:
        nodes = [
            ("Add", [f"v{max(number - 1, 0)}" if number else "x", f"v{number // 2}" if number > 1 else "x"], [f"v{number}"])
            for number in range(count)
        ]
        graph = graph_of(nodes, ["x"], [f"v{count - 1}"])
        parts = singles(graph)
        assert len(arrange(graph, parts, order, shapes_first=True)) == count
        return executed_lines(lambda: arrange(graph, parts, order, shapes_first=True))

    assert work(5000) < 11 * work(500)
