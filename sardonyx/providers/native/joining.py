"""Values that are computed right into the tensor that joins them. `Lowerer.output` and the lowering of Concat ask here.

A kernel that writes with strides puts the channels of its result between those of its neighbours; nothing is left for Concat to copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.ir import Dim, Node, Value
from sardonyx.optimizer import matching
from sardonyx.providers.native.views import View, dense_order

if TYPE_CHECKING:
    from sardonyx.providers.native.lowering import Lowerer


def part_of(lowerer: Lowerer, value: Value, order: Sequence[int], joints: dict[Node, View]) -> View | None:
    """The place of a value, whose only user is `node`, in the result of that if it is a Concat; None if it is another op."""
    (node,) = value.users
    if node.op_type != "Concat" or node.domain not in ("", "ai.onnx") or list(node.inputs).count(value) != 1:
        return None
    sizes, axis = _sizes_of(node)
    if sizes is None:
        return None
    if node not in joints:
        joints[node] = lowerer.output(node.outputs[0], order)
    number = list(node.inputs).index(value)
    start: Dim = 0
    for size in sizes[:number]:
        start = start + size
    return joints[node].sliced(axis, start, sizes[number])


def _sizes_of(node: Node) -> tuple[list[Dim] | None, int]:
    """The sizes of a Concat's inputs along its axis, None if they are not all known, and the axis."""
    shapes = [getattr(value.type, "shape", None) if value is not None else None for value in node.inputs]
    if any(shape is None for shape in shapes):
        return None, 0
    given = matching.operand(node, "axis")
    axis = (1 if given is None else int(given)) % max(1, len(shapes[0]))  # type: ignore[arg-type]
    return [shape[axis] for shape in shapes if shape is not None], axis


def joint_of(lowerer: Lowerer, node: Node, joints: dict[Node, View]) -> View:
    """Where the result of a Concat is: where some part of it has been put already, else in the order of all its parts."""
    if node in joints:
        return joints[node]
    views = [lowerer.known_view(value) for value in node.inputs if value is not None]
    orders = {dense_order(view) for view in views if view is not None}
    order = orders.pop() if len(orders) == 1 and None not in views else None
    return lowerer.output(node.outputs[0], order)
