"""Cases of the ops that take or put elements at given positions."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.dtypes import ALL
from tests.ops.cases import case, f32, i64, refuse, strings

# --- taking -----------------------------------------------------------------------------------------------------------

case("Gather", data=f32(3, 4), indices=np.array([[2, 0], [1, 1]]), axis=0, expect=lambda data, indices: data[indices])
case(
    "Gather", data=f32(3, 4), indices=np.array([3, -1, -4], np.int32), axis=1, since=11, expect=lambda data: data[:, [3, 3, 0]]
)
case("Gather", data=f32(3, 4), indices=np.array(1), axis=1, expect=lambda data: data[:, 1])
case("Gather", data=f32(3), indices=np.array(2), axis=0, expect=lambda data: data[2])
case("Gather", data=f32(3, 4), indices=np.zeros((0, 2), np.int64), axis=0, expect=np.zeros((0, 2, 4), np.float32))
case("Gather", data=strings(2, 3), indices=np.array([1, 0]), axis=1, expect=lambda data: data[:, [1, 0]])
case("Gather", data=i64(3), indices=np.array([2, 1]), types={"T": ALL}, since=13, expect=lambda data: data[[2, 1]])
refuse(
    "Gather",
    data=f32(2, 3),
    indices=np.array([5]),
    kind=errors.InvalidArgument,
    match=r"idx=5 must be within the inclusive range \[-2,1\]",
)
refuse(
    "Gather",
    data=f32(2, 3),
    indices=np.array(-3),
    kind=errors.InvalidArgument,
    match=r"idx=-3 must be within the inclusive range \[-2,1\]",
)
refuse("Gather", data=f32(0, 3), indices=np.array([0]), kind=errors.InvalidArgument, match="idx=0")

case(
    "GatherElements",
    data=f32(3, 4),
    indices=np.array([[2, 0, 1, -1]]),
    axis=0,
    expect=lambda data: data[[2, 0, 1, 2], np.arange(4)][None],
)
case(
    "GatherElements",
    data=f32(3, 4),
    indices=np.array([[3, 0], [1, -4]], np.int32),
    axis=1,
    expect=lambda data: np.array([[data[0, 3], data[0, 0]], [data[1, 1], data[1, 0]]]),
)
case(
    "GatherElements",
    data=f32(2, 3, 4),
    indices=np.zeros((1, 5, 2), np.int64),
    axis=-2,
    expect=lambda data: np.repeat(data[:1, :1, :2], 5, axis=1),
)
case("GatherElements", data=f32(2, 3), indices=np.zeros((0, 3), np.int64), expect=np.zeros((0, 3), np.float32))
case("GatherElements", data=i64(2), indices=np.array([1, 1, 0]), types={"T": ALL}, expect=lambda data: data[[1, 1, 0]])
refuse("GatherElements", data=f32(2, 3), indices=np.array([[2]]), match="idx=2")
refuse("GatherElements", data=f32(2, 3), indices=np.zeros((1, 4), np.int64), match="indices shape is: 4")

case("GatherND", data=f32(2, 3), indices=np.array([[0, 1], [1, -1]]), expect=lambda data: np.array([data[0, 1], data[1, 2]]))
case(
    "GatherND",
    data=f32(2, 3, 4),
    indices=np.array([[[1, 2]], [[0, 0]]]),
    expect=lambda data: np.stack([data[1, 2], data[0, 0]])[:, None],
)
case(
    "GatherND",
    data=f32(2, 3, 4),
    indices=np.array([[1], [2]]),
    batch_dims=1,
    expect=lambda data: np.stack([data[0, 1], data[1, 2]]),
)
case(
    "GatherND",
    data=f32(2, 2, 4),
    indices=np.array([[[3], [0]], [[1], [2]]]),
    batch_dims=2,
    expect=lambda data: np.array([[data[0, 0, 3], data[0, 1, 0]], [data[1, 0, 1], data[1, 1, 2]]]),
)
case("GatherND", data=f32(2, 3), indices=np.zeros((0, 1), np.int64), expect=np.zeros((0, 3), np.float32))
case("GatherND", data=i64(2), indices=np.array([[1], [0]]), types={"T": ALL}, expect=lambda data: data[[1, 0]])
refuse("GatherND", data=f32(2, 3), indices=np.array([[0, 3]]), match="idx=3")
refuse("GatherND", data=f32(2, 3), indices=np.zeros((1, 3), np.int64), match="indices")

case("Compress", input=f32(3, 2), condition=np.array([False, True, True]), axis=0, expect=lambda input: input[1:])
case("Compress", input=f32(3, 2), condition=np.array([False, True]), axis=-1, since=11, expect=lambda input: input[:, 1:])
case(
    "Compress", input=f32(3, 2), condition=np.array([False, True, False, True]), expect=lambda input: input.reshape(-1)[[1, 3]]
)
case("Compress", input=f32(2), condition=np.array([False, True, True, True]), axis=0, expect=lambda input: input[1:])
case("Compress", input=f32(2), condition=np.zeros(0, bool), axis=0, expect=lambda input: input[:0])
case("Compress", input=i64(2), condition=np.array([False, True]), types={"T": ALL}, since=28, expect=lambda input: input[1:])

case("NonZero", X=np.array([[1, 0], [2, 3]], np.float32), sizes_known=False, expect=np.array([[0, 1, 1], [0, 0, 1]]))
case("NonZero", X=np.array([0.0, -0.0, np.nan, np.inf], np.float32), sizes_known=False, expect=np.array([[2, 3]]))
case("NonZero", X=np.array(3.0, np.float32), sizes_known=False, expect=np.zeros((0, 1), np.int64))
case("NonZero", X=np.array(0.0, np.float32), sizes_known=False, expect=np.zeros((0, 0), np.int64))
case("NonZero", X=np.zeros((2, 3), bool), sizes_known=False, expect=np.zeros((2, 0), np.int64))
case("NonZero", X=np.array(["", "a"], dtype=object), sizes_known=False, expect=np.array([[1]]))
case("NonZero", X=np.array([0, 1]), types={"T": ALL - {dtypes.string}}, since=13, sizes_known=False, expect=np.array([[1]]))

# --- putting ----------------------------------------------------------------------------------------------------------


def put(data, indices, updates, axis, join=lambda old, new: new):
    """Element by element, as the specification reads."""
    result = data.copy()
    for place in np.ndindex(indices.shape):
        target = list(place)
        target[axis] = indices[place]
        result[tuple(target)] = join(result[tuple(target)], updates[place])
    return result


ROWS = np.array([[1, 0, 2], [0, 2, -2]])
TWICE = np.array([[1, 1, -1, 1], [0, 2, 0, 0]])

for _op in ("Scatter", "ScatterElements"):
    case(
        _op,
        data=f32(3, 3),
        indices=ROWS,
        updates=f32(2, 3),
        axis=0,
        expect=lambda data, indices, updates: put(data, indices, updates, 0),
    )
    case(
        _op,
        data=f32(2, 5),
        indices=np.array([[4, 1]], np.int32),
        updates=f32(1, 2),
        axis=1,
        expect=lambda data, indices, updates: put(data, indices, updates, 1),
    )
    case(
        _op,
        data=strings(2, 2),
        indices=np.array([[1, 0]]),
        updates=strings(1, 2),
        axis=-1,
        expect=lambda data, indices, updates: put(data, indices, updates, 1),
    )
    case(_op, data=f32(2, 2), indices=np.zeros((0, 2), np.int64), updates=f32(0, 2), axis=0, expect=lambda data: data)

for _name, _join in (("add", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)):
    case(
        "ScatterElements", data=i64(2, 3), indices=TWICE, updates=i64(2, 4), axis=1, reduction=_name, since=18,
        types={"T": dtypes.NUMERIC | {dtypes.bool_}},
        expect=lambda data, indices, updates, join=_join: put(data, indices, updates, 1, join),
    )  # fmt: skip
    case(
        "ScatterND", data=i64(3, 2), indices=np.array([[1], [1], [-1]]), updates=i64(3, 2), reduction=_name, since=18,
        types={"T": dtypes.NUMERIC | {dtypes.bool_}},
        expect=lambda data, updates, join=_join: np.stack(
            [data[0], join(join(data[1], updates[0]), updates[1]), join(data[2], updates[2])]
        ),
    )  # fmt: skip

case(
    "ScatterElements",
    data=i64(2),
    indices=np.array([1]),
    updates=i64(1),
    types={"T": ALL},
    since=18,
    expect=lambda data, updates: np.array([data[0], updates[0]]),
)
case(
    "ScatterElements",
    data=f32(2, 3),
    indices=TWICE,
    updates=f32(2, 4),
    axis=1,
    reduction="add",
    opsets=(16,),
    expect=lambda data, indices, updates: put(data, indices, updates, 1, np.add),
)
case(
    "ScatterElements",
    data=np.array(["a", "b"], object),
    indices=np.array([0, 0]),
    updates=np.array(["x", "y"], object),
    reduction="add",
    since=16,
    expect=np.array(["axy", "b"], object),
)
case(
    "ScatterElements",
    data=np.array([100], np.int8),
    indices=np.array([0]),
    updates=np.array([100], np.int8),
    reduction="add",
    since=16,
    expect=np.array([-56], np.int8),
)
refuse(
    "ScatterElements",
    data=f32(2, 3),
    indices=np.array([[5]]),
    updates=f32(1, 1),
    match=r"idx=5 must be within the inclusive range \[-2,1\]",
)
refuse("ScatterElements", data=f32(2, 3), indices=np.array([[0]]), updates=f32(1, 2), match="differ")
refuse("ScatterElements", data=strings(2), indices=np.array([0]), updates=strings(1), reduction="mul", since=16, match="mul")

case(
    "ScatterND",
    data=f32(4, 2),
    indices=np.array([[2], [-4]]),
    updates=f32(2, 2),
    expect=lambda data, updates: np.stack([updates[1], data[1], updates[0], data[3]]),
)
case(
    "ScatterND",
    data=f32(2, 2),
    indices=np.array([[0, 1], [1, 0]]),
    updates=f32(2),
    expect=lambda data, updates: np.array([[data[0, 0], updates[0]], [updates[1], data[1, 1]]]),
)
case("ScatterND", data=f32(2, 2), indices=np.array([[[0]], [[1]]]), updates=f32(2, 1, 2), expect=lambda updates: updates[:, 0])
case(
    "ScatterND",
    data=i64(2),
    indices=np.array([[1]]),
    updates=i64(1),
    types={"T": ALL},
    since=18,
    expect=lambda data, updates: np.array([data[0], updates[0]]),
)
refuse("ScatterND", data=f32(2, 2), indices=np.array([[2]]), updates=f32(1, 2), match="idx=2")
refuse("ScatterND", data=f32(2, 2), indices=np.array([[1]]), updates=f32(1, 3), match="updates")
refuse("ScatterND", data=f32(2, 2), indices=np.array([[1]]), updates=f32(1), match="updates")
refuse("ScatterND", data=f32(2, 2), indices=np.array([[1]]), updates=f32(1, 2, 1), match="updates")
refuse("ScatterND", data=f32(1, 0), indices=np.array([[0]]), updates=f32(1), match="updates")

CACHE = f32(2, 4, 3)

case(
    "TensorScatter",
    past_cache=CACHE,
    update=f32(2, 2, 3),
    expect=lambda past_cache, update: np.concatenate([update, past_cache[:, 2:]], axis=1),
)
case(
    "TensorScatter", past_cache=CACHE, update=f32(2, 2, 3), write_indices=np.array([2, 1]),
    expect=lambda past_cache, update: np.stack([
        np.concatenate([past_cache[0, :2], update[0]]), np.concatenate([past_cache[1, :1], update[1], past_cache[1, 3:]]),
    ]),
)  # fmt: skip
case(
    "TensorScatter", past_cache=CACHE, update=f32(2, 2, 3), write_indices=np.array([3, 6]), mode="circular",
    expect=lambda past_cache, update: np.stack([
        np.concatenate([update[0, 1:], past_cache[0, 1:3], update[0, :1]]), np.concatenate([past_cache[1, :2], update[1]]),
    ]),
)  # fmt: skip
case(
    "TensorScatter",
    past_cache=f32(1, 2, 3),
    update=f32(1, 2, 1),
    write_indices=np.array([1]),
    axis=2,
    expect=lambda past_cache, update: np.concatenate([past_cache[..., :1], update, past_cache[..., 2:]], axis=2),
)
case(
    "TensorScatter",
    past_cache=i64(1, 2, 2),
    update=i64(1, 1, 2),
    write_indices=np.array([1]),
    types={"T": ALL},
    expect=lambda past_cache, update: np.concatenate([past_cache[:, :1], update], axis=1),
)
refuse("TensorScatter", past_cache=CACHE, update=f32(2, 2, 3), write_indices=np.array([3, 0]), match="do not fit")
refuse("TensorScatter", past_cache=CACHE, update=f32(2, 4, 3), axis=0, match="axis")
