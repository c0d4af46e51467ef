"""Type and shape inference of reductions, arg-reductions and running sums and products."""

from __future__ import annotations

from sardonyx.ir import dim
from sardonyx.ops.facts import along_axes, exact, never_below_zero
from sardonyx.ops.operand import Known, is_symbolic, sizes
from sardonyx.ops.shapes import axis_index, fresh_shape
from sardonyx.ops.table import infer


@infer("ReduceL1", "ReduceL2", non_negative=never_below_zero, rows=along_axes)
@infer("ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceSumSquare", rows=along_axes)
def reduce(data, axes, keepdims, noop_with_empty_axes):
    if data.shape is None:
        return None
    reduced = _axes(data, axes, noop_with_empty_axes)
    if reduced is None:
        return _of_unknown_axes(data, axes, keepdims)
    return tuple(1 if axis in reduced else size for axis, size in enumerate(data.shape) if keepdims or axis not in reduced)


def _axes(data, axes, noop_with_empty_axes):
    """The axes reduced, None if they are computed by the model."""
    if axes is not None:
        axes.require_rank(0, 1, name="axes")
    known = [] if axes is None or axes.shape == (0,) else axes.ints
    if known == []:
        return [] if noop_with_empty_axes else list(range(data.rank))
    return None if known is None else list(dict.fromkeys(axis_index(int(axis), data.rank, "axes") for axis in known))


def _of_unknown_axes(data, axes, keepdims):
    if keepdims:
        return tuple(1 if size == 1 else dim.fresh() for size in data.shape)
    count = axes.shape[0] if axes.shape else None
    return fresh_shape(data.rank - count) if isinstance(count, int) and 0 < count <= data.rank else None


def _with_sizes(function):
    """Inference that also knows what becomes of a vector of sizes."""

    def reduce_sizes(data, axes, keepdims, noop_with_empty_axes):
        shape = reduce(data, axes, keepdims, noop_with_empty_axes)
        if data.rank != 1 or data.value is None or not is_symbolic(data.value):
            return shape
        reduced = _axes(data, axes, noop_with_empty_axes)
        if reduced is None:
            return shape
        value = sizes([function(data.value.tolist())] if reduced else data.value.tolist())
        return Known(shape, value.reshape(shape))

    return reduce_sizes


infer("ReduceSum", rows=along_axes)(_with_sizes(sum))
infer("ReduceProd", rows=along_axes)(_with_sizes(dim.product))
infer("ReduceMax", rows=along_axes, precision=exact)(_with_sizes(lambda contents: dim.maximum(*contents)))
infer("ReduceMin", rows=along_axes, precision=exact)(_with_sizes(lambda contents: dim.minimum(*contents)))


@infer("ArgMax", "ArgMin", precision=exact)
def arg_reduce(data, axis, keepdims):
    if data.shape is None:
        return None
    axis = axis_index(axis, data.rank)
    return data.shape[:axis] + ((1,) if keepdims else ()) + data.shape[axis + 1 :]


@infer("CumSum", "CumProd")
def accumulate(x, axis):
    axis.require_one("axis")
    if x.shape is not None and axis.item is not None:
        axis_index(int(axis.item), x.rank)
    return x.shape
