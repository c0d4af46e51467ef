"""Products of matrices, einsum and determinants, in NumPy. The CPU table calls them; other families take `product` from here."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import braced
from sardonyx.providers.cpu.table import cpu

EXACT_IN_FLOAT64 = 2**53
"""All integers up to here are float64 numbers, so sums that stay below can be left to BLAS."""

WORTH_CONVERTING = 2**14
"""Multiplications from which on converting integers to float64 and back costs less than NumPy's own integer loop."""


@cpu.kernel("MatMul", widen=True)
def matmul(A, B):
    if A.ndim == 0 or B.ndim == 0:
        raise KernelError(f"MatMul takes no scalars, A is {braced(A.shape)} and B is {braced(B.shape)}", InvalidArgument)
    if A.shape[-1] != B.shape[0 if B.ndim == 1 else -2]:
        raise KernelError(f"MatMul dimension mismatch: inner sizes differ, A is {braced(A.shape)} and B is {braced(B.shape)}")
    if A.ndim > 2 and B.ndim == 2:
        # one large product instead of many small ones
        rows = A.reshape(math.prod(A.shape[:-1]), A.shape[-1])
        return product(rows, B).reshape(*A.shape[:-1], B.shape[1])
    return product(A, B)


def product(A, B):
    """np.matmul; large products of integers go through BLAS where no sum can leave float64's exact range."""
    if A.dtype.kind in "iu" and _is_exact_in_float64(A, B):
        return np.matmul(A.astype(np.float64), B.astype(np.float64)).astype(A.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.matmul(A, B)


def _is_exact_in_float64(A, B) -> bool:
    if A.size * (B.shape[-1] if B.ndim > 1 else 1) < WORTH_CONVERTING or not A.size or not B.size:
        return False
    largest = [max(int(operand.max()), -int(operand.min())) for operand in (A, B)]
    # a sum that the type cannot hold wraps around, which a cast from float64 does not
    return largest[0] * largest[1] * A.shape[-1] < min(EXACT_IN_FLOAT64, np.iinfo(A.dtype).max)


@cpu.kernel("Gemm", widen=True)
def gemm(A, B, C=None, alpha=1.0, beta=1.0, transA=0, transB=0, broadcast=1):
    A, B = A.T if transA else A, B.T if transB else B
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[0]:
        raise KernelError(
            f"GEMM: Dimension mismatch, W: {braced(B.shape)} K: {A.shape[-1] if A.ndim else 1} N:{B.shape[-1] if B.ndim else 1}",
            InvalidArgument,
        )
    Y = _scaled(product(A, B), alpha)
    if C is not None and not _broadcasts_to(C.shape, Y.shape):
        raise KernelError(f"Gemm: Invalid bias shape for broadcast: {braced(C.shape)} to {braced(Y.shape)}", InvalidArgument)
    if C is None or beta == 0:
        return Y
    bias = _scaled(C, beta)
    return np.add(Y, bias, out=Y if Y.dtype == bias.dtype else None)


def _scaled(array, factor: float):
    """Times a float attribute, in the array's own type unless that would lose the factor's fraction."""
    if factor == 1:
        return array
    if array.dtype.kind in "iu":
        if factor != int(factor):
            return array * np.float64(factor)
        return array * np.uint64(int(factor) % 2**64).astype(array.dtype)  # it wraps around, however large it is
    return array * array.dtype.type(factor)


def _broadcasts_to(shape, target) -> bool:
    return len(shape) <= len(target) and all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )


@cpu.kernel("Det", widen=True)
def determinant(X):
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise KernelError(f"the last two sizes must be equal, X is {braced(X.shape)}", InvalidArgument)
    return np.linalg.det(X)
