"""What a pool over windows is, read off its node: sizes, pads, how pixels are combined. Lowerings of pools ask here."""

from __future__ import annotations

import math

from sardonyx.compiler.types import Type
from sardonyx.ir import Node
from sardonyx.ops.reading import operand
from sardonyx.providers.cpu.window import MAX_TAPS
from sardonyx.providers.native.kernels.conv.form import MAX_SPATIAL
from sardonyx.providers.native.kernels.conv.windows import Windows, windows_of
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Pool:
    """What shapes the code of a pool."""

    op: str
    """max, average or lp."""
    type: Type
    axes: int
    """How many spatial ones there are."""
    p: float = 2.0
    """The norm of an Lp pool."""
    counts_pads: bool = False
    """Whether an average counts the pixels of the padding."""
    stride: int = 1
    """How far windows stand apart along a row, if vectors run along rows and that is 1 or 2; else 0."""


OPS = {"MaxPool": "max", "AveragePool": "average", "LpPool": "lp"}


def pool_of(node: Node) -> Pool:
    type = element_of(required(node.inputs[0]))
    assert type is not None
    p = float(operand(node, "p") or 2) if node.op_type == "LpPool" else 2.0
    return Pool(OPS[node.op_type], type, len(operand(node, "kernel_shape")), p, bool(operand(node, "count_include_pad")))


def pool_windows(node: Node) -> Windows:
    """All sizes of a pool that `claims_pool` took."""
    kernel = tuple(int(size) for size in operand(node, "kernel_shape"))
    return windows_of(node, kernel, dims(required(node.inputs[0]))[2:], dims(node.outputs[0])[2:])


def claims_pool(node: Node) -> bool:
    """One result, of numbers, over windows of one to three axes."""
    return not has_places(node) and claims_windows(node)


def has_places(node: Node) -> bool:
    """Whether somebody wants to know where maxima stand."""
    return any(output.name for output in node.outputs[1:])


def claims_windows(node: Node) -> bool:
    """Numbers, over windows of one to three axes."""
    X, Y = node.inputs[0], node.outputs[0]
    type = None if X is None else element_of(X)
    shape, output = None if X is None else shape_of(X), shape_of(Y)
    if type is None or shape is None or output is None:
        return False
    if type.kind == "bool" or (node.op_type != "MaxPool" and not type.is_float):
        return False
    kernel = operand(node, "kernel_shape")
    if not 3 <= len(shape) <= 2 + MAX_SPATIAL or not kernel or len(kernel) != len(shape) - 2 or len(output) != len(shape):
        return False
    rest = [*kernel, *(operand(node, "strides") or ()), *(operand(node, "dilations") or ())]
    has_norm = node.op_type != "LpPool" or (operand(node, "p") or 2) > 0
    return min(rest) > 0 and math.prod(kernel) <= MAX_TAPS and has_norm
