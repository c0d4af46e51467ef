"""Who computes what: claims are asked in the providers' order, and impossible ones are refused by name."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats, ops
from sardonyx.errors import EPFail, InvalidArgument, ModelRequiresCompilation, NotImplemented
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.null import NullExecutionProvider
from sardonyx.providers.provider import CannotCompile, Capability, ExecutionProvider
from sardonyx.providers.steps import PlainCall, StepCall
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.partition import partition, partition_graphs
from sardonyx.runtime.preparation.plan import make_plan
from sardonyx.runtime.preparation.providers import register_provider, unregister_provider
from tests.runtime.models import plan_of

DIAMOND = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 4] x) => (float[N, 4] y) {
        a = Neg(x)
        b = Exp(a)
        c = Sqrt(b)
        d = Abs(a)
        y = Add(c, d)
    }
"""


def loaded(text: str):
    model = formats.load(onnx.parser.parse_model(text))
    ops.infer(model, evaluate)
    return model


class Fusing(ExecutionProvider):
    """Compiles the nodes of the given op types into one step that calls the NumPy kernels."""

    name = "FusingExecutionProvider"
    kernels = KernelTable("FusingExecutionProvider")

    def __init__(self, *op_types: str):
        super().__init__()
        self.op_types = op_types
        self.compiled = []

    def get_capability(self, graph, nodes):
        wanted = [node for node in nodes if node.op_type in self.op_types]
        if wanted:
            yield Capability(wanted, fused=True)

    def compile(self, cluster):
        self.compiled.append(cluster)
        bound = [(node, CPUExecutionProvider().bind_kernel(node)) for node in cluster.nodes]

        def call(inputs):
            values = dict(zip(cluster.inputs, inputs, strict=True))
            for node, kernel in bound:
                values.update(zip(node.outputs, kernel([values[value] for value in node.inputs]), strict=True))
            return [values[value] for value in cluster.outputs]

        return call


def test_the_first_provider_wins_and_the_last_takes_the_rest():
    model = loaded(DIAMOND)
    fusing, cpu = Fusing("Exp", "Sqrt"), CPUExecutionProvider()
    found = [(a.provider.name, [n.op_type for n in a.nodes]) for a in partition(model.graph, [fusing, cpu])]
    assert found == [
        ("CPUExecutionProvider", ["Neg"]),
        ("FusingExecutionProvider", ["Exp", "Sqrt"]),
        ("CPUExecutionProvider", ["Abs"]),
        ("CPUExecutionProvider", ["Add"]),
    ]


def test_a_cluster_knows_what_enters_and_what_leaves():
    model = loaded(DIAMOND)
    fusing = Fusing("Neg", "Exp", "Sqrt")
    make_plan(model.graph, [fusing, CPUExecutionProvider()])
    (cluster,) = fusing.compiled
    assert [value.name for value in cluster.inputs] == ["x"]
    assert [value.name for value in cluster.outputs] == ["a", "c"]


@pytest.mark.parametrize("op_types", [("Neg",), ("Exp", "Sqrt"), ("Neg", "Exp", "Sqrt", "Abs", "Add"), ("Abs", "Add")])
def test_a_split_model_computes_the_same(op_types):
    model = loaded(DIAMOND)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (y,) = execute(make_plan(model.graph, [Fusing(*op_types), CPUExecutionProvider()]), {"x": x})
    np.testing.assert_allclose(y, np.sqrt(np.exp(-x)) + np.abs(x), rtol=1e-6)


def test_a_claim_that_another_step_must_interrupt_is_refused():
    model = loaded(DIAMOND)
    with pytest.raises(EPFail, match=r"cannot run as one step, a path leads out of and back into Neg"):
        partition(model.graph, [Fusing("Neg", "Sqrt"), CPUExecutionProvider()])


def test_a_claim_of_somebody_elses_node_is_refused():
    class Greedy(Fusing):
        def get_capability(self, graph, nodes):
            yield Capability(list(graph.nodes), fused=True)

    model = loaded(DIAMOND)
    with pytest.raises(EPFail, match=r"claims Neg 'a', which FusingExecutionProvider has already"):
        partition(model.graph, [Fusing("Neg"), Greedy()])


def test_several_nodes_without_fusing_are_refused():
    class Careless(Fusing):
        def get_capability(self, graph, nodes):
            yield Capability(list(nodes))

    model = loaded(DIAMOND)
    with pytest.raises(EPFail, match="claims 5 nodes without fusing them"):
        partition(model.graph, [Careless()])


def test_a_node_that_nobody_takes_is_named():
    model = loaded(DIAMOND)
    with pytest.raises(
        NotImplemented, match=r"Could not find an implementation for Neg\(13\) node with name '' \(inputs x: tensor"
    ):
        partition(model.graph, [Fusing("Add")])


def test_a_value_that_only_a_body_of_control_flow_reads_leaves_its_cluster():
    model = loaded("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[2] x) => (float[2] y) {
            a = Neg(x)
            b = Exp(a)
            y = If(c) <then_branch = t () => (float[2] p) { p = Sqrt(b) }, else_branch = e () => (float[2] q) { q = Abs(a) }>
        }
    """)
    fusing = Fusing("Neg", "Exp")
    plan = make_plan(model.graph, [fusing, CPUExecutionProvider()])
    assert [value.name for value in fusing.compiled[0].outputs] == ["a", "b"]
    x = np.array([1.0, -2.0], np.float32)
    np.testing.assert_allclose(execute(plan, {"c": np.array(True), "x": x})[0], np.sqrt(np.exp(-x)), rtol=1e-6)
    np.testing.assert_allclose(execute(plan, {"c": np.array(False), "x": x})[0], np.abs(x))


# --- clusters


def test_a_cluster_is_named_after_its_provider_with_a_number():
    class Two(Fusing):
        def get_capability(self, graph, nodes):
            by_type = {node.op_type: node for node in nodes}
            yield Capability([by_type["Neg"]], fused=True, name="head")
            yield Capability([by_type["Add"]], fused=True)

    two = Two()
    make_plan(loaded(DIAMOND).graph, [two, CPUExecutionProvider()])
    assert [c.name for c in two.compiled] == ["FusingExecutionProvider_head_1", "FusingExecutionProvider_cluster_2"]


CONSTANTS = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}, float[4] v = {4, 3, 2, 1}> {
        a = Mul(x, w)
        b = Add(a, v)
        y = Mul(b, w)
    }
"""


def test_constants_are_not_inputs_of_a_cluster():
    (assignment,) = partition(loaded(CONSTANTS).graph, [Fusing("Mul", "Add"), CPUExecutionProvider()])
    assert [value.name for value in assignment.cluster.inputs] == ["x"]
    assert [value.name for value in assignment.cluster.constants] == ["w", "v"]


def test_a_provider_takes_no_more_constants_than_its_option_allows():
    class Single(Fusing):
        def get_capability(self, graph, nodes):
            return [Capability([node], fused=True) for node in nodes]

    for limit, taken in (("15", []), ("16", ["Mul", "Mul"]), ("32", ["Mul", "Add", "Mul"])):
        single = Single()
        single.options["max_constant_bytes"] = limit
        found = partition(loaded(CONSTANTS).graph, [single, CPUExecutionProvider()])
        assert [one.nodes[0].op_type for one in found if one.provider is single] == taken
    single.options["max_constant_bytes"] = "1 MB"
    with pytest.raises(InvalidArgument, match="max_constant_bytes must be a number of bytes, not '1 MB'"):
        partition(loaded(CONSTANTS).graph, [single, CPUExecutionProvider()])


CROSSED = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x, float[2] y) => (float[2] p, float[2] q) {
        a = Neg(x)
        b = Abs(y)
        p = Sub(a, b)
        q = Add(b, a)
    }
"""


def test_clusters_that_would_wait_for_those_of_another_provider_are_split():
    first, second = Fusing("Neg", "Sub"), Fusing("Abs", "Add")
    model = loaded(CROSSED)
    plan = make_plan(model.graph, [first, second, CPUExecutionProvider()])
    assert [len(c.nodes) for c in first.compiled] == [2]
    assert [len(c.nodes) for c in second.compiled] == [1, 1]
    x, y = np.array([1, -2], np.float32), np.array([-3, 4], np.float32)
    p, q = execute(plan, {"x": x, "y": y})
    np.testing.assert_array_equal(p, -x - np.abs(y))
    np.testing.assert_array_equal(q, np.abs(y) - x)


class Failing(Fusing):
    """Finds only while compiling that it does not like some op."""

    def __init__(self, *op_types: str, dislikes: str):
        super().__init__(*op_types)
        self.dislikes = dislikes

    def get_capability(self, graph, nodes):
        for cluster in maximal_clusters(graph, nodes, lambda node: node.op_type in self.op_types):
            yield Capability(cluster, fused=True)

    def compile(self, cluster):
        if any(node.op_type == self.dislikes for node in cluster.nodes):
            raise CannotCompile(f"no {self.dislikes} today")
        return super().compile(cluster)


def test_plain_functions_of_providers_become_calls_that_offer_nothing():
    plan = make_plan(loaded(DIAMOND).graph, [Fusing("Neg", "Exp"), CPUExecutionProvider()])
    calls = [step.call for step in plan.steps if step.compiled]
    assert calls and all(isinstance(call, PlainCall) for call in calls)
    assert not any(call.takes_stop or call.takes_destinations or call.takes_out or call.fast_path() for call in calls)
    assert all(isinstance(step.call, StepCall) for step in plan.steps)


def test_what_cannot_be_compiled_goes_to_the_next_provider(caplog):
    failing = Failing("Neg", "Sqrt", dislikes="Sqrt")
    with caplog.at_level("WARNING", "sardonyx.runtime"):
        plan = make_plan(loaded(DIAMOND).graph, [failing, CPUExecutionProvider()])
    assert [(s.provider.name, s.node.op_type) for s in plan.steps if s.provider is failing] == [(failing.name, "Neg")]
    assert len(failing.compiled) == 1
    assert "FusingExecutionProvider gives up FusingExecutionProvider_cluster_2: no Sqrt today" in caplog.text


def test_a_function_that_could_not_be_compiled_is_expanded():
    text = """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 3] x) => (float[2, 3] y) { t = Neg(x) y = MeanVarianceNormalization<axes = [1]>(t) }
    """

    class NoFunctions(CPUExecutionProvider):
        def find_kernel(self, node):
            return None if node.op_type == "MeanVarianceNormalization" else super().find_kernel(node)

    model = loaded(text)
    failing = Failing("MeanVarianceNormalization", dislikes="MeanVarianceNormalization")
    plan = plan_of(model, [failing, NoFunctions()])
    assert len(plan.steps) > 2
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    expected = (-x - (-x).mean(1, keepdims=True)) / (-x).std(1, keepdims=True)
    np.testing.assert_allclose(execute(plan, {"x": x})[0], expected, rtol=1e-5)


# --- graphs inside graphs

BRANCHES = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (bool c, float[2] x) => (float[2] y) {
        a = Neg(x)
        b = If(c) <
            then_branch = t () => (float[2] p) { m = Exp(a) p = Sqrt(m) },
            else_branch = e () => (float[2] q) { q = Abs(a) }
        >
        y = Neg(b)
    }
"""


def names(assigned) -> dict[str, list[tuple[str, list[str]]]]:
    return {
        graph.name: [(one.provider.name, [node.op_type for node in one.nodes]) for one in found]
        for graph, found in assigned.items()
    }


def test_inner_graphs_are_partitioned_too():
    fusing = Fusing("Exp", "Sqrt")
    graph = loaded(BRANCHES).graph
    assigned = names(partition_graphs(graph, [fusing, CPUExecutionProvider()]))
    assert assigned["t"] == [("FusingExecutionProvider", ["Exp", "Sqrt"])]
    assert assigned["e"] == [("CPUExecutionProvider", ["Abs"])]


def test_a_cluster_may_hold_control_flow_with_all_that_is_inside():
    null = NullExecutionProvider()
    graph = loaded(BRANCHES).graph
    assigned = partition_graphs(graph, [null, CPUExecutionProvider()])
    assert names(assigned) == {"g": [("NullExecutionProvider", ["Neg", "If", "Neg"])]}
    assert [value.name for value in assigned[graph][0].cluster.inputs] == ["x", "c"]


def test_control_flow_is_not_fused_when_another_provider_has_nodes_inside():
    class Greedy(Fusing):
        name = "GreedyExecutionProvider"

        def get_capability(self, graph, nodes):
            return [Capability([node], fused=True) for node in nodes if node.op_type == "If"]

    assigned = names(partition_graphs(loaded(BRANCHES).graph, [Fusing("Exp"), Greedy(), CPUExecutionProvider()]))
    assert ("CPUExecutionProvider", ["If"]) in assigned["g"]
    assert ("FusingExecutionProvider", ["Exp"]) in assigned["t"]


def test_an_outer_value_that_a_subgraph_merely_gives_on_leaves_its_cluster():
    model = loaded("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[2] x) => (float[2] y) {
            a = Neg(x)
            b = Exp(a)
            y = If(c) <then_branch = t () => (float[2] b) { }, else_branch = e () => (float[2] q) { q = Abs(b) }>
        }
    """)
    fusing = Fusing("Neg", "Exp")
    plan = make_plan(model.graph, [fusing, CPUExecutionProvider()])
    assert [value.name for value in fusing.compiled[0].outputs] == ["b"]
    x = np.array([1.0, -2.0], np.float32)
    np.testing.assert_allclose(execute(plan, {"c": np.array(True), "x": x})[0], np.exp(-x), rtol=1e-6)


# --- the null provider


def test_the_null_provider_answers_with_zeros_of_the_inferred_shapes():
    plan = make_plan(loaded(DIAMOND).graph, [NullExecutionProvider(), CPUExecutionProvider()])
    (step,) = plan.steps
    assert len(step.nodes) == 5
    (y,) = execute(plan, {"x": np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(y, np.zeros((3, 4), np.float32))


def test_the_null_provider_takes_nodes_one_by_one_if_it_shall():
    plan = make_plan(loaded(DIAMOND).graph, [NullExecutionProvider({"fuse": "0"}), CPUExecutionProvider()])
    assert len(plan.steps) == 5
    assert execute(plan, {"x": np.ones((3, 4), np.float32)})[0].shape == (3, 4)


def test_compiling_can_be_switched_off():
    register_provider("NullExecutionProvider", NullExecutionProvider)
    try:
        options = SessionOptions()
        options.add_session_config_entry("session.disable_model_compile", "1")
        model = onnx.parser.parse_model(DIAMOND)
        with pytest.raises(ModelRequiresCompilation, match="NullExecutionProvider compiles Neg 'a' and 4 more nodes"):
            InferenceSession(model, options, providers=["NullExecutionProvider"])
        InferenceSession(model, options, providers=["CPUExecutionProvider"])
    finally:
        unregister_provider("NullExecutionProvider")
