"""Calls of functions become the nodes of their bodies."""

from __future__ import annotations

import pytest

from sardonyx import ir
from sardonyx.errors import Fail, InvalidGraph
from sardonyx.ir import edit
from sardonyx.ir.text import parse_model, to_text
from sardonyx.ir.verify import verify

HEADER = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>'


def function(text: str, opset: int = 17) -> str:
    return f'<domain: "my", opset_import: ["" : {opset}, "my" : 1]> {text}'


def inlined(graph: str, *functions: str, **options) -> ir.Model:
    model = parse_model("\n".join([HEADER, graph, *(function(one) for one in functions)]))
    edit.inline_functions(model, **options)
    verify(model)
    return model


def ops(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def test_inner_names_get_a_prefix_and_results_keep_theirs():
    model = inlined(
        "g (float[2] x) => (float[2] y) { [one] t = my.F (x) [two] y = my.F (t) }",
        "F (a) => (b) { [n] c = Neg (a) b = Abs (c) }",
    )
    assert not model.functions
    assert ops(model.graph) == ["Neg", "Abs", "Neg", "Abs"]
    assert [node.outputs[0].name for node in model.graph.nodes] == ["one/c", "t", "two/c", "y"]
    assert [node.name for node in model.graph.nodes] == ["one/n", "", "two/n", ""]
    assert ir.described(model.graph.outputs[0].type) == "float[2]"


def test_names_that_exist_already_are_not_taken_twice():
    model = inlined('g (x) => (y) { "n/c" = Exp (x) [n] y = my.F ("n/c") }', "F (a) => (b) { c = Neg (a) b = Abs (c) }")
    assert [node.outputs[0].name for node in model.graph.nodes] == ["n/c", "n/c_1", "y"]


def test_nodes_keep_the_version_of_their_function():
    text = "\n".join([HEADER, "g (x) => (y) { y = my.F (x) }", function("F (a) => (b) { b = Relu (a) }", opset=13)])
    model = parse_model(text)
    edit.inline_functions(model)
    assert [node.version for node in model.graph.nodes] == [13]


def test_attribute_references_take_the_value_of_the_call_or_the_default_or_go():
    text = "F <alpha, beta: float = 2.0, gone> (a) => (b) { b = Op <a: float = @alpha, b: float = @beta, c: int = @gone, d = 4> (a) }"
    model = inlined("g (x) => (y, z) { y = my.F <alpha = 1.0> (x) z = my.F <alpha = 3.0, beta = 5.0, gone = 6> (x) }", text)
    first, second = model.graph.nodes
    assert {name: one.value for name, one in first.attributes.items()} == {"a": 1.0, "b": 2.0, "d": 4}
    assert {name: one.value for name, one in second.attributes.items()} == {"a": 3.0, "b": 5.0, "c": 6, "d": 4}


def test_references_pass_through_calls_inside_functions():
    model = inlined(
        "g (x) => (y) { y = my.F <k = 7> (x) }",
        "F <k> (a) => (b) { b = my.G <m: int = @k> (a) }",
        "G <m> (a) => (b) { b = Op <axis: int = @m> (a) }",
    )
    assert [node.attribute("axis") for node in model.graph.nodes] == [7]


def test_inputs_that_are_left_out_become_none():
    model = inlined("g (x) => (y) { y = my.F (x) }", "F (a, b, c) => (d) { d = Clip (a, b, c) }")
    (node,) = model.graph.nodes
    assert [value and value.name for value in node.inputs] == ["x", None, None]


def test_an_output_that_is_an_input_goes_through_an_identity():
    model = inlined("g (x) => (y, z) { y, z = my.F (x) }", "F (a) => (a, b) { b = Neg (a) }")
    assert ops(model.graph) == ["Neg", "Identity"]
    assert [output.name for output in model.graph.outputs] == ["y", "z"]


def test_one_result_may_be_two_outputs():
    model = inlined("g (x) => (y, z) { y, z = my.F (x) }", "F (a) => (b, b) { b = Neg (a) }")
    assert ops(model.graph) == ["Neg", "Identity"]


def test_outputs_that_nobody_wants_may_be_left_out():
    model = inlined("g (x) => (z) { ,z = my.F (x) w = my.F (x) }", "F (a) => (b, c) { b = Neg (a) c = Abs (b) }")
    assert ops(model.graph) == ["Neg", "Abs", "Neg", "Abs"]


def test_graphs_inside_functions_are_renamed_too():
    model = inlined(
        "g (x, c, t) => (y, z) { [p] y = my.F (x, c) [q] z = my.F (t, c) }",
        "F (a, c) => (b) { t = Neg (a) b = If (c) <then_branch = g1 () => (u) { u = Add (a, t) },"
        " else_branch = g2 () => (v) <float[1] k = {1}> { v = Sum (t, k) }> }",
    )
    names = [value.name for graph in edit.all_graphs(model.graph) for value in graph.values()]
    assert len(names) == len(set(names))
    branches = [next(iter(node.subgraphs)) for node in model.graph.nodes if node.op_type == "If"]
    assert [[value.name for value in branch.captured()] for branch in branches] == [["x", "p/t"], ["t", "q/t"]]


def test_calls_inside_subgraphs_are_expanded():
    model = inlined(
        "g (x, c) => (y) { y = If (c) <then_branch = t () => (z) { z = my.F (x) }, else_branch = e () => (w) { w = Exp (x) }> }",
        "F (a) => (b) { b = my.G (a) }",
        "G (a) => (b) { b = Neg (a) }",
    )
    assert [node.op_type for node in model.graph.all_nodes() if node.op_type != "If"] in (["Neg", "Exp"], ["Exp", "Neg"])


def test_a_graph_may_be_an_attribute_of_a_call():
    model = inlined(
        "g (x, c) => (y) { w = Exp (x) y = my.F <body = b () => (z) { z = Neg (w) }> (c) }",
        "F <body> (c) => (y) { y = If <then_branch: graph = @body, else_branch: graph = @body> (c) }",
    )
    branches = list(list(model.graph.nodes)[1].subgraphs)
    assert len(branches) == 2 and branches[0] is not branches[1]
    assert all(branch.captured() == [next(iter(model.graph.nodes)).outputs[0]] for branch in branches)


def test_functions_to_keep_are_kept_and_what_they_call_is_expanded():
    model = inlined(
        "g (x) => (y) { y = my.F (x) }",
        "F <k> (a) => (b) { b = my.G <m: int = @k> (a) }",
        "G <m> (a) => (b) { b = Op <axis: int = @m> (a) }",
        keep=lambda key: key[1] == "F",
    )
    assert ops(model.graph) == ["F"] and list(model.functions) == [("my", "F", "")]
    (node,) = model.functions["my", "F", ""].graph.nodes
    assert node.op_type == "Op" and node.attributes["axis"].reference == "k"


@pytest.mark.parametrize("body", ["my.F (a)", "my.G (a)"])
def test_recursion_is_an_error_that_names_the_function(body):
    with pytest.raises(Fail, match="Function my:F calls itself: my:F ->"):
        inlined("g (x) => (y) { y = my.F (x) }", f"F (a) => (b) {{ b = {body} }}", "G (a) => (b) { b = my.F (a) }")


def test_recursion_through_a_subgraph_is_found():
    with pytest.raises(Fail, match="calls itself"):
        inlined("g (x) => (y) { y = my.F (x) }", "F (a) => (b) { b = If (a) <then_branch = t () => (z) { z = my.F (a) }> }")


def test_a_billion_laughs_are_refused_at_once():
    functions = [f"F{n} (a) => (b) {{ c = my.F{n + 1} (a) b = my.F{n + 1} (c) }}" for n in range(40)]
    with pytest.raises(Fail, match="expand to 3298534883326 nodes, more than the limit of 1000000"):
        inlined("g (x) => (y) { y = my.F0 (x) }", *functions, "F40 (a) => (b) { b = Neg (a) }")


def test_the_limit_counts_graphs_in_attributes_too():
    use = ", ".join(f"g{n}: graph = @body" for n in range(30))
    functions = [f"F <body> (c) => (y) {{ y = Op <{use}> (c) }}"]
    nodes = " ".join(f"v{n} = Neg (w)" for n in range(30))
    with pytest.raises(Fail, match="too many nodes"):
        inlined(f"g (w) => (y) {{ y = my.F <body = b () => (v0) {{ {nodes} }}> (w) }}", *functions, node_limit=500)


def test_nesting_by_functions_is_limited():
    functions = [f"F{n} (a) => (b) {{ b = If (a) <then_branch = t () => (z) {{ z = my.F{n + 1} (a) }}> }}" for n in range(100)]
    with pytest.raises(Fail, match="nested deeper than 64"):
        inlined("g (x) => (y) { y = my.F0 (x) }", *functions, "F100 (a) => (b) { b = Neg (a) }")


def test_a_long_chain_of_functions_does_not_recurse():
    functions = [f"F{n} (a) => (b) {{ b = my.F{n + 1} (a) }}" for n in range(3000)]
    model = inlined("g (x) => (y) { y = my.F0 (x) }", *functions, "F3000 (a) => (b) { b = Neg (a) }")
    assert ops(model.graph) == ["Neg"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("y = my.F (x, x)", "'n', Error it has 2 inputs, its function has 1"),
        ("y, z = my.F (x)", "'n', Error it has 2 outputs, its function has 1"),
        ("y = my.F <k = 1.5> (x)", "Mismatched attribute type: 'k' is FLOAT, attribute 'axis' in function F needs INT"),
    ],
)
def test_calls_that_do_not_fit(call, text):
    with pytest.raises(InvalidGraph, match=text):
        inlined(f"g (x) => (y) {{ [n] {call} }}", "F <k> (a) => (b) { b = Op <axis: int = @k> (a) }")


def test_an_instance_can_be_made_without_changing_the_graph():
    model = parse_model("\n".join([HEADER, "g (x) => (y) { y = my.F (x) }", function("F (a) => (b) { b = Neg (a) }")]))
    before = to_text(model)
    (call,) = model.graph.nodes
    nodes, outputs = edit.instantiate(model.functions["my", "F", ""], call)
    assert [node.op_type for node in nodes] == ["Neg"] and outputs == [nodes[0].outputs[0]]
    for node in nodes:
        node.resize_inputs(0)
    verify(model)
    assert to_text(model) == before
