"""Rewriting ends: rules and passes that undo each other, or that let a graph grow for ever, are stopped and named."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import Fail
from sardonyx.ir import Model, Node, Value, edit, verify
from sardonyx.ops import functions
from sardonyx.ops.inference import Driver
from sardonyx.optimizer import bounds, levels
from sardonyx.optimizer.bounds import Endless
from sardonyx.optimizer.pipeline import Late, Level, Stage, optimize
from sardonyx.optimizer.rewrite import apply_rules, rule
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.runtime.preparation.expand import Expansion
from tests.optimizer.rewriting import random_feeds, run, typed

SUM = "g (float[2] x, float[2] z) => (float[2] y) { s = Sub(x, z) y = Neg(s) }"


@rule("Sub(a, b)", name="SubToAdd")
def sub_to_add(op, a, b):
    return op.Add(a, op.Neg(b))


@rule("Add(a, Neg(b))", name="AddToSub")
def add_to_sub(op, a, b):
    return op.Sub(a, b)


@rule("Neg(x)", name="NegThrice")
def negate_thrice(op, x):
    return op.Neg(op.Neg(op.Neg(x)))


PING_PONG = [sub_to_add, add_to_sub]
GROWING = [negate_thrice]


def append_node(graph, rewriting):
    """Grows by one node each time."""
    _copy(graph, graph.outputs[0])
    return True


def double(graph, rewriting):
    """Twice as many nodes each time."""
    for node in list(graph.nodes):
        _copy(graph, node.outputs[0])
    return True


def grow_inside(graph, rewriting):
    """Never comes back: it looks at what it appends."""
    for node in graph.nodes:
        _copy(graph, node.outputs[0])
        if node._next is None:
            _copy(graph, node.outputs[0])
    return True


def swap(first: str, second: str):
    """A pass that rewrites one op to another that computes the same; the reverse undoes it."""

    def run_pass(graph, rewriting):
        found = [node for node in graph.nodes if node.op_type == first]
        for node in found:
            new = Node(second, node.inputs, [Value(f"{node.outputs[0].name}'")], version=node.version)
            graph.insert_before(node, new)
            rewriting.driver.node(new)
            edit.replace_all_uses(node.outputs[0], new.outputs[0])
            graph.remove(node)
        return bool(found)

    return run_pass


def _copy(graph, value):
    node = graph.insert_after(
        value.producer, Node("Abs", [value], [Value(f"{value.name}_{len(graph)}", value.type)], version=21)
    )
    return node.outputs[0]


@pytest.fixture
def production(monkeypatch):
    monkeypatch.delenv("SARDONYX_STRICT")


@pytest.mark.parametrize(("rules", "names"), [(PING_PONG, ["SubToAdd", "AddToSub"]), (GROWING, ["NegThrice"])])
def test_rules_that_do_not_end_are_an_error_that_names_them(rules, names):
    with pytest.raises(Endless) as error:
        apply_rules(typed(SUM), rules, evaluate=evaluate)
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize(("rules", "names"), [(PING_PONG, ["SubToAdd", "AddToSub"]), (GROWING, ["NegThrice"])])
def test_in_production_they_are_stopped_with_a_warning_and_the_graph_is_right(rules, names, production, caplog):
    model = typed(SUM)
    feeds = random_feeds(model.graph)
    expected = run(model, feeds)
    assert apply_rules(model, rules, evaluate=evaluate)
    verify.verify(model)
    np.testing.assert_array_equal(run(model, feeds), expected)
    assert all(name in caplog.text for name in names)


@pytest.mark.parametrize("repeated", [1, 40])
def test_the_bound_grows_with_the_graph(repeated, production, monkeypatch):
    """A chain of n nodes is rewritten to its end, however long; what never ends does so after a number of steps that n tells."""
    monkeypatch.setattr(bounds, "SMALL", 1)
    chain = " ".join(f"t{i + 1} = Sub(t{i}, z)" for i in range(repeated))
    model = typed(f"g (float[2] t0, float[2] z) => (float[2] y) {{ {chain} y = Identity(t{repeated}) }}")
    apply_rules(model, [sub_to_add], evaluate=evaluate)
    assert sum(node.op_type == "Sub" for node in model.graph.nodes) == 0
    journal = optimize_with(model, [Stage("PingPong", PING_PONG)])
    applied = len(journal.applied())
    assert bounds.APPLICATIONS_PER_NODE * repeated < applied <= bounds.APPLICATIONS_PER_NODE * (3 * repeated + 1) + 1


STAGES = {
    "rules that undo each other": ([Stage("PingPong", PING_PONG)], ["SubToAdd", "AddToSub"]),
    "rules of two stages that undo each other": (
        [Stage("There", [sub_to_add]), Stage("Back", [add_to_sub])],
        ["There", "Back"],
    ),
    "a rule that grows": ([Stage("Growing", GROWING)], ["NegThrice"]),
    "passes that undo each other": (
        [Stage("There", run=swap("Neg", "Abs")), Stage("Back", run=swap("Abs", "Neg"))],
        ["There", "Back"],
    ),
    "a pass that appends": ([Stage("Appending", run=append_node)], ["Appending"]),
    "a pass that doubles": ([Stage("Doubling", run=double)], ["Doubling"]),
    "a pass that does not return": ([Stage("Growing", run=grow_inside)], ["Growing"]),
}


def optimize_with(model: Model, stages: list[Stage], level: Level = Level.BASIC):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "LEVELS", {one: stages if one is level else [] for one in Level})
        return optimize(model, Level.ALL, evaluate=evaluate)


@pytest.mark.parametrize("level", [Level.BASIC, Level.EXTENDED, Level.LAYOUT])
@pytest.mark.parametrize("what", STAGES)
def test_stages_that_do_not_end_are_an_error_that_names_them(what, level):
    stages, names = STAGES[what]
    with pytest.raises(Endless) as error:
        optimize_with(typed(SUM), stages, level)
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize("what", STAGES)
def test_a_session_is_made_in_spite_of_them(what, production, monkeypatch, caplog):
    stages, names = STAGES[what]
    if what == "passes that undo each other":
        stages = [Stage("There", run=swap("Neg", "Neg")), Stage("Back", run=swap("Sub", "Sub"))]
    monkeypatch.setitem(levels.LEVELS, Level.BASIC, [*stages, *levels.LEVELS[Level.BASIC]])
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + SUM)
    session = sardonyx.InferenceSession(model, providers=["CPUExecutionProvider"])
    x, z = np.float32([1, 2]), np.float32([5, 7])
    np.testing.assert_array_equal(session.run(None, {"x": x, "z": z})[0], z - x)
    assert all(name in caplog.text for name in names)


def test_a_body_that_holds_its_own_op_is_an_error_that_names_the_node(monkeypatch):
    model = typed("g (float[2] x) => (float[2] y) { y = Gelu(x) }")
    bodies = {node.op_type: functions.body_of(node) for node in model.graph.nodes}
    body = bodies["Gelu"]
    first = next(body.graph.nodes)
    body.graph.insert_before(first, Node("Gelu", [body.graph.inputs[0]], [Value("again")], version=21))
    monkeypatch.setattr(functions, "body_of", lambda node: bodies.get(node.op_type))
    expansion = Expansion(model)

    def unfold() -> None:
        while expansion([node for node in model.graph.nodes if node.op_type == "Gelu"]):
            pass

    with pytest.raises(Fail, match=r"Gelu .*unfold without end"):
        unfold()


def nested_loops(depth: int) -> str:
    """Loops whose state gets other sizes in every round, one inside the other."""
    body = "o = Concat<axis=0>(v, v)"
    for level in range(depth):
        body = (
            f"o = Loop(m, t, v) <body = b{level} (int64 i{level}, bool c{level}, float[K{level}] v) "
            f"=> (bool d{level}, float[L{level}] o) {{ d{level} = Identity(c{level}) {body} }}>"
        )
    return f"g (float[N] v, int64 m, bool t) => (float[M] o) {{ {body} }}"


def test_inference_of_loops_in_loops_ends():
    model = sardonyx.formats.load(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + nested_loops(3)))
    Driver(model, evaluate).run()
    assert model.graph.outputs[0].type is not None


PASSES = [stage for stages in levels.LEVELS.values() for stage in stages if stage.run is not None]


@pytest.mark.parametrize("stage", PASSES, ids=lambda stage: stage.name)
def test_a_pass_repeated_comes_to_an_end(stage):
    """Each pass alone, on graphs whose outputs are constants, inputs and each other."""
    run_pass = stage.run.find() if isinstance(stage.run, Late) else stage.run
    for text in (
        "g (float[4] x) => (float[2] a, float[2] b) <float[4] w = {1, 2, 3, 4}> { a, b = Split<num_outputs=2>(w) }",
        "g (float[4] x) => (float[4] a, float[4] b) <float[4] w = {1, 2, 3, 4}> { a = Identity(w) b = Identity(a) }",
        "g (float[4] x) => (float[4] a, float[4] b) { a = Identity(x) b = Identity(x) }",
        "g (float[4] x) => (int64[1] a, int64[1] b) { a = Shape(x) b = Shape(x) }",
    ):
        optimize_with(typed(text), [Stage(stage.name, run=run_pass)])
