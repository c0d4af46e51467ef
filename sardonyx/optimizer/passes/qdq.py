"""What is done to quantized graphs as a whole: one DequantizeLinear per consumer and, in the end, one for all; biases and weights that
were left in floats; products with weights of few bits."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Graph, Node, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.rewrite import Skip
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.rules.quantize_parameters import (
    BYTES,
    is_dequantize,
    is_quantize,
    parameters,
    product_bias,
)
from sardonyx.optimizer.values import dtype_of, rank_of

EXACT = 1e-4
"""How far weights may lie from whole multiples of a step, in steps, to be taken for such."""


def unique_dequantization(graph: Graph, rewriting: Rewriting) -> bool:
    """Give each consumer of a DequantizeLinear one of its own, so that each is a unit with what it reads (EnsureUniqueDQForNodeUnit)."""
    changed = False
    for node in list(graph.nodes):
        if not is_dequantize(node):
            continue
        output = node.outputs[0]
        uses = [(user, position) for user, position in output.uses if user.graph is graph]
        spare = 0 if output.is_graph_output or len(uses) < len(output.uses) else 1
        for user, position in uses[spare:]:
            op = _builder(graph, user, rewriting)
            copy = op.node(node.op_type, *node.inputs, domain=node.domain, **given_attributes(node))
            _infer(op, rewriting)
            user.set_input(position, copy)
            rewriting.journal.add("EnsureUniqueDQForNodeUnit", node)
            changed = True
    return changed


def merge_dequantization(graph: Graph, rewriting: Rewriting) -> bool:
    """Let equal DequantizeLinears that no unit took be one again."""
    changed = False
    first: dict[tuple[object, ...], Node] = {}
    for node in graph.nodes:
        if not is_dequantize(node):
            continue
        attributes = tuple(sorted((name, str(value)) for name, value in given_attributes(node).items()))
        known = first.setdefault((node.domain, node.version, *map(id, node.inputs), attributes), node)
        if known is not node and not node.outputs[0].is_graph_output:
            edit.replace_all_uses(node.outputs[0], known.outputs[0])
            graph.remove(node)
            rewriting.journal.add("QDQFinalCleanupTransformer", node)
            changed = True
    return changed


def _builder(graph: Graph, before: Node, rewriting: Rewriting) -> Builder:
    return Builder(graph, before, rewriting.model.opsets, before.name or before.outputs[0].name)


def _infer(op: Builder, rewriting: Rewriting) -> None:
    for new in op.made:
        rewriting.driver.node(new)


# --- weights and biases ---------------------------------------------------------------------------------------------


def quantize_weights_and_biases(graph: Graph, rewriting: Rewriting) -> bool:
    """Quantize what was left in floats of a Conv or Gemm between DequantizeLinear and QuantizeLinear (WeightBiasQuantization).

    A bias becomes int32 in the scale of the product, far finer than the result. Weights only if they are 8-bit numbers times a
    step per channel anyway, as they are after training with quantization: onnxruntime rounds any weights, which
    changes results by more than a step.
    """
    changed = False
    for node in list(graph.nodes):
        if node.op_type in ("Conv", "Gemm") and not node.domain and _is_unit(node):
            changed = _quantize_weight(graph, node, rewriting) or changed
            changed = _quantize_bias(graph, node, rewriting) or changed
    return changed


def _is_unit(node: Node) -> bool:
    source, users = node.inputs[0], node.outputs[0].users
    quantized = None if source is None else parameters(source.producer)
    if quantized is None or not is_dequantize(quantized.node) or not quantized.is_byte:
        return False
    return len(users) == 1 and is_quantize(users[0]) and not node.outputs[0].is_graph_output


def _channel_axis(node: Node) -> int:
    return 0 if node.op_type == "Conv" or operand(node, "transB") else 1


def _quantize_weight(graph: Graph, node: Node, rewriting: Rewriting) -> bool:
    weight = node.inputs[1]
    array = None if weight is None or not weight.is_constant else constant(weight)
    if weight is None or array is None or array.dtype != np.float32 or array.size == 0 or node.version < 13:
        return False  # one scale per channel came with opset 13
    axis = _channel_axis(node)
    others = tuple(other for other in range(array.ndim) if other != axis)
    step = np.abs(array).max(axis=others) / np.float32(127)
    step[step == 0] = 1
    shape = [-1 if other == axis else 1 for other in range(array.ndim)]
    numbers = array / step.reshape(shape)
    if not np.all(np.abs(numbers - np.rint(numbers)) < EXACT) or not np.isfinite(step).all():
        return False
    op = _builder(graph, node, rewriting)
    zeros = op.constant(np.zeros(len(step), np.int8))
    whole = op.constant(np.rint(numbers).astype(np.int8))
    node.set_input(1, op.DequantizeLinear(whole, op.constant(step), zeros, axis=axis))
    _infer(op, rewriting)
    rewriting.journal.add("WeightBiasQuantization", node)
    return True


def _quantize_bias(graph: Graph, node: Node, rewriting: Rewriting) -> bool:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    scale = _product_scale(node)
    if bias is None or scale is None or not bias.is_constant or dtype_of(bias) is not dtypes.float32:
        return False
    if node.op_type == "Gemm" and (operand(node, "alpha") != 1 or operand(node, "beta") != 1):
        return False
    if scale.ndim and (node.version < 13 or rank_of(bias) != 1):
        return False
    op = _builder(graph, node, rewriting)
    whole = product_bias(op, bias, scale)
    if whole is None or isinstance(whole, Skip):
        return False
    axis = {"axis": 0} if scale.ndim else {}
    node.set_input(2, op.DequantizeLinear(whole, op.constant(scale.astype(np.float32)), **axis))
    _infer(op, rewriting)
    rewriting.journal.add("WeightBiasQuantization", node)
    return True


def _product_scale(node: Node) -> np.ndarray | None:
    first, second = (None if value is None else parameters(value.producer) for value in node.inputs[:2])
    if first is None or second is None or not first.is_byte or second.dtype not in BYTES or second.block_size:
        return None
    if second.axis not in (None, _channel_axis(node)):
        return None
    scale: np.ndarray = first.scale.astype(np.float64).reshape(()) * second.scale
    return scale.reshape(()) if second.axis is None else scale
