"""How large an id may be that a graph looks up in a table: `run` and `bench` make up ids below that."""

from __future__ import annotations

from collections.abc import Iterator

from sardonyx.ir import Node, Tensor, TensorType, Value

HANDED_ON = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Ops whose first input's elements come out as they are."""
EMBED_TABLES = {0: 2, 1: 4}
"""Ids of EmbedLayerNormalization, and which of its inputs is their table."""


def row_count(ids: Value) -> int | None:
    """The rows of the smallest table that an input's elements are looked up in; None if the graph shows none."""
    return min(_row_counts(ids), default=None)


def _row_counts(ids: Value) -> Iterator[int]:
    pending, seen = [ids], {ids}
    while pending:
        for node, position in pending.pop().uses:
            if node.op_type in HANDED_ON and position == 0:
                pending += [value for value in node.outputs if value not in seen]
                seen.update(node.outputs)
            elif (rows := _rows(node, position)) is not None:
                yield rows


def _rows(node: Node, position: int) -> int | None:
    """How many rows a node chooses from by its input at a position."""
    if node.op_type in ("Gather", "GatherElements") and position == 1:
        return _size(node.inputs[0], node.attribute("axis", 0))
    if node.op_type == "EmbedLayerNormalization" and position in EMBED_TABLES:
        return _size(node.inputs[EMBED_TABLES[position]], 0)
    return None


def _size(table: Value | None, axis: int) -> int | None:
    shape = _shape(table)
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) and size > 0 else None


def _shape(table: Value | None) -> tuple[object, ...] | None:
    """The shape of a table of weights, which may be quantized or cast."""
    if table is None:
        return None
    if table.constant is not None:
        return tuple(table.constant.shape)
    node = table.producer
    if node is not None and node.op_type == "Constant" and isinstance(tensor := node.attribute("value", None), Tensor):
        return tuple(tensor.shape)
    if node is not None and node.op_type in ("Cast", "DequantizeLinear", "Identity"):
        return _shape(node.inputs[0])
    return table.type.shape if isinstance(table.type, TensorType) and not table.is_input else None
