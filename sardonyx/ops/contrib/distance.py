"""CDist and DynamicTimeWarping of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import float32, float64, int32
from sardonyx.ir import dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, merge_dims
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define("com.microsoft", "CDist", 1, "(A: T, B: T, *, metric: string = 'sqeuclidean') -> (C: T)", T={float32, float64})
define("com.microsoft", "DynamicTimeWarping", 1, "(input: F) -> (output: I)", F={float32}, I={int32})


@contrib("CDist")
def c_dist(A, B):
    left, right = A.require_rank(2, name="A") or fresh_shape(2), B.require_rank(2, name="B") or fresh_shape(2)
    merge_dims(left[1], right[1], "the sizes of the points")
    return left[0], right[0]


@contrib("DynamicTimeWarping")
def dynamic_time_warping(input):
    input.require_rank(2, 3, name="input")
    return 2, dim.fresh()
