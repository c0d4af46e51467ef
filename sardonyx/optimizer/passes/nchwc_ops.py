"""Which ops have a form in blocks of channels, and what it is: read by `nchwc.py`.

A handler looks at a node and gives its result in blocks, or None where the node stays as it is. The channels that fill up the last
block hold no meaning, but numbers: the filters of the next convolution are zero for them, so they must be finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.ir import Attribute, Node, Value
from sardonyx.ops.contrib.nchwc import DOMAIN
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.passes.nchwc_blocks import Blocked, Blocks, channels_of
from sardonyx.optimizer.rules.conv import batch_factors
from sardonyx.optimizer.rules.epilogue import CONTRIB, PARAMETERS
from sardonyx.optimizer.values import has_one_output, same_shape

# --- convolutions


def convolve(blocks: Blocks, node: Node) -> Blocked | None:
    """Conv and FusedConv with constant filters. Images of fewer channels than a block are read as they are."""
    X, W, B, Z = [*node.inputs, None, None][:4]
    filters = None if W is None else constant(W)
    bias = None if B is None else constant(B)
    if X is None or filters is None or filters.ndim != 4 or channels_of(X) is None or (B is not None and bias is None):
        return None
    group = operand(node, "group")
    source = _source(blocks, node, X, filters, group)
    sum_ = None if Z is None or source is None else _sum(blocks, node, Z)
    if source is None or (Z is not None and sum_ is None):
        return None
    is_depthwise = group > 1 and filters.shape[1] == 1
    if is_depthwise:
        group = blocks.rounded(group)
    attributes = {**given_attributes(node), "group": group}
    packed = _packed(blocks, filters, is_depthwise or source is X)
    return _convolution(blocks, node, len(filters), [source, packed, bias, sum_], attributes)


def _source(blocks: Blocks, node: Node, X: Value, filters: np.ndarray, group: int) -> Value | None:
    """What the convolution reads: the image in blocks, or as it is; None if it must not be rewritten."""
    outputs, inputs = filters.shape[:2]
    is_depthwise = inputs == 1 and outputs == group
    if group > 1 and not is_depthwise and (inputs % blocks.size or outputs // group % blocks.size):
        return None
    if group == 1 and inputs < blocks.size and blocks.find(X) is None:
        return X
    blocked = blocks.make(X, node)
    return None if blocked is None else blocked.value


def _sum(blocks: Blocks, node: Node, Z: Value) -> Value | None:
    blocked = blocks.make(Z, node) if same_shape(Z, node.outputs[0]) else None
    return None if blocked is None else blocked.value


def _packed(blocks: Blocks, filters: np.ndarray, by_output: bool) -> np.ndarray:
    """Filters as the op takes them: output channels in blocks, and input channels if they are read in blocks."""
    block = blocks.size
    if by_output:
        wide = blocks.padded(filters, 0)
        outer = wide.reshape(-1, block, *wide.shape[1:]).transpose(0, 2, 3, 4, 1)
    else:
        wide = blocks.padded(filters, 0, 1)
        apart = wide.reshape(-1, block, wide.shape[1] // block, block, *wide.shape[2:])
        outer = apart.transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(outer).reshape(wide.shape)


def _convolution(blocks: Blocks, node: Node, channels: int, inputs: list[Any], attributes: dict[str, Any]) -> Blocked:
    op = blocks.builder(node)
    source, filters, bias, sum_ = inputs
    B = None if bias is None else op.constant(blocks.padded(bias, 0))
    operands = [source, op.constant(filters), B, sum_]
    while operands[-1] is None:
        operands.pop()
    return Blocked(op.node("Conv", *operands, domain=DOMAIN, __block_size=blocks.size, **attributes), channels)


def normalize(blocks: Blocks, node: Node) -> Blocked | None:
    """A BatchNormalization of blocks is a convolution with one number per channel."""
    blocked, parameters = blocks.find(node.inputs[0]), [value for value in node.inputs[1:5] if value is not None]
    if blocked is None or len(parameters) != 4 or not has_one_output(node) or node.attribute("training_mode"):
        return None
    factors = None if node.attribute("spatial", 1) == 0 else batch_factors(node, *parameters)
    if factors is None:
        return None
    factor, offset = (numbers.astype(np.float32) for numbers in factors)
    filters = _packed(blocks, factor.reshape(-1, 1, 1, 1), by_output=True)
    if not np.isfinite(filters).all():
        return None
    attributes = {"group": len(filters), "kernel_shape": [1, 1]}
    return _convolution(blocks, node, blocked.channels, [blocked.value, filters, offset, None], attributes)


# --- number by number

FUSED = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"})
"""Activations that a convolution takes in."""


def activate(blocks: Blocks, node: Node) -> Blocked | None:
    """A function of single numbers that is finite at zero; part of the convolution before it if that has none."""
    blocked = blocks.find(node.inputs[0])
    if blocked is None:
        return None
    conv, before = blocked.value.producer, node.inputs[0]
    assert before is not None
    is_only_use = len(before.uses) == 1 and not before.is_graph_output
    if (
        conv is not None
        and conv.domain == DOMAIN
        and conv.op_type == "Conv"
        and is_only_use
        and not conv.attribute("activation")
        and node.op_type in FUSED
        and not node.domain
    ):
        conv.attributes["activation"] = Attribute.of(node.op_type)
        numbers = [operand(node, name) for name in PARAMETERS.get(node.op_type, ())]
        if numbers:
            conv.attributes["activation_params"] = Attribute.of([float(number) for number in numbers])
        return blocked
    return _again(blocks, node, [blocked.value, *node.inputs[1:]], blocked.channels)


def combine(blocks: Blocks, node: Node) -> Blocked | None:
    """Sums and products of tensors of one shape; where shapes differ, blocks would not stand next to their like."""
    blocked_inputs = [blocks.find(value) for value in node.inputs]
    known = [blocked for blocked in blocked_inputs if blocked is not None]
    if len(known) < len(blocked_inputs) or not all(
        value is not None and same_shape(value, node.outputs[0]) for value in node.inputs
    ):
        return None
    return _again(blocks, node, [blocked.value for blocked in known], known[0].channels)


def join(blocks: Blocks, node: Node) -> Blocked | None:
    """Concat of channels, if they fill whole blocks."""
    blocked_inputs = [blocks.find(value) for value in node.inputs]
    known = [blocked for blocked in blocked_inputs if blocked is not None and blocked.channels % blocks.size == 0]
    if len(known) < len(blocked_inputs) or operand(node, "axis") not in (1, -3):
        return None
    return _again(blocks, node, [blocked.value for blocked in known], sum(blocked.channels for blocked in known))


def _again(blocks: Blocks, node: Node, inputs: list[Value | None], channels: int) -> Blocked:
    op = blocks.builder(node)
    return Blocked(op.node(node.op_type, *inputs, domain=node.domain, **given_attributes(node)), channels)


# --- windows


def pool(blocks: Blocks, node: Node) -> Blocked | None:
    """Pools of blocks; not those for which onnxruntime's op in blocks counts otherwise than ONNX."""
    blocked = blocks.find(node.inputs[0])
    if blocked is None or not has_one_output(node):
        return None
    attributes = given_attributes(node)
    if node.op_type == "AveragePool":
        is_spread = any(step != 1 for step in attributes.get("dilations") or ())
        if is_spread or (attributes.get("ceil_mode") and attributes.get("count_include_pad")):
            return None
    op = blocks.builder(node)
    return Blocked(op.node(node.op_type, blocked.value, domain=DOMAIN, **attributes), blocked.channels)


LINEAR = ("asymmetric", "align_corners", "half_pixel")
"""The coordinates that interpolation in blocks knows."""


def enlarge(blocks: Blocks, node: Node) -> Blocked | None:
    """Images enlarged by whole numbers: by repetition, or linearly."""
    blocked = blocks.find(node.inputs[0])
    scales = None if blocked is None else _scales(node)
    if blocked is None or scales is None:
        return None
    mode = operand(node, "mode")
    coordinates = (
        "asymmetric" if node.op_type == "Upsample" or node.version < 11 else operand(node, "coordinate_transformation_mode")
    )
    rounding = "floor" if node.op_type == "Upsample" or node.version < 11 else operand(node, "nearest_mode")
    if mode == "nearest" and (coordinates, rounding) != ("asymmetric", "floor"):
        return None
    if mode not in ("nearest", "linear") or coordinates not in LINEAR or node.attribute("antialias"):
        return None
    enlarged = blocks.builder(node).node(
        "Upsample", blocked.value, domain=DOMAIN, scales=scales, mode=mode, coordinate_transformation_mode=coordinates
    )
    return Blocked(enlarged, blocked.channels)


def _scales(node: Node) -> list[int] | None:
    """Whole factors of the four axes, those of batch and channels 1."""
    factors, axes = operand(node, "scales"), node.attribute("axes")
    if factors is None or len(factors) == 0:
        return None
    scales = [1.0] * 4
    for axis, scale in zip(range(4) if axes is None else axes, factors, strict=False):
        scales[axis] = float(scale)
    is_whole = all(scale >= 1 and scale == int(scale) for scale in scales)
    return [int(scale) for scale in scales] if is_whole and scales[:2] == [1, 1] else None


HANDLERS: dict[tuple[str, str], Callable[[Blocks, Node], Blocked | None]] = {
    **dict.fromkeys([("", "Conv"), (CONTRIB, "FusedConv")], convolve),
    ("", "BatchNormalization"): normalize,
    **{("", op): activate for op in (*sorted(FUSED), "Clip", "Elu", "Gelu", "HardSwish")},
    **{(CONTRIB, op): activate for op in ("Gelu", "QuickGelu")},
    **{("", op): combine for op in ("Add", "Mul", "Sum")},
    ("", "Concat"): join,
    **{("", op): pool for op in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")},
    **{("", op): enlarge for op in ("Upsample", "Resize")},
}
