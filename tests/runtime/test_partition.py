"""Who computes what: claims are asked in the providers' order, and impossible ones are refused by name."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats, ops
from sardonyx.errors import EPFail, NotImplemented
from sardonyx.providers.base import KernelTable
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.provider import Capability, ExecutionProvider
from sardonyx.runtime.executor import execute
from sardonyx.runtime.partition import partition
from sardonyx.runtime.plan import make_plan

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
