"""Constants: nodes that always compute the same become initializers, equal small initializers become one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes, settings
from sardonyx.ir import Graph, Node, Tensor, TensorType, Value, edit
from sardonyx.ir.dim import product
from sardonyx.ops import schemas
from sardonyx.ops.checking import schema_string
from sardonyx.optimizer.rewriting import Rewriting

logger = logging.getLogger("sardonyx.optimizer")

SHARED_ELEMENTS = 8
"""Constants of at most this many elements are shared."""

KEPT = frozenset({"DequantizeLinear"})
"""Left as they are: with their weights they are what later passes recognize a quantized op by."""


def fold_constants(graph: Graph, rewriting: Rewriting) -> bool:
    """Compute nodes whose operands are all constant, and whatever inference knows already."""
    kept = frozenset() if settings.DISABLE_QUANT_QDQ.is_on(rewriting.options) else KEPT
    return _fold(graph, rewriting, [node for node in graph.nodes if node.op_type not in kept])


def fold_dequantized(graph: Graph, rewriting: Rewriting) -> bool:
    """Dequantize constants that no op takes as they are, once and for all: kernels pack what they multiply by before runs."""
    return _fold(graph, rewriting, [node for node in graph.nodes if node.op_type in KEPT])


def _fold(graph: Graph, rewriting: Rewriting, nodes: Sequence[Node]) -> bool:
    limit = int(settings.CONSTANT_FOLDING_LIMIT.of(rewriting.options))
    changed = False
    for node in nodes:
        arrays = None if _copies_constant_out(node) or not _may_be_copied_out(node) else _content(node, rewriting, limit)
        if arrays is None:
            continue
        for output, array in zip(list(node.outputs), arrays, strict=False):
            if output.name and (output.uses or output.is_graph_output):
                _become_constant(graph, node, output, array)
        graph.remove(node)
        rewriting.journal.add("ConstantFolding", node)
        changed = True
    return changed


def _copies_constant_out(node: Node) -> bool:
    """Whether a node gives an output of the main graph the content of a constant: what folding such an output ends with."""
    if node.op_type != "Identity" or node.domain or node.graph is None or node.graph.parent is not None:
        return False
    return node.inputs[0] is not None and node.inputs[0].is_constant and node.outputs[0].is_graph_output


def _may_be_copied_out(node: Node) -> bool:
    """Whether Identity, which folding an output of a graph ends with, takes what the node gives. Older opsets cast to more types."""
    given_out = [output for output in node.outputs if output.is_graph_output and output.type is not None]
    if not given_out or node.graph is None:
        return True
    identity = schemas.find("", "Identity", edit.opset_of(node.graph))
    return identity is None or all(schema_string(output.type) in identity.inputs[0].types for output in given_out)  # type: ignore[arg-type]


def _content(node: Node, rewriting: Rewriting, limit: int) -> list[np.ndarray] | None:
    """What a node always computes, None if that is not known or not to be stored."""
    known = [_known(output) for output in node.outputs]
    is_known = all(array is not None for array in known)
    if not is_known and any(value is not None and not value.is_constant for value in node.inputs):
        return None
    if any(True for _ in node.subgraphs):
        return None
    if is_known:
        return [array for array in known if array is not None]
    if not _can_fold(node) or not _fits(node, limit):
        return None
    inputs = [None if value is None else value.constant.numpy() for value in node.inputs]  # type: ignore[union-attr]
    try:
        results = list(rewriting.evaluate(node, inputs))
    except Exception as error:
        logger.debug("%s is not folded: %s", node, error)
        return None
    return results if all(isinstance(result, np.ndarray) for result in results) else None


def _known(output: Value) -> np.ndarray | None:
    if not output.name:
        return np.zeros(0)
    if output.known is None or output.known.dtype == object:
        return None
    return output.known if isinstance(output.type, TensorType) and output.type.dtype is not dtypes.string else None


def _can_fold(node: Node) -> bool:
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None or not signature.deterministic or node.domain not in ("", "ai.onnx.ml"):
        return False
    return bool(node.inputs) or node.op_type == "Constant"


def _fits(node: Node, limit: int) -> bool:
    for output in node.outputs:
        if not isinstance(output.type, TensorType) or output.type.shape is None or output.type.dtype is None:
            return False
        size = product(output.type.shape)
        if not isinstance(size, int) or (limit and output.type.dtype.stored_bytes(size) > limit):
            return False
    return True


def _become_constant(graph: Graph, node: Node, output: Value, array: np.ndarray) -> None:
    name = output.name
    if output.is_graph_output:
        # the graph's output keeps its value object: a constant of another name feeds it
        constant = graph.add_initializer(f"{name}/constant", Tensor.of(array, f"{name}/constant"))
    else:
        output.name = ""
        constant = graph.add_initializer(name, Tensor.of(array, name))
    constant.declared = None
    edit.replace_all_uses(output, constant)


def share_constants(graph: Graph, rewriting: Rewriting) -> bool:
    """Let equal small constants be one initializer."""
    changed = False
    first: dict[tuple[object, ...], Value] = {}
    for value in list(graph.initializers.values()):
        key = _key(value)
        if key is None or not value.uses:
            continue
        known = first.setdefault(key, value)
        if known is not value:
            edit.replace_all_uses(value, known)
            graph.remove_initializer(value)
            changed = True
    return changed


def _key(value: Value) -> tuple[object, ...] | None:
    tensor = value.constant
    if not value.is_constant or tensor is None or tensor.size > SHARED_ELEMENTS or value.is_graph_output:
        return None
    array = tensor.numpy()
    content = tuple(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()
    return tensor.dtype.name, tensor.shape, content


def remove_unused(graph: Graph, rewriting: Rewriting) -> bool:
    """Remove nodes and initializers that no output needs."""
    return edit.remove_unused(graph) > 0
