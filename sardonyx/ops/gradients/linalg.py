"""Gradients of matrix products. Transposes are part of the products, never copies."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import gradient


@gradient("MatMul")
def mat_mul(op, A, B, Y_grad, wanted):
    if op.rank(A) < 2 or op.rank(B) < 2:
        return _of_vectors(op, A, B, Y_grad, wanted)
    return _of_matrices(op, A, B, Y_grad, wanted)


def _of_matrices(op, A, B, Y_grad, wanted):
    return {
        "A": op.fitted(_product(op, Y_grad, B, transB=1), A) if "A" in wanted else None,
        "B": _by_right_factor(op, A, B, Y_grad) if "B" in wanted else None,
    }


def _by_right_factor(op, A, B, Y_grad):
    """Many matrices times one are a single product."""
    if op.rank(B) == 2 and op.rank(A) > 2:
        A, Y_grad = _as_matrix(op, A), _as_matrix(op, Y_grad)
    return op.fitted(_product(op, A, Y_grad, transA=1), B)


def _as_matrix(op, value):
    columns = op.shape(value)[-1]
    if not isinstance(columns, int):
        last = op.Gather(op.Shape(value), op.constant(np.array([-1], np.int64)))
        return op.Reshape(value, op.Concat(op.constant(np.array([-1], np.int64)), last, axis=0))
    # -1 could not be told where there are no columns
    return op.Reshape(value, op.constant(np.array([-1, columns], np.int64))) if columns else op.Flatten(value, axis=-1)


def _product(op, A, B, **transposed):
    if op.rank(A) == op.rank(B) == 2:
        return op.Gemm(A, B, **transposed)
    return op.contrib("FusedMatMul", A, B, **transposed)


def _of_vectors(op, A, B, Y_grad, wanted):
    """A vector on the left is a row, one on the right a column."""
    row, column = op.rank(A) == 1, op.rank(B) == 1
    left, right = op.Unsqueeze(A, axes=[0]) if row else A, op.Unsqueeze(B, axes=[1]) if column else B
    axes = [axis for axis, missing in ((-2, row), (-1, column)) if missing]
    parts = _of_matrices(op, left, right, op.Unsqueeze(Y_grad, axes=axes), wanted)
    return {name: None if parts[name] is None else op.shaped(parts[name], value) for name, value in (("A", A), ("B", B))}


@gradient("FusedMatMul", domain=CONTRIB)
def fused_mat_mul(op, node, A, B, Y_grad, transA, transB, transBatchA, transBatchB, alpha, wanted):
    if transBatchA or transBatchB or op.rank(A) < 2 or op.rank(B) < 2:
        raise Fail(f"{node}: there is no gradient of FusedMatMul with vectors or with transposed batches")
    by_a = (B, Y_grad, transB, 1) if transA else (Y_grad, B, 0, not transB)
    by_b = (Y_grad, A, 1, transA) if transB else (A, Y_grad, not transA, 0)
    return {
        name: op.fitted(op.contrib("FusedMatMul", x, y, transA=left, transB=right, alpha=alpha), value)
        for name, value, (x, y, left, right) in (("A", A, by_a), ("B", B, by_b))
        if name in wanted
    }


@gradient("Gemm", since=7)
def gemm(op, A, B, C, Y_grad, transA, transB, alpha, beta, wanted):
    by_a = (B, Y_grad, transB, 1) if transA else (Y_grad, B, 0, not transB)
    by_b = (Y_grad, A, 1, transA) if transB else (A, Y_grad, not transA, 0)
    parts = {
        name: op.Gemm(x, y, transA=left, transB=right, alpha=alpha)
        for name, (x, y, left, right) in (("A", by_a), ("B", by_b))
        if name in wanted
    }
    if "C" in wanted:
        parts["C"] = op.scaled(op.fitted(Y_grad, C), beta)
    return parts


@gradient("Einsum")
def einsum(op, node, Inputs, Output_grad, equation):
    """Each operand's gradient is the product of the rest, with the output's letters in place of its own."""
    terms, result = _letters(node, equation)
    parts = []
    for place, (value, own) in enumerate(zip(Inputs, terms, strict=True)):
        others = [(term, other) for at, (term, other) in enumerate(zip(terms, Inputs, strict=True)) if at != place]
        known = "".join(letter for letter in own if letter in result or any(letter in term for term, _ in others))
        left = ",".join([result, *(term for term, _ in others)])
        part = op.Einsum(Output_grad, *(other for _, other in others), equation=f"{left}->{known}")
        parts.append(_with_summed_axes(op, part, value, own, known))
    return {"Inputs": parts}


def _letters(node, equation):
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in equation or any(len(set(term)) < len(term) for term in terms):
        raise Fail(f"{node}: there is no gradient of Einsum with an ellipsis or a repeated letter: {equation!r}")
    if not arrow:
        counts = {letter: left.count(letter) for letter in sorted(set(left) - {","})}
        result = "".join(letter for letter, count in counts.items() if count == 1)
    return terms, result


def _with_summed_axes(op, part, value, own, known):
    """A letter that only this operand has was summed: all along it the gradient is the same."""
    missing = [axis for axis, letter in enumerate(own) if letter not in known]
    return op.Expand(op.Unsqueeze(part, axes=missing), op.Shape(value)) if missing else part


@gradient("Det")
def det(op, X, Y, Y_grad):
    """By Jacobi's formula; where a determinant is 0 there is no inverse, and no gradient either."""
    factor = op.Unsqueeze(op.Mul(Y_grad, Y), axes=[-2, -1])
    order = [*range(op.rank(X) - 2), op.rank(X) - 1, op.rank(X) - 2]
    return op.Mul(op.Transpose(op.contrib("Inverse", X), perm=order), factor)
