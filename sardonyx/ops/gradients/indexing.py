"""Gradients of ops that look up or write by index. What an index names twice gets the sum of both gradients."""

from __future__ import annotations

from sardonyx.errors import Fail
from sardonyx.ops.gradients.table import gradient


@gradient("Gather")
def gather(op, data, indices, output_grad, axis):
    return op.contrib("GatherGrad", op.Shape(data), indices, output_grad, axis=axis)


@gradient("GatherElements")
def gather_elements(op, data, indices, output_grad, axis):
    return op.contrib("GatherElementsGrad", output_grad, op.Shape(data), indices, axis=axis)


@gradient("GatherND")
def gather_nd(op, data, indices, output_grad, batch_dims):
    return op.contrib("GatherNDGrad", op.Shape(data), indices, output_grad, batch_dims=batch_dims or 0)


@gradient("ScatterElements", "Scatter")
def scatter_elements(op, node, indices, updates, output_grad, axis, reduction):
    picked = op.GatherElements(output_grad, indices, axis=axis)
    if _adds(node, reduction):
        return {"data": output_grad, "updates": picked}
    return {"data": op.ScatterElements(output_grad, indices, op.zeros(updates), axis=axis), "updates": picked}


@gradient("ScatterND")
def scatter_nd(op, node, indices, updates, output_grad, reduction):
    picked = op.GatherND(output_grad, indices)
    if _adds(node, reduction):
        return {"data": output_grad, "updates": picked}
    return {"data": op.ScatterND(output_grad, indices, op.zeros(updates)), "updates": picked}


def _adds(node, reduction):
    if reduction not in (None, "none", "add"):
        raise Fail(f"{node}: there is no gradient of {node.op_type} with reduction {reduction!r}, only with 'none' and 'add'")
    return reduction == "add"


@gradient("ReverseSequence")
def reverse_sequence(op, sequence_lens, Y_grad, batch_axis, time_axis):
    return op.ReverseSequence(Y_grad, sequence_lens, batch_axis=batch_axis, time_axis=time_axis)


@gradient("Compress")
def compress(op, input, condition, output_grad, axis):
    """Where the condition holds, rows get their gradients back; the others get zeros."""
    rows = op.Squeeze(op.NonZero(condition), axes=[0])
    if axis is None:
        flat = op.contrib("GatherGrad", op.Unsqueeze(op.Size(input), axes=[0]), rows, output_grad, axis=0)
        return op.shaped(flat, input)
    return op.contrib("GatherGrad", op.Shape(input), rows, output_grad, axis=axis)
