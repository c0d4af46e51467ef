"""Gathers and slices that together take all of an axis become one Split."""

from __future__ import annotations

import numpy as np

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import operand
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import shape_of
from sardonyx.startup.records import dataclass

ENDLESS = 2**31 - 1


@dataclass
class _Part:
    """A node that takes the elements [start, end) of an axis; `drops` says that the axis is gone afterwards."""

    node: Node
    axis: int
    start: int
    end: int
    drops: bool


def split_once(graph: Graph, rewriting: Rewriting) -> bool:
    """Replace, for each value and axis, the nodes that cut it into consecutive parts by a Split."""
    seen: set[Value] = set()
    changed = False
    for node in list(graph.nodes):
        is_cut = node.op_type in ("Gather", "Slice") and not node.domain and node.graph is graph
        data = node.inputs[0] if is_cut else None
        if data is None or data in seen:
            continue
        seen.add(data)
        for parts in _coverings(data, graph):
            _split(graph, data, parts, node, rewriting)
            changed = True
    return changed


def _coverings(data: Value, graph: Graph) -> list[list[_Part]]:
    """Groups of nodes that together take all of an axis of `data`, in the order of their parts."""
    shape = shape_of(data)
    if shape is None or data.is_constant:
        return []
    by_axis: dict[int, list[_Part]] = {}
    for user in data.users:
        part = _part(user, data, graph)
        if part is not None:
            by_axis.setdefault(part.axis, []).append(part)
    groups = []
    for axis, parts in by_axis.items():
        parts.sort(key=lambda part: (part.start, part.end))
        bounds = [0, *(part.end for part in parts)]
        if len(parts) > 1 and bounds[-1] == shape[axis] and bounds[:-1] == [part.start for part in parts]:
            groups.append(parts)
    return groups


def _part(node: Node, data: Value, graph: Graph) -> _Part | None:
    if node.domain or node.graph is not graph or node.inputs[0] is not data or list(node.inputs).count(data) > 1:
        return None
    shape = shape_of(data)
    assert shape is not None
    if node.op_type == "Gather":
        axis = operand(node, "axis") % len(shape)
        return _gathered(node, axis, shape[axis])
    return _sliced(node) if node.op_type == "Slice" else None


def _gathered(node: Node, axis: int, size: object) -> _Part | None:
    indices, index_value = operand(node, "indices"), node.inputs[1]
    rank = None if index_value is None else len(shape_of(index_value) or ())
    if indices is None or rank not in (0, 1) or not isinstance(size, int) or np.size(indices) != 1:
        return None
    index = int(np.reshape(indices, -1)[0])
    index = index + size if index < 0 else index
    return _Part(node, axis, index, index + 1, drops=rank == 0) if 0 <= index < size else None


def _sliced(node: Node) -> _Part | None:
    data = node.inputs[0]
    shape = None if data is None else shape_of(data)
    starts, ends, axes, steps = (operand(node, name) for name in ("starts", "ends", "axes", "steps"))
    if shape is None or starts is None or ends is None or len(starts) != 1:
        return None
    if (_is_given(node, 3) and axes is None) or (_is_given(node, 4) and steps is None) or (steps or [1]) != [1]:
        return None
    axis = (axes or [0])[0] % len(shape)
    size = shape[axis]
    if not isinstance(size, int):
        return None
    start, end, _ = slice(starts[0], ends[0]).indices(size)
    return _Part(node, axis, start, end, drops=False) if start < end else None


def _is_given(node: Node, position: int) -> bool:
    return position < len(node.inputs) and node.inputs[position] is not None


def _split(graph: Graph, data: Value, parts: list[_Part], before: Node, rewriting: Rewriting) -> None:
    op = Builder(graph, before, {**rewriting.model.opsets, "": before.version}, prefix=before.name or "split")
    sizes = np.array([part.end - part.start for part in parts], np.int64)
    outputs = op.Split(data, axis=parts[0].axis, split=sizes, outputs=len(parts))
    for part, output in zip(parts, outputs, strict=True):
        if part.drops:
            output = op.Squeeze(output, axes=np.array([part.axis], np.int64))
        rewriting.journal.add("GatherSliceToSplitFusion", part.node)
        edit.replace_all_uses(part.node.outputs[0], output)
        if part.node is not before:
            graph.remove(part.node)
    for new in op.made:
        rewriting.driver.node(new)
    if any(part.node is before for part in parts):
        graph.remove(before)
