"""A graph that is not in order is found out, and the message says where."""

from __future__ import annotations

import pytest

from sardonyx import ir
from sardonyx.errors import InvalidGraph
from sardonyx.ir.text import parse_graph, parse_model
from sardonyx.ir.verify import verify


def graph() -> ir.Graph:
    return parse_graph(
        "g (x, c) => (y) <float[1] w = {1}> { [a] t = Add (x, w) [b] u = Neg (t) y = If (c) <then_branch = p () => (z) { z = Abs (u) },"
        " else_branch = q () => (v) { v = Exp (u) }> }"
    )


def nodes(graph: ir.Graph) -> list[ir.Node]:
    return list(graph.nodes)


def lost_use(graph):
    del nodes(graph)[0].outputs[0].uses[nodes(graph)[1], 0]


def invented_use(graph):
    graph.inputs[0].uses[nodes(graph)[1], 0] = None


def use_by_a_removed_node(graph):
    ir.Node("Relu", [graph.inputs[0]], ["lost"])


def wrong_producer(graph):
    nodes(graph)[0].outputs[0].producer = nodes(graph)[1]


def two_of_a_name(graph):
    nodes(graph)[0].outputs[0].name = "x"


def wrong_order(graph):
    graph.reorder(nodes(graph)[::-1])


def unknown_output(graph):
    graph.outputs.append(ir.Value("lost"))


def value_of_a_sibling(graph):
    one, two = nodes(graph)[2].subgraphs
    nodes(two)[0].set_input(0, nodes(one)[0].outputs[0])


def value_of_an_earlier_sibling(graph):
    one, two = nodes(graph)[2].subgraphs
    nodes(one)[0].set_input(0, nodes(two)[0].outputs[0])


def wrong_parent(graph):
    next(iter(nodes(graph)[2].subgraphs)).parent = nodes(graph)[0]


def wrong_kind(graph):
    nodes(graph)[0].attributes["axis"] = ir.Attribute(ir.Kind.INT, "text")


def wrong_list(graph):
    nodes(graph)[0].attributes["axis"] = ir.Attribute(ir.Kind.INTS, 5)


def wrong_input_mark(graph):
    graph.inputs[0].is_input = False


def empty_initializer(graph):
    graph.initializers["w"].constant = None


def renamed_initializer(graph):
    graph.initializers["w"].name = "v"


def lost_graph(graph):
    graph.inputs[0].graph = None


def broken_list(graph):
    graph._count = 7


def unnamed_but_used(graph):
    nodes(graph)[0].outputs[0].name = ""


def output_of_another_graph(graph):
    next(iter(nodes(graph)[2].subgraphs)).outputs[0] = graph.inputs[0]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lost_use, "Neg 'b': input 't' does not know of this use"),
        (invented_use, "'x' believes to be input 0 of Neg 'b', but is not"),
        (use_by_a_removed_node, "'x' is used by Relu 'lost', which is not in this graph"),
        (wrong_producer, "Add 'a': output 't' takes Neg 'b' for its producer"),
        (two_of_a_name, r"Duplicate definition of name \(x\)"),
        (wrong_order, "input 'u' is not known here"),
        (unknown_output, "Graph 'g': output 'lost' does not exist"),
        (value_of_a_sibling, "'z' is used by Exp 'v', which is not in this graph or one inside it"),
        (value_of_an_earlier_sibling, "Abs 'z': input 'v' is not known here"),
        (wrong_parent, "takes Add 'a' for its node"),
        (wrong_kind, "Add 'a': attribute 'axis' is of kind INT, but holds 'text'"),
        (wrong_list, "attribute 'axis' is of kind INTS, but holds 5"),
        (wrong_input_mark, "input 'x' does not know that it is one"),
        (empty_initializer, "initializer 'w' has no data"),
        (renamed_initializer, "initializer 'v' is filed under 'w'"),
        (lost_graph, "'x' does not know its graph"),
        (broken_list, "it counts 7 nodes, but has 3"),
        (unnamed_but_used, "an output without a name is used by Neg 'b'"),
        (output_of_another_graph, "Graph 'p': output 'x' does not exist in the graph"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_is_found(damage, text):
    good = graph()
    verify(good)
    damage(good)
    with pytest.raises(InvalidGraph, match=text):
        verify(good)


def test_an_inner_graph_can_be_verified_alone():
    for inner in nodes(graph())[2].subgraphs:
        verify(inner)


def test_functions_are_verified_with_their_model():
    model = parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (x) => (y) { y = my.F (x) }'
        '<domain: "my", opset_import: ["" : 17]> F <k> (a) => (b) { b = Neg <k: int = @k> (a) }'
    )
    verify(model)
    model.functions["my", "F", ""].graph.outputs.append(ir.Value("lost"))
    with pytest.raises(InvalidGraph, match="output 'lost'"):
        verify(model)


def test_references_are_for_functions_only():
    model = parse_model('<ir_version: 8, opset_import: ["" : 17]> g (x) => (y) { [n] y = Neg (x) }')
    next(iter(model.graph.nodes)).attributes["k"] = ir.Attribute(ir.Kind.INT, None, reference="q")
    with pytest.raises(InvalidGraph, match="Neg 'n': attribute 'k' refers to 'q', which is possible inside a function only"):
        verify(model)
