"""Copies at the borders of devices: a toy device whose values NumPy cannot read shows each missing or superfluous one."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import formats, ops
from sardonyx.errors import EPFail
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.provider import Capability, ExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.copies import is_copy
from sardonyx.runtime.preparation.plan import make_plan


class Toy:
    """An array in the memory of a device."""

    def __init__(self, array: np.ndarray, device: str):
        self.hidden, self.device = array, device


table = KernelTable("ToyExecutionProvider")


@table.kernel("Neg")
def neg(X):
    return Toy(-X.hidden, X.device)


@table.kernel("Add", "Mul", "Sub")
def combine(A, B):
    assert A.device == B.device
    return Toy(A.hidden + B.hidden, A.device)


@table.kernel("If")
def branch(cond, then_branch, else_branch):
    return tuple(then_branch())


class ToyExecutionProvider(ExecutionProvider):
    name = "ToyExecutionProvider"
    kernels = table
    device = "toy"
    wanted = ("Neg", "Add")

    def __init__(self, options=None):
        super().__init__(options)
        self.copies = []

    def get_capability(self, graph, nodes):
        return [Capability([node]) for node in nodes if node.op_type in self.wanted]

    def from_host(self, array):
        assert isinstance(array, np.ndarray)
        self.copies.append(("from", array.shape))
        return Toy(array, self.device)

    def to_host(self, value):
        assert value.device == self.device
        self.copies.append(("to", value.hidden.shape))
        return value.hidden


class CompilingToy(ToyExecutionProvider):
    def get_capability(self, graph, nodes):
        found = maximal_clusters(graph, nodes, lambda node: node.op_type in self.wanted)
        return [Capability(cluster, fused=True) for cluster in found]

    def compile(self, cluster):
        bound = [(node, self.bind_kernel(node)) for node in cluster.nodes]
        inputs, outputs = list(cluster.inputs), list(cluster.outputs)
        operands = [list(node.inputs) for node in cluster.nodes]
        constants = {value: Toy(value.constant.numpy(), self.device) for value in cluster.constants}

        def call(given):
            values = constants | dict(zip(inputs, given, strict=True))
            for (node, kernel), used in zip(bound, operands, strict=True):
                values.update(zip(node.outputs, kernel([values[value] for value in used]), strict=True))
            return [values[value] for value in outputs]

        return call


def plan_of(text, *providers):
    model = formats.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}'))
    ops.infer(model, evaluate)
    return make_plan(model.graph, [*providers, CPUExecutionProvider()])


def steps(plan):
    return [step.node.op_type for step in plan.steps]


X = np.array([1, -2], np.float32)
TEXT = "g (float[2] x) => (float[2] y, float[2] a) { a = Neg(x) b = Exp(a) c = Add(b, a) y = Neg(c) }"


@pytest.mark.parametrize("kind", [ToyExecutionProvider, CompilingToy])
def test_each_value_crosses_each_border_once(kind):
    toy = kind()
    plan = plan_of(TEXT, toy)
    y, a = execute(plan, {"x": X})
    np.testing.assert_allclose(y, -(np.exp(-X) - X), rtol=1e-6)
    np.testing.assert_array_equal(a, -X)
    # x and b go there; a, which the host reads and the caller gets, and y come back
    assert sorted(way for way, _ in toy.copies) == ["from", "from", "to", "to"]
    assert [value.name for value in plan.graph.outputs] == ["y", "a"]


def test_nothing_is_copied_without_another_device():
    class Host(ToyExecutionProvider):
        device = "cpu"
        kernels = CPUExecutionProvider.kernels

    host = Host()
    plan = plan_of(TEXT, host)
    assert not any(is_copy(step.node) for step in plan.steps)
    execute(plan, {"x": X})
    assert host.copies == []


@pytest.mark.parametrize("kind", [ToyExecutionProvider, CompilingToy])
def test_a_constant_is_copied_once_for_all_runs(kind):
    toy = kind()
    plan = plan_of("g (float[2] x) => (float[2] y) <float[2] w = {3, 4}> { a = Add(x, w) b = Mul(w, a) y = Add(b, w) }", toy)
    for _ in range(3):
        (y,) = execute(plan, {"x": X})
        np.testing.assert_allclose(y, np.array([3, 4]) * (X + [3, 4]) + [3, 4])
    constants = toy.copies.count(("from", (2,))) - 2 * 3  # x and b cross in each run
    assert constants == (1 if kind is ToyExecutionProvider else 0)


def test_two_devices_meet_on_the_host():
    class Other(ToyExecutionProvider):
        name = "OtherExecutionProvider"
        device = "other"
        wanted = ("Sub",)

    toy, other = ToyExecutionProvider(), Other()
    plan = plan_of("g (float[2] x) => (float[2] y) { a = Neg(x) b = Sub(a, x) y = Neg(b) }", toy, other)
    np.testing.assert_array_equal(execute(plan, {"x": X})[0], X - X)
    assert [way for way, _ in toy.copies] == ["from", "to", "from", "to"]
    assert sorted(way for way, _ in other.copies) == ["from", "from", "to"]


BRANCHES = """g (bool c, float[2] x) => (float[2] y) {
    a = Neg(x)
    b = If(c) <then_branch = t () => (float[2] p) { m = Exp(a) p = Neg(m) }, else_branch = e () => (float[2] q) { q = Neg(a) }>
    y = Neg(b)
}"""


@pytest.mark.parametrize("kind", [ToyExecutionProvider, CompilingToy])
def test_subgraphs_copy_what_they_capture(kind):
    plan = plan_of(BRANCHES, kind())
    np.testing.assert_allclose(execute(plan, {"c": np.array(True), "x": X})[0], np.exp(-X), rtol=1e-6)
    np.testing.assert_allclose(execute(plan, {"c": np.array(False), "x": X})[0], -X)


def test_control_flow_by_itself_stays_on_the_host():
    class Everything(ToyExecutionProvider):
        wanted = ("Neg", "If")

    with pytest.raises(EPFail, match="claims If 'b' on toy; subgraphs run on the host"):
        plan_of(BRANCHES, Everything())


def test_a_session_runs_on_two_devices(tmp_path):
    sardonyx.register_provider("ToyExecutionProvider", ToyExecutionProvider)
    try:
        options = sardonyx.SessionOptions()
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {TEXT}')
        session = sardonyx.InferenceSession(model, options, providers=["ToyExecutionProvider"])
        y, a = session.run(None, {"x": X})
        np.testing.assert_array_equal(a, -X)
        (only,) = session.run(["y"], {"x": X})
        np.testing.assert_array_equal(only, y)
        (inner,) = session.run(["c"], {"x": X})  # lies on the device only
        np.testing.assert_allclose(inner, -y, rtol=1e-6)
        found = [
            (part.ep_name, [node.op_type for node in part.get_nodes()]) for part in session.get_provider_graph_assignment_info()
        ]
        assert sorted(found) == [
            ("CPUExecutionProvider", ["Exp"]),
            ("ToyExecutionProvider", ["Add"]),
            ("ToyExecutionProvider", ["Neg"]),
            ("ToyExecutionProvider", ["Neg"]),
        ]
    finally:
        sardonyx.unregister_provider("ToyExecutionProvider")
