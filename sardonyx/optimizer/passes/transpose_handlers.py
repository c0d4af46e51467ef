"""How ops work in another order of axes: one small function per kind of op, in a table that `transpose.py` asks.

A handler looks at a node and tells its freedom: which axes of its operands and results go together, in which orders it may work, and
how the node is written then. None means that the node, as it is, works in its own order only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sardonyx.ir import Attribute, Node, TensorType, Value
from sardonyx.ops import schemas
from sardonyx.ops.builder import Builder
from sardonyx.ops.entries import FunctionTable
from sardonyx.ops.facts import Operands
from sardonyx.ops.reading import constant, input_named, operand
from sardonyx.ops.signatures import Signature
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.passes.transpose_axes import (
    Order,
    Port,
    common_runs,
    permuted,
    placed,
    reshape_target,
    whole,
    without,
)
from sardonyx.optimizer.values import rank_of, shape_of
from sardonyx.startup.records import dataclass


@dataclass
class Turned:
    """A node about to be written in another order: its operands are in their new layouts already."""

    op: Builder
    node: Node
    order: Order
    inputs: list[Value | None]


Rebuild = Callable[[Turned], Sequence[Value]]


@dataclass(frozen=True)
class Freedom:
    """In which ways a node may be laid out. A port that is None keeps its layout."""

    units: int
    inputs: tuple[Port | None, ...]
    outputs: tuple[Port | None, ...]
    rebuild: Rebuild
    allows: Callable[[Order], bool] = lambda order: True


handlers = FunctionTable("handlers of axes")
"""Of a node: its freedom, or None."""
handles = handlers.register


def freedom_of(node: Node) -> Freedom | None:
    """What a node allows, None if nobody knows or its operands' ranks are not known."""
    handler = handlers.function_of(node)
    if handler is not None:
        return handler(node)  # type: ignore[no-any-return]
    match facts_of(node).elementwise:
        case Operands.FIRST:
            return elementwise(node)
        case Operands.ALL:
            return broadcasting(node)
        case _:
            return None


# --- writing nodes --------------------------------------------------------------------------------------------------


def again(turned: Turned, **changed: Any) -> Sequence[Value]:
    """The same node over the turned operands, some of its operands changed; they are attributes or constant inputs by version."""
    node, op = turned.node, turned.op
    signature = schemas.find(node.domain, node.op_type, node.version)
    assert signature is not None
    attributes = dict(node.attributes)
    inputs = list(turned.inputs)
    for name, value in changed.items():
        if name in signature.attributes:
            attributes[name] = Attribute(signature.attributes[name].kind, value)
        else:
            position = signature.operand_names.index(name)
            inputs.extend([None] * (position + 1 - len(inputs)))
            if not isinstance(value, Value):
                value = op.constant(np.array(value, _whole_number_type(signature, inputs, position)))
            inputs[position] = value
    outputs = [Value(op.unique(node.op_type) if output.name else "") for output in node.outputs]
    new = Node(node.op_type, inputs, outputs, attributes, domain=node.domain, version=node.version, name=node.name)
    new.metadata = dict(node.metadata)
    return op.add(new).outputs


def _whole_number_type(signature: Signature, inputs: Sequence[Value | None], position: int) -> np.dtype:
    """The type that an operand must share with others: starts and axes of a Slice are both int32 or both int64."""
    wanted = signature.inputs[position].type_string
    for value, parameter in zip(inputs, signature.inputs):
        type = None if value is None else value.type
        if parameter.type_string == wanted and isinstance(type, TensorType) and type.dtype is not None:
            return type.dtype.numpy
    return np.dtype(np.int64)


def reordered(turned: Turned, position: int, indices: Sequence[int]) -> Value:
    """A vector operand with one number per axis, in another order."""
    vector = turned.inputs[position]
    assert vector is not None
    array = constant(vector)
    if array is not None:
        return turned.op.constant(array[list(indices)])
    gathered: Value = turned.op.Gather(vector, turned.op.constant(list(indices)), axis=0)
    return gathered


def aligned(turned: Turned, position: int, port: Port) -> Value | None:
    """An operand of fewer axes than the result, with axes of size 1 so that it broadcasts along the right ones."""
    value = turned.inputs[position]
    real = [at for at, unit in enumerate(turned.order) if port[unit]]
    if value is None or not real:
        return value
    missing = [at - real[0] for at, unit in enumerate(turned.order) if at > real[0] and not port[unit]]
    if not missing or all(size == 1 for size in shape_of(value) or (0,)):
        return value
    array = constant(value)
    if array is not None:
        return turned.op.constant(np.expand_dims(array, tuple(missing)))
    unsqueezed: Value = turned.op.Unsqueeze(value, axes=missing)
    return unsqueezed


# --- reading nodes --------------------------------------------------------------------------------------------------


def _rank(node: Node, position: int = 0) -> int | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    return None if value is None else rank_of(value)


def _ports(node: Node, moving: dict[int, Port]) -> tuple[Port | None, ...]:
    return tuple(moving.get(position) for position in range(len(node.inputs)))


def _numbers(node: Node, name: str) -> list[int] | None:
    """An operand that is one number or a list of them."""
    value = operand(node, name)
    return None if value is None else [int(number) for number in np.asarray(value).reshape(-1)]


def _axes(node: Node, name: str, rank: int) -> list[int] | None:
    numbers = _numbers(node, name)
    return None if numbers is None else [axis % rank for axis in numbers]


def _is_given(node: Node, name: str) -> bool:
    """Whether an operand is set at all, as attribute or as input."""
    return name in node.attributes or input_named(node, name) is not None


def _axis(node: Node, rank: int, default: int = 0) -> int | None:
    """The operand `axis`, counted from the front; None if it is not constant or the tensor has no axes."""
    numbers = _numbers(node, "axis")
    if rank == 0 or (not numbers and _is_given(node, "axis")):
        return None
    return (numbers[0] if numbers else default) % rank


def _with_axis(node: Node, rank: int, moving: Iterable[int] = (0,), default: int = 0) -> Freedom | None:
    """A node that works along one axis, of tensors that all have the same axes."""
    axis = _axis(node, rank, default)
    if axis is None:
        return None
    port = whole(rank)

    def rebuild(turned: Turned) -> Sequence[Value]:
        return again(turned, axis=turned.order.index(axis))

    return Freedom(rank, _ports(node, dict.fromkeys(moving, port)), (port,) * len(node.outputs), rebuild)


# --- elementwise ----------------------------------------------------------------------------------------------------


def elementwise(node: Node) -> Freedom | None:
    rank = _rank(node)
    if rank is None:
        return None
    return Freedom(rank, _ports(node, {0: whole(rank)}), (whole(rank),) * len(node.outputs), again)


@handles("FastGelu", domain="com.microsoft")
def fast_gelu(node: Node) -> Freedom | None:
    return elementwise(node) if len(node.inputs) == 1 else None


def broadcasting(node: Node) -> Freedom | None:
    if "axis" in node.attributes or "broadcast" in node.attributes:
        return None  # broadcasting as it was before opset 7
    return _broadcasting(node, range(len(node.inputs)))


@handles("QLinearAdd", "QLinearMul", domain="com.microsoft")
def quantized_arithmetic(node: Node) -> Freedom | None:
    return _broadcasting(node, (0, 3))


@handles("QLinearWhere", domain="com.microsoft")
def quantized_where(node: Node) -> Freedom | None:
    return _broadcasting(node, (0, 1, 4))


def _broadcasting(node: Node, moving: Iterable[int]) -> Freedom | None:
    ranks = {position: _rank(node, position) for position in moving}
    known = [rank for rank in ranks.values() if rank is not None]
    if not known or len(known) < len(ranks):
        return None
    units = max(known)
    ports = {position: whole(rank, units) for position, rank in ranks.items() if rank is not None}
    return Freedom(units, _ports(node, ports), (whole(units),), _aligning(ports))


def _aligning(ports: dict[int, Port]) -> Rebuild:
    def rebuild(turned: Turned) -> Sequence[Value]:
        for position, port in ports.items():
            turned.inputs[position] = aligned(turned, position, port)
        return again(turned)

    return rebuild


@handles("Expand")
def expand(node: Node) -> Freedom | None:
    rank, output_rank = _rank(node), rank_of(node.outputs[0])
    shape = node.inputs[1]
    sizes = None if shape is None else shape_of(shape)
    if rank is None or not output_rank or sizes != (output_rank,):
        return None
    port = whole(rank, output_rank)

    def rebuild(turned: Turned) -> Sequence[Value]:
        turned.inputs[0] = aligned(turned, 0, port)
        turned.inputs[1] = reordered(turned, 1, turned.order)
        return again(turned)

    return Freedom(output_rank, (port, None), (whole(output_rank),), rebuild)


# --- along an axis --------------------------------------------------------------------------------------------------


@handles(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)
def reduction(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank:
        return None
    axes = _axes(node, "axes", rank)
    if axes is None and _is_given(node, "axes"):
        return None
    listed = bool(axes)
    if not axes:
        axes = [] if operand(node, "noop_with_empty_axes") else list(range(rank))

    def rebuild(turned: Turned) -> Sequence[Value]:
        return again(turned, axes=sorted(turned.order.index(axis) for axis in axes)) if listed else again(turned)

    output = whole(rank) if operand(node, "keepdims") != 0 else without(rank, axes)
    return Freedom(rank, _ports(node, {0: whole(rank)}), (output,), rebuild)


@handles("ArgMax", "ArgMin")
def index_of_extreme(node: Node) -> Freedom | None:
    rank = _rank(node)
    along = None if not rank else _with_axis(node, rank)
    if along is None or not rank:
        return None
    output = whole(rank) if operand(node, "keepdims") != 0 else without(rank, [_axis(node, rank) or 0])
    return Freedom(rank, along.inputs, (output,), along.rebuild)


@handles("CumSum", "CumProd", "LpNormalization", "Split", "TopK")
def along_axis(node: Node) -> Freedom | None:
    rank = _rank(node)
    default = -1 if node.op_type in ("LpNormalization", "TopK") else 0
    return None if rank is None else _with_axis(node, rank, default=default)


@handles("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank:
        return None
    if node.version >= 13:
        return _with_axis(node, rank, default=-1)
    return _over_rows(node, rank)


@handles("QLinearSoftmax", domain="com.microsoft")
def quantized_softmax(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank:
        return None
    return _with_axis(node, rank, default=-1) if int(operand(node, "opset") or 0) >= 13 else _over_rows(node, rank)


def _over_rows(node: Node, rank: int) -> Freedom:
    """Up to opset 12 the axes from `axis` on are one row: an axis may not change sides."""
    first = _axis(node, rank, default=1) or 0
    leading = set(range(first))
    ports = _ports(node, {0: whole(rank)})
    return Freedom(rank, ports, (whole(rank),), again, lambda order: set(order[:first]) == leading)


@handles("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def normalization(node: Node) -> Freedom | None:
    """The normalized axes stay at the end, as their scale and bias have them."""
    rank = _rank(node)
    if not rank:
        return None
    first = _axis(node, rank, default=-1) or 0
    trailing = tuple(range(first, rank))
    ports = _ports(node, {0: whole(rank)})
    return Freedom(rank, ports, (whole(rank),) * len(node.outputs), again, lambda order: order[first:] == trailing)


@handles("QuantizeLinear", "DequantizeLinear")
@handles("QuantizeLinear", "DequantizeLinear", domain="com.microsoft")
def quantization(node: Node) -> Freedom | None:
    rank = _rank(node)
    scale = node.inputs[1]
    scale_shape = None if scale is None else shape_of(scale)
    if rank is None or scale_shape is None:
        return None
    if scale_shape in ((), (1,)):
        return Freedom(rank, _ports(node, {0: whole(rank)}), (whole(rank),), again)
    if len(scale_shape) == 1:
        return _with_axis(node, rank, default=1)
    if len(scale_shape) != rank:
        return None
    return _with_axis(node, rank, range(len(node.inputs)), default=1)  # blocks along an axis: scales move along


@handles("Concat")
def concat(node: Node) -> Freedom | None:
    ranks = {_rank(node, position) for position in range(len(node.inputs))}
    rank = ranks.pop()
    if rank is None or ranks:
        return None
    return _with_axis(node, rank, range(len(node.inputs)), default=1)


@handles("QLinearConcat", domain="com.microsoft")
def quantized_concat(node: Node) -> Freedom | None:
    moving = range(2, len(node.inputs), 3)
    ranks = {_rank(node, position) for position in moving}
    rank = ranks.pop()
    return None if rank is None or ranks else _with_axis(node, rank, moving)


@handles("GatherElements", "ScatterElements")
def elements_by_index(node: Node) -> Freedom | None:
    rank = _rank(node)
    return None if not rank else _with_axis(node, rank, range(len(node.inputs)))


# --- movers ---------------------------------------------------------------------------------------------------------


@handles("Gather")
def gather(node: Node) -> Freedom | None:
    rank, index_rank = _rank(node), _rank(node, 1)
    if not rank or index_rank is None:
        return None
    axis = _axis(node, rank) or 0
    output: list[tuple[int, ...]] = []
    for unit in range(rank):
        start = sum(map(len, output))
        output.append(tuple(range(start, start + (index_rank if unit == axis else 1))))

    def rebuild(turned: Turned) -> Sequence[Value]:
        return again(turned, axis=turned.order.index(axis))

    return Freedom(rank, (whole(rank), None), (tuple(output),), rebuild)


@handles("Pad")
def pad(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank or node.version < 2:
        return None
    if _is_given(node, "axes"):
        return _with_listed_axes(node, rank, _axes(node, "axes", rank))

    def rebuild(turned: Turned) -> Sequence[Value]:
        both = [*turned.order, *(rank + unit for unit in turned.order)]
        if "pads" in node.attributes:
            return again(turned, pads=[node.attributes["pads"].value[index] for index in both])
        turned.inputs[1] = reordered(turned, 1, both)
        return again(turned)

    return Freedom(rank, _ports(node, {0: whole(rank)}), (whole(rank),), rebuild)


@handles("Slice")
def slice_(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank:
        return None
    if _is_given(node, "axes"):
        return _with_listed_axes(node, rank, _axes(node, "axes", rank))
    count = _length(node, "starts", 1)
    return _with_listed_axes(node, rank, None if count is None else list(range(count)))


def _length(node: Node, name: str, position: int) -> int | None:
    """How many numbers a vector operand has."""
    if name in node.attributes:
        return len(node.attributes[name].value)
    value = node.inputs[position] if position < len(node.inputs) else None
    shape = None if value is None else shape_of(value)
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else None


def _with_listed_axes(node: Node, rank: int, axes: list[int] | None) -> Freedom | None:
    """A node whose other operands have one number for each of `axes`."""
    if axes is None:
        return None
    listed = axes

    def rebuild(turned: Turned) -> Sequence[Value]:
        return again(turned, axes=[turned.order.index(axis) for axis in listed])

    return Freedom(rank, _ports(node, {0: whole(rank)}), (whole(rank),), rebuild)


@handles("Tile")
def tile(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank or node.version < 6:
        return None

    def rebuild(turned: Turned) -> Sequence[Value]:
        turned.inputs[1] = reordered(turned, 1, turned.order)
        return again(turned)

    return Freedom(rank, (whole(rank), None), (whole(rank),), rebuild)


@handles("Squeeze")
def squeeze(node: Node) -> Freedom | None:
    rank = _rank(node)
    axes = None if not rank else _axes(node, "axes", rank)
    if not rank or axes is None:
        return None

    def rebuild(turned: Turned) -> Sequence[Value]:
        return again(turned, axes=sorted(turned.order.index(axis) for axis in axes))

    return Freedom(rank, _ports(node, {0: whole(rank)}), (without(rank, axes),), rebuild)


@handles("Unsqueeze")
def unsqueeze(node: Node) -> Freedom | None:
    rank, axes = rank_of(node.outputs[0]), None
    if rank:
        axes = _axes(node, "axes", rank)
    if not rank or axes is None:
        return None

    def rebuild(turned: Turned) -> Sequence[Value]:
        return again(turned, axes=sorted(turned.order.index(axis) for axis in axes))

    return Freedom(rank, _ports(node, {0: without(rank, axes)}), (whole(rank),), rebuild)


@handles("Reshape")
def reshape(node: Node) -> Freedom | None:
    """Axes that are merged or split move as one, as long as the new shape can be written down."""
    source = None if node.inputs[0] is None else shape_of(node.inputs[0])
    target = shape_of(node.outputs[0])
    runs = None if source is None or target is None else common_runs(source, target)
    if source is None or target is None or runs is None or len(runs) < 2:
        return None
    before, after = tuple(run for run, _ in runs), tuple(run for _, run in runs)
    inferred = -1 in (_numbers(node, "shape") or ())

    @functools.cache
    def wanted(order: Order) -> list[int] | None:
        return reshape_target(permuted(source, placed(before, order)), permuted(target, placed(after, order)), inferred)

    def rebuild(turned: Turned) -> Sequence[Value]:
        return [turned.op.Reshape(turned.inputs[0], shape=wanted(turned.order))]

    ports = _ports(node, {0: before})
    return Freedom(len(runs), ports, (after,), rebuild, lambda order: wanted(order) is not None)


@handles("Shape")
def shape(node: Node) -> Freedom | None:
    rank = _rank(node)
    if not rank:
        return None
    kept = range(rank)[slice(operand(node, "start") or 0, operand(node, "end"))]

    def rebuild(turned: Turned) -> Sequence[Value]:
        sizes = turned.op.Shape(turned.inputs[0])
        positions = np.array([turned.order.index(unit) for unit in kept], np.int64)
        return [turned.op.Gather(sizes, turned.op.constant(positions), axis=0)]

    return Freedom(rank, (whole(rank),), (None,), rebuild)


@handles("Size")
def size(node: Node) -> Freedom | None:
    rank = _rank(node)
    return None if rank is None else Freedom(rank, (whole(rank),), (None,), again)
