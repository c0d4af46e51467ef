"""ORT format files that are not as they should be: what is forgiven and what is refused, with onnxruntime's verdicts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sardonyx import errors, ir
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.ort.reader import read_model
from tests.formats.ort_files import (
    GRAPH,
    NODE,
    REPLAY,
    Tree,
    changed,
    contents,
    edited,
    graph_of,
    initializer_of,
    node_of,
    session_of,
    types_of,
    value_of,
)
from tests.formats.ort_fixtures import assert_gives_expected

# --- what is forgiven


def unsorted_types(tree: Tree) -> None:
    types_of(tree).reverse()


def reversed_nodes(tree: Tree) -> None:
    graph_of(tree)["nodes"].reverse()


def without_defaults(tree: Tree) -> None:
    node_of(tree)["attributes"] = [one for one in node_of(tree)["attributes"] if one["name"] not in ("group", "auto_pad")]


def without_implicit_inputs(tree: Tree) -> None:
    for node in graph_of(tree)["nodes"]:
        node["implicit_inputs"] = []


def nonsense_edges(tree: Tree) -> None:
    graph_of(tree)["node_edges"][0]["output_edges"] = [(1, 77, -5)]


def unused_value(tree: Tree) -> None:
    graph_of(tree)["node_args"].append({"name": "unused", "type": graph_of(tree)["node_args"][0]["type"]})


def built_in_types(tree: Tree) -> None:
    """Type strings of ops that rewrites of the layout make need not be stored."""
    known = ("Transpose", "Squeeze", "Unsqueeze", "Gather", "Identity", "QuantizeLinear", "DequantizeLinear")
    entries = tree["kernel_type_str_resolver"]
    entries["op_kernel_type_str_args"] = [one for one in types_of(tree) if one["op_id"].split(":")[1] not in known]


def initializer_twice(tree: Tree) -> None:
    other = {**initializer_of(tree), "raw_data": bytes(len(initializer_of(tree)["raw_data"]))}
    graph_of(tree)["initializers"].insert(0, other)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("basic.noopt", unsorted_types),
        ("basic.noopt", reversed_nodes),
        ("nested_loop_if.noopt", reversed_nodes),
        ("conv_relu.noopt", without_defaults),
        ("if_outer_scope.noopt", without_implicit_inputs),
        ("nested_loop_if.noopt", without_implicit_inputs),
        ("basic.noopt", nonsense_edges),
        ("basic.noopt", unused_value),
        ("qdq_conv.opt", built_in_types),
        ("loop_scan_output.noopt", built_in_types),
        ("basic.noopt", initializer_twice),
        ("basic.noopt", changed(*NODE, since_version=7)),
        ("basic.noopt", changed(*NODE, since_version=-1000)),
        ("basic.noopt", changed(*NODE, type=1, execution_provider_type="NoSuchProvider", name=None, attributes=None)),
        ("basic.noopt", changed(*NODE, input_arg_counts=[0, 2], domain=None)),
        ("basic.noopt", changed(*NODE, implicit_inputs=["W"])),
        ("basic.noopt", changed(*GRAPH, node_edges=None, sparse_initializers=None)),
        ("basic.noopt", changed("model", metadata_props=None, ir_version=None, model_version=None, producer_name=None)),
        ("basic.noopt", changed("model", metadata_props=[{"key": "x"}, {"value": "y"}])),
    ],
)
def test_what_can_be_computed_anew_may_be_wrong_or_missing(name, edit):
    assert_gives_expected(name.split(".")[0], session_of(edited(name, edit)))


def test_the_last_of_two_initializers_counts_and_a_warning_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        model = read_model(edited("basic.noopt", initializer_twice))
    assert model.graph.initializers["W"].constant.numpy().any() and "Duplicate initializer" in caplog.text


# --- what is refused


def duplicate_value(tree: Tree) -> None:
    graph_of(tree)["node_args"].append(dict(graph_of(tree)["node_args"][0]))


def nameless_value(tree: Tree) -> None:
    graph_of(tree)["node_args"].append({"type": graph_of(tree)["node_args"][0]["type"]})


def cycle(tree: Tree) -> None:
    node_of(tree)["inputs"][0] = node_of(tree, 1)["outputs"][0]


def imported_twice(tree: Tree) -> None:
    tree["model"]["opset_import"].append({"domain": "ai.onnx", "version": 7})


def branch_without_its_values(tree: Tree) -> None:
    branch = next(one["g"] for node in graph_of(tree)["nodes"] for one in node["attributes"] if "g" in one)
    made = [name for node in branch["nodes"] for name in node["outputs"]]
    branch["node_args"] = [value for value in branch["node_args"] if value["name"] in made]


def attribute_of(attribute: str, /, **values: Any) -> Callable[[Tree], None]:
    def edit(tree: Tree) -> None:
        one = next(one for node in graph_of(tree)["nodes"] for one in node["attributes"] if one.get("name") == attribute)
        changed(**values)(one)

    return edit


def twice_in_a_node(tree: Tree) -> None:
    node_of(tree)["attributes"].append(dict(node_of(tree)["attributes"][0]))


def value(name: str, **values: Any) -> Callable[[Tree], None]:
    return lambda tree: changed(**values)(value_of(tree, name))


def value_type(**values: Any) -> Callable[[Tree], None]:
    return lambda tree: changed(**values)(value_of(tree, "s")["type"]["value"])


def initializer(**values: Any) -> Callable[[Tree], None]:
    return lambda tree: changed(**values)(initializer_of(tree))


def types(position: int = 0, **values: Any) -> Callable[[Tree], None]:
    return lambda tree: changed(**values)(types_of(tree)[position])


def type_string(**values: Any) -> Callable[[Tree], None]:
    return lambda tree: changed(**values)(types_of(tree)[0]["kernel_type_str_args"][0])


REFUSED: dict[str, tuple[Callable[[Tree], object], str]] = {
    "no version": (changed(ort_version=None), "version info is null"),
    "no model": (changed(model=None), "Missing Model"),
    "no graph": (changed("model", graph=None), "Graph is null"),
    "no opsets": (changed("model", opset_import=None), "must have opset imports"),
    "an opset without domain": (changed("model", "opset_import", 0, domain=None), "domain of an opset import is null"),
    "opset 0": (changed("model", "opset_import", 0, version=0), "imported with the version 0"),
    "two opsets": (imported_twice, "imported twice"),
    "no inputs": (changed(*NODE, inputs=None), "'add0' has no inputs"),
    "no outputs": (changed(*NODE, outputs=None), "has no outputs"),
    "no counts": (changed(*NODE, input_arg_counts=None), "has no input_arg_counts"),
    "a negative count": (changed(*NODE, input_arg_counts=[3, -1]), "negative value for node add0"),
    "no op": (changed(*NODE, op_type=None), "has no op_type"),
    "an empty op": (changed(*NODE, op_type=""), "has no op_type"),
    "an unknown op": (changed(*NODE, op_type="Nope"), "No Op registered for Nope"),
    "an unknown domain": (changed(*NODE, domain="my"), "No opset import for domain 'my'"),
    "two nodes of one name": (lambda tree: changed(name="add0")(node_of(tree, 1)), r"two nodes with same node name \(add0\)"),
    "an input that nobody lists": (changed(*NODE, inputs=["X", "nosuch"]), r"\[nosuch\] of Add 'add0' is missing"),
    "an output that nobody lists": (changed(*NODE, outputs=["nosuch"]), r"\[nosuch\] of Add 'add0' is missing"),
    "an implicit input that nobody lists": (changed(*NODE, implicit_inputs=["nosuch"]), r"\[nosuch\] of Add 'add0'"),
    "a graph output that nobody lists": (changed(*GRAPH, outputs=["nosuch"]), "graph's outputs is missing"),
    "no list of values": (changed(*GRAPH, node_args=None), "missing from the graph's NodeArgs"),
    "a value twice": (duplicate_value, "Duplicate NodeArg"),
    "a value without name": (nameless_value, "NodeArg name is missing"),
    "a value without type": (value("s", type=None), "Null type info for s"),
    "an empty type": (value("s", type={"value_type": 0}), "Null type info for s"),
    "an unknown type": (value("s", type={"value_type": 9}), "Null type info for s"),
    "a sequence of nothing": (value("s", type={"value_type": 2, "value": {}}), "Null type info"),
    "a map with float keys": (
        value(
            "s", type={"value_type": 3, "value": {"key_type": 1, "value_type": {"value_type": 1, "value": {"elem_type": 1}}}}
        ),
        "cannot be the key type",
    ),
    "element type 0": (value_type(elem_type=0), "Invalid tensor data type 0 of s"),
    "element type 99": (value_type(elem_type=99), "Invalid tensor data type 99 of s"),
    "another element type": (value_type(elem_type=7), "does not match expected type"),
    "no inputs of the graph": (changed(*GRAPH, inputs=None), "Node input 'X' is not a graph input"),
    "an input twice": (changed(*GRAPH, inputs=["X", "X"]), "Duplicate definition of name"),
    "an output twice": (lambda tree: changed(outputs=["s"])(node_of(tree, 1)), "Duplicate definition of name"),
    "a cycle": (cycle, "not acyclic"),
    "edges of an unknown node": (changed(*GRAPH, "node_edges", 0, node_index=55), "out-of-range node index 55"),
    "an initializer without name": (initializer(name=None), "Missing name"),
    "an initializer without dims": (initializer(dims=None), "Missing dimensions for tensor 'W'"),
    "an initializer without type": (initializer(data_type=0), "Invalid tensor data type 0 of tensor 'W'"),
    "an initializer of an unknown type": (initializer(data_type=99), "Invalid tensor data type 99"),
    "an initializer without data": (initializer(raw_data=None), "Missing raw data for tensor 'W'"),
    "an initializer of negative size": (initializer(dims=[-2, -3]), "negative size"),
    "an initializer of astronomic size": (initializer(dims=[2**40, 2**40]), "too large"),
    "an initializer of 2**60 elements": (initializer(dims=[2**60]), "Expected 4611686018427387904 bytes but found 24"),
    "an initializer of too many axes": (initializer(dims=[1] * 65), "at most 64"),
    "strings in raw data": (initializer(data_type=8), "Missing string data"),
    "too few strings": (initializer(data_type=8, string_data=["a"]), "Expected 6 strings but found 1"),
    "another type than declared": (initializer(data_type=6), "is declared tensor"),
    "another shape than declared": (initializer(dims=[3, 2]), "Shape of initializer W does not match"),
    "type strings without entries": (changed(kernel_type_str_resolver={}), "has no entries"),
    "an op id with two parts": (types(op_id="a:1"), "Invalid operator identifier 'a:1'"),
    "an op id with four parts": (types(op_id="a:b:c:1"), "Invalid operator identifier"),
    "an op id without version": (types(op_id=":Add:x"), "Invalid operator identifier"),
    "no type strings of an op": (types(kernel_type_str_args=None), "Type strings of :Add:14 are null"),
    "empty type strings of an op": (types(kernel_type_str_args=[]), "Failed to find the type string 'T'"),
    "another type string": (type_string(kernel_type_str="Q"), "Failed to find the type string 'T'"),
    "a type string without arguments": (type_string(args=None), "has no arguments"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_onnxruntime_refuses_is_refused_with_the_reason(what):
    edit, reason = REFUSED[what]
    with pytest.raises(errors.CODED, match=reason):
        session_of(edited("basic.noopt", edit))


@pytest.mark.parametrize(
    ("name", "edit", "reason"),
    [
        ("if_outer_scope.noopt", branch_without_its_values, r"\[X\] of Add 'then_add' is missing"),
        ("if_outer_scope.noopt", attribute_of("then_branch", g=None), "Null payload of attribute 'then_branch' of If 'if0'"),
        ("attributes.noopt", attribute_of("value", t=None), "Null payload of attribute 'value'"),
        ("attributes.noopt", attribute_of("perm", ints=None), "Null payload of attribute 'perm'"),
        ("attributes.noopt", attribute_of("perm", name=None), "has no name"),
        ("attributes.noopt", attribute_of("perm", type=0), "The type 0 of attribute 'perm'"),
        ("attributes.noopt", attribute_of("perm", type=10), "The type 10 of attribute 'perm'"),
        ("attributes.noopt", attribute_of("perm", name="zzz"), "Unrecognized attribute: zzz"),
    ],
)
def test_attributes_that_are_refused(name, edit, reason):
    with pytest.raises(errors.CODED, match=reason):
        session_of(edited(name, edit))


STRICTER: dict[str, tuple[str, Callable[[Tree], object], str]] = {
    # onnxruntime takes names for bytes; ours are text, as they are in messages, on terminals and in other formats
    "names that are no UTF-8": ("basic.noopt", changed(*NODE, name="\udcff"), "no UTF-8"),
    # it takes any number but 0 for an output
    "a side that is neither input nor output": (
        "basic.noopt",
        type_string(args=[{"arg_type": 9, "index": 0}]),
        "neither an input nor an output",
    ),
    # it lets the last one win, without saying so
    "an attribute twice": ("attributes.noopt", twice_in_a_node, "appeared multiple times"),
    # it does not look at records that nobody asked for
    "records of one optimizer twice": (
        "conv_relu.rtopt",
        lambda tree: graph_of(tree)["runtime_optimizations"]["records"].append(
            dict(graph_of(tree)["runtime_optimizations"]["records"][0])
        ),
        "Duplicate runtime optimizations",
    ),
}


@pytest.mark.parametrize("what", STRICTER)
def test_what_onnxruntime_takes_and_we_refuse(what):
    """The whole list, with reasons."""
    name, edit, reason = STRICTER[what]
    with pytest.raises(Fail, match=reason):
        session_of(edited(name, edit))


# --- saved optimizations


def test_saved_optimizations_are_kept_as_they_are():
    model = read_model(contents("qdq_conv.rtopt"))
    (saved,) = model.saved_optimizations
    (record,) = saved.by_optimizer["QDQSelectorActionTransformer"]
    assert record == ir.SavedOptimization("Conv", (1, 2, 4294967295, 3, 4), 3, 1, None, None, (":QLinearConv:10",))
    assert saved.nodes[3].op_type == "Conv" and saved.graph is model.graph


def record(**values: Any) -> bytes:
    def edit(tree: Tree) -> None:
        changed(**values)(graph_of(tree)["runtime_optimizations"]["records"][0]["runtime_optimization_records"][0])

    return edited("conv_relu.rtopt", edit)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"action_id": "Nope"}, "asks? for the action 'Nope', which is not known"),
        ({"produced_op_ids": []}, "Not enough produced nodes"),
        ({"produced_op_ids": None}, "Not enough produced nodes"),
        ({"produced_op_ids": ["com.microsoft:FusedConv:1"] * 2}, "Too many produced nodes"),
        ({"produced_op_ids": [":Conv:11"]}, r"does not match produced node op in runtime optimization record \(:Conv:11\)"),
        ({"nodes_to_optimize_indices": {"node_indices": [0, 99], "num_outputs": 1}}, "names node 99, but the last one is 2"),
        ({"nodes_to_optimize_indices": {"node_indices": [0, 1, 2], "num_outputs": 1}}, "names 3 nodes"),
        ({"nodes_to_optimize_indices": {"node_indices": [1, 2], "num_outputs": 1}}, "a Conv and one of"),
    ],
)
def test_records_that_do_not_fit_are_an_error_when_they_are_used(change, reason):
    data = record(**change)
    assert_gives_expected("conv_relu", session_of(data))
    with pytest.raises(Fail, match=reason):
        session_of(data, REPLAY)


def test_records_of_an_unknown_optimizer_or_of_no_nodes_are_left_out():
    def edit(tree: Tree) -> None:
        graph_of(tree)["runtime_optimizations"]["records"][0]["optimizer_name"] = "Nope"

    assert_gives_expected("conv_relu", session_of(edited("conv_relu.rtopt", edit), REPLAY))
    assert_gives_expected("conv_relu", session_of(record(nodes_to_optimize_indices=None), REPLAY))


def test_invalid_arguments_are_those_of_sessions():
    with pytest.raises(InvalidArgument, match="Invalid input name"):
        session_of(contents("basic.noopt")).run(None, {"X": np.ones((2, 3), np.float32), "Z": np.ones(1, np.float32)})
