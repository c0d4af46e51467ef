"""Cases of the ops that rank elements and keep some of them."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import ALL
from sardonyx.providers.cpu.selection import top_k
from tests.ops.cases import case, f32, i64, refuse

# --- TopK -------------------------------------------------------------------------------------------------------------

TIES = np.array([3, 5, 3, 5, 1], np.float32)
NUMBERS = {t for t in dtypes.NUMERIC if t.bits >= 8}

case("TopK", X=TIES, K=[3], expect=(np.array([5, 5, 3], np.float32), np.array([1, 3, 0])))
case("TopK", X=TIES, k=3, expect=(np.array([5, 5, 3], np.float32), np.array([1, 3, 0])))
case("TopK", X=TIES, K=[3], largest=0, expect=(np.array([1, 3, 3], np.float32), np.array([4, 0, 2])))
for several in (np.zeros(0, np.int64), np.array([1, 2])):
    refuse("TopK", X=TIES, K=several, match="K must be one number")
case("TopK", X=TIES, K=[0], expect=(np.zeros(0, np.float32), np.zeros(0, np.int64)))
case(
    "TopK",
    X=f32(3, 4, 2),
    K=[2],
    axis=1,
    expect=lambda X: (-np.sort(-X, axis=1)[:, :2], np.argsort(-X, axis=1, kind="stable")[:, :2]),
)
case("TopK", X=f32(0, 4), K=[2], expect=(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.int64)))
case(
    "TopK",
    X=np.array([1, np.nan, 3, np.nan, 2], np.float32),
    K=[3],
    expect=(np.array([np.nan, np.nan, 3], np.float32), np.array([1, 3, 2])),
)
case(
    "TopK",
    X=np.array([np.nan, 1, -np.inf], np.float32),
    K=[2],
    largest=0,
    expect=(np.array([-np.inf, 1], np.float32), np.array([2, 1])),
)
case("TopK", X=np.array([np.nan, 1, 0], np.float32), K=[1], largest=0, expect=(np.array([0], np.float32), np.array([2])))
case("TopK", X=np.array([0.0, -0.0, 0.0], np.float32), K=[2], expect=(np.zeros(2, np.float32), np.array([0, 1])))
case("TopK", X=TIES, K=[2], types={"T": NUMBERS}, since=11, expect=lambda X: (X[[1, 3]], np.array([1, 3])))
case(
    "TopK",
    X=np.array([2**63, 2**63 - 1, 2**64 - 1], np.uint64),
    K=[2],
    expect=(np.array([2**64 - 1, 2**63], np.uint64), np.array([2, 0])),
)
case("TopK", X=i64(2, 3), K=[2], sorted=0, satisfies=lambda values, indices: values.shape == indices.shape == (2, 2))
refuse("TopK", X=TIES, K=[6], match="k argument|K")
refuse("TopK", X=TIES, K=[-1], match="negative|k argument")


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 9, 40, 200])
def test_topk_of_long_rows_with_many_ties_is_a_stable_sort(count, largest):
    rng = np.random.default_rng(count)
    X = rng.integers(0, 30, size=(5, 200)).astype(np.float32)
    values, indices = top_k(X, [count], axis=-1, largest=largest)
    expected = np.argsort(-X if largest else X, axis=-1, kind="stable")[:, :count]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(X, expected, axis=-1))
    unordered = top_k(X, [count], axis=-1, largest=largest, sorted=0)[1]
    np.testing.assert_array_equal(np.sort(unordered), np.sort(expected))


# --- Unique -----------------------------------------------------------------------------------------------------------

LIST = np.array([2, 1, 1, 3, 4, 3])

case(
    "Unique",
    X=LIST,
    sorted=0,
    types={"T": ALL - {dtypes.bool_}},
    sizes_known=False,
    expect=lambda X: (X[[0, 1, 3, 4]], np.array([0, 1, 3, 4]), np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])),
)
case(
    "Unique",
    X=LIST,
    types={"T": ALL - {dtypes.bool_}},
    sizes_known=False,
    expect=lambda X: (X[[1, 0, 3, 4]], np.array([1, 0, 3, 4]), np.array([1, 0, 0, 2, 3, 2]), np.array([2, 1, 2, 1])),
)
case(
    "Unique",
    X=np.array([[1, 3], [2, 3]]),
    sizes_known=False,
    expect=(np.array([1, 2, 3]), np.array([0, 2, 1]), np.array([0, 2, 1, 2]), np.array([1, 1, 2])),
)
case(
    "Unique",
    X=np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4]]),
    axis=0,
    sizes_known=False,
    expect=(np.array([[1, 0, 0], [2, 3, 4]]), np.array([0, 2]), np.array([0, 0, 1]), np.array([2, 1])),
)
case(
    "Unique",
    X=np.array([["b", "a", "b"], ["c", "a", "c"]], object),
    axis=-1,
    sizes_known=False,
    expect=(np.array([["a", "b"], ["a", "c"]], object), np.array([1, 0]), np.array([1, 0, 1]), np.array([1, 2])),
)
case(
    "Unique",
    X=np.array([[3, 1], [1, 2], [3, 1]]),
    axis=0,
    sorted=0,
    sizes_known=False,
    expect=(np.array([[3, 1], [1, 2]]), np.array([0, 1]), np.array([0, 1, 0]), np.array([2, 1])),
)
case(
    "Unique",
    X=np.array([True, False, True]),
    sizes_known=False,
    expect=(np.array([False, True]), np.array([1, 0]), np.array([1, 0, 1]), np.array([1, 2])),
)
case("Unique", X=np.zeros((0,), np.float32), sizes_known=False, expect=(np.zeros(0, np.float32), *[np.zeros(0, np.int64)] * 3))
case(
    "Unique",
    X=np.zeros((3, 0), np.float32),
    axis=0,
    sizes_known=False,
    expect=(np.zeros((1, 0), np.float32), np.array([0]), np.array([0, 0, 0]), np.array([3])),
)
case(
    "Unique",
    X=np.array([2, 1, 2], np.float32),
    outputs=[0, 3],
    sizes_known=False,
    expect=(np.array([1, 2], np.float32), np.array([1, 2])),
)
refuse("Unique", X=LIST, axis=1, match="axis")

# --- NonMaxSuppression ------------------------------------------------------------------------------------------------

# two pairs that overlap by a third of their union, and one box alone
BOXES = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5], [2, 2, 3, 3], [2, 2.5, 3, 3.5], [9, 9, 10, 10]]], np.float32)
SCORES = np.array([[[0.5, 0.9, 0.8, 0.8, 0.1]]], np.float32)


def selected(*triples):
    return np.array(triples, np.int64).reshape(-1, 3)


case(
    "NonMaxSuppression",
    boxes=BOXES,
    scores=SCORES,
    max_output_boxes_per_class=[5],
    iou_threshold=[0.3],
    sizes_known=False,
    expect=selected((0, 0, 1), (0, 0, 2), (0, 0, 4)),
)
case(
    "NonMaxSuppression",
    boxes=BOXES,
    scores=SCORES,
    max_output_boxes_per_class=[5],
    iou_threshold=[0.4],
    sizes_known=False,
    expect=selected(*((0, 0, box) for box in (1, 2, 3, 0, 4))),
)
case(
    "NonMaxSuppression",
    boxes=BOXES,
    scores=SCORES,
    max_output_boxes_per_class=np.int64(2),
    iou_threshold=np.float32(0.4),
    sizes_known=False,
    expect=selected((0, 0, 1), (0, 0, 2)),
)
case(
    "NonMaxSuppression",
    boxes=BOXES,
    scores=SCORES,
    max_output_boxes_per_class=[5],
    iou_threshold=[0.3],
    score_threshold=[0.1],
    sizes_known=False,
    expect=selected((0, 0, 1), (0, 0, 2)),
)
case("NonMaxSuppression", boxes=BOXES, scores=SCORES, sizes_known=False, expect=selected())
case(
    "NonMaxSuppression",
    boxes=BOXES[..., [2, 3, 0, 1]],
    scores=SCORES,
    max_output_boxes_per_class=[1],
    sizes_known=False,
    expect=selected((0, 0, 1)),
)
case(
    "NonMaxSuppression",
    boxes=np.array([[[1, 1, 2, 2], [1, 1, 2, 2], [1, 1, 0, 2]]], np.float32),
    scores=np.ones((1, 2, 3), np.float32),
    max_output_boxes_per_class=[3],
    iou_threshold=[0.5],
    center_point_box=1,
    sizes_known=False,
    expect=selected((0, 0, 0), (0, 0, 2), (0, 1, 0), (0, 1, 2)),
)
case(
    "NonMaxSuppression",
    boxes=np.zeros((2, 0, 4), np.float32),
    scores=np.zeros((2, 1, 0), np.float32),
    max_output_boxes_per_class=[3],
    sizes_known=False,
    expect=selected(),
)
case(
    "NonMaxSuppression",
    boxes=f32(2, 30, 4, low=0, high=1),
    scores=f32(2, 3, 30, low=0, high=1),
    max_output_boxes_per_class=[10],
    iou_threshold=[0.4],
    score_threshold=[0.2],
    sizes_known=False,
    against_onnxruntime=True,
)
refuse(
    "NonMaxSuppression", boxes=BOXES, scores=SCORES, max_output_boxes_per_class=[5], iou_threshold=[1.5], match="iou_threshold"
)
refuse(
    "NonMaxSuppression",
    boxes=BOXES,
    scores=SCORES,
    max_output_boxes_per_class=[5],
    iou_threshold=[np.nan],
    match="iou_threshold",
)
refuse("NonMaxSuppression", boxes=BOXES[0], scores=SCORES, match="rank")
for _boxes in (BOXES[:, :1], BOXES[:, :-1], BOXES[:0], BOXES[..., :3], np.concatenate([BOXES, BOXES])):
    refuse("NonMaxSuppression", boxes=_boxes, scores=SCORES, max_output_boxes_per_class=[5], match="boxes must have the shape")
for _center in (2, -1, 2**62):
    refuse("NonMaxSuppression", boxes=BOXES, scores=SCORES, center_point_box=_center, match="center_point_box")
