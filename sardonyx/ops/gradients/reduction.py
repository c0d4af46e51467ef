"""Gradients of reductions and running sums. Where a reduction chooses one of several equal elements, these share evenly."""

from __future__ import annotations

from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import gradient, no_gradient

no_gradient("ArgMax", "ArgMin")


def _kept(op, value, data, axes, keepdims):
    """A reduction's result, or its gradient, with the axes that were reduced as axes of size 1."""
    if keepdims or axes is None:  # reduced over all axes it is one number
        return value
    return value if op.rank(value) == op.rank(data) else op.Unsqueeze(value, axes=axes)


def _spread(op, value, data):
    return op.Expand(value, op.Shape(data))


@gradient("ReduceSum")
def reduce_sum(op, data, axes, keepdims, reduced_grad):
    return _spread(op, _kept(op, reduced_grad, data, axes, keepdims), data)


@gradient("ReduceMean")
def reduce_mean(op, data, axes, keepdims, reduced, reduced_grad):
    share = op.Div(reduced_grad, op.Div(op.size(data, data), op.size(reduced, data)))
    return _spread(op, _kept(op, share, data, axes, keepdims), data)


@gradient("ReduceSumSquare")
def reduce_sum_square(op, data, axes, keepdims, reduced_grad):
    return op.Mul(op.Add(data, data), _kept(op, reduced_grad, data, axes, keepdims))


@gradient("ReduceL1")
def reduce_l1(op, data, axes, keepdims, reduced_grad):
    return op.Mul(op.Sign(data), _kept(op, reduced_grad, data, axes, keepdims))


@gradient("ReduceL2")
def reduce_l2(op, data, axes, keepdims, reduced, reduced_grad):
    """x / norm, and 0 where the norm is 0."""
    is_zero = op.Equal(reduced, op.number(0, reduced))
    share = op.Div(op.Where(is_zero, reduced, reduced_grad), op.Where(is_zero, op.number(1, reduced), reduced))
    return op.Mul(data, _kept(op, share, data, axes, keepdims))


@gradient("ReduceLogSum")
def reduce_log_sum(op, data, axes, keepdims, reduced, reduced_grad):
    share = op.Mul(reduced_grad, op.Exp(op.Neg(reduced)))
    return _spread(op, _kept(op, share, data, axes, keepdims), data)


@gradient("ReduceLogSumExp")
def reduce_log_sum_exp(op, data, axes, keepdims, reduced, reduced_grad):
    result, gradient = (_kept(op, value, data, axes, keepdims) for value in (reduced, reduced_grad))
    return op.Mul(gradient, op.Exp(op.Sub(data, result)))


@gradient("ReduceMax", "ReduceMin")
def reduce_extreme(op, data, axes, keepdims, reduced, reduced_grad):
    result, gradient = (_kept(op, value, data, axes, keepdims) for value in (reduced, reduced_grad))
    return shared_by_equals(op, data, result, gradient, axes)


def shared_by_equals(op, data, chosen, gradient, axes):
    """A gradient over axes, shared evenly by the elements that are equal to what was chosen."""
    equal = op.floats(op.Equal(data, chosen), data)
    return op.Mul(equal, op.Div(gradient, op.ReduceSum(equal, axes=axes, keepdims=1)))


@gradient("ReduceProd")
def reduce_prod(op, data, axes, keepdims, reduced_grad):
    """The product of the other elements: where one of them is 0, that is 0."""
    zero, one = op.number(0, data), op.number(1, data)
    is_zero = op.Equal(data, zero)
    zeros, others = op.floats(is_zero, data), op.Where(is_zero, one, data)
    product = op.Div(op.ReduceProd(others, axes=axes, keepdims=1), others)
    other_zeros = op.Sub(op.ReduceSum(zeros, axes=axes, keepdims=1), zeros)
    product = op.Where(op.Greater(other_zeros, zero), zero, product)
    return op.Mul(product, _kept(op, reduced_grad, data, axes, keepdims))


@gradient("CumSum")
def cum_sum(op, axis, exclusive, reverse, y_grad):
    return op.CumSum(y_grad, axis, exclusive=exclusive, reverse=not reverse)


@gradient("TopK")
def top_k(op, X, Indices, Values_grad, axis):
    if Values_grad is None:
        return {}
    return op.contrib("GatherElementsGrad", Values_grad, op.Shape(X), Indices, axis=axis)


@gradient("Scale", domain=CONTRIB)
def scale(op, scale, output_grad, scale_down):
    return op.contrib("Scale", output_grad, scale, scale_down=scale_down)
