"""What is added to the scores of an attention: masks and biases as one tensor, and what can be proved of them.

A mask that is provably causal needs no tensor. Where a row might be masked altogether, whether by -inf or by a large finite number
makes a difference: the functions here say what is certain, and `passes/attention.py` refuses or corrects the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import Node, Value
from sardonyx.ir.dim import Dim, is_nonnegative
from sardonyx.ops.reading import constant, inputs_named, operand
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.passes.attention_scores import Choice, Factor, Shift, Step
from sardonyx.optimizer.values import dtype_of, rank_of, scalar, shape_of, sizes_in
from sardonyx.startup.records import dataclass

HIDDEN = -1e4
"""Numbers from here down hide a key from any query that sees another one: exporters write -10000, the lowest float, or -inf."""

ABSORBING = -1e30
"""A float32 from here down stays what it is when a score is added."""

MAX_DEPTH = 32


# --- bounds


def lowest(value: Value) -> float:
    """A lower bound of the numbers in `value`, -inf if none is known."""
    return _bounds(value, MAX_DEPTH)[0]


_UNKNOWN = (-np.inf, np.inf)


def _bounds(value: Value, depth: int) -> tuple[float, float]:
    array = constant(value)
    if array is not None and array.dtype != object and array.size:
        low, high = (float(number) for number in (array.min(), array.max()))
        return _UNKNOWN if np.isnan(low) or np.isnan(high) else (low, high)
    if dtype_of(value) is dtypes.bool_:
        return 0.0, 1.0
    node = value.producer
    if node is None or node.domain or depth == 0:
        return _UNKNOWN
    operands = [operand for operand in node.inputs if operand is not None]
    if facts_of(node).moves or node.op_type == "Cast":
        return _bounds(operands[0], depth - 1)
    if node.op_type == "Where":
        (a, b), (c, d) = (_bounds(operand, depth - 1) for operand in operands[1:])
        return min(a, c), max(b, d)
    if node.op_type in ("Add", "Sub", "Mul"):
        return _combined(node.op_type, *(_bounds(operand, depth - 1) for operand in operands))
    return _UNKNOWN


def _combined(op_type: str, first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    if op_type == "Mul":
        if any(np.isinf(bound) for bound in (*first, *second)):
            return _UNKNOWN
        products = [a * b for a in first for b in second]
        return min(products), max(products)
    low, high = second if op_type == "Add" else (-second[1], -second[0])
    return first[0] + low, first[1] + high


# --- indices


@dataclass(frozen=True)
class Index:
    """Integers that grow with the position: row·i + column·j + offset, with i and j along the last two axes."""

    row: int
    column: int
    offset: Dim


def index_of(value: Value, depth: int = MAX_DEPTH) -> Index | None:
    """`value` as a function of its position, if that is all that it is."""
    known = _known_number(value)
    if known is not None:
        return Index(0, 0, known)
    node = value.producer
    if node is None or node.domain or depth == 0 or node.inputs[0] is None:
        return None
    first = node.inputs[0]
    if node.op_type == "Range":
        start, delta = (None if operand is None else _known_number(operand) for operand in (first, node.inputs[2]))
        return None if start is None or delta != 1 else Index(0, 1, start)
    if node.op_type == "Identity" or (node.op_type == "Cast" and not _loses_order(node)):
        return index_of(first, depth - 1)
    if node.op_type in ("Unsqueeze", "Reshape", "Squeeze"):
        return _moved(index_of(first, depth - 1), first, value)
    if node.op_type == "Expand":
        return _broadcast(first, value, depth)
    if node.op_type in ("Add", "Sub") and node.inputs[1] is not None:
        sign = 1 if node.op_type == "Add" else -1
        return _sum(_broadcast(first, value, depth), _broadcast(node.inputs[1], value, depth), sign)
    return None


def _broadcast(value: Value, result: Value, depth: int) -> Index | None:
    """An operand's index in a result, if it is not broadcast along the axis on which it grows."""
    index, before, after = index_of(value, depth - 1), shape_of(value), shape_of(result)
    if index is None or before is None or after is None:
        return None
    is_kept = all(not step or before[place] == after[place] for step, place in ((index.column, -1), (index.row, -2)))
    return index if is_kept else None


def _loses_order(cast: Node) -> bool:
    """Positions are exact in integers and in floats of at least 32 bits."""
    return dtype_of(cast.outputs[0]) not in (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def _known_number(value: Value) -> Dim | None:
    if value.known is not None and value.known.size == 1:
        number = value.known.reshape(-1)[0]
        return int(number) if isinstance(number, (int, np.integer)) else None if isinstance(number, np.generic) else number
    array = constant(value)
    if array is None or array.size != 1 or array.dtype == object or float(array.reshape(-1)[0]) % 1:
        return None
    return int(array.reshape(-1)[0])


def _moved(index: Index | None, before: Value, after: Value) -> Index | None:
    """An index whose axes of size 1 change: the one along which it grows may become another."""
    old, new = shape_of(before), shape_of(after)
    if index is None or old is None or new is None or (index.row and index.column):
        return index if index is not None and old == new else None
    if not index.row and not index.column:
        return index
    size = old[-1] if index.column else old[-2]
    if [size for size in old if size != 1] != [size for size in new if size != 1] or sum(size != 1 for size in old) > 1:
        return None
    step = index.row or index.column
    places = [place for place, length in enumerate(reversed(new)) if length == size]
    if size == 1 or places not in ([0], [1]):
        return None
    return Index(0, step, index.offset) if places == [0] else Index(step, 0, index.offset)


def _sum(a: Index | None, b: Index | None, sign: int) -> Index | None:
    if a is None or b is None:
        return None
    return Index(a.row + sign * b.row, a.column + sign * b.column, a.offset + sign * b.offset)


# --- causal masks


def causal_offset(condition: Value, keeps: bool = True, depth: int = MAX_DEPTH) -> Dim | None:
    """c, if `condition` is `keeps` just where key j is not behind query i: j <= i + c."""
    array = constant(condition)
    if array is not None and array.dtype.kind in "bui":  # tables of masks are bytes, often, and are cast when they are cut
        return _diagonal((array != 0) == keeps)
    node = condition.producer
    if node is None or node.domain or depth == 0 or node.inputs[0] is None:
        return None
    if node.op_type == "Not":
        return causal_offset(node.inputs[0], not keeps, depth - 1)
    if node.op_type == "Equal" and scalar(node.inputs[1]) == 0:
        return causal_offset(node.inputs[0], not keeps, depth - 1)
    if node.op_type in ("Identity", "Unsqueeze", "Expand") and _keeps_matrix(node):
        return causal_offset(node.inputs[0], keeps, depth - 1)
    if node.op_type == "Cast":
        return causal_offset(node.inputs[0], keeps, depth - 1)
    if node.op_type == "Slice":
        return _sliced(node, keeps, depth)
    if node.op_type in ("And", "Or"):
        return _with_neutral(node, keeps, depth)
    if node.op_type == "Trilu":
        return _triangle(node, keeps)
    return _compared(node, keeps)


def _diagonal(visible: np.ndarray) -> int | None:
    if visible.ndim < 2 or not visible.size or any(size != 1 for size in visible.shape[:-2]):
        return None
    rows, columns = visible.shape[-2:]
    offset = int(visible.reshape(rows, columns)[0].sum()) - 1
    is_causal = offset >= 0 and np.array_equal(visible.reshape(rows, columns), np.tri(rows, columns, offset, dtype=bool))
    return offset if is_causal else None


def _keeps_matrix(node: Node) -> bool:
    """Whether the last two axes stay what they are."""
    assert node.inputs[0] is not None
    before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    return before is not None and after is not None and before[-2:] == after[-2:] and len(before) >= 2


def _sliced(node: Node, keeps: bool, depth: int) -> Dim | None:
    """A part of a table of masks: where rows begin later, queries see more keys."""
    table, starts, axes, steps = inputs_named(node, "data", "starts", "axes", "steps")
    rank = None if table is None else rank_of(table)
    if table is None or starts is None or axes is None or rank is None:
        return None
    numbers = [sizes_in(value) for value in (starts, axes)]
    if None in numbers or (steps is not None and set(sizes_in(steps) or ()) != {1}):
        return None
    offset = causal_offset(table, keeps, depth - 1)
    for start, axis in zip(*numbers, strict=True):  # type: ignore[arg-type]
        sign = {rank - 2: 1, rank - 1: -1}.get(axis % rank, 0)
        if offset is None or not is_nonnegative(start):  # a start below 0 counts from the end
            return None
        offset = offset + sign * start
    return offset


def _with_neutral(node: Node, keeps: bool, depth: int) -> Dim | None:
    """A condition joined with a constant that changes nothing."""
    neutral = node.op_type == "And"
    for left, right in (node.inputs[:2], node.inputs[1::-1]):
        array = None if left is None else constant(left)
        if array is None or array.dtype != bool or right is None or not np.all(array == neutral):
            continue
        shapes = shape_of(right), shape_of(node.outputs[0])
        if shapes[0] is not None and shapes[1] is not None and shapes[0][-2:] == shapes[1][-2:]:
            return causal_offset(right, keeps, depth - 1)
    return None


def _triangle(node: Node, keeps: bool) -> Dim | None:
    """The lower triangle of ones, or where the upper one of ones is not."""
    filled = node.inputs[0]
    k = node.inputs[1] if len(node.inputs) > 1 else None
    diagonal = 0 if k is None else scalar(k)
    assert filled is not None
    if not _is_all_ones(filled) or diagonal is None or bool(operand(node, "upper")) == keeps:
        return None
    return int(diagonal) if keeps else int(diagonal) - 1


def _is_all_ones(value: Value, depth: int = 8) -> bool:
    array = constant(value)
    if array is not None:
        return bool(np.all(array == 1))
    node = value.producer
    if node is None or node.domain or depth == 0:
        return False
    if node.op_type == "ConstantOfShape":
        filler = operand(node, "value")
        return filler is not None and bool(np.all(np.asarray(filler) == 1))
    return (
        node.op_type in ("Expand", "Cast", "Identity", "Unsqueeze", "Reshape")
        and node.inputs[0] is not None
        and _is_all_ones(node.inputs[0], depth - 1)
    )


_OPPOSITES = {"LessOrEqual": "Greater", "Less": "GreaterOrEqual", "Greater": "LessOrEqual", "GreaterOrEqual": "Less"}


def _compared(node: Node, keeps: bool) -> Dim | None:
    if node.op_type not in _OPPOSITES or node.inputs[0] is None or node.inputs[1] is None:
        return None
    relation = node.op_type if keeps else _OPPOSITES[node.op_type]
    small, large = (_broadcast(operand, node.outputs[0], MAX_DEPTH) for operand in (node.inputs[0], node.inputs[1]))
    if relation.startswith("Greater"):
        small, large = large, small
    difference = _sum(large, small, -1)
    if difference is None or (difference.row, difference.column) != (1, -1):
        return None
    return difference.offset if relation.endswith("OrEqual") else difference.offset - 1


# --- all steps together


def causal_offset_of(steps: Sequence[Step]) -> Dim | None:
    """c, if all that the steps do is to hide what is behind each query: key j from query i where j > i + c."""
    masks = [step for step in steps if not isinstance(step, Factor)]
    if len(masks) != 1:
        return None
    mask = masks[0]
    if isinstance(mask, Choice):
        return causal_offset(mask.condition, mask.keeps) if mask.number <= HIDDEN else None
    return _causal_bias(mask.value) if mask.sign == 1 else None


def _causal_bias(value: Value) -> Dim | None:
    """A bias that is 0 for what is seen and very low for what is not."""
    array = constant(value)
    if array is not None and array.dtype != object:
        return _diagonal(array == 0) if bool(np.all((array == 0) | (array <= HIDDEN))) else None
    node = value.producer
    if node is None or node.domain:
        return None
    if node.op_type in ("Identity", "Unsqueeze", "Expand") and node.inputs[0] is not None and _keeps_matrix(node):
        return _causal_bias(node.inputs[0])
    if node.op_type != "Where" or any(operand is None for operand in node.inputs):
        return None
    condition, x, y = node.inputs
    numbers = scalar(x), scalar(y)
    for shown, hidden, keeps in ((numbers[0], numbers[1], True), (numbers[1], numbers[0], False)):
        if shown == 0 and hidden is not None and hidden <= HIDDEN and condition is not None:
            return causal_offset(condition, keeps)
    return None


def always_sees_a_key(steps: Sequence[Step], element: ElementType) -> bool:
    """Whether each query certainly has a key whose score is not -inf."""
    offset = causal_offset_of(steps)
    if offset is not None and is_nonnegative(offset):
        return True
    bound = 0.0
    for step in steps:
        if isinstance(step, Shift) and len(steps) == 1 and _rows_are_visible(step.value):
            return True
        if isinstance(step, Factor):
            bound = bound * step.number if step.number > 0 else -np.inf
        elif isinstance(step, Choice):
            bound = min(bound, step.number)
        else:
            bound += lowest(step.value) if step.sign == 1 else -np.inf
    return bool(bound >= -_largest(element))


def _rows_are_visible(value: Value) -> bool:
    array = constant(value)
    return array is not None and array.ndim > 0 and bool(np.all(np.any(array > -np.inf, axis=-1)))


def _largest(element: ElementType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(element.numpy).max)  # type: ignore[no-untyped-call]


def hides_for_sure(step: Choice, element: ElementType) -> bool:
    """Whether a score that is replaced by a number may as well have that number added.

    Either a sum with it is that number itself, so that even a row of nothing else stays the same, or no row is without a key.
    """
    if step.number == -np.inf or (step.number <= ABSORBING and element in (dtypes.float32, dtypes.bfloat16)):
        return True
    if step.number > HIDDEN:
        return False
    offset = causal_offset(step.condition, step.keeps)
    if offset is not None and is_nonnegative(offset):
        return True
    array = constant(step.condition)
    return array is not None and rank_of(step.condition) != 0 and bool(np.all(np.any(array == step.keeps, axis=-1)))
