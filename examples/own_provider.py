"""An execution provider of your own, in one file: it takes clusters of a few ops, and computes them in float64.

A provider says what it takes (`get_capability`) and turns it into a function (`compile`). Everything else stays with the CPU. This one
is for looking at rounding errors: run a model with and without it, and compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from networks import Network
from onnx import TensorProto, helper

import sardonyx
from sardonyx.dtypes import float32
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.provider import Capability, Cluster, ExecutionProvider, element_type

FUNCTIONS: dict[str, Callable[..., Any]] = {"MatMul": np.matmul, "Add": np.add, "Mul": np.multiply, "Tanh": np.tanh}


class PreciseExecutionProvider(ExecutionProvider):
    """Computes float32 in float64, and rounds once at the end of each cluster."""

    name = "PreciseExecutionProvider"
    standard_ops_only = True  # the optimizer shall leave the ops that we know as they are

    def supports(self, node: Any) -> bool:
        types = {element_type(value) for value in (*node.inputs, *node.outputs)}
        return not node.domain and node.op_type in FUNCTIONS and types == {float32}

    def get_capability(self, graph: Any, nodes: Sequence[Any]) -> Iterable[Capability]:
        for cluster in maximal_clusters(graph, nodes, self.supports):
            yield Capability(cluster, fused=True, name="precise")

    def compile(self, cluster: Cluster) -> Callable[[Sequence[Any]], list[np.ndarray]]:
        constants = {value: value.constant.numpy().astype(np.float64) for value in cluster.constants}

        def run(inputs: Sequence[Any]) -> list[np.ndarray]:
            known = {value: np.asarray(array, np.float64) for value, array in zip(cluster.inputs, inputs, strict=True)}
            known |= constants
            for node in cluster.nodes:
                known[node.outputs[0]] = FUNCTIONS[node.op_type](*(known[value] for value in node.inputs))
            return [known[value].astype(np.float32) for value in cluster.outputs]

        return run


def make_model(width: int = 512) -> onnx.ModelProto:
    net = Network(seed=5)
    x = net.add("Tanh", net.add("MatMul", "x", net.random(width, width)))
    y = net.add("MatMul", net.add("Add", x, "x"), net.random(width, 4))
    info = helper.make_tensor_value_info
    return net.model([info("x", TensorProto.FLOAT, ["N", width])], [(y, info("y", TensorProto.FLOAT, ["N", 4]))])


def main() -> None:
    sardonyx.register_provider("PreciseExecutionProvider", PreciseExecutionProvider)
    model, x = make_model(), np.random.default_rng(0).normal(size=(16, 512)).astype(np.float32)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    precise = sardonyx.InferenceSession(model, options, providers=["PreciseExecutionProvider", "CPUExecutionProvider"])
    for part in precise.get_provider_graph_assignment_info():
        print(part.ep_name, [node.op_type for node in part.get_nodes()])
    (wanted,), (got,) = (session.run(None, {"x": x}) for session in (precise, sardonyx.InferenceSession(model)))
    print(f"the CPU's rounding errors are at most {np.abs(got - wanted).max():.1e}")
    assert 0 < np.abs(got - wanted).max() < 1e-5


if __name__ == "__main__":
    main()
