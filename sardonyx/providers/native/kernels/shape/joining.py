"""Values that are computed right into the tensor that joins them. `ValueLowerer.output` and the lowering of Concat ask here.

A kernel that writes with strides puts the channels of its result between those of its neighbours; nothing is left for Concat to copy.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from sardonyx.ir import Dim, Node, Value
from sardonyx.ops.reading import operand
from sardonyx.ops.table import facts_of
from sardonyx.providers.native.program.table import takes_strides
from sardonyx.providers.native.program.values import dims
from sardonyx.providers.native.program.views import Dims, View, memory_order
from sardonyx.providers.scalars.table import scalars
from sardonyx.startup.records import replace

if TYPE_CHECKING:
    from sardonyx.providers.native.program.value_lowering import ValueLowerer


DEPTH = 8
"""How far back the operands of elementwise nodes are followed."""


def part_of(lowerer: ValueLowerer, value: Value, order: Sequence[int], members: Container[Node]) -> View | None:
    """The place of a value in the result of a Concat, if one takes it and nobody else minds; None if there is none."""
    users = list(dict.fromkeys(value.users))
    if not all(user in members and (takes_strides(user) or scalars.candidates(user.domain, user.op_type)) for user in users):
        return None
    for user in users:
        parts = [value]
        node = user
        if user.op_type == "Split" and len(users) == 1:
            parts = list(user.outputs)
            node = next((user for user in parts[0].users if user.op_type == "Concat"), user)
            if _axis_of(user, 0) != _axis_of(node, 1):
                continue
        if node.op_type == "Concat" and node in members and node.domain in ("", "ai.onnx"):
            place = _place_in(lowerer, node, parts, order)
            if place is not None:
                return place
    return None


def _place_in(lowerer: ValueLowerer, node: Node, parts: Sequence[Value], order: Sequence[int]) -> View | None:
    """Where values that a Concat takes side by side stand in its result; None if it takes one of them elsewhere too."""
    sizes, axis = _sizes_of(node)
    inputs = list(node.inputs)
    first = inputs.index(parts[0]) if parts[0] in inputs else len(inputs)
    if sizes is None or inputs[first : first + len(parts)] != list(parts) or any(inputs.count(part) != 1 for part in parts):
        return None
    if lowerer.is_settled(*dims(node.outputs[0])):
        return None  # sizes of other parts, by which this one would be placed, may not be settled yet
    if node not in lowerer.scope.joints:
        lowerer.scope.joints[node] = lowerer.output(node.outputs[0], order)
    start, size = sum(sizes[:first], start=0), sum(sizes[first : first + len(parts)], start=0)
    return part_view(lowerer.scope.joints[node], axis, start, (*dims(parts[0])[:axis], size, *dims(parts[0])[axis + 1 :]))


def part_view(joint: View, axis: int, start: Dim, shape: Dims) -> View:
    """A part of a Concat's result, said in the part's own sizes.

    Those along other axes than the joined one are equal in each run, but may be written in another way: H, and (H + 1) // 2 * 2 for what
    was halved and doubled. Kernels that write the part count by its own.
    """
    whole = tuple(joint.shape[axis] if place == axis else size for place, size in enumerate(shape))
    part = replace(joint, strides=_strides_in(joint, whole)).sliced(axis, start, shape[axis])
    return replace(part, shape=shape)


def _strides_in(view: View, shape: Dims) -> Dims:
    """The strides of a view, where its sizes are written as `shape` has them."""
    order = memory_order(view)
    if order is None or shape == view.shape:
        return view.strides
    strides = list(view.strides)
    for outer, inner in zip(reversed(order[:-1]), reversed(order)):
        if view.strides[outer] == view.strides[inner] * view.shape[inner]:
            strides[outer] = strides[inner] * shape[inner]
    return tuple(strides)


def _axis_of(node: Node, default: int) -> int:
    """The attribute `axis` of a node with known rank, counted from the front."""
    axis = operand(node, "axis")
    shape = getattr(node.outputs[0].type, "shape", None) or (1,)
    return (default if axis is None else int(axis)) % len(shape)


def _sizes_of(node: Node) -> tuple[list[Dim] | None, int]:
    """The sizes of a Concat's inputs along its axis, None if they are not all known, and the axis."""
    shapes = [getattr(value.type, "shape", None) if value is not None else None for value in node.inputs]
    if any(shape is None for shape in shapes):
        return None, 0
    number = operand(node, "axis")
    axis = (1 if number is None else int(number)) % max(1, len(shapes[0]))  # type: ignore[arg-type]
    return [shape[axis] for shape in shapes if shape is not None], axis


def joint_of(lowerer: ValueLowerer, node: Node, joints: dict[Node, View]) -> View:
    """Where the result of a Concat is: where some part of it has been put already, else in the order of all its parts.

    Parts that are computed from now on find that place too: there is no other one.
    """
    if node not in joints:
        orders = {_order_of(lowerer, value, DEPTH) for value in node.inputs if value is not None}
        joints[node] = lowerer.output(node.outputs[0], orders.pop() if len(orders) == 1 else None)
    return joints[node]


def _order_of(lowerer: ValueLowerer, value: Value, depth: int) -> tuple[int, ...] | None:
    """The order of a value's axes in memory; of one that is still to be computed, that of what it is computed from."""
    view = lowerer.known_view(value)
    if view is not None:
        return memory_order(view)
    node = value.producer
    if node is None or depth == 0 or not scalars.candidates(node.domain, node.op_type):
        return None
    shape = getattr(value.type, "shape", None)
    whole = [value for value in node.inputs if value is not None and _is_alike(getattr(value.type, "shape", None), shape)]
    orders = {_order_of(lowerer, value, depth - 1) for value in whole if not value.is_constant}
    return orders.pop() if len(orders) == 1 else None


def _is_alike(shape: Dims | None, other: Dims | None) -> bool:
    """Whether an operand is not repeated along any axis."""
    if shape is None or other is None or len(shape) != len(other):
        return False
    return all((mine == 1) == (theirs == 1) for mine, theirs in zip(shape, other))


def final_form(value: Value, members: Container[Node], wanted: Container[Value]) -> Value:
    """What a value becomes when nothing but its shape changes any more: then it is written where that is wanted."""
    while value not in wanted and len(value.users) == 1:
        (user,) = value.users
        if user not in members or user.inputs[0] is not value or not facts_of(user).reshapes:
            break
        value = user.outputs[0]
    return value
