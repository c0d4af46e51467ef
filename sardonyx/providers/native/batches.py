"""Whether a cluster treats each entry of a batch by itself, so that it may run on some entries after the others.

Layer by layer through a large batch, each layer finds its input in memory and not in the cache any more, and the arena is as large as the
batch. `batch_of` tells when a cluster can instead go through all of its layers with a part of the batch, before the next part comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ir.dim import Expression, Symbol
from sardonyx.providers.native.known import is_symbolic, known_sizes
from sardonyx.providers.native.parts import Batch
from sardonyx.providers.native.scalars import find_scalar
from sardonyx.providers.native.values import rank_of, shape_of, stored
from sardonyx.providers.provider import Cluster

ROWS = frozenset(
    (
        *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "Dropout", "Flatten", "FusedConv"),
        *("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "Identity", "InstanceNormalization"),
        *("LRN", "LpPool", "MaxPool", "Reshape", "SpaceToDepth", "Squeeze", "Unsqueeze"),
    )
)
"""Ops that make each row of their outputs from the same row of their inputs, if the first axis stays what it is."""


def batch_of(cluster: Cluster, weights: int) -> Batch | None:
    """The batch of a cluster all of whose outputs are computed row by row; None if it has none. `weights` are its constants' bytes."""
    found = {_first_symbol(value) for value in cluster.outputs}
    size = found.pop() if len(found) == 1 else None
    if size is None or not all(_is_batched(value, size) for value in cluster.outputs):
        return None
    if not all(_is_shared(value, size) or _is_batched(value, size) for value in cluster.inputs):
        return None
    if not all(is_symbolic(node) or _keeps_rows(node, size) for node in cluster.nodes):
        return None
    elements = [stored(value).bytes if _is_batched(value, size) else 0 for value in (*cluster.inputs, *cluster.outputs)]
    return Batch(size.name, elements, weights) if any(elements[: len(cluster.inputs)]) else None


def _first_symbol(value: Value) -> Symbol | None:
    shape = shape_of(value)
    return shape[0].symbol if shape and isinstance(shape[0], Expression) else None


def _is_batched(value: Value, size: Symbol) -> bool:
    """Whether the batch is a value's first axis and nothing else of it."""
    shape = shape_of(value)
    return shape is not None and _first_symbol(value) == size and not any(_depends(one, size) for one in shape[1:])


def _is_shared(value: Value, size: Symbol) -> bool:
    """Whether a value is the same for all rows: neither its shape nor a content that shapes tell depends on the batch."""
    shape = shape_of(value)
    return shape is not None and not any(_depends(one, size) for one in (*shape, *(known_sizes(value) or ())))


def _depends(one: Dim, size: Symbol) -> bool:
    return size in dim.symbols(one)


def _keeps_rows(node: Node, size: Symbol) -> bool:
    inputs = [value for value in node.inputs if value is not None and value.name]
    outputs = [value for value in node.outputs if value.name]
    if all(_is_shared(value, size) for value in (*inputs, *outputs)):
        return True
    if not all(_is_batched(value, size) for value in outputs):
        return False
    if node.op_type == "Reshape":  # its second operand may well depend on the batch
        return _is_batched(inputs[0], size)
    batched = [_is_batched(value, size) for value in inputs]
    if not all(one or _is_shared(value, size) for one, value in zip(batched, inputs)):
        return False
    if find_scalar(node) is not None:
        return all(rank_of(value) == rank_of(outputs[0]) for one, value in zip(batched, inputs) if one)
    if node.op_type in ROWS:
        return batched[0]
    rule = RULES.get(node.op_type)
    return rule is not None and rule(node, batched)


def _integer(node: Node, name: str, default: int) -> int:
    return int(node.attributes[name].value) if name in node.attributes else default


def _other_axis(default: int) -> Callable[[Node, Sequence[bool]], bool]:
    """A rule: the op works along one axis, which is not the first."""

    def rule(node: Node, batched: Sequence[bool]) -> bool:
        rank = rank_of(node.outputs[0])
        return batched[0] and _integer(node, "axis", default) % rank != 0

    return rule


def _matrix_product(node: Node, batched: Sequence[bool]) -> bool:
    """Rows or matrices of the first operand, times the same matrix or each its own."""
    a, b = node.inputs[:2]
    assert a is not None and b is not None
    if not batched[0] or rank_of(a) < 2 or ("transA" in node.attributes and _integer(node, "transA", 0)):
        return False
    if batched[1]:
        return rank_of(a) == rank_of(b) >= 3
    return rank_of(b) == 2 and not any(batched[2:])


def _transpose(node: Node, batched: Sequence[bool]) -> bool:
    order = node.attributes.get("perm")
    return order is not None and list(order.value)[:1] == [0]


def _reduction(node: Node, batched: Sequence[bool]) -> bool:
    axes = _axes(node)
    rank = rank_of(node.inputs[0]) if node.inputs[0] is not None else 0
    return batched[0] and axes is not None and all(axis % rank for axis in axes)


def _axes(node: Node) -> list[int] | None:
    """Axes that are fixed, as an attribute or as an operand."""
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"].value]
    operand = node.inputs[1] if len(node.inputs) > 1 else None
    sizes = None if operand is None else known_sizes(operand)
    return [one for one in sizes if isinstance(one, int)] if sizes else None


def _resize(node: Node, batched: Sequence[bool]) -> bool:
    mode = node.attributes.get("coordinate_transformation_mode")
    return batched[0] and (mode is None or mode.value != "tf_crop_and_resize")


RULES: dict[str, Callable[[Node, Sequence[bool]], bool]] = {
    "Concat": _other_axis(1),
    "Gemm": _matrix_product,
    "LayerNormalization": _other_axis(-1),
    "LogSoftmax": _other_axis(-1),
    "MatMul": _matrix_product,
    "ReduceMax": _reduction,
    "ReduceMean": _reduction,
    "ReduceMin": _reduction,
    "ReduceSum": _reduction,
    "Resize": _resize,
    "Softmax": _other_axis(-1),
    "Split": _other_axis(0),
    "Transpose": _transpose,
    "Upsample": _resize,
}
"""Ops of which it depends on their attributes."""
