"""Reshapes whose target is known up to a symbol become constant, chains of views become one, gathers of ranges become slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.errors import InferenceError
from sardonyx.ir import Node, Value
from sardonyx.ir.dim import Dim, Expression, is_nonnegative, is_positive
from sardonyx.ir.types import Shape
from sardonyx.ops import shape as inference
from sardonyx.ops.builder import Builder
from sardonyx.ops.inference import operand_of, operand_of_array
from sardonyx.ops.operand import Known
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.rules.elimination import unless_output
from sardonyx.optimizer.values import shape_of, sizes_in

# --- Reshape to a constant ------------------------------------------------------------------------------------------


@rule("Reshape(data, shape)", name="ReshapeFusion")
def constant_shape(op: Builder, data: Value, shape: Value, root: Node) -> Answer:
    """A target that is computed from the shape itself is written with 0 for a size that stays and -1 for the one that is left."""
    if constant(shape) is not None:
        return skip("it is constant already")
    wanted, sizes = sizes_in(shape), shape_of(data)
    if wanted is None:
        return skip("nothing is known of the target")
    written = _written(wanted, sizes, bool(operand(root, "allowzero")))
    return (
        skip("more than one size is not known")
        if written is None
        else op.Reshape(data, op.constant(np.array(written, np.int64)))
    )


def _written(wanted: Sequence[Dim], sizes: Shape | None, zero_is_zero: bool = False) -> list[int] | None:
    """A target as plain numbers, where `wanted` may hold 0 and -1 in the sense of Reshape; None if it cannot be written so.

    -1 is no way to write a size next to another one that may be 0: then it cannot be computed. Unless it stood there already.
    """
    written: list[int] = []
    for axis, size in enumerate(wanted):
        if isinstance(size, int):
            if size == 0 and zero_is_zero:
                return None
            written.append(size)
        else:
            stays = sizes is not None and axis < len(sizes) and sizes[axis] == size
            written.append(0 if stays else -1)
    left = [axis for axis, size in enumerate(written) if size == -1]
    if len(left) > 1:
        return None
    if left and isinstance(wanted[left[0]], Expression):
        others = [size if size else sizes[axis] for axis, size in enumerate(written) if axis != left[0]]  # type: ignore[index]
        if not all(is_positive(size) for size in others):
            return None
    return written


# --- chains of views ------------------------------------------------------------------------------------------------


@rule("view:Reshape|Flatten|Squeeze|Unsqueeze(data, ...)", name="ReshapeFusion")
def eliminate_view(view: Node, data: Value, root: Node) -> Answer:
    """A view of the same shape is the tensor itself."""
    sizes, result = shape_of(data), viewed_shape(view, data)
    if sizes is None or result != sizes:
        return skip("the shape changes")
    return unless_output(data, root)


@rule(
    "inner = first:Reshape|Flatten|Squeeze|Unsqueeze(data, ...); view:Reshape|Flatten|Squeeze|Unsqueeze(inner, ...)",
    keep=("inner",),
    name="ReshapeFusion",
)
def merge_views(op: Builder, first: Node, view: Node, inner: Value, data: Value, root: Node) -> Answer:
    """A view of a view is a view of the tensor."""
    result = viewed_shape(view, inner)
    if result is not None and result == shape_of(data):
        return unless_output(data, root)
    if len(inner.uses) > 1 or inner.is_graph_output:
        return skip("the view in between is used elsewhere")
    if first.op_type == view.op_type == "Unsqueeze":
        return _merged_unsqueeze(op, first, view, data, inner)
    if first.op_type == view.op_type == "Squeeze":
        return _merged_squeeze(op, first, view, data)
    if result is None:
        return skip("the target is not known")
    written = _written(_with_inferred(view, result), shape_of(data), zero_is_zero=True)
    if written is None:
        return skip("the target cannot be written as one constant")
    return op.Reshape(data, shape=np.array(written, np.int64))


def viewed_shape(view: Node, data: Value) -> Shape | None:
    """The shape of a view as it follows from its operands alone, whatever the model's file declares."""
    operands: dict[str, Any] = {}
    for name, position in (("shape", 1), ("axes", 1)):
        if name in view.attributes:
            operands[name] = operand_of_array(np.asarray(view.attributes[name].value, np.int64))
        else:
            value = view.inputs[position] if position < len(view.inputs) else None
            operands[name] = None if value is None else operand_of(value)
    source = operand_of(data)
    try:
        match view.op_type:
            case "Reshape":
                reshaped = inference.reshape(source, operands["shape"], operand(view, "allowzero"))
            case "Flatten":
                reshaped = inference.flatten(source, operand(view, "axis"))
            case "Squeeze":
                reshaped = inference.squeeze(source, operands["axes"])
            case _:
                reshaped = inference.unsqueeze(source, operands["axes"])
    except InferenceError:
        return None
    return reshaped.type if isinstance(reshaped, Known) else reshaped  # type: ignore[return-value]


def _with_inferred(view: Node, result: Shape) -> list[Dim]:
    """A target with the -1 that a Reshape itself has in it."""
    target = list(result)
    sizes = sizes_in(view.inputs[1]) if view.op_type == "Reshape" and len(view.inputs) > 1 and view.inputs[1] else None
    if sizes is not None and -1 in sizes:
        target[sizes.index(-1)] = -1
    return target


def _merged_unsqueeze(op: Builder, first: Node, view: Node, data: Value, inner: Value) -> Answer:
    ones, others = operand(first, "axes"), operand(view, "axes")
    shape = shape_of(inner)
    if ones is None or others is None or shape is None:
        return skip("the axes are not known")
    rank = len(shape) + len(others)
    outer = {axis % rank for axis in others}
    kept = [axis for axis in range(rank) if axis not in outer]
    axes = sorted(outer | {kept[axis % len(shape)] for axis in ones})
    return op.Unsqueeze(data, axes=np.array(axes, np.int64))


def _merged_squeeze(op: Builder, first: Node, view: Node, data: Value) -> Answer:
    ones, others = operand(first, "axes"), operand(view, "axes")
    shape = shape_of(data)
    if ones is None or others is None or shape is None:
        return skip("the axes are not known")
    inner = {axis % len(shape) for axis in ones}
    kept = [axis for axis in range(len(shape)) if axis not in inner]
    axes = sorted(inner | {kept[axis % len(kept)] for axis in others})
    return op.Squeeze(data, axes=np.array(axes, np.int64))


# --- Gather of a range ----------------------------------------------------------------------------------------------

FIRST_SLICE_BY_INPUTS = 10


@rule("Gather<axis=axis>(data, Range(start, limit, delta))", name="GatherToSliceFusion")
def slice_range(op: Builder, data: Value, axis: int, start: Value, limit: Value, delta: Value, root: Node) -> Answer:
    """Taking the elements of a range one by one is a slice."""
    step, first, last = constant(delta), sizes_in(start), sizes_in(limit)
    if step is None or step.dtype.kind != "i" or step.item() < 1:
        return skip("the step is not a positive constant")
    if first is None or last is None or not is_nonnegative(first[0]) or not is_nonnegative(last[0]):
        return skip("the range may begin or end before the first element")
    if root.version < FIRST_SLICE_BY_INPUTS:
        return skip("up to opset 9 the bounds of a slice are attributes")
    starts, ends = _as_vector(op, start), _as_vector(op, limit)
    return op.Slice(data, starts, ends, op.constant(np.array([axis], step.dtype)), op.constant(step.reshape(1)))


def _as_vector(op: Builder, value: Value) -> Value:
    array = constant(value)
    return op.Unsqueeze(value, axes=np.array([0], np.int64)) if array is None else op.constant(array.reshape(1))
