"""Cases of matrix products and determinants."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import FLOATS
from sardonyx.providers.cpu.linalg import product
from tests.ops.cases import case, f32, i32, i64, refuse

INTS = {dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64}


def sums(A, B):
    """The product of two matrices as sums of products."""
    return (A[..., :, :, None] * B[..., None, :, :]).sum(axis=-2)


case("MatMul", A=f32(2, 3), B=f32(3, 4), types={"T": FLOATS | INTS}, expect=sums)
case("MatMul", A=f32(3), B=f32(3), expect=lambda A, B: (A * B).sum())
case("MatMul", A=f32(3), B=f32(3, 4), expect=lambda A, B: (A[:, None] * B).sum(axis=0))
case("MatMul", A=f32(2, 3), B=f32(3), expect=lambda A, B: (A * B).sum(axis=1))
case("MatMul", A=f32(5, 2, 3), B=f32(5, 3, 4), expect=sums)
case("MatMul", A=f32(5, 2, 3), B=f32(3, 4), expect=lambda A, B: sums(A, B[None]))
case("MatMul", A=f32(2, 3), B=f32(5, 3, 4), expect=lambda A, B: sums(A[None], B))
case("MatMul", A=f32(2, 1, 2, 3), B=f32(5, 3, 4), expect=lambda A, B: sums(A, B[None]))
case("MatMul", A=f32(2, 0), B=f32(0, 3), expect=np.zeros((2, 3), np.float32))
case("MatMul", A=f32(0, 2, 3), B=f32(3, 4), expect=np.zeros((0, 2, 4), np.float32))
case("MatMul", A=np.array([[2**30]], np.int32), B=np.array([[6]], np.int32), expect=np.array([[-(2**31)]], np.int32))
case(
    "MatMul",
    A=np.array([[np.inf, 1]], np.float32),
    B=np.array([[1], [np.nan]], np.float32),
    expect=np.array([[np.nan]], np.float32),
)
refuse("MatMul", A=f32(2, 3), B=f32(2, 3), match="inner sizes differ")
refuse("MatMul", A=f32(), B=f32(2, 3), match="rank|scalar")
refuse("MatMul", A=f32(2, 2, 3), B=f32(3, 3, 4), match="broadcast")


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.int8, np.uint8])
@pytest.mark.parametrize("largest", [9, 2**31 - 1])
def test_products_of_large_integer_matrices_are_exact_and_wrap(dtype, largest):
    rng = np.random.default_rng(1)
    low, high = max(-largest, np.iinfo(dtype).min), min(largest, np.iinfo(dtype).max)
    A, B = (rng.integers(low, high, size=(40, 40)).astype(dtype) for _ in range(2))
    exact = A.astype(object) @ B.astype(object)
    wrapped = np.array([[int(value) % 2**64 for value in row] for row in exact], dtype=np.uint64).astype(dtype)
    found = product(A, B)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, wrapped)


def linear(A, B, C=0, alpha=1.0, beta=1.0):
    return alpha * sums(A, B) + beta * C


A, B = f32(2, 3), f32(3, 4)

case("Gemm", A=A, B=B, C=f32(2, 4), expect=linear)
case("Gemm", A=A, B=B, types={"T": FLOATS | INTS}, expect=sums)
case("Gemm", A=A, B=B, C=f32(4), types={"T": FLOATS}, since=7, expect=linear)
case("Gemm", A=A, B=B, C=f32(4), broadcast=1, expect=linear)
case("Gemm", A=A, B=B, C=f32(2, 1), since=7, expect=linear)
case("Gemm", A=A, B=B, C=f32(), since=7, expect=linear)
case("Gemm", A=A, B=B, C=f32(1, 4), alpha=0.5, beta=-2.0, since=7, expect=lambda A, B, C: linear(A, B, C, 0.5, -2.0))
case("Gemm", A=f32(3, 2), B=B, C=f32(2, 4), transA=1, expect=lambda A, B, C: linear(A.T, B, C))
case("Gemm", A=A, B=f32(4, 3), C=f32(2, 4), transB=1, expect=lambda A, B, C: linear(A, B.T, C))
case("Gemm", A=A, B=B, C=np.full((2, 4), np.nan, np.float32), beta=0.0, expect=lambda A, B: sums(A, B))
case("Gemm", A=f32(2, 0), B=f32(0, 4), C=f32(4), since=7, expect=lambda C: np.stack([C, C]))
case("Gemm", A=i32(2, 3), B=i32(3, 4), C=i32(4), alpha=2.0, beta=3.0, expect=lambda A, B, C: 2 * sums(A, B) + 3 * C)
case("Gemm", A=np.array([[3]]), B=np.array([[1]]), alpha=0.5, since=11, expect=np.array([[1]]))
case("Gemm", A=i64(1, 1), B=np.array([[0]]), C=np.array([[2**60 + 1]]), since=9, expect=np.array([[2**60 + 1]]))
for kind in (np.int32, np.int64, np.uint32, np.uint64):
    counts = {"A": np.array([[1, 2]], kind), "B": np.array([[3], [4]], kind), "C": np.array([[5]], kind)}
    case("Gemm", **counts, alpha=2.0**70, beta=-1.0, since=11, expect=np.array([[-5]]).astype(kind))
    case("Gemm", **counts, alpha=-2.0, beta=2.0**80, since=11, expect=np.array([[-22]]).astype(kind))
refuse("Gemm", A=f32(2, 3), B=f32(2, 3), since=11, match="inner|mismatch")
refuse("Gemm", A=A, B=B, C=f32(2), since=7, match="bias")
refuse("Gemm", A=f32(1, 2, 3), B=B, since=11, match="rank")

case("Det", X=np.array([[1, 2], [3, 4]], np.float32), types={"T": FLOATS}, expect=lambda: np.float32(-2))
case("Det", X=np.array([[[2]], [[3]]], np.float32), expect=np.array([2, 3], np.float32))
case("Det", X=np.zeros((0, 2, 2), np.float32), expect=np.zeros(0, np.float32))
case("Det", X=np.zeros((2, 0, 0), np.float32), expect=np.ones(2, np.float32))
case("Det", X=np.array([[1, 2], [2, 4]], np.float32), expect=np.float32(0))
refuse("Det", X=f32(2, 3), match="two sizes")
refuse("Det", X=f32(3), match="axes")
