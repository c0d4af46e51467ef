"""Cases of reductions, arg-reductions and running sums and products."""

import math

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import FLOATS, INTS, NUMERIC
from tests.ops.cases import booleans, case, f32, f64, i8, i32, i64, refuse, u8

NAN, INF = np.nan, np.inf


def over(function):
    """A function of one row, taken over the last two axes of an array of rank 3."""
    return lambda data: np.array([[[function([float(x) for x in block.ravel()])]] for block in data])


def whole(function):
    """The same for integers: truncated toward zero."""
    return lambda data: np.trunc(over(function)(data)) if data.dtype.kind in "iu" else over(function)(data)


def log_sum_exp(row):
    top = max(row)
    return top + math.log(sum(math.exp(x - top) for x in row))


REDUCTIONS = {  # op: what it makes of one row
    "ReduceL1": lambda row: sum(map(abs, row)),
    "ReduceL2": lambda row: math.sqrt(sum(x * x for x in row)),
    "ReduceLogSum": lambda row: math.log(sum(row)),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": max,
    "ReduceMean": lambda row: sum(row) / len(row),
    "ReduceMin": min,
    "ReduceProd": math.prod,
    "ReduceSum": sum,
    "ReduceSumSquare": lambda row: sum(x * x for x in row),
}
for op, function in REDUCTIONS.items():
    case(op, data=i32(2, 2, 3, low=1, high=5), axes=[1, 2], types={"T": NUMERIC}, rtol=2e-2, expect=whole(function))
    case(op, data=f64(2, 2, 3, low=1, high=5), axes=[-1, 1], expect=over(function))
    case(op, data=f32(2, 3, low=1, high=5), axes=[0, 1], keepdims=0, expect=lambda data, f=function: f(data.ravel().tolist()))
    case(op, data=f32(2, 3, low=1, high=5), keepdims=0, expect=lambda data, f=function: f(data.ravel().tolist()))
    case(op, data=f32(2, 3, low=1, high=5), expect=lambda data, f=function: np.reshape(f(data.ravel().tolist()), (1, 1)))
    case(
        op, data=f32(2, 3, low=1, high=5), axes=[0], keepdims=0, expect=lambda data, f=function: [f(c.tolist()) for c in data.T]
    )
    case(op, data=f32(low=1, high=5), expect=lambda data, f=function: f([float(data)]))
    case(
        op,
        data=f32(2, 3, low=1, high=5),
        axes=np.zeros(0, np.int64),
        noop_with_empty_axes=1,
        expect=lambda data, f=function: np.vectorize(lambda x: f([float(x)]))(data),
    )
    case(
        op,
        data=f32(2, 3, low=1, high=5),
        noop_with_empty_axes=1,
        expect=lambda data, f=function: np.vectorize(lambda x: f([float(x)]))(data),
    )
    refuse(op, data=f32(2, 3), axes=[2], match="axis|axes")
    refuse(op, data=f32(2, 3), axes=np.array([[1]]), since=13 if op == "ReduceSum" else 18, match="rank")

EMPTY = {  # the reduction of nothing
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": -INF,
    "ReduceLogSumExp": -INF,
    "ReduceMax": -INF,
    "ReduceMean": NAN,
    "ReduceMin": INF,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}
for op, value in EMPTY.items():
    case(op, data=f32(2, 0, 3), axes=[1], expect=np.full((2, 1, 3), value, np.float32))
    case(op, data=f32(0, 3), axes=[1], keepdims=0, expect=np.zeros(0, np.float32))
case("ReduceMax", data=i8(0), axes=[0], expect=[-128])
case("ReduceMin", data=u8(0), axes=[0], expect=[255])
case("ReduceMax", data=booleans(2, 0), axes=[1], keepdims=0, expect=[False, False])
case("ReduceMin", data=booleans(2, 0), axes=[1], keepdims=0, expect=[True, True])
case("ReduceMax", data=booleans(4, 3), axes=[1], keepdims=0, expect=lambda data: [any(row) for row in data.tolist()])
case("ReduceMin", data=booleans(4, 3), axes=[1], keepdims=0, expect=lambda data: [all(row) for row in data.tolist()])

BROKEN = np.array([[1, NAN, 2], [INF, -INF, 0], [-INF, -INF, -INF]], np.float32)
case("ReduceMax", data=BROKEN, axes=[1], keepdims=0, expect=[NAN, INF, -INF])
case("ReduceMin", data=BROKEN, axes=[1], keepdims=0, expect=[NAN, -INF, -INF])
case("ReduceSum", data=BROKEN, axes=[1], keepdims=0, expect=[NAN, NAN, -INF])
case("ReduceLogSumExp", data=BROKEN, axes=[1], keepdims=0, expect=[NAN, INF, -INF])
case("ReduceLogSumExp", data=np.array([1000, 1000], np.float32), axes=[0], expect=[1000 + math.log(2)])
case("ReduceLogSum", data=np.array([-1, -2], np.float32), axes=[0], expect=[NAN])
case("ReduceSum", data=np.array([2**31 - 1, 1], np.int32), axes=[0], expect=[-(2**31)])
case("ReduceProd", data=np.array([2**20, 2**12], np.uint32), axes=[0], expect=[0])
LARGE_BEHIND_ZERO = np.array([0] + [1e3] * 99, np.float32)  # a part of it is infinite
LARGE_AND_SMALL = np.array([1e30, 1e-30] * 50, np.float32)  # so are parts of this, and others 0
case("ReduceProd", data=LARGE_BEHIND_ZERO, axes=[0], expect=[0.0])
case("ReduceProd", data=np.repeat(LARGE_BEHIND_ZERO[:, None], 3, 1), axes=[0], expect=[[0.0] * 3])
case("ReduceProd", data=LARGE_AND_SMALL, axes=[0], expect=[1.0], rtol=1e-5)
case("ReduceProd", data=np.repeat(LARGE_AND_SMALL[:, None], 40, 1), axes=[0], expect=np.ones((1, 40), np.float32), rtol=1e-5)
case("ReduceMean", data=np.array([-1, -2], np.int32), axes=[0], expect=[-1])
LEAST, GREATEST = -(2**31), 2**31 - 1
case(
    "ReduceLogSum",
    data=np.array([[1, -1], [-2, -3], [GREATEST] * 2], np.int32),
    axes=[1],
    keepdims=0,
    expect=[LEAST, LEAST, 22],
)
case("ReduceLogSum", data=np.array([[0, -3], [0, 4]]), axes=[0], keepdims=0, expect=[-(2**63), 0])
case("ReduceLogSum", data=np.zeros((2, 3), np.uint32), axes=[1], keepdims=0, expect=[0, 0])
case(
    "ReduceL2", data=np.array([[LEAST, 0], [GREATEST, 0], [GREATEST, 1]], np.int32), axes=[1], keepdims=0, expect=[GREATEST] * 3
)
case("ReduceL2", data=np.array([LEAST] * 4, np.int32), axes=[0], expect=[GREATEST])
case("ReduceL2", data=np.array([2**63 - 1, 1]), axes=[0], expect=np.array([2**63 - 1]))
case("ReduceL2", data=np.array([2**31] * 9, np.uint32), axes=[0], expect=np.array([2**32 - 1], np.uint32))
case("ReduceL2", data=np.array([2**64 - 1] * 2, np.uint64), axes=[0], expect=np.array([2**64 - 1], np.uint64))
case("ReduceLogSumExp", data=np.array([[GREATEST] * 9], np.int32), axes=[1], keepdims=0, expect=[GREATEST])
case("ReduceLogSumExp", data=np.zeros((2, 0), np.int32), axes=[1], keepdims=0, expect=[LEAST] * 2)
case("ReduceSum", data=np.full(4096, 1.0, np.float16), axes=[0], expect=[4096])
case("ReduceSum", data=np.full(4096, 1.0, np.float16), axes=[0], since=13, expect=[4096])

for op, choose in {"ArgMax": max, "ArgMin": min}.items():
    ROWS = i32(4, 5, low=0, high=3)
    first = [row.index(choose(row)) for row in ROWS.tolist()]
    last = [len(row) - 1 - row[::-1].index(choose(row)) for row in ROWS.tolist()]
    case(op, data=ROWS, axis=1, keepdims=0, types={"T": NUMERIC}, expect=first)
    case(op, data=ROWS, axis=-1, expect=np.reshape(first, (4, 1)))
    case(op, data=ROWS, axis=-1, select_last_index=1, expect=np.reshape(last, (4, 1)))
    case(op, data=ROWS, axis=1, select_last_index=1, keepdims=0, types={"T": INTS | FLOATS}, expect=last)
    case(op, data=ROWS, expect=lambda data, c=choose: [[column.index(c(column)) for column in data.T.tolist()]])
    case(op, data=f32(3, 0), axis=0, expect=np.zeros((1, 0), np.int64))
    refuse(op, data=f32(3, 0), axis=1, match="no elements")
    refuse(op, data=f32(3, 2), axis=2, match="axis 2")


def running(op, row, exclusive, reverse):
    """A running sum or product as the spec describes it, one element at a time."""
    total, found = (0, []) if op == "CumSum" else (1, [])
    for x in row[::-1] if reverse else row:
        after = total + x if op == "CumSum" else total * x
        found.append(total if exclusive else after)
        total = after
    return found[::-1] if reverse else found


RUNNING_TYPES = FLOATS | {dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64}
for op in ("CumSum", "CumProd"):
    for exclusive in (0, 1):
        for reverse in (0, 1):
            case(
                op,
                x=i32(3, 4, low=1, high=4),
                axis=1,
                exclusive=exclusive,
                reverse=reverse,
                types={"T": RUNNING_TYPES},
                expect=lambda x, o=op, e=exclusive, r=reverse: np.array([running(o, row, e, r) for row in x.tolist()]),
            )
            case(
                op,
                x=f32(3, 4),
                axis=np.array(-2, np.int32),
                exclusive=exclusive,
                reverse=reverse,
                expect=lambda x, o=op, e=exclusive, r=reverse: np.array([running(o, row, e, r) for row in x.T.tolist()]).T,
            )
    case(op, x=f32(0, 4), axis=0, exclusive=1, expect=np.zeros((0, 4), np.float32))
    case(op, x=f32(4), axis=np.array([0]), expect=lambda x, o=op: running(o, x.tolist(), 0, 0))
    refuse(op, x=f32(2, 3), axis=2, match="axis 2")
case("CumSum", x=np.array([2**31 - 1, 1], np.int32), axis=0, expect=np.array([2**31 - 1, -(2**31)], np.int32))
case("CumSum", x=i64(2, 3, 4), axis=1, expect=lambda x: np.stack([x[:, 0], x[:, 0] + x[:, 1], x.sum(1)], 1))


for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"):
    case(op, data=f32(2, 3, 4), axes=[-1, 2, 0], against_onnxruntime=True)  # an axis that is named twice counts once
