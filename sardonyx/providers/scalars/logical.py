"""Comparisons, Boolean algebra, bits, and tests for infinity and NaN, on single elements."""

from __future__ import annotations

import math

from sardonyx import dtypes
from sardonyx.compiler.small_types import decoded
from sardonyx.compiler.types import BOOL
from sardonyx.providers.scalars.table import FLOATS, scalar
from sardonyx.startup.records import replace


@scalar("Equal", since=7)
def equal(A, B):
    return A == B


@scalar("Less", since=7)
def less(A, B):
    return A < B


@scalar("LessOrEqual")
def less_or_equal(A, B):
    return A <= B


@scalar("Greater", since=7)
def greater(A, B):
    return A > B


@scalar("GreaterOrEqual")
def greater_or_equal(A, B):
    return A >= B


@scalar("And", since=7)
@scalar("BitwiseAnd")
def both(A, B):
    return A & B


@scalar("Or", since=7)
@scalar("BitwiseOr")
def either(A, B):
    return A | B


@scalar("Xor", since=7)
@scalar("BitwiseXor")
def differing(A, B):
    return A ^ B


@scalar("Not", "BitwiseNot")
def inverted(X):
    return ~X


@scalar("BitShift")
def shift(X, Y, *, direction):
    """All bits may be shifted out: by the width or more, or by a negative amount, the fill alone is left."""
    f = X.f
    bits = X.type.bits
    inside = f.bitcast(Y, replace(Y.type, kind="uint")) < bits
    amount = f.select(inside, Y, bits - 1)
    if direction == "RIGHT" and X.type.is_signed:
        return X >> amount
    return f.select(inside, X << amount if direction == "LEFT" else X >> amount, f.const(X.type, 0))


TESTED = FLOATS | dtypes.FLOAT8


def _number(X):
    return decoded(X) if X.type.kind == "bits" else X


@scalar("IsNaN", types=TESTED)
def is_nan(X):
    return X.f.is_nan(_number(X))


@scalar("IsInf", types=TESTED)
def is_inf(X, *, detect_negative=1, detect_positive=1):
    f, X = X.f, _number(X)
    if detect_negative and detect_positive:
        return f.abs(X) == math.inf
    if detect_negative or detect_positive:
        return (math.inf if detect_positive else -math.inf) == X
    return f.const(BOOL.vector(X.type.lanes), False)
