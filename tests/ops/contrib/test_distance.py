"""Cases of com.microsoft's CDist and DynamicTimeWarping."""

import itertools

import numpy as np
import pytest

from sardonyx.dtypes import float32, float64
from sardonyx.providers.cpu.contrib.distance import dynamic_time_warping
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
METRICS = {
    "sqeuclidean": lambda a, b: ((a - b) ** 2).sum(),
    "euclidean": lambda a, b: np.sqrt(((a - b) ** 2).sum()),
    "cityblock": lambda a, b: abs(a - b).sum(),
    "chebyshev": lambda a, b: abs(a - b).max(),
    "cosine": lambda a, b: 1 - a @ b / np.sqrt(a @ a * (b @ b)),
}


def cdist(A, B, metric):
    return np.array([[METRICS[metric](a, b) for b in B.astype(np.float64)] for a in A.astype(np.float64)])


NEAR = {"types": {"T": {float32, float64}}, "domain": CONTRIB, "rtol": 1e-5, "atol": 1e-5}

for metric, shapes in itertools.product(("sqeuclidean", "euclidean"), (((3, 4), (5, 4)), ((1, 1), (1, 1)), ((4, 2), (1, 2)))):
    A, B = f32(*shapes[0]), f32(*shapes[1])
    case("CDist", A=A, B=B, metric=metric, **NEAR, against_onnxruntime=True, expect=lambda A, B, metric: cdist(A, B, metric))
for metric in ("cityblock", "chebyshev", "cosine"):
    case("CDist", A=f32(3, 4), B=f32(5, 4), metric=metric, **NEAR, expect=lambda A, B, metric: cdist(A, B, metric))
case("CDist", A=f32(3, 4), B=f32(5, 4), domain=CONTRIB, expect=lambda A, B: cdist(A, B, "sqeuclidean"), rtol=1e-4)
case("CDist", A=f32(0, 4), B=f32(5, 4), domain=CONTRIB, expect=np.zeros((0, 5), np.float32))
for metric, pairs in itertools.product(("sqeuclidean", "euclidean"), ([[1, np.inf], [1, 2]], [[1, np.nan], [-np.inf, 2]])):
    A, B = np.array(pairs, np.float32), np.array([[1, 3], [np.inf, np.inf], [0, 0]], np.float32)
    case("CDist", A=A, B=B, metric=metric, **NEAR, expect=lambda A, B, metric: cdist(A, B, metric))
far = np.full((1, 3), 1000, np.float32)
case("CDist", A=far, B=far, metric="euclidean", domain=CONTRIB, expect=[[0.0]])
refuse("CDist", A=f32(3, 4), B=f32(5, 3), domain=CONTRIB, match="sizes of the points")
refuse("CDist", A=f32(3, 4), B=f32(5, 4), metric="yule", domain=CONTRIB, match="metric must be one of")

for shape in ((4, 6), (6, 4), (5, 5), (1, 7), (7, 1), (1, 1), (1, 3, 8), (20, 30)):
    case("DynamicTimeWarping", input=f32(*shape), domain=CONTRIB, against_onnxruntime=True, sizes_known=False)
case("DynamicTimeWarping", input=np.zeros((3, 3), np.float32), domain=CONTRIB, against_onnxruntime=True, sizes_known=False)
ties = (
    np.random.default_rng(1).integers(0, 2, (20, 30)).astype(np.float32)
)  # of ways that cost the same some count more than others
case("DynamicTimeWarping", input=ties, domain=CONTRIB, against_onnxruntime=True, sizes_known=False)
refuse("DynamicTimeWarping", input=f32(0, 3), domain=CONTRIB, match="no way through a table of 0 x 3")
refuse("DynamicTimeWarping", input=f32(3), domain=CONTRIB, match="rank 2 or 3")


@pytest.mark.parametrize("seed", range(5))
def test_no_way_is_cheaper(seed):
    costs = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)

    def cheapest(row, column):
        if (row, column) == (0, 0):
            return costs[0, 0]
        before = [(row - 1, column - 1), (row - 1, column), (row, column - 1)]
        return costs[row, column] + min(cheapest(*cell) for cell in before if min(cell) >= 0)

    rows, columns = dynamic_time_warping(costs)
    assert costs[rows, columns].sum() == pytest.approx(cheapest(3, 3), abs=1e-5)
    steps = np.diff([rows, columns])
    assert (steps >= 0).all() and (steps <= 1).all() and (steps.sum(axis=0) >= 1).all()
