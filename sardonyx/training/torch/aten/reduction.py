"""Sums, means, extremes, softmax, and their gradients."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported


def axes_of(op, value, dim):
    """All axes if none is given."""
    rank = op.rank(value)
    if dim is None or dim == []:
        return list(range(rank))
    return [axis % max(rank, 1) for axis in ([dim] if isinstance(dim, int) else dim)]


def reduced(op, op_type, value, dim, keepdim):
    axes = axes_of(op, value, dim)
    if op.rank(value) == 0:
        return op.Identity(value)
    return op.node(op_type, value, axes=axes, keepdims=int(bool(keepdim)))


@aten("sum.default", "sum.dim_IntList")
def sum_of(op, self, dim=None, keepdim=False):
    return reduced(op, "ReduceSum", op.as_type(self, op.out_dtype), dim, keepdim)


@aten("mean.default", "mean.dim")
def mean(op, self, dim=None, keepdim=False):
    return reduced(op, "ReduceMean", op.as_type(self, op.out_dtype), dim, keepdim)


@aten("prod.default", "prod.dim_int")
def prod(op, self, dim=None, keepdim=False):
    return reduced(op, "ReduceProd", op.as_type(self, op.out_dtype), dim, keepdim)


@aten("amax.default")
def amax(op, self, dim=(), keepdim=False):
    return reduced(op, "ReduceMax", self, list(dim), keepdim)


@aten("amin.default")
def amin(op, self, dim=(), keepdim=False):
    return reduced(op, "ReduceMin", self, list(dim), keepdim)


@aten("max.default")
def max_of_all(op, self):
    return reduced(op, "ReduceMax", self, None, False)


@aten("min.default")
def min_of_all(op, self):
    return reduced(op, "ReduceMin", self, None, False)


@aten("max.dim")
def max_along(op, self, dim, keepdim=False):
    return reduced(op, "ReduceMax", self, dim, keepdim), _place(op, "ArgMax", self, dim, keepdim)


@aten("min.dim")
def min_along(op, self, dim, keepdim=False):
    return reduced(op, "ReduceMin", self, dim, keepdim), _place(op, "ArgMin", self, dim, keepdim)


@aten("argmax.default")
def argmax(op, self, dim=None, keepdim=False):
    return _place(op, "ArgMax", self, dim, keepdim)


@aten("argmin.default")
def argmin(op, self, dim=None, keepdim=False):
    return _place(op, "ArgMin", self, dim, keepdim)


def _place(op, op_type, value, dim, keepdim):
    if op.rank(value) == 0:
        return op.constant(np.array(0, np.int64))
    if dim is None:
        if keepdim:
            raise Unsupported("the place of an extreme of all axes that are kept")
        return op.node(op_type, op.Reshape(value, op.ints(-1)), axis=0, keepdims=0)
    return op.node(op_type, value, axis=op.axis(value, dim), keepdims=int(keepdim))


@aten("any.default", "any.dim", "any.dims")
def any_of(op, self, dim=None, keepdim=False):
    found = reduced(op, "ReduceMax", op.as_type(op.as_type(self, dtypes.bool_), dtypes.int32), dim, keepdim)
    return op.as_type(found, dtypes.bool_)


@aten("all.default", "all.dim", "all.dims")
def all_of(op, self, dim=None, keepdim=False):
    found = reduced(op, "ReduceMin", op.as_type(op.as_type(self, dtypes.bool_), dtypes.int32), dim, keepdim)
    return op.as_type(found, dtypes.bool_)


@aten("logsumexp.default")
def logsumexp(op, self, dim, keepdim=False):
    return reduced(op, "ReduceLogSumExp", self, dim, keepdim)


def _count(op, value, axes):
    """How many elements are reduced to one, in the value's type."""
    shape = op.Shape(value)
    sizes = op.Gather(shape, op.ints(*axes), axis=0)
    return op.as_type(op.ReduceProd(sizes, keepdims=0), op.dtype(value))


def variance(op, value, dim, correction, keepdim):
    """The variance with its mean, both with the axes that were reduced."""
    axes = axes_of(op, value, dim)
    mean_of = op.ReduceMean(value, axes=axes, keepdims=1)
    centred = op.Sub(value, mean_of)
    total = op.ReduceSum(op.Mul(centred, centred), axes=axes, keepdims=int(keepdim))
    correction = 1 if correction is None else correction
    count = op.Max(op.Sub(_count(op, value, axes), op.number(correction, value)), op.number(0, value))
    return op.Div(total, count), mean_of if keepdim else op.Squeeze(mean_of, axes=axes)


@aten("var.correction")
def var(op, self, dim=None, correction=None, keepdim=False):
    return variance(op, self, dim, correction, keepdim)[0]


@aten("std.correction")
def std(op, self, dim=None, correction=None, keepdim=False):
    return op.Sqrt(variance(op, self, dim, correction, keepdim)[0])


@aten("var_mean.correction")
def var_mean(op, self, dim=None, correction=None, keepdim=False):
    return variance(op, self, dim, correction, keepdim)


@aten("linalg_vector_norm.default")
def vector_norm(op, self, ord=2, dim=None, keepdim=False):
    value = op.as_type(self, op.out_dtype)
    if ord == 2:
        return reduced(op, "ReduceL2", value, dim, keepdim) if op.rank(value) else op.Abs(value)
    if ord == 1:
        return reduced(op, "ReduceL1", value, dim, keepdim) if op.rank(value) else op.Abs(value)
    if ord in (float("inf"), float("-inf")):
        return reduced(op, "ReduceMax" if ord > 0 else "ReduceMin", op.Abs(value), dim, keepdim)
    raise Unsupported(f"the norm of order {ord}")


@aten("cumsum.default")
def cumsum(op, self, dim):
    value = op.as_type(self, op.out_dtype)
    return op.CumSum(value, op.constant(np.array(op.axis(self, dim), np.int64))) if op.rank(self) else op.Identity(value)


# --- softmax


@aten("_softmax.default")
def softmax(op, self, dim, half_to_float=False):
    return op.Softmax(op.as_type(self, op.out_dtype), axis=op.axis(self, dim))


@aten("_log_softmax.default")
def log_softmax(op, self, dim, half_to_float=False):
    return op.LogSoftmax(op.as_type(self, op.out_dtype), axis=op.axis(self, dim))


@aten("_softmax_backward_data.default")
def softmax_backward(op, grad_output, output, dim, **arguments):
    return op.as_type(op.contrib("SoftmaxGrad_13", grad_output, output, axis=op.axis(output, dim)), op.out_dtype)


@aten("_log_softmax_backward_data.default")
def log_softmax_backward(op, grad_output, output, dim, **arguments):
    return op.as_type(op.contrib("LogSoftmaxGrad_13", grad_output, output, axis=op.axis(output, dim)), op.out_dtype)


@aten("topk.default")
def topk(op, self, k, dim=-1, largest=True, sorted=True):
    values, indices = op.TopK(
        self, op.sizes.value(k), axis=op.axis(self, dim), largest=int(largest), sorted=int(sorted), outputs=2
    )
    return values, indices


@aten("sort.default", "sort.stable")
def sort(op, self, dim=-1, descending=False, **arguments):
    axis = op.axis(self, dim)
    size = op.Shape(self, start=axis, end=axis + 1)
    return tuple(op.TopK(self, size, axis=axis, largest=int(descending), sorted=1, outputs=2))


@aten("cumprod.default")
def cumprod(op, self, dim):
    value = op.as_type(self, op.out_dtype)
    return op.CumProd(value, op.constant(np.array(op.axis(self, dim), np.int64))) if op.rank(self) else op.Identity(value)
