"""What a pool over windows is, read off its node: sizes, pads, how pixels are combined. Lowerings of pools ask here."""

from __future__ import annotations

import math

from sardonyx.compiler.types import Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.ops.window import SAME, per_axis, span_of, split_pads
from sardonyx.providers.cpu.window import MAX_TAPS
from sardonyx.providers.native.kernels.conv.form import MAX_SPATIAL
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.providers.native.program.views import Dims
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes, one entry per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: Dims
    """Pixels of padding before each axis."""
    end: Dims
    input: Dims
    output: Dims


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
    windows = windows_of(node)
    p = float(operand(node, "p") or 2) if node.op_type == "LpPool" else 2.0
    return Pool(OPS[node.op_type], type, len(windows.kernel), p, bool(operand(node, "count_include_pad")))


def windows_of(node: Node) -> Windows:
    """All sizes of a pool that `claims_pool` took."""
    image, output = dims(required(node.inputs[0]))[2:], dims(node.outputs[0])[2:]
    rank = len(image)
    kernel = tuple(int(size) for size in operand(node, "kernel_shape"))
    strides = tuple(per_axis(operand(node, "strides"), rank, "strides"))
    dilations = tuple(per_axis(operand(node, "dilations"), rank, "dilations"))
    begin, end = pads_of(node, image, output, kernel, strides, dilations)
    return Windows(kernel, strides, dilations, begin, end, image, output)


def pads_of(
    node: Node, image: Dims, output: Dims, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[Dims, Dims]:
    """The padding before and after each axis."""
    auto_pad = operand(node, "auto_pad") or "NOTSET"
    if auto_pad in SAME:
        spans = [span_of(*axis) for axis in zip(kernel, dilations)]  # type: ignore[no-untyped-call]
        totals = [dim.maximum(0, (o - 1) * t + s - i) for o, t, s, i in zip(output, strides, spans, image)]
        smaller = tuple(dim.floordiv(total, 2) for total in totals)
        larger = tuple(total - less for total, less in zip(totals, smaller))
        return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)
    if auto_pad == "VALID":
        return (0,) * len(image), (0,) * len(image)
    begin, end = split_pads(operand(node, "pads"), len(image))
    return tuple(begin), tuple(end)


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
    return min(rest) > 0 and math.prod(kernel) <= MAX_TAPS and _has_norm(node, type)


def _has_norm(node: Node, type: Type) -> bool:
    """Whether an Lp pool's norm is one that there is code for: powers are computed in float32."""
    p = operand(node, "p") or 2
    return node.op_type != "LpPool" or p in (1, 2) or (p > 0 and type.bits <= 32)
