"""Where onnxruntime 1.31 is known to give something else than the standard, or than we do on purpose; each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.attack.reference import is_float

Values = Mapping[str, Any]


def always(node: onnx.NodeProto, values: Values) -> bool:
    return True


def of_doubles(node: onnx.NodeProto, values: Values) -> bool:
    return any(getattr(values.get(name), "dtype", None) == np.float64 for name in node.input)


def over_nothing(node: onnx.NodeProto, values: Values) -> bool:
    return any(isinstance(values.get(name), np.ndarray) and values[name].size == 0 for name in node.input)


def of_no_numbers(node: onnx.NodeProto, values: Values) -> bool:
    floats = [values[name] for name in node.input if is_float(values.get(name))]
    return any(not np.isfinite(array.astype(np.float64)).all() for array in floats)


def past_without_present(node: onnx.NodeProto, values: Values) -> bool:
    return len(node.input) > 3 and bool(node.input[3]) and len([name for name in node.output if name]) < 3


def with_group_indices(node: onnx.NodeProto, values: Values) -> bool:
    return len(node.input) > 4 and bool(node.input[4])


@dataclass(frozen=True)
class Difference:
    op: str
    reason: str
    applies: Callable[[onnx.NodeProto, Values], bool] = always
    domain: str = ""


KNOWN = (
    Difference("MeanVarianceNormalization", "takes the mean's square from the square's mean: NaN where that is below 0"),
    Difference("QuickGelu", "takes a sigmoid of float's precision for doubles", of_doubles, "com.microsoft"),
    Difference("GroupNormalization", "rounds doubles to float on the way, as stash_type lets it", of_doubles),
    Difference("LayerNormalization", "rounds doubles to float on the way, as stash_type lets it", of_doubles),
    Difference("RMSNormalization", "rounds doubles to float on the way, as stash_type lets it", of_doubles),
    Difference("MaxPool", "passes over NaN, and gives the lowest number for minus infinity", of_no_numbers),
    Difference("GlobalMaxPool", "passes over NaN, and gives the lowest number for minus infinity", of_no_numbers),
    Difference("QLinearSoftmax", "lets 256 become 0", always, "com.microsoft"),
    Difference(
        "MaxUnpool", "takes indices for those of the output shape, where the standard's are of the unpadded one", always
    ),
    Difference("MatMulInteger", "does not set a product over no elements", over_nothing),
    Difference("QLinearMatMul", "does not set a product over no elements", over_nothing),
    Difference("ConvInteger", "does not set a product over no elements", over_nothing),
    Difference("QLinearConv", "does not set a product over no elements", over_nothing),
    Difference("GroupQueryAttention", "forgets the past if nobody wants the present", past_without_present, "com.microsoft"),
    Difference("MatMulNBits", "does not heed g_idx for 2 bits, nor zero points beside it", with_group_indices, "com.microsoft"),
)


def known(model: onnx.ModelProto, values: Values) -> str | None:
    """The reason why onnxruntime is not asked about a model, None if it may be."""
    for node in nodes_of(model.graph):
        for difference in KNOWN:
            if (difference.domain, difference.op) == (node.domain, node.op_type) and difference.applies(node, values):
                return difference.reason
    return None


def nodes_of(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes, those of bodies included."""
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += nodes_of(attribute.g)
    return found
