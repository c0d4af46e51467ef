"""SparseToDenseMatMul of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import float32, float64, int32, int64, uint32, uint64
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, merge_dims
from sardonyx.ops.table import in_domain

TYPES = (float32, float64, int32, int64, uint32, uint64)

define(
    "com.microsoft",
    "SparseToDenseMatMul",
    1,
    "(A: T, B: T1, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> (Y: T1)",
    T=[f"sparse_tensor({type.name})" for type in TYPES],
    T1=TYPES,
)


@in_domain("com.microsoft")("SparseToDenseMatMul")
def sparse_to_dense_mat_mul(A, B, transA, transB):
    left, right = A.require_rank(2, name="A") or fresh_shape(2), B.require_rank(2, name="B") or fresh_shape(2)
    left, right = left[::-1] if transA else left, right[::-1] if transB else right
    merge_dims(left[1], right[0], "the inner sizes")
    return left[0], right[1]
