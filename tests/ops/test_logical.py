"""Cases of comparisons, Boolean algebra, bits, and tests for infinity and NaN."""

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import FLOAT8, FLOATS, INTS, NUMERIC, SIGNED, UNSIGNED
from tests.ops.cases import booleans, case, f32, i32, refuse, strings

NAN, INF = np.nan, np.inf

COMPARISONS = {
    "Equal": lambda A, B: A == B,
    "Greater": lambda A, B: A > B,
    "Less": lambda A, B: A < B,
    "GreaterOrEqual": lambda A, B: A >= B,
    "LessOrEqual": lambda A, B: A <= B,
}
for op, function in COMPARISONS.items():
    case(op, A=i32(3, 4, low=0, high=3), B=i32(3, 4, low=0, high=3), types={"T": NUMERIC}, expect=function)
    case(op, A=i32(3, 1, low=0, high=3), B=i32(4, low=0, high=3), since=7, expect=function)
    case(op, A=f32(), B=f32(0, 2), since=11, expect=np.zeros((0, 2), np.bool_))
    case(
        op,
        A=np.array([NAN, INF, -0.0], np.float32),
        B=np.array([NAN, INF, 0.0], np.float32),
        since=11,
        expect=lambda A, B, f=function: f(A, B),
    )
    refuse(op, A=i32(3), B=i32(2), since=7, match="broadcast")
case("Equal", A=strings(2, 3), B=strings(3), expect=lambda A, B: np.array([[a == b for a, b in zip(row, B)] for row in A]))
case("Equal", A=np.array("a", object), B=np.array("a", object), expect=np.array(True))
case("Equal", A=booleans(3), B=booleans(3), expect=lambda A, B: ~(A ^ B))
case("Equal", A=i32(2, 3, low=0, high=2), B=i32(2, low=0, high=2), broadcast=1, axis=0, expect=lambda A, B: B[:, None] == A)
for op in ("Greater", "Less"):
    case(op, A=f32(2, 3), B=f32(3), broadcast=1, expect=COMPARISONS[op])

BOOLEAN = {"And": lambda A, B: A & B, "Or": lambda A, B: A | B, "Xor": lambda A, B: A ^ B}
for op, function in BOOLEAN.items():
    case(op, A=booleans(3, 4), B=booleans(3, 4), expect=function)
    case(op, A=booleans(3, 4), B=booleans(4), since=7, expect=function)
    case(op, A=booleans(3, 4), B=booleans(3), broadcast=1, axis=0, expect=lambda A, B, f=function: f(A, B[:, None]))
    case(op, A=booleans(), B=booleans(), expect=function)
case("Not", X=booleans(3, 4), expect=lambda X: np.where(X, False, True))
case("Not", X=booleans(), expect=lambda X: ~X)

BITWISE = {"BitwiseAnd": lambda A, B: A & B, "BitwiseOr": lambda A, B: A | B, "BitwiseXor": lambda A, B: A ^ B}
for op, function in BITWISE.items():
    case(op, A=i32(3, 4, low=-120, high=120), B=i32(4, low=-120, high=120), types={"T": INTS}, expect=function)
case("BitwiseNot", X=i32(3, 4), types={"T": SIGNED}, expect=lambda X: -1 - X)
case("BitwiseNot", X=i32(3, 4), types={"T": UNSIGNED}, expect=lambda X: np.iinfo(X.dtype).max - X)

SHIFTED, AMOUNTS = i32(3, 4, low=0, high=100), i32(4, low=0, high=8)
case("BitShift", X=SHIFTED, Y=AMOUNTS, direction="RIGHT", types={"T": INTS}, expect=lambda X, Y: X // (1 << Y.astype(np.int64)))
case(
    "BitShift",
    X=SHIFTED,
    Y=AMOUNTS,
    direction="LEFT",
    types={"T": INTS},
    expect=lambda X, Y: (X.astype(np.int64) * (1 << Y.astype(np.int64))).astype(X.dtype),
)
case("BitShift", X=np.uint8([255]), Y=np.uint8([8]), direction="RIGHT", expect=np.uint8([0]))
case("BitShift", X=np.uint8([255]), Y=np.uint8([200]), direction="LEFT", expect=np.uint8([0]))
case("BitShift", X=np.int8([-5, -5, 5]), Y=np.int8([1, 9, -1]), direction="RIGHT", expect=np.int8([-3, -1, 0]))
case("BitShift", X=np.int8([-5, 64, 5]), Y=np.int8([8, 1, -1]), direction="LEFT", expect=np.int8([0, -128, 0]))
refuse("BitShift", X=np.uint8([1, 2]), Y=np.uint8([1, 2, 3]), direction="LEFT", match="broadcast")

SPECIAL = np.array([1, NAN, INF, -INF], np.float32)
WITH_INFINITY = FLOATS | {dtypes.float8e5m2}
case("IsNaN", X=SPECIAL, types={"T1": WITH_INFINITY}, expect=[False, True, False, False])
case("IsNaN", X=np.array([1, NAN]), types={"T1": FLOAT8}, expect=[False, True])
case("IsInf", X=SPECIAL, types={"T1": WITH_INFINITY}, expect=[False, False, True, True])
case("IsInf", X=np.array([1, NAN]), types={"T1": FLOAT8}, expect=[False, False])
case("IsInf", X=SPECIAL, detect_negative=0, expect=[False, False, True, False])
case("IsInf", X=SPECIAL, detect_positive=0, expect=[False, False, False, True])
case("IsInf", X=SPECIAL, detect_positive=0, detect_negative=0, expect=[False] * 4)
case("IsInf", X=f32(), expect=np.array(False))
