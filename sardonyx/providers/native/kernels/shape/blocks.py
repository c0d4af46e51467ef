"""Data movement that needs a copy: joining, padding, tiling, blocks of pixels. Each part of a result is a strided copy into it."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Dim, Node, TensorType, Value, dim
from sardonyx.ops.reading import input_named, operand, word
from sardonyx.providers.native.kernels.shape.joining import joint_of, part_view
from sardonyx.providers.native.kernels.shape.views import axis_of, broadcast_element, content, is_known
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, is_plain, may_equal, rank_of, required, shape_of
from sardonyx.providers.native.program.views import Dims, View, memory_order

UNBOUNDED = 1 << 40
CHANNELS_LAST = (0, 2, 3, 1)
PAD_MODES = ("constant", "edge", "reflect", "wrap")

# --- joining --------------------------------------------------------------------------------------------------------


@lower(
    "Concat", claims=lambda node: all(value is not None and is_plain(value) for value in node.inputs), strided=True, text=True
)
def concat(lowerer: Lowerer, node: Node) -> None:
    """Values side by side along an axis. What is still to be computed is computed right into its place."""
    result = node.outputs[0]
    shape = dims(result)
    axis = axis_of(node, len(shape), default=1)
    parts = [value for value in node.inputs if value is not None]
    for value in parts:
        for position, size in enumerate(dims(value)):
            if position != axis:
                lowerer.require(size, shape[position])
    target = joint_of(lowerer, node, lowerer.scope.joints)
    start: Dim = 0
    for value in parts:
        size = dims(value)[axis]
        part = part_view(target, axis, start, dims(value))
        if lowerer.known_view(value) != part:
            lowerer.store(value, part)
        start = start + size
    lowerer.require(start, shape[axis])


# --- repeating ------------------------------------------------------------------------------------------------------


@lower("Tile", since=6, claims=lambda node: content(node, "repeats") is not None)
def tile(lowerer: Lowerer, node: Node) -> None:
    """A value again and again along each axis."""
    value, result = required(node.inputs[0]), node.outputs[0]
    repeats = content(node, "repeats") or []
    single: list[Dim] = []
    copies: list[Dim] = []
    for size, count in zip(dims(value), repeats):
        single += [1, size]
        copies += [count, size]
    source = _reshaped(lowerer, value, tuple(single)).broadcast(tuple(copies))
    target = lowerer.output(result).reshaped(tuple(copies))
    assert target is not None
    lowerer.copy(source, target)


def _reshaped(lowerer: Lowerer, value: Value, shape: Dims) -> View:
    view = lowerer.view(value).reshaped(shape) or lowerer.contiguous(value).reshaped(shape)
    assert view is not None
    return view


# --- blocks of pixels -----------------------------------------------------------------------------------------------


def _is_four_dimensional(node: Node) -> bool:
    return shape_of(required(node.inputs[0])) is not None and rank_of(required(node.inputs[0])) == 4


def _has_known_mode(node: Node) -> bool:
    return _is_four_dimensional(node) and word(node, "mode", "DCR") in ("DCR", "CRD")


@lower("DepthToSpace", claims=_has_known_mode)
def depth_to_space(lowerer: Lowerer, node: Node) -> None:
    """Channels become blocks of pixels."""
    value, result = required(node.inputs[0]), node.outputs[0]
    batch, _, height, width = dims(value)
    channels, block = dims(result)[1], int(operand(node, "blocksize"))
    lowerer.require(dims(value)[1], channels * block * block)
    if word(node, "mode", "DCR") == "DCR":
        source = _reshaped(lowerer, value, (batch, block, block, channels, height, width)).transposed((0, 3, 4, 1, 5, 2))
        # with the channels last, those of a pixel stay together, and so do pixels of a block side by side
        order = CHANNELS_LAST if memory_order(lowerer.view(value)) == CHANNELS_LAST else None
        _copy_into(lowerer, source, result, order)
    else:
        source = _reshaped(lowerer, value, (batch, channels, block, block, height, width)).transposed((0, 1, 4, 2, 5, 3))
        _copy_into(lowerer, source, result)


@lower("SpaceToDepth", claims=_has_known_mode)
def space_to_depth(lowerer: Lowerer, node: Node) -> None:
    """Blocks of pixels become channels."""
    value, result = required(node.inputs[0]), node.outputs[0]
    batch, channels, height, width = dims(value)
    rows, columns = dims(result)[2:]
    block = int(operand(node, "blocksize"))
    lowerer.require(height, rows * block)
    lowerer.require(width, columns * block)
    blocks = _reshaped(lowerer, value, (batch, channels, rows, block, columns, block))
    depth_first = word(node, "mode", "DCR") == "DCR"
    _copy_into(lowerer, blocks.transposed((0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4)), result)


def _copy_into(lowerer: Lowerer, source: View, result: Value, order: tuple[int, ...] | None = None) -> None:
    """Elements in their order, whatever the result's shape; with `order` its axes lie so in memory."""
    target = lowerer.output(result, order).reshaped(source.shape) or lowerer.output(result).reshaped(source.shape)
    assert target is not None
    lowerer.copy(source, target)


# --- padding --------------------------------------------------------------------------------------------------------


Margins = list[tuple[Dim, Dim]]
"""What is added before and after each axis; taken away where it is negative, which may be known in a run only."""


def margins_of(node: Node) -> Margins | None:
    """How much is added before and after each axis; None if that depends on data."""
    rank = rank_of(required(node.inputs[0]))
    pads = content(node, "pads")
    if pads is None and input_named(node, "pads") is None:
        pads = content(node, "paddings")
    if pads is None or not is_known(node, "axes"):
        return None
    axes = content(node, "axes")
    axes = list(range(rank)) if axes is None else axes
    margins: Margins = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :]):
        if not isinstance(axis, int):
            return None
        margins[axis] = (before, after)
    return margins


def _claims_pad(node: Node) -> bool:
    margins = margins_of(node)
    mode = word(node, "mode", "constant")
    if margins is None or mode not in PAD_MODES:
        return False
    sizes = [_kept(size, margin) for size, margin in zip(dims(required(node.inputs[0])), margins)]
    if any(isinstance(size, int) and size < 0 for size in sizes):
        return False
    widths = [dim.maximum(0, *margin) for margin in margins]
    reaches = [dim.minimum(_reach(mode, size), width) for size, width in zip(sizes, widths)]
    return mode == "constant" or all(map(may_equal, reaches, widths))


def _kept(size: Dim, margin: tuple[Dim, Dim]) -> Dim:
    """How much of an axis is left where margins are negative."""
    return size + dim.minimum(0, margin[0]) + dim.minimum(0, margin[1])


@lower("Pad", claims=_claims_pad, text=True)
@lower("Pad", domain="com.microsoft", claims=_claims_pad)
def pad(lowerer: Lowerer, node: Node) -> None:
    margins = margins_of(node)
    assert margins is not None
    pad_by(lowerer, node, margins)


def pad_by(lowerer: Lowerer, node: Node, margins: Margins) -> None:
    """A value with margins around it, or without its own where they are negative."""
    target = lowerer.output(node.outputs[0])
    source = lowerer.view(required(node.inputs[0]))
    for axis, (before, after) in enumerate(margins):
        kept = _kept(source.shape[axis], (before, after))
        lowerer.require(dim.maximum(0, kept), kept)
        source = source.sliced(axis, dim.maximum(0, -before), kept)
    part = target
    for axis, (before, _) in enumerate(margins):
        part = part.sliced(axis, dim.maximum(0, before), source.shape[axis])
    lowerer.copy(source, part)
    added = [(dim.maximum(0, before), dim.maximum(0, after)) for before, after in margins]
    mode = word(node, "mode", "constant")
    if mode == "constant":
        _surround(lowerer, _constant_value(lowerer, node), target, part, added)
    else:
        _continue_pattern(lowerer, mode, part, added)


def _constant_value(lowerer: Lowerer, node: Node) -> View:
    """The element that stands in the margins."""
    filling = input_named(node, "constant_value") or (input_named(node, "value") if node.domain == "com.microsoft" else None)
    if filling is not None:
        return lowerer.view(filling)
    type = required(node.inputs[0]).type
    assert isinstance(type, TensorType) and type.dtype is not None
    number = None if node.domain == "com.microsoft" else operand(node, "value")
    element_type = np.dtype(np.int64) if type.dtype is dtypes.string else type.dtype.numpy  # 0 refers to the empty string
    element = np.array(0 if number is None else number).astype(element_type).reshape(1)
    return View(lowerer.constant(element), lowerer.view(required(node.inputs[0])).type, (1,), (1,))


def _surround(lowerer: Lowerer, element: View, target: View, part: View, margins: Margins) -> None:
    """One element in the margins: those of the first axis are as wide as the result, those of the others ever narrower."""
    around = target
    for axis, (before, after) in enumerate(margins):
        size = part.shape[axis]
        for start, count in ((0, before), (before + size, after)):
            if count != 0:
                margin = around.sliced(axis, start, count)
                lowerer.copy(broadcast_element(element, margin.shape), margin)
        around = around.sliced(axis, before, size)


def _continue_pattern(lowerer: Lowerer, mode: str, part: View, margins: Margins) -> None:
    """The value's own elements in the margins, axis by axis: later axes continue what earlier ones have made."""
    for axis, (before, after) in enumerate(margins):
        size = part.shape[axis]
        for start, count, source, step in _pieces(mode, size, before, after):
            if count != 0:
                lowerer.require(dim.minimum(_reach(mode, size), count), count)
                lowerer.copy(part.sliced(axis, source, count, step), part.sliced(axis, start, count))
        part = part.sliced(axis, -before, size + before + after)


def _reach(mode: str, size: Dim) -> Dim:
    """How wide a margin can be without the pattern's beginning anew; what wants more is left to NumPy."""
    if mode == "edge":
        return dim.minimum(size, 1) * UNBOUNDED
    return size - 1 if mode == "reflect" else size


def _pieces(mode: str, size: Dim, before: Dim, after: Dim) -> list[tuple[Dim, Dim, Dim, int]]:
    """The margins of an axis: where they begin and how wide they are, where in the axis their elements come from, and in which steps."""
    if mode == "edge":
        return [(-before, before, 0, 0), (size, after, size - 1, 0)]
    if mode == "reflect":
        return [(-before, before, before, -1), (size, after, size - 2, -1)]
    return [(-before, before, size - before, 1), (size, after, 0, 1)]
