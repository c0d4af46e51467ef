"""Type and shape inference of the ops that rank elements and keep some of them. The driver calls these functions."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import bound_to_type, exact
from sardonyx.ops.shapes import axis_index, fresh_shape
from sardonyx.ops.table import infer


@infer("TopK", since=10, precision=exact)
def top_k(X, K, axis):
    return _ranked(X, K.as_size("K"), axis)


@infer("TopK", until=9, precision=exact)
def top_k_by_attribute(X, k, axis):
    return _ranked(X, k, axis)


def _ranked(X, count, axis):
    if X.shape is None:
        return [None, None]
    axis = axis_index(axis, len(X.shape))
    size = X.shape[axis]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise InferenceError(f"k argument [{count}] should not be greater than specified axis dim value [{size}]")
    shape = (*X.shape[:axis], count, *X.shape[axis + 1 :])
    return [shape, shape]


@infer("Unique", precision=bound_to_type)  # what differs may be equal when it is rounded
def unique(X, axis):
    count = dim.fresh()
    if axis is None:
        total = dim.fresh() if X.shape is None else dim.product(X.shape)
        return [(count,), (count,), (total,), (count,)]
    if X.shape is None:
        return [None, (count,), fresh_shape(1), (count,)]
    axis = axis_index(axis, len(X.shape))
    return [(*X.shape[:axis], count, *X.shape[axis + 1 :]), (count,), (X.shape[axis],), (count,)]


@infer("NonMaxSuppression")
def non_max_suppression(boxes, scores, center_point_box):
    boxes.require_rank(3, name="boxes")
    scores.require_rank(3, name="scores")
    if center_point_box not in (None, 0, 1):
        raise InferenceError(f"center_point_box must be 0 or 1, it is {center_point_box}")
    return (dim.fresh(), 3)
