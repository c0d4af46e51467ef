"""Nodes that cannot be compiled: they alone are left to NumPy, and whoever asks is told which and why."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest

import sardonyx
from sardonyx.ir import Node
from sardonyx.providers.native import provider
from sardonyx.providers.native.program import table
from sardonyx.providers.native.program.arguments import Arguments, Pointer
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import UnboundSymbol
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.providers.provider import CannotCompile
from tests.garbage import left_behind
from tests.providers.native.networks import Network, assert_runs_alike, open_session, steps_of

FACT = "the moon is not full"
COUNT = 50


@pytest.fixture(autouse=True)
def as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SARDONYX_STRICT", raising=False)


def long_model(middle: Callable[[Network, str], str]) -> bytes:
    """50 nodes in a row with one of another kind among them, and a second path around it."""
    net = Network()
    x = before = net.input("x", ["N", "C"])
    for number in range(COUNT - 2):
        if number == COUNT // 2:
            before = x
            x = middle(net, x)
        # no two of these can be joined by the optimizer, and some have kernels of their own
        x = [net.Softmax, net.Tanh, net.Sigmoid][number % 3](x)
    return net.model(net.Add(x, before))


def middle_node(net: Network, x: str) -> str:
    return net.CumSum(x, net.constant(1))


def breaks(monkeypatch: pytest.MonkeyPatch, op_type: str, lowering: Callable[[Lowerer, Node], None]) -> None:
    """Let another lowering stand in the table for an op, and only for nodes that the model had from the first."""
    broken = [sardonyx.startup.records.replace(entry, function=lowering) for entry in table.lowerings.candidates("", op_type)]
    monkeypatch.setitem(table.lowerings._entries, ("", op_type), broken)


def refuses(lowerer: Lowerer, node: Node) -> None:
    raise CannotCompile(FACT)


def is_unbound(lowerer: Lowerer, node: Node) -> None:
    raise UnboundSymbol(FACT)


def asserts(lowerer: Lowerer, node: Node) -> None:
    raise AssertionError


def fails_half_way(lowerer: Lowerer, node: Node) -> None:
    lowerer.view(node.inputs[0])
    lowerer.sink(node, (2,))
    raise KeyError(FACT)


class Places(Arguments):
    source: Pointer
    target: Pointer


@kernel("broken", Places)
def broken_kernel(f: KernelFunction, a: Places) -> None:
    raise ZeroDivisionError(FACT)


@kernel("no code", Places)
def invalid_kernel(f: KernelFunction, a: Places) -> None:
    f.text = lambda name: f"define void @{name}() {{ {FACT} }}"  # type: ignore[method-assign]


def places(lowerer: Lowerer, node: Node) -> Places:
    return Places(source=lowerer.view(node.inputs[0]).place, target=lowerer.output(node.outputs[0]).place)


def emits_nothing(lowerer: Lowerer, node: Node) -> None:
    lowerer.call(broken_kernel(lowerer.target), places(lowerer, node), 1)


def emits_no_code(lowerer: Lowerer, node: Node) -> None:
    lowerer.call(invalid_kernel(lowerer.target), places(lowerer, node), 1)


WAYS = {
    "it refuses": (refuses, FACT),
    "a size is unknown": (is_unbound, FACT),
    "an assertion without text": (asserts, "AssertionError: raise AssertionError (in asserts, line"),
    "it fails half way": (fails_half_way, FACT),
    "its code cannot be written": (emits_nothing, f"ZeroDivisionError: {FACT}"),
    "its code cannot be compiled": (emits_no_code, "RuntimeError: "),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_cannot_be_lowered_is_lost_alone(way: str, monkeypatch, caplog) -> None:
    lowering, fact = WAYS[way]
    breaks(monkeypatch, "CumSum", lowering)
    model = long_model(middle_node)
    with caplog.at_level(logging.INFO, "sardonyx.runtime"):
        session = open_session(model)
    native, others = steps_of(session)
    assert [step.node.op_type for step in others] == ["CumSum"]
    assert sum(len(step.nodes) for step in native) == COUNT - 1 and len(native) <= 3
    name = others[0].node.name
    assert name and fact in others[0].reason
    told = [record for record in caplog.records if fact in record.getMessage()]
    assert len(told) == 1 and name in told[0].getMessage()
    assert told[0].levelno == (logging.INFO if way == "a size is unknown" else logging.WARNING)
    assert_runs_alike(session, model, [{"x": numbers(3, 7)}, {"x": numbers(2, 40)}])


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_all_nodes_that_cannot_be_lowered_are_found_in_one_pass(monkeypatch) -> None:
    breaks(monkeypatch, "CumSum", refuses)
    net = Network()
    x = net.input("x", ["N", "C"])
    for _ in range(40):
        x = net.Softmax(middle_node(net, x))
    passes = []
    compile = NativeExecutionProvider._compile
    monkeypatch.setattr(
        NativeExecutionProvider, "_compile", lambda self, cluster: passes.append(len(cluster.nodes)) or compile(self, cluster)
    )
    native, others = steps_of(open_session(net.model(x)))
    assert len(others) == 40 and sum(len(step.nodes) for step in native) == 40
    assert passes.count(80) == 1 and max(sorted(passes)[:-1]) == 1


def test_a_node_that_fails_only_among_others_is_compiled_apart(monkeypatch) -> None:
    entry = table.lowerings.candidates("", "CumSum")[0]

    def needs_to_be_alone(lowerer: Lowerer, node: Node) -> None:
        assert len(lowerer.cluster.nodes) == 1
        entry.function(lowerer, node)

    breaks(monkeypatch, "CumSum", needs_to_be_alone)
    model = long_model(middle_node)
    session = open_session(model)
    native, others = steps_of(session)
    assert not others and [step.node.op_type for step in native if len(step.nodes) == 1] == ["CumSum"]
    assert_runs_alike(session, model, [{"x": numbers(3, 7)}])


def test_a_chain_loses_only_the_node_whose_code_cannot_be_written(monkeypatch) -> None:
    from sardonyx.providers.native.program import expression

    apply = expression.Expression.apply

    def fails_for_erf(self, node: Node) -> int:
        if node.op_type == "Erf":
            raise OverflowError(FACT)
        return apply(self, node)

    monkeypatch.setattr(expression.Expression, "apply", fails_for_erf)
    model = long_model(lambda net, x: net.Erf(net.Cos(net.Tanh(x))))
    session = open_session(model)
    _, others = steps_of(session)
    assert [(step.node.op_type, FACT in step.reason) for step in others] == [("Erf", True)]
    assert_runs_alike(session, model, [{"x": numbers(3, 7)}])


@pytest.mark.parametrize("alone_too", [False, True])
def test_a_fault_of_a_whole_cluster_is_traced_to_a_node(alone_too: bool, monkeypatch) -> None:
    batch_of = provider.batch_of

    def fails_with_a_sum(cluster, weights):
        if any(node.op_type == "CumSum" for node in cluster.nodes) and (alone_too or len(cluster.nodes) > 1):
            raise IndexError(FACT)
        return batch_of(cluster, weights)

    monkeypatch.setattr(provider, "batch_of", fails_with_a_sum)
    model = long_model(middle_node)
    session = open_session(model)
    native, others = steps_of(session)
    assert [(step.node.op_type, FACT in step.reason) for step in others] == [("CumSum", True)] * alone_too
    assert sum(len(step.nodes) for step in native) == COUNT - alone_too and len(native) <= 4
    assert_runs_alike(session, model, [{"x": numbers(3, 7)}])


def test_a_question_that_fails_costs_its_node_alone(monkeypatch) -> None:
    def fails(node: Node) -> bool:
        raise TypeError(FACT)

    entries = [sardonyx.startup.records.replace(entry, claims=fails) for entry in table.lowerings.candidates("", "CumSum")]
    monkeypatch.setitem(table.lowerings._entries, ("", "CumSum"), entries)
    _, others = steps_of(open_session(long_model(middle_node)))
    assert [step.node.op_type for step in others] == ["CumSum"] and FACT in others[0].reason


def test_faults_are_raised_where_tests_want_to_see_them(monkeypatch) -> None:
    monkeypatch.setenv("SARDONYX_STRICT", "1")
    breaks(monkeypatch, "CumSum", asserts)
    with pytest.raises(AssertionError):
        open_session(long_model(middle_node))
    breaks(monkeypatch, "CumSum", refuses)
    assert len(steps_of(open_session(long_model(middle_node)))[1]) == 1


def test_a_session_tells_the_reasons() -> None:
    net = Network(opset=17)
    ids, scores = net.input("ids", ["N", 4], np.int64), net.input("scores", ["N", 8])
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    model = net.model(net.Relu(net.NGramRepeatBlock(ids, net.Tanh(scores), domain="com.microsoft", ngram_size=2)))
    session = sardonyx.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    told = {node.op_type: node.reason for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()}
    assert told["Relu"] == ""
    assert "no native code" in told["NGramRepeatBlock"]


def test_a_refused_run_is_told_once(caplog) -> None:
    net = Network()
    x, y = net.input("x", ["N", "C"]), net.input("y", ["M", "K"])
    session = open_session(net.model(net.Softmax(net.Concat(x, y, axis=1)), net.Tanh(x)))
    good, bad = {"x": numbers(3, 4), "y": numbers(3, 5)}, {"x": numbers(3, 4), "y": numbers(2, 5)}
    with caplog.at_level(logging.WARNING, "sardonyx.runtime"):
        session.run(None, good)
        assert not caplog.records
        for rows in (2, 1, 2):
            with pytest.raises(sardonyx.errors.Fail, match="Concat"):
                session.run(None, {**bad, "y": numbers(rows, 5)})
        session.run(None, good)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1 and "must be" in told[0] and "[3, 4], [2, 5]" in told[0]


def test_what_follows_a_node_in_numpy_is_told_sizes_by_the_inputs_of_the_model(monkeypatch) -> None:
    breaks(monkeypatch, "CumSum", refuses)
    net = Network()
    x, past = net.input("x", ["T", 4]), net.input("past", ["P", 4])
    joint = net.CumSum(net.Sigmoid(net.Concat(past, x, axis=0)), net.constant(0))
    new = net.Slice(joint, net.Shape(past, end=1), net.constant([99]), net.constant([0]))
    model = net.model(net.Softmax(net.Tanh(new)), net.Softmax(joint))
    session = open_session(model)
    _, others = steps_of(session)
    assert [step.node.op_type for step in others] == ["CumSum"]
    assert_runs_alike(session, model, [{"x": numbers(t, 4), "past": numbers(p, 4)} for t, p in ((3, 2), (1, 7), (5, 1))])


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_leaves_nothing_to_the_collector(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    breaks(monkeypatch, "CumSum", WAYS[way][0])
    model = long_model(middle_node)
    open_session(model)  # what is made once for a process
    assert not left_behind(lambda: open_session(model))
