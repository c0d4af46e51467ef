"""Two LabelEncoders in a row become one: its keys are the first one's, its values what the second makes of the first one's."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.ir import Graph, Node, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import operand
from sardonyx.optimizer.rewriting import Rewriting

DOMAIN = "ai.onnx.ml"
FIRST_MAP = 2
"""Version 1 maps between strings and their places in a list."""

SPELLED = {
    "f": ("values_floats", "default_float"),
    "i": ("values_int64s", "default_int64"),
    "O": ("values_strings", "default_string"),
}


def compose_label_encoders(graph: Graph, rewriting: Rewriting) -> bool:
    """Compose each LabelEncoder with the one before it."""
    changed = False
    for node in list(graph.nodes):
        first = _encoder_before(node)
        composed = None if first is None else _composed(first, node, rewriting)
        if first is None or composed is None:
            continue
        op = Builder(graph, node, {**rewriting.model.opsets, DOMAIN: node.version}, prefix=node.name or "LabelEncoder")
        output = op.node("LabelEncoder", first.inputs[0], domain=DOMAIN, **composed)
        rewriting.driver.node(output.producer)
        edit.replace_all_uses(node.outputs[0], output)
        graph.remove(node)
        graph.remove(first)
        rewriting.journal.add("LabelEncoderFusion", node)
        changed = True
    return changed


def _is_encoder(node: Node) -> bool:
    return (node.domain, node.op_type) == (DOMAIN, "LabelEncoder") and node.version >= FIRST_MAP


def _encoder_before(node: Node) -> Node | None:
    """The LabelEncoder whose output this one alone takes."""
    value = node.inputs[0] if _is_encoder(node) else None
    first = None if value is None else value.producer
    if value is None or first is None or not _is_encoder(first) or first.graph is not node.graph:
        return None
    return None if value.is_graph_output or len(value.uses) > 1 else first


def _composed(first: Node, second: Node, rewriting: Rewriting) -> dict[str, Any] | None:
    """Attributes of a LabelEncoder that does what the two do; None where they cannot be spelled."""
    values = _values(first)
    keys = {name: attribute.value for name, attribute in first.attributes.items() if name.startswith("keys_")}
    if values is None or not len(values) or not keys:
        return None
    (encoded,) = rewriting.evaluate(second, [np.append(values, _default(first, values))])
    if encoded.dtype in (np.float32, np.int64, object):
        names = SPELLED[encoded.dtype.kind]
        return {**keys, names[0]: encoded[:-1].tolist(), names[1]: encoded[-1]}
    return {**keys, "values_tensor": encoded[:-1], "default_tensor": encoded[-1:]} if second.version >= 4 else None


def _values(node: Node) -> np.ndarray | None:
    for name, dtype in (("values_floats", np.float32), ("values_int64s", np.int64), ("values_strings", object)):
        value = operand(node, name)
        if value:
            return np.array(value, dtype)
    tensor = operand(node, "values_tensor")
    return None if tensor is None else tensor.reshape(-1)


def _default(node: Node, values: np.ndarray) -> np.ndarray:
    """What stands for a key that is not known, as an array of one element."""
    default = operand(node, "default_tensor")
    if default is None:
        default = operand(node, SPELLED[values.dtype.kind][1])
    return np.array(default, values.dtype).reshape(1)
