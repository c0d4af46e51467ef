"""Type and shape inference of matrix products and determinants. The driver calls these functions."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ops.facts import always, by_row
from sardonyx.ops.shapes import broadcast, fresh_shape, merge_dims, text
from sardonyx.ops.table import infer


@infer("MatMul", takes_any_data=always, rows=by_row)
def matmul(A, B):
    return product_shape(A.shape, B.shape)


def product_shape(a, b):
    """The shape of a matrix product; vectors count as one row or one column, which the result leaves out."""
    if a is None or b is None:
        return None
    if not a or not b:
        raise InferenceError(f"Input tensors of wrong rank (0): A is {text(a)} and B is {text(b)}")
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    inner = b[-2] if len(b) > 1 else b[0]
    if isinstance(a[-1], int) and isinstance(inner, int) and a[-1] != inner:
        raise InferenceError(
            f"Incompatible dimensions for matrix multiplication: inner sizes differ, A is {text(a)} and B is {text(b)}"
        )
    batch = broadcast(a[:-2], b[:-2])
    return (*batch, *rows, *columns)


@infer("Gemm", takes_any_data=always, rows=by_row)
def gemm(A, B, C, transA, transB):
    a = A.require_rank(2, name="A") or fresh_shape(2)
    b = B.require_rank(2, name="B") or fresh_shape(2)
    rows, inner = a[::-1] if transA else a
    other, columns = b[::-1] if transB else b
    merge_dims(inner, other, f"inner sizes of A {text(a)} and B {text(b)}")
    if C is not None and C.shape is not None:
        if len(C.shape) > 2:
            raise InferenceError(f"Gemm: Invalid bias shape for broadcast: {text(C.shape)}")
        for size, wanted in zip(reversed(C.shape), (columns, rows), strict=False):
            if isinstance(size, int) and isinstance(wanted, int) and size not in (1, wanted):
                raise InferenceError(f"Gemm: Invalid bias shape for broadcast: {text(C.shape)} to {text((rows, columns))}")
    return (rows, columns)


@infer("Det")
def determinant(X):
    if X.shape is None:
        return None
    if len(X.shape) < 2:
        raise InferenceError(f"X must have at least two axes, it is {text(X.shape)}")
    merge_dims(X.shape[-1], X.shape[-2], "the last two sizes")
    return X.shape[:-2]
