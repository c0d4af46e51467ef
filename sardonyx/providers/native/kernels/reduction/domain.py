"""What lowerings of rows have in common: their operands in a domain of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.reduction.passes import StripArguments
from sardonyx.providers.native.program.chain import Apply, Chain, Load, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Sink, Source
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.scalars import find_scalar
from sardonyx.providers.native.program.values import dims, element_of
from sardonyx.providers.native.program.views import Dims, regrouped

PIECE_ELEMENTS = 8192
"""How many elements are worth handing to another thread."""
CHEAP = 2
"""Up to how many operations are rather done in each pass than once before."""


def is_float(node: Node) -> bool:
    """Whether all operands are floats that generated code computes with."""
    types = [element_of(value) for value in node.inputs if value is not None]
    return all(type is not None and type.is_float for type in types)


def row_grain(columns: Dim) -> Dim:
    """How many rows are worth handing to another thread."""
    return dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, columns)))


def strip_arguments(source: Source, sink: Sink, rows: Dim, widest: int) -> StripArguments:
    """How columns are cut into strips where rows are combined. What is written in short pieces far apart is slow."""
    columns = sink.shape[-1]
    width = dim.minimum(widest, dim.maximum(64, dim.ceildiv(columns, 64) * 64))
    return StripArguments(
        rows=rows,
        columns=columns,
        strips=dim.ceildiv(columns, width),
        width=width,
        source=source.arguments,
        sink=sink.arguments,
    )


def wanted(node: Node, output: int) -> Value | None:
    """An output that somebody uses."""
    value = node.outputs[output] if output < len(node.outputs) else None
    return value if value is not None and value.name else None


def outer_groups(value: Value, outer: int, others: Sequence[Value | None] = ()) -> tuple[int, ...]:
    """Groups for the first `outer` axes of a value that is read together with others, each of neighbours that can be one."""
    borders = borders_of(value, others)
    groups: list[int] = []
    for axis in range(outer):
        if axis and axis not in borders:
            groups[-1] += 1
        else:
            groups.append(1)
    return tuple(groups) or (0,)


def borders_of(value: Value, others: Sequence[Value | None] = ()) -> frozenset[int]:
    """Axes that are not one with the axis before: something that is read or fused is broadcast along one of them only."""
    whole = dims(value)
    shapes = [dims(operand) for operand in (*_leaves(value, whole, 8), *others) if operand is not None]
    rank = len(whole)
    return frozenset(
        axis
        for axis in range(1, rank)
        if whole[axis] != 1 and any(_is_full(shape, rank, axis) != _is_full(shape, rank, axis - 1) for shape in shapes)
    )


def _leaves(value: Value, shape: Dims, depth: int) -> list[Value]:
    """What a value is computed from by elementwise nodes."""
    node = value.producer
    if node is None or depth == 0 or dims(value) != shape or find_scalar(node) is None:
        return [value]
    return [leaf for value in node.inputs if value is not None for leaf in _leaves(value, shape, depth - 1)]


def _is_full(shape: Dims, rank: int, axis: int) -> bool:
    """Whether an operand of a shape differs along an axis of the whole."""
    place = axis - (rank - len(shape))
    return place >= 0 and shape[place] != 1


def broadcast_source(lowerer: Lowerer, value: Value, shape: Dims, groups: Sequence[int]) -> Source:
    """An operand that is broadcast to a shape, such as a scale."""
    if dims(value) == shape:
        return lowerer.source(value, groups)
    view = lowerer.view(value)
    strides = regrouped(shape, lowerer.broadcast(view, shape).strides, groups)
    if strides is None:
        view = lowerer.contiguous(value)
        strides = regrouped(shape, lowerer.broadcast(view, shape).strides, groups)
    assert strides is not None
    return Source(Chain(len(groups), (Load(view.type, pattern(strides)),), ()), stride_arguments(view, strides))


def cheap_source(lowerer: Lowerer, value: Value, groups: Sequence[int]) -> Source:
    """A source that may be read in several passes: what is long work is computed before."""
    source = lowerer.source(value, groups)
    if sum(isinstance(item, Apply) for item in source.chain.items) <= CHEAP:
        return source
    lowerer.view(value)
    return lowerer.source(value, groups)


def epsilon_of(node: Node, type: Type) -> float:
    """As precise as the operands: the oracle rounds it to their type."""
    epsilon = float(operand(node, "epsilon"))
    return epsilon if type.bits == 64 else float(np.float32(epsilon))
