"""Where onnxruntime is known to give something else than the standard, or than we do on purpose; each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

OPS: dict[tuple[str, str], str] = {
    (
        "",
        "MeanVarianceNormalization",
    ): "it subtracts the mean's square from the square's mean, which gives NaN where that is below 0",
    ("com.microsoft", "QuickGelu"): "it computes doubles with a sigmoid of float's precision",
}
"""By domain and op."""
EMPTY_PRODUCTS = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
"""It leaves the result of a product over no elements as the memory was."""


def known(model: onnx.ModelProto, values: Mapping[str, Any]) -> str | None:
    """The reason why onnxruntime is not asked about a model, None if it may be."""
    for node in nodes_of(model.graph):
        reason = OPS.get((node.domain, node.op_type))
        if reason is not None:
            return reason
        if node.op_type in EMPTY_PRODUCTS and any(_is_empty(values.get(name)) for name in node.input):
            return "a product over no elements is not set"
    return None


def _is_empty(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size == 0


def nodes_of(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes, those of bodies included."""
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += nodes_of(attribute.g)
    return found
