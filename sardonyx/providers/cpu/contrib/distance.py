"""CDist and DynamicTimeWarping of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

contrib = cpu.in_domain("com.microsoft")


@contrib("CDist")
def c_dist(A, B, metric="sqeuclidean"):
    if metric not in METRICS:
        raise KernelError(f"metric must be one of {', '.join(METRICS)}, not {metric!r}", InvalidArgument)
    if A.shape[1] != B.shape[1]:
        raise KernelError(f"A and B must have as many columns, not {A.shape[1]} and {B.shape[1]}", InvalidArgument)
    return METRICS[metric](A.astype(np.float64), B.astype(np.float64))


def _square(A, B):
    """|a|² + |b|² - 2ab through BLAS, where these are finite; what rounding leaves below zero is zero."""
    with np.errstate(over="ignore"):
        squares = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1)
    if not np.isfinite(squares).all():
        return _sum_of_squares(A, B)
    return np.maximum(squares - 2 * (A @ B.T), 0)


def _cosine(A, B):
    lengths = np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(B, axis=1)
    with np.errstate(invalid="ignore"):
        return 1 - (A @ B.T) / lengths


def _over_features(combine):
    """A metric made of the differences in each feature; one feature at a time, so that memory stays small."""

    @np.errstate(invalid="ignore", over="ignore")
    def metric(A, B):
        result = np.zeros((len(A), len(B)))
        for feature in watched(range(A.shape[1])):
            combine(result, np.abs(A[:, feature, None] - B[:, feature]), out=result)
        return result

    return metric


_sum_of_squares = _over_features(lambda so_far, apart, out: np.add(so_far, np.square(apart), out=out))

METRICS = {
    "sqeuclidean": _square,
    "euclidean": lambda A, B: np.sqrt(_square(A, B)),
    "cityblock": _over_features(np.add),
    "chebyshev": _over_features(np.maximum),
    "cosine": _cosine,
}


@contrib("DynamicTimeWarping")
def dynamic_time_warping(input):
    """The cheapest way through a table of costs, one row or one column or both further at each step."""
    costs = input[0] if input.ndim == 3 else input
    rows, columns = costs.shape
    if not costs.size:
        raise KernelError(f"there is no way through a table of {rows} x {columns}", InvalidArgument)
    back = _cheapest_steps(costs)
    path = [(rows - 1, columns - 1)]
    while path[-1] != (0, 0):
        row, column = path[-1]
        step = back[row, column]
        path.append((row - (step != LEFT), column - (step != UP)))
    return np.array(path[::-1], np.int32).T


DIAGONAL, UP, LEFT = range(3)


def _cheapest_steps(costs):
    """Where the way to each cell comes from, computed diagonal by diagonal: from the left unless another way is cheaper than both others.

    The cost of a cell is that of the way chosen, as in onnxruntime: it is not the least where the two other ways cost the same.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    back = np.full((rows, columns), LEFT, np.int8)
    for diagonal in watched(range(rows + columns - 1)):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        column = diagonal - row
        both, up, left = total[row, column], total[row, column + 1], total[row + 1, column]
        step = np.where((both < up) & (both < left), DIAGONAL, np.where((up < both) & (up < left), UP, LEFT))
        total[row + 1, column + 1] = costs[row, column] + np.choose(step, [both, up, left])
        back[row, column] = step
    return back
