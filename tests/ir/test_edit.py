"""Editing keeps all links true: each test verifies the graph it changed."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx import dtypes, ir
from sardonyx.errors import Fail
from sardonyx.ir import edit
from sardonyx.ir.text import parse_graph, to_text
from sardonyx.ir.verify import verify
from tests.garbage import left_behind
from tests.ir.comparing import assert_same_graph

CHAIN = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Neg (a) y = Abs (b) }"


def named(graph: ir.Graph, name: str) -> ir.Value:
    return next(value for value in graph.values() if value.name == name)


def ops(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


# --- replacing


def test_uses_are_replaced():
    graph = parse_graph(CHAIN)
    edit.replace_all_uses(named(graph, "b"), named(graph, "a"))
    verify(graph)
    assert not named(graph, "b").uses and named(graph, "y").producer.inputs[0].name == "a"


def test_uses_in_subgraphs_are_replaced():
    graph = parse_graph(
        "g (float[2] x, bool c) => (float[2] y) { a = Relu (x) y = If (c) <then_branch = t () => (z) { z = Neg (a) },"
        " else_branch = e () => (w) { w = Abs (a) }> }"
    )
    edit.replace_all_uses(named(graph, "a"), named(graph, "x"))
    verify(graph)
    assert not named(graph, "a").uses and len(named(graph, "x").uses) == 3


def test_a_new_output_takes_the_name_of_the_old_one():
    graph = parse_graph(CHAIN)
    old, new = named(graph, "y"), named(graph, "b")
    edit.replace_all_uses(old, new)
    graph.remove(old.producer)
    verify(graph)
    assert graph.outputs == [new] and new.name == "y" and ops(graph) == ["Relu", "Neg"]


@pytest.mark.parametrize("source", ["x", "w", "z"])
def test_an_input_initializer_or_output_becomes_an_output_through_an_identity(source):
    graph = parse_graph("g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { z = Neg (x) y = Relu (x) }")
    old = named(graph, "y")
    edit.replace_all_uses(old, named(graph, source))
    edit.remove_unused(graph)
    verify(graph)
    assert [output.name for output in graph.outputs] == ["y", "z"]
    assert graph.outputs[0].producer.op_type == "Identity" and graph.outputs[0].producer.inputs[0].name == source


def test_an_inner_graph_may_return_any_of_its_values():
    graph = parse_graph("g (bool c) => (y) { y = If (c) <then_branch = t () => (z) <float[1] w = {1}> { z = Neg (w) }> }")
    (inner,) = next(iter(graph.nodes)).subgraphs
    edit.replace_all_uses(inner.outputs[0], inner.initializers["w"])
    edit.remove_unused(graph)
    verify(graph)
    assert inner.outputs == [inner.initializers["w"]] and len(inner) == 0


def test_an_inner_graph_returns_an_outer_value_through_an_identity():
    graph = parse_graph("g (bool c, float[1] x) => (y) { y = If (c) <then_branch = t () => (z) { z = Neg (x) }> }")
    (inner,) = next(iter(graph.nodes)).subgraphs
    edit.replace_all_uses(inner.outputs[0], named(graph, "x"))
    verify(graph)
    assert inner.outputs[0].producer.op_type == "Identity"


def test_a_node_is_replaced_by_several():
    graph = parse_graph(CHAIN)
    node = named(graph, "b").producer
    first = ir.Node("Exp", [node.inputs[0]], ["e"], version=17)
    second = ir.Node("Log", [first.outputs[0]], ["l"], version=17)
    edit.replace_node(node, [first, second], [second.outputs[0]])
    verify(graph)
    assert ops(graph) == ["Relu", "Exp", "Log", "Abs"]


# --- removing


def test_unused_nodes_and_initializers_go():
    graph = parse_graph(
        "g (float[2] x, bool c) => (float[2] y) <float[2] u = {1, 2}, float[2] v = {1, 2}, float[2] k = {1, 2}> {"
        " a = Add (x, u) b = Neg (a) y = If (c) <then_branch = t () => (z) <float[1] q = {1}>"
        " { i = Exp (k) j = Abs (v) z = Relu (v) }> }"
    )
    assert edit.remove_unused(graph) == 7
    verify(graph)
    assert list(graph.initializers) == ["v"] and ops(graph) == ["If"]


def test_an_input_is_never_unused():
    graph = parse_graph("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Relu (x) }")
    assert edit.remove_unused(graph) == 0 and "w" in graph.initializers


def test_nodes_are_removed_in_whichever_order_they_come():
    graph = parse_graph(CHAIN)
    edit.replace_all_uses(named(graph, "y"), named(graph, "a"))
    edit.remove_nodes([node for node in graph.nodes if node.op_type != "Relu"])
    verify(graph)
    assert ops(graph) == ["Relu"]
    with pytest.raises(ValueError, match="used"):
        edit.remove_nodes(list(parse_graph(CHAIN).nodes)[:2])


# --- order


def test_sorting_is_stable():
    graph = parse_graph("g (x) => (y) { y = Sum (c, a) b = Neg (x) c = Abs (b) a = Exp (x) }")
    assert ops(graph) == ["Neg", "Abs", "Exp", "Sum"]
    verify(graph)


def test_a_cycle_is_an_error():
    with pytest.raises(Fail, match="the graph is not acyclic"):
        parse_graph("g (x) => (y) { y = Add (x, z) z = Neg (y) }")


def test_long_chains_do_not_recurse():
    graph = ir.Graph("g", [ir.Value("x")])
    value, nodes = graph.inputs[0], []
    for number in range(50_000):
        nodes.append(ir.Node("Relu", [value], [f"v{number}"], version=17))
        value = nodes[-1].outputs[0]
    for node in reversed(nodes):
        graph.append(node)
    graph.outputs.append(value)
    edit.topological_sort(graph)
    verify(graph)
    copy = edit.clone_graph(graph)
    verify(copy)
    edit.replace_all_uses(copy.outputs[0], copy.inputs[0])
    assert edit.remove_unused(copy) == 50_000
    assert len(graph) == 50_000


# --- copies and names


def test_a_copy_shares_nothing_but_tensors():
    graph = parse_graph(
        "g (float[2] x, bool c, float[2] d = {3, 4}) => (y) <float[2] w = {1, 2}> { a = Add <k = [1, 2]> (x, w)"
        " y = If (c) <then_branch = t (q) => (z) { z = Sum (a, d) }> }"
    )
    copy = edit.clone_graph(graph)
    verify(copy)
    verify(graph)
    assert_same_graph(graph, copy)
    assert copy.initializers["w"].constant is graph.initializers["w"].constant
    assert not set(copy.values()) & set(graph.values())
    next(iter(copy.nodes)).attributes["k"].value.append(3)
    assert next(iter(graph.nodes)).attribute("k") == [1, 2]


def test_a_copy_of_an_inner_graph_uses_the_same_outer_values_or_others():
    graph = parse_graph("g (x, c) => (y) { a = Neg (x) y = If (c) <then_branch = t () => (z) { z = Sum (a, x) }> }")
    (inner,) = list(graph.nodes)[1].subgraphs
    copy = edit.clone_graph(inner)
    assert copy.captured() == inner.captured()
    copy = edit.clone_graph(inner, {named(graph, "a"): named(graph, "x")})
    assert copy.captured() == [named(graph, "x")]


def test_names_are_new_in_all_graphs():
    graph = parse_graph("g (x, c) => (y) { [n] y = If (c) <then_branch = t () => (z) { z = Neg (x) }> }")
    names = edit.Names(graph)
    assert [names.value(name) for name in ("x", "x", "z", "new", "new", "")] == ["x_1", "x_2", "z_1", "new", "new_1", "value"]
    assert [names.node(name) for name in ("n", "m", "")] == ["n_1", "m", "node"]


def test_insertion_keeps_the_order():
    graph = parse_graph(CHAIN)
    anchor = list(graph.nodes)[1]
    edit.insert_before(anchor, [ir.Node("Exp", [graph.inputs[0]], ["e"]), ir.Node("Log", [graph.inputs[0]], ["l"])])
    verify(graph)
    assert ops(graph) == ["Relu", "Exp", "Log", "Neg", "Abs"]


def test_constants_are_read_only():
    tensor = ir.Tensor.of(np.ones(3))
    with pytest.raises(ValueError, match="read-only"):
        tensor.numpy()[0] = 2
    assert "Relu" in to_text(parse_graph(CHAIN))


def test_what_is_computed_is_kept_by_those_who_hold_it():
    calls = []

    def compute():
        calls.append(1)
        return np.full(3, len(calls))

    tensor = ir.Tensor.computed(dtypes.int64, (3,), compute)
    held = tensor.peek()
    assert tensor.peek() is held and not tensor.is_loaded
    del held
    assert tensor.peek().tolist() == [2, 2, 2]
    assert tensor.numpy() is tensor.numpy() and tensor.is_loaded


# --- throwing away

NESTED = """g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { a = Mul (x, w) y = If (c) <
    then_branch = t () => (z) <float[2] v = {3, 4}> { z = Add (a, v) }, else_branch = e () => (u) { u = Mul (a, w) }> }"""


def test_a_model_that_holds_all_leaves_nothing_to_the_collector():
    def drop(holds_all: bool) -> dict[str, int]:
        return left_behind(lambda: ir.Model(parse_graph(NESTED), {"": 17}, holds_all=holds_all))

    assert not drop(True) and drop(False)["sardonyx.ir.tensor.Tensor"] == 2


def test_nodes_that_are_removed_leave_nothing_to_the_collector():
    graph = parse_graph(NESTED)

    def cut() -> None:
        edit.replace_all_uses(named(graph, "y"), named(graph, "a"))
        edit.remove_unused(graph)

    assert not left_behind(cut)
    verify(graph)
    assert ops(graph) == ["Mul"] and list(graph.initializers) == ["w"]
