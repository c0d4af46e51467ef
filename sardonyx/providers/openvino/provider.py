"""The provider: claims maximal clusters of what `support` lists, hands each to OpenVINO as an ONNX model, and runs what comes back."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import settings
from sardonyx.errors import EPFail, InvalidArgument
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Graph, Model, Node
from sardonyx.ir.cloning import Cloner, Names
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.openvino.support import is_supported, is_worth_it
from sardonyx.providers.provider import CannotCompile, Capability, Cluster, Compiled, ExecutionProvider
from sardonyx.providers.steps import StepCall

PRECISIONS = {"FP32": "f32", "FP16": "f16", "BF16": "bf16", "ACCURACY": "f32"}
IR_VERSION = 10


class OpenVINOExecutionProvider(ExecutionProvider):
    """Runs subgraphs with OpenVINO. Its options stand in `sardonyx/settings.py`."""

    name = "OpenVINOExecutionProvider"
    standard_ops_only = True

    def __init__(self, options: Mapping[str, str] | None = None):
        super().__init__(options)
        self.device_type = settings.OPENVINO_DEVICE.of(self.options)
        self.settings = _settings(self.name, self.options)
        self.disabled = frozenset(filter(None, re.split("[;, ]", settings.OPENVINO_DISABLED.of(self.options))))

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        versions = Counter(node.version for node in nodes if not node.domain)
        opset = max(versions, key=versions.__getitem__, default=0)  # a model has one; bodies of functions may bring others

        def supported(node: Node) -> bool:
            return node.version == opset and node.op_type not in self.disabled and is_supported(node)

        clusters = maximal_clusters(graph, nodes, supported)
        return [Capability(cluster, fused=True, name="subgraph") for cluster in clusters if is_worth_it(cluster)]

    def compile(self, cluster: Cluster) -> Compiled:
        try:
            data = write_model(model_of(cluster)).SerializeToString()
            core = _core()
            compiled = core.compile_model(core.read_model(data), self.device_type, self.settings)
        except Exception as error:
            raise CannotCompile(f"OpenVINO says {_first_line(error)}") from error
        if len(compiled.inputs) != len(cluster.inputs) or len(compiled.outputs) != len(cluster.outputs):
            raise CannotCompile("OpenVINO left out some of its inputs or outputs")
        return _Call(cluster.name, compiled)


@functools.cache
def _core() -> Any:
    import openvino

    return openvino.Core()


def _settings(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": PRECISIONS[settings.OPENVINO_PRECISION.of(options)]}
    threads = settings.OPENVINO_THREADS.of(options)
    if not threads.isdecimal():
        raise InvalidArgument(f"{name}: {settings.OPENVINO_THREADS} must be a number, not {threads!r}")
    if int(threads):
        properties["INFERENCE_NUM_THREADS"] = int(threads)
    folder = settings.OPENVINO_CACHE.of(options)
    if folder:
        properties["CACHE_DIR"] = folder
    return properties


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def model_of(cluster: Cluster) -> Model:
    """A cluster as a model of its own, its constants included."""
    names = Names()
    cloner = Cloner(value_name=names.value, node_name=names.node)
    graph = Graph(cluster.name, [cloner.value(value) for value in cluster.inputs])
    for value in graph.inputs:
        value.constant = None  # the default of an input that may be fed
    for value in cluster.constants:
        constant = cloner.value(value)
        constant.graph, constant.sparse = graph, None
        graph.initializers[constant.name] = constant
    for node in cluster.nodes:
        graph.append(cloner.node(node))
    graph.outputs = [copied for value in cluster.outputs if (copied := cloner.values[value]) is not None]
    return Model(graph, {node.domain: node.version for node in cluster.nodes}, IR_VERSION)


class _Call(StepCall):
    """A compiled cluster. A run takes one of its requests, or makes a new one while all others are at work."""

    def __init__(self, name: str, compiled: Any):
        self._name = name
        self._compiled = compiled
        self._idle: list[Any] = []

    def __call__(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        try:
            request.infer([_shareable(value) for value in inputs], share_inputs=True)
            outputs = [np.array(request.get_output_tensor(n).data) for n in range(len(self._compiled.outputs))]
        except RuntimeError as error:
            raise EPFail(f"{self._name}: {_first_line(error)}") from error
        self._idle.append(request)
        return outputs


def _shareable(array: np.ndarray) -> np.ndarray:
    """An array whose memory OpenVINO can read: without gaps, and if it has no dimensions also writeable."""
    return np.ascontiguousarray(array) if array.ndim else np.array(array)
