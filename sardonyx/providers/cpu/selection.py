"""Ops that rank elements and keep some of them: TopK, Unique, NonMaxSuppression, in NumPy. The CPU table calls them."""

from __future__ import annotations

import numpy as np

from sardonyx.dtypes import bfloat16
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.shape import braced, normal_axis, whole
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.kernel_table import widened
from sardonyx.providers.termination import watched

# --- TopK -----------------------------------------------------------------------------------------------------------


@cpu.kernel("TopK", since=10)
def top_k(X, K, axis, largest=1, sorted=1):
    axis, count = normal_axis(axis, X.ndim), whole(K, "K")
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
    # NumPy does not put NaN of other people's types in order
    ranked = X.astype(np.float32) if X.dtype == bfloat16.numpy else X
    if axis is None:
        _, first, inverse, counts = np.unique(ranked.reshape(-1), return_index=True, return_inverse=True, return_counts=True)
    else:
        axis = normal_axis(axis, X.ndim)
        slices = np.moveaxis(ranked, axis, 0)
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


BOXES_AT_ONCE = 1 << 18
"""Candidates of several classes that are compared together."""


@cpu.kernel("NonMaxSuppression")
def non_max_suppression(
    boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, center_point_box=0
):
    images, _, count = scores.shape
    if boxes.shape != (images, count, 4):
        raise KernelError(f"boxes must have the shape {braced((images, count, 4))}, for scores {braced(scores.shape)}")
    limit = 0 if max_output_boxes_per_class is None else whole(max_output_boxes_per_class, "max_output_boxes_per_class")
    overlap = np.float32(0 if iou_threshold is None else np.reshape(iou_threshold, ()))
    if not 0 <= overlap <= 1:
        raise KernelError(f"iou_threshold must be in range [0, 1], it is {overlap}")
    if limit <= 0:
        return np.zeros((0, 3), np.int64)
    candidates = np.ones(scores.shape, bool) if score_threshold is None else scores > np.reshape(score_threshold, ())
    places = np.argwhere(candidates.any(axis=-1))
    kept = _kept_boxes(corners_of(boxes, center_point_box), scores, candidates, places, limit, overlap)
    rows = [np.column_stack([np.tile(place, (len(chosen), 1)), chosen]) for place, chosen in zip(places, kept)]
    return np.concatenate([np.zeros((0, 3), np.int64), *rows])


def corners_of(boxes, center_point_box: int):
    """Boxes as low and high corner, two coordinates each, whichever way they were given."""
    if center_point_box:
        center, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([center - half, center + half], axis=-1)
    corner, opposite = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(corner, opposite), np.maximum(corner, opposite)], axis=-1)


def _kept_boxes(corners, scores, candidates, places, limit: int, overlap: np.float32) -> list[np.ndarray]:
    """The boxes that stay of each class of each image. Few of the best ones are looked at first, more where these are not enough."""
    kept: list[np.ndarray] = [np.zeros(0, np.int64)] * len(places)
    pending, count = list(range(len(places))), 2 * limit
    while pending:
        ranked = [_best(scores[tuple(places[row])], candidates[tuple(places[row])], count) for row in pending]
        together = max(1, BOXES_AT_ONCE // max(map(len, ranked)))
        for some in watched(range(0, len(pending), together)):
            part = slice(some, some + together)
            images = [corners[places[row][0]] for row in pending[part]]
            for row, chosen in zip(pending[part], _suppress(images, ranked[part], limit, overlap)):
                kept[row] = chosen
        total = [np.count_nonzero(candidates[tuple(places[row])]) for row in pending]
        pending = [
            row for row, best, all_of_them in zip(pending, ranked, total) if len(kept[row]) < limit and len(best) < all_of_them
        ]
        count *= 8
    return kept


def _best(scores, candidates, count: int) -> np.ndarray:
    """Candidates by their score, the highest first and of equal ones the first; at least `count` of them if there are so many."""
    chosen = np.flatnonzero(candidates)
    if len(chosen) > count:
        among = scores[chosen]
        chosen = chosen[~(among < np.partition(among, -count)[-count])]
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _suppress(images, ranked, limit: int, overlap: np.float32) -> list[np.ndarray]:
    """Take the best box that is left and drop those that overlap it too much, until none is left; for many classes at once."""
    length = max(map(len, ranked))
    alive = np.zeros((len(ranked), length), bool)
    sides = np.zeros((4, len(ranked), length), images[0].dtype)
    for row, (corners, best) in enumerate(zip(images, ranked)):
        alive[row, : len(best)] = True
        sides[:, row, : len(best)] = corners[best].T
    left, low, right, high = sides
    area = (right - left) * (high - low)
    classes = np.arange(len(ranked))
    kept: list[list[int]] = [[] for _ in ranked]
    for _ in watched(range(min(limit, length))):
        first = alive.argmax(axis=1)
        is_alive = alive[classes, first]
        if not is_alive.any():
            break
        for number in np.flatnonzero(is_alive):
            kept[number].append(int(ranked[number][first[number]]))
        a, b, c, d, size = (side[classes, first, np.newaxis] for side in (left, low, right, high, area))
        wide = np.maximum(np.minimum(c, right) - np.maximum(a, left), 0)
        shared = wide * np.maximum(np.minimum(d, high) - np.maximum(b, low), 0)
        # boxes without area overlap nothing
        real = (size > 0) & (area > 0)
        union = np.where(real, size + area - shared, 1)
        alive &= ~(real & (shared / union > overlap))
        alive[classes, first] = False
    return [np.array(chosen, np.int64) for chosen in kept]
