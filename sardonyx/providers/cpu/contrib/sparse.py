"""SparseToDenseMatMul of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

CHUNK = 1 << 20
"""How many products are held at once."""


@cpu.kernel("SparseToDenseMatMul", domain="com.microsoft")
def sparse_to_dense_mat_mul(A, B, alpha=1.0, transA=0, transB=0):
    """Each value of A times a row of B is added to a row of the result. `alpha` counts for floats alone."""
    rows, columns = _coordinates(A)
    shape = A.dense_shape
    if transA:
        rows, columns, shape = columns, rows, shape[::-1]
    B = B.T if transB else B
    if shape[1] != B.shape[0]:
        raise KernelError(f"inner sizes differ, A is {list(shape)} and B is {list(B.shape)}", InvalidArgument)
    if A.values.dtype != B.dtype:
        raise KernelError(f"A holds {A.values.dtype}, B {B.dtype}", InvalidArgument)
    result = np.zeros((shape[0], B.shape[1]), B.dtype)
    step = max(1, CHUNK // max(1, B.shape[1]))
    for start in watched(range(0, len(rows), step)):
        part = slice(start, start + step)
        np.add.at(result, rows[part], A.values[part, None] * B[columns[part]])
    return result if alpha == 1 or B.dtype.kind != "f" else result * B.dtype.type(alpha)


def _coordinates(A) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the values, which lie inside of the matrix."""
    if len(A.dense_shape) != 2:
        raise KernelError(f"A must be a matrix, its shape is {list(A.dense_shape)}", InvalidArgument)
    height, width = A.dense_shape
    if A.indices.ndim == 2:
        rows, columns = A.indices[:, 0], A.indices[:, 1]
    else:
        rows, columns = np.divmod(A.indices, max(width, 1))
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    if not inside.all():
        raise KernelError(f"a value of A lies outside of its shape, {list(A.dense_shape)}", InvalidArgument)
    return rows, columns
