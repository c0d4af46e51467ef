"""Ops that rank elements and keep some of them: TopK, Unique, NonMaxSuppression, in NumPy. The CPU table calls them."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.base import widened
from sardonyx.providers.cpu.shape import integers, normal_axis
from sardonyx.providers.cpu.table import cpu

# --- TopK -----------------------------------------------------------------------------------------------------------


@cpu.kernel("TopK", since=10)
def top_k(X, K, axis, largest=1, sorted=1):
    axis, count = normal_axis(axis, X.ndim), integers(K)[0]
    size = X.shape[axis]
    if count < 0:
        raise KernelError(f"value of k must not be negative: {count}")
    if count > size:
        raise KernelError(f"k argument [{count}] should not be greater than specified axis dim value [{size}]")
    rows = np.moveaxis(X, axis, -1)
    chosen = _chosen(widened(rows), count, bool(largest), bool(sorted))
    values = np.take_along_axis(rows, chosen, axis=-1)
    return np.moveaxis(values, -1, axis), np.moveaxis(chosen, -1, axis)


@cpu.kernel("TopK", until=9)
def top_k_by_attribute(X, axis, k):
    return top_k(X, k, axis)


def _chosen(rows, count: int, largest: bool, ordered: bool):
    """Indices of the `count` first elements of every row in rank order; of equal ones the first comes first, NaN is largest."""
    size = rows.shape[-1]
    if count == 1 and (largest or rows.dtype.kind in "iu"):
        best = rows.argmax(axis=-1) if largest else rows.argmin(axis=-1)
        return best[..., None]
    if count > 0 and 4 * count < size:
        members = _members(rows, count, largest)
        if members is not None:
            if not ordered:
                return members
            order = _ranked(np.take_along_axis(rows, members, axis=-1), largest)
            return np.take_along_axis(members, order, axis=-1)
    return _ranked(rows, largest)[..., :count]


def _members(rows, count: int, largest: bool):
    """The chosen indices in ascending order, found without sorting. None if the last one chosen is NaN, which compares with nothing."""
    last = rows.shape[-1] - count if largest else count - 1
    limit = np.partition(rows, last, axis=-1)[..., last, None]
    if np.any(limit != limit):
        return None
    equal = rows == limit
    # NaN counts as larger than the limit
    better = ~(rows <= limit) if largest else rows < limit
    missing = count - better.sum(axis=-1, keepdims=True)
    better |= equal & (np.cumsum(equal, axis=-1) <= missing)
    return np.nonzero(better)[-1].reshape(*rows.shape[:-1], count)


def _ranked(rows, largest: bool):
    """Indices that sort every row, equal elements in the order of their indices."""
    if not largest:
        return np.argsort(rows, axis=-1, kind="stable")
    # sorting the mirrored row upward and reading the result backward keeps equal elements in order
    return rows.shape[-1] - 1 - np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]


# --- Unique ---------------------------------------------------------------------------------------------------------


@cpu.kernel("Unique")
def unique(X, axis=None, sorted=1):
    if axis is None:
        _, first, inverse, counts = np.unique(X.reshape(-1), return_index=True, return_inverse=True, return_counts=True)
    else:
        axis = normal_axis(axis, X.ndim)
        slices = np.moveaxis(X, axis, 0)
        first, inverse, counts = _unique_rows(slices.reshape(len(slices), -1) if slices.size else np.zeros((len(slices), 1)))
    if not sorted:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, inverse, counts = first[order], rank[inverse], counts[order]
    Y = X.reshape(-1)[first] if axis is None else np.take(X, first, axis=axis)
    return Y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _unique_rows(rows):
    """First occurrence, inverse and counts of the distinct rows in lexicographic order."""
    # ranks stand for the elements, so that strings and narrow types sort like numbers
    ranks = np.unique(rows, return_inverse=True)[1].reshape(rows.shape)
    order = np.lexsort(ranks.T[::-1])
    in_order = ranks[order]
    starts = np.ones(len(rows), bool)
    starts[1:] = np.any(in_order[1:] != in_order[:-1], axis=1)
    group = np.cumsum(starts) - 1
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = group
    return order[starts], inverse, np.bincount(group)


# --- NonMaxSuppression ----------------------------------------------------------------------------------------------


@cpu.kernel("NonMaxSuppression")
def non_max_suppression(
    boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, center_point_box=0
):
    limit = 0 if max_output_boxes_per_class is None else integers(max_output_boxes_per_class)[0]
    overlap = np.float32(0 if iou_threshold is None else np.reshape(iou_threshold, ()))
    if not 0 <= overlap <= 1:
        raise KernelError(f"iou_threshold must be in range [0, 1], it is {overlap}")
    selected = [np.zeros((0, 3), np.int64)]
    if limit > 0:
        corners = _corners(boxes, center_point_box)
        candidates = np.ones(scores.shape, bool) if score_threshold is None else scores > np.reshape(score_threshold, ())
        for batch, label in np.argwhere(candidates.any(axis=-1)):
            chosen = np.flatnonzero(candidates[batch, label])
            ranked = chosen[np.argsort(-scores[batch, label, chosen], kind="stable")]
            kept = _suppress(corners[batch], ranked, limit, overlap)
            selected.append(np.array([(batch, label, box) for box in kept], dtype=np.int64))
    return np.concatenate(selected)


def _corners(boxes, center_point_box: int):
    """Boxes as low and high corner, two coordinates each, whichever way they were given."""
    if center_point_box:
        center, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([center - half, center + half], axis=-1)
    one, other = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=-1)


def _suppress(corners, ranked, limit: int, overlap: np.float32) -> list[int]:
    """Take the best box that is left and drop those that overlap it too much, until none is left."""
    kept: list[int] = []
    low, high = corners[ranked, :2], corners[ranked, 2:]
    area = np.prod(high - low, axis=-1)
    while len(ranked) and len(kept) < limit:
        kept.append(int(ranked[0]))
        shared = np.prod(np.maximum(np.minimum(high[0], high[1:]) - np.maximum(low[0], low[1:]), 0), axis=-1)
        # boxes without area overlap nothing
        real = (area[0] > 0) & (area[1:] > 0)
        union = np.where(real, area[0] + area[1:] - shared, 1)
        apart = ~(real & (shared / union > overlap))
        ranked, low, high, area = ranked[1:][apart], low[1:][apart], high[1:][apart], area[1:][apart]
    return kept
