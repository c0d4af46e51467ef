"""QuantizeLinear and DequantizeLinear with a scale for each block along an axis: loops in which that axis is two."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.program.chain import Apply, Item, Load
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of, stored
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.providers.scalars import quantize
from sardonyx.providers.scalars.table import name_of, newest_scalar
from sardonyx.startup.records import replace


def _has_whole_blocks(node: Node) -> bool:
    """Whether scales and zero points are one for each block of an axis, which is a multiple of them, or may be in a run."""
    size, axis = int(operand(node, "block_size") or 0), operand(node, "axis")
    shape = shape_of(required(node.inputs[0]))
    if not shape or axis is None or size < 1 or not -len(shape) <= axis < len(shape):
        return False
    length = shape[axis]
    if isinstance(length, int) and length % size:
        return False
    wanted = _of_each_block(shape, axis % len(shape), size)
    return all(value is None or _may_agree(shape_of(value), wanted) for value in node.inputs[1:3])


def _of_each_block(shape: Dims, axis: int, size: int) -> Dims:
    """The shape of scales."""
    return (*shape[:axis], dim.floordiv(shape[axis], size), *shape[axis + 1 :])


def _may_agree(shape: Dims | None, wanted: Dims) -> bool:
    """Whether no two known sizes differ."""
    if shape is None or len(shape) != len(wanted):
        return False
    return all(one == other or not isinstance(one, int) or not isinstance(other, int) for one, other in zip(shape, wanted))


def _is_float(node: Node) -> bool:
    type = element_of(required(node.inputs[0]))
    return type is not None and type.is_float and type.bits == 32


@lower("QuantizeLinear", claims=lambda node: _is_float(node) and quantize.quantizes_singly(node) and _has_whole_blocks(node))
@lower("DequantizeLinear", claims=lambda node: not _is_float(node) and quantize.dequantizes(node) and _has_whole_blocks(node))
def blocked(lowerer: Lowerer, node: Node) -> None:
    """One loop: the axis is split into blocks and what is in them, along which a block's scale stays."""
    x, output = required(node.inputs[0]), lowerer.output(node.outputs[0])
    axis, size = operand(node, "axis") % len(dims(x)), int(operand(node, "block_size"))
    wanted = _of_each_block(dims(x), axis, size)
    lowerer.require(dims(x)[axis], wanted[axis] * size)
    views = [lowerer.view(x).split(axis, size)]
    for value in node.inputs[1:3]:
        if value is not None:
            lowerer.require_shape(dims(value), wanted)
            views.append(_of_blocks(replace(lowerer.view(value), shape=wanted), axis))
    items: list[Item] = [Load(view.type, ()) for view in views]
    dtype = dtypes.float32 if node.op_type == "QuantizeLinear" else dtypes.int8
    entry = newest_scalar(node.op_type, dtype=dtype)
    items.append(Apply(name_of(entry), tuple(range(len(views))), stored(node.outputs[0])))
    lowerer.combine(items, views, output.split(axis, size))


def _of_blocks(view: View, axis: int) -> View:
    """With an axis of size 1 behind that of the blocks."""
    shape, strides = view.shape, view.strides
    return replace(
        view,
        shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]),
        strides=(*strides[: axis + 1], 0, *strides[axis + 1 :]),
    )
