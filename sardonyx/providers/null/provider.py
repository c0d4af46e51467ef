"""NullExecutionProvider: claims all nodes and answers with zeros of the inferred types and shapes.

Tests of partition, plan and sessions register it under its name. With the option `fuse="0"` it takes nodes one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Dim, Graph, Node, OptionalType, SequenceType, TensorType, Type, Value, dim
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.provider import Capability, Cluster, Compiled, ExecutionProvider
from sardonyx.settings import NULL_FUSE


class NullExecutionProvider(ExecutionProvider):
    """Claims everything, computes nothing."""

    name = "NullExecutionProvider"

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        if NULL_FUSE.of(self.options) == "0":
            return [Capability([node], fused=True, name=node.op_type) for node in nodes]
        return [Capability(cluster, fused=True) for cluster in maximal_clusters(graph, nodes, lambda node: True)]

    def compile(self, cluster: Cluster) -> Compiled:
        inputs, outputs = cluster.inputs, cluster.outputs

        def call(arrays: Sequence[Any]) -> list[Any]:
            sizes = _sizes(inputs, arrays)
            return [zeros(value.type, sizes) for value in outputs]

        return call


def _sizes(values: Sequence[Value], inputs: Sequence[Any]) -> dict[str, int]:
    """What the symbols in the shapes of `values` stand for in this run."""
    sizes: dict[str, int] = {}
    for value, array in zip(values, inputs, strict=True):
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for size, actual in zip(shape or (), getattr(array, "shape", ()), strict=False):
            symbol = None if isinstance(size, int) else size.symbol
            if symbol is not None:
                sizes[symbol.name] = int(actual)
    return sizes


def zeros(type: Type | None, sizes: Mapping[str, int]) -> Any:
    """Nothing of the given type: zeros, empty strings, an empty sequence. A size that only data would tell is 0."""
    match type:
        case TensorType(dtype, shape):
            numpy_type = (dtype or dtypes.float32).numpy
            dims = tuple(_size(size, sizes) for size in shape or ())
            return np.full(dims, "", object) if dtype is dtypes.string else np.zeros(dims, numpy_type)
        case SequenceType():
            return []
        case OptionalType():
            return None
    return {}


def _size(size: Dim, sizes: Mapping[str, int]) -> int:
    try:
        return max(0, dim.evaluate(size, sizes))
    except KeyError:
        return 0
