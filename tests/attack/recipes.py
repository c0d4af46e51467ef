"""How random graphs grow by simple ops: elementwise ones, reductions, and all that moves data. `recipe` puts a function on the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.attack.growth import Grower, Place, Refused
from tests.attack.reference import is_float

RECIPES: list[tuple[Callable[[Grower], None], int]] = []


def recipe(weight: int = 1) -> Callable[[Callable[[Grower], None]], Callable[[Grower], None]]:
    def add(function: Callable[[Grower], None]) -> Callable[[Grower], None]:
        RECIPES.append((function, weight))
        return function

    return add


UNARY = """Abs Asin Acos Asinh Acosh Atan Atanh Ceil Cos Cosh Erf Exp Floor Identity Log Neg Reciprocal Relu Round Sigmoid Sign Sin Sinh
    Softplus Softsign Sqrt Tan Tanh HardSwish Mish Not IsNaN BitwiseNot""".split()  # noqa: SIM905 - a list of names would be long
POSITIVE = {"Log", "Sqrt", "Reciprocal", "Acosh"}
BOUNDED = {"Asin", "Acos", "Atanh", "Tan"}
WITH_NUMBERS: dict[str, dict[str, float]] = {
    "Elu": {"alpha": 1.0},
    "Celu": {"alpha": 1.5},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Selu": {"alpha": 1.6, "gamma": 1.05},
    "Shrink": {"lambd": 0.5, "bias": 0.1},
    "ThresholdedRelu": {"alpha": 1.0},
    "Swish": {"alpha": 1.0},
}
MICROSOFT_UNARY = ("Gelu", "FastGelu", "QuickGelu")
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Mod", "Pow", "PRelu")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
REDUCTIONS = ["Reduce" + name for name in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]]


def any_value(g: Grower) -> Place:
    return g.find(lambda one: True) or g.fresh(g.dtype())


@recipe(8)
def unary(g: Grower) -> None:
    op = g.rng.choice(UNARY)
    X = any_value(g)
    if op in POSITIVE and is_float(X.array):
        (X,) = g.apply("Abs", X=X)
        (X,) = g.apply("Add", A=X, B=np.asarray(1.0, X.dtype))
    elif op in BOUNDED and is_float(X.array):
        (X,) = g.apply("Sigmoid", X=X)
    name = {"Identity": "input", "Sin": "input", "Cos": "input", "Tan": "input", "Asin": "input", "Acos": "input"}.get(op)
    apply_unary(g, op, X, name)


def apply_unary(g: Grower, op: str, X: Place, name: str | None, **more: Any) -> None:
    for parameter in (name, "X", "input"):
        if parameter is None:
            continue
        try:
            g.apply(op, **{parameter: X}, **more)
            return
        except Refused:
            continue
    raise Refused


@recipe(3)
def unary_with_numbers(g: Grower) -> None:
    op = g.rng.choice(list(WITH_NUMBERS))
    numbers = {
        name: round(value * g.rng.uniform(0.1, 2), 3) for name, value in WITH_NUMBERS[op].items() if g.rng.random() < 0.6
    }
    apply_unary(g, op, g.floats(), None, **numbers)


@recipe(2)
def microsoft_unary(g: Grower) -> None:
    X = g.floats()
    if g.rng.random() < 0.3:
        g.apply("Gelu", X=X, approximate=g.rng.choice(("none", "tanh")))
    else:
        g.apply(g.rng.choice(MICROSOFT_UNARY), domain="com.microsoft", X=X)


@recipe(2)
def clip(g: Grower) -> None:
    X = any_value(g)
    low, high = (np.asarray(bound, X.dtype) if g.rng.random() < 0.8 else None for bound in (0, g.rng.choice((1, 3, 6))))
    g.apply("Clip", input=X, min=low, max=high)


def broadcastable(g: Grower, X: Place) -> Place:
    """A second operand: of the same type, and of a shape that broadcasts with the first."""
    same = g.find(lambda one: one.dtype == X.dtype and _broadcasts(one.shape, X.shape))
    if same is not None and g.rng.random() < 0.7:
        return same
    shape = [size if g.rng.random() < 0.6 else 1 for size in X.shape]
    shape = shape[g.rng.randrange(len(shape) + 1) :] if g.rng.random() < 0.4 else shape
    if g.rng.random() < 0.2 and len(shape) == X.ndim:
        shape = [g.rng.choice((1, 2, 3)), *shape]
    array = g.random_array(X.dtype, shape)
    return g.constant(array) if g.rng.random() < 0.5 else g.add_input(array)


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return np.prod(np.broadcast_shapes(tuple(a), tuple(b)), dtype=np.int64) < 1 << 16
    except ValueError:
        return False


@recipe(8)
def arithmetic(g: Grower) -> None:
    op = g.rng.choice(ARITHMETIC)
    A = any_value(g)
    B = broadcastable(g, A)
    if g.rng.random() < 0.3:
        A, B = B, A
    if op in ("Max", "Min", "Sum", "Mean"):
        g.apply(op, data_0=[A, B, *([A] if g.rng.random() < 0.2 else [])])
    elif op == "PRelu":
        g.apply(op, X=A, slope=B)
    elif op == "Pow":
        g.apply(op, X=A, Y=np.asarray(g.rng.choice((2, 3, 0, 1)), A.dtype))
    elif op == "Mod":
        B = g.constant(np.asarray(g.rng.choice((2, 3, 7)), A.dtype))
        g.apply(op, A=A, B=B, fmod=1 if is_float(A.array) else g.rng.randrange(2))
    elif op == "Div" and A.dtype.kind in "iu":
        g.apply(op, A=A, B=np.asarray(g.rng.choice((1, 2, 3)), A.dtype))
    else:
        g.apply(op, A=A, B=B)


@recipe(3)
def comparison(g: Grower) -> None:
    A = any_value(g)
    g.apply(g.rng.choice(COMPARISONS), A=A, B=broadcastable(g, A))


@recipe(2)
def logic(g: Grower) -> None:
    A = g.find(lambda one: one.dtype == np.bool_) or g.fresh(np.bool_)
    B = broadcastable(g, A)
    g.apply(g.rng.choice(("And", "Or", "Xor")), A=A, B=B)


@recipe(1)
def bits(g: Grower) -> None:
    A = g.find(lambda one: one.dtype.kind in "iu") or g.fresh(g.rng.choice((np.int32, np.uint8, np.int64)))
    if A.dtype.kind == "u" and g.rng.random() < 0.5:
        g.apply("BitShift", X=A, Y=np.asarray(g.rng.randrange(8), A.dtype), direction=g.rng.choice(("LEFT", "RIGHT")))
    else:
        g.apply(g.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), A=A, B=broadcastable(g, A))


@recipe(3)
def where(g: Grower) -> None:
    X = any_value(g)
    Y = broadcastable(g, X)
    shape = np.broadcast_shapes(X.shape, Y.shape)
    condition = g.find(lambda one: one.dtype == np.bool_ and _broadcasts(one.shape, shape)) or g.fresh(np.bool_, shape)
    g.apply("Where", condition=condition, X=X, Y=Y)


@recipe(4)
def cast(g: Grower) -> None:
    X = any_value(g)
    target = np.dtype(g.dtype())
    if target.kind in "iu" and is_float(X.array):
        low, high = (0, 200) if target.kind == "u" else (-100, 100)  # what does not fit is not defined
        (X,) = g.apply("Clip", input=X, min=np.asarray(low, X.dtype), max=np.asarray(high, X.dtype))
        if np.isnan(X.array.astype(np.float64)).any():
            raise Refused
    from sardonyx import dtypes

    if g.rng.random() < 0.15:
        g.apply("CastLike", input=X, target_type=np.zeros(1, target))
    else:
        g.apply("Cast", input=X, to=dtypes.from_numpy(target).code)


def axes_of(g: Grower, rank: int) -> list[int]:
    axes = g.rng.sample(range(rank), g.rng.randint(1, rank))
    return [axis - rank if g.rng.random() < 0.4 else axis for axis in axes]


def axis_of(g: Grower, rank: int) -> int:
    return g.rng.randrange(-rank, rank)


@recipe(6)
def reduce(g: Grower) -> None:
    data = g.find(lambda one: one.dtype.kind not in "bO" and one.ndim and one.array.size) or g.floats(least=1, nonempty=True)
    axes = axes_of(g, data.ndim) if g.rng.random() < 0.85 else None
    g.apply(g.rng.choice(REDUCTIONS), data=data, axes=axes, keepdims=g.rng.randrange(2))


@recipe(2)
def arg_reduce(g: Grower) -> None:
    data = g.find(lambda one: one.dtype.kind not in "bO" and one.ndim and one.array.size) or g.floats(least=1, nonempty=True)
    g.apply(g.rng.choice(("ArgMax", "ArgMin")), data=data, axis=axis_of(g, data.ndim), keepdims=g.rng.randrange(2))


@recipe(1)
def top_k(g: Grower) -> None:
    X = g.find(lambda one: one.dtype.kind not in "bO" and one.ndim and one.array.size) or g.floats(least=1, nonempty=True)
    axis = axis_of(g, X.ndim)
    K = np.asarray([g.rng.randint(1, X.shape[axis])], np.int64)
    g.apply("TopK", X=X, K=K, axis=axis, largest=g.rng.randrange(2), sorted=1, outputs=2)


@recipe(1)
def cumulative_sum(g: Grower) -> None:
    x = g.floats(least=1)
    axis = np.asarray(axis_of(g, x.ndim), np.int64)
    g.apply("CumSum", x=x, axis=axis, exclusive=g.rng.randrange(2), reverse=g.rng.randrange(2))


@recipe(3)
def softmax(g: Grower) -> None:
    input = g.floats(least=1)
    g.apply(g.rng.choice(("Softmax", "LogSoftmax", "Softmax", "Hardmax")), input=input, axis=axis_of(g, input.ndim))


@recipe(6)
def transpose(g: Grower) -> None:
    data = any_value(g)
    perm = g.rng.sample(range(data.ndim), data.ndim)
    g.apply("Transpose", data=data, perm=perm if g.rng.random() < 0.9 else None)


@recipe(6)
def reshape(g: Grower) -> None:
    data = any_value(g)
    size = data.array.size
    shape: list[int] = []
    rest = size
    for _ in range(g.rng.randrange(4)):
        divisors = [d for d in (1, 2, 3, 4, 5, 7, 8, 16) if rest and rest % d == 0]
        factor = g.rng.choice(divisors or [1])
        shape.append(factor)
        rest //= factor
    shape.insert(g.rng.randint(0, len(shape)), -1 if g.rng.random() < 0.5 and size else rest)
    g.apply("Reshape", data=data, shape=np.asarray(shape, np.int64))


@recipe(6)
def slice_(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim)
    axes = g.rng.sample(range(data.ndim), g.rng.randint(1, data.ndim))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = data.shape[axis]
        step = g.rng.choice((1, 1, 1, 2, 3, -1, -1, -2))
        first, last = sorted((g.rng.randint(0, size), g.rng.randint(0, size)))
        if step < 0:
            first, last = last, first - 1 if first else -(2**31)
        if step > 0 and g.rng.random() < 0.3:
            last = g.rng.choice((2**31 - 1, 2**63 - 1))
        if g.rng.random() < 0.3 and 0 < first < size:
            first -= size
        starts.append(first)
        ends.append(last)
        steps.append(step)
    operands = [np.asarray(one, np.int64) for one in (starts, ends, axes, steps)]
    g.apply("Slice", data=data, starts=operands[0], ends=operands[1], axes=operands[2], steps=operands[3])


@recipe(3)
def split(g: Grower) -> None:
    input = g.pick(lambda one: one.ndim and max(one.shape) > 1)
    axis = g.rng.choice([axis for axis, size in enumerate(input.shape) if size > 1])
    first = g.rng.randint(0, input.shape[axis])
    g.apply("Split", input=input, axis=axis, split=np.asarray([first, input.shape[axis] - first], np.int64), outputs=2)


@recipe(3)
def concat(g: Grower) -> None:
    first = g.pick(lambda one: one.ndim and one.dtype.kind != "O")
    axis = axis_of(g, first.ndim)
    others = []
    for _ in range(g.rng.randint(1, 3)):
        fitting = g.find(lambda one: one.dtype == first.dtype and _joins(one.shape, first.shape, axis))
        others.append(fitting or first)
    g.apply("Concat", inputs=[first, *others], axis=axis)


def _joins(a: Sequence[int], b: Sequence[int], axis: int) -> bool:
    return len(a) == len(b) and all(x == y for at, (x, y) in enumerate(zip(a, b)) if at != axis % len(b))


@recipe(3)
def expand(g: Grower) -> None:
    input = any_value(g)
    shape = [size if size != 1 else g.rng.choice((1, 2, 3, 5)) for size in input.shape]
    if g.rng.random() < 0.3:
        shape = [g.rng.choice((1, 2, 3)), *shape]
    g.apply("Expand", input=input, shape=np.asarray(shape, np.int64))


@recipe(1)
def tile(g: Grower) -> None:
    input = g.pick(lambda one: one.ndim)
    g.apply("Tile", input=input, repeats=np.asarray([g.rng.choice((1, 1, 2, 3)) for _ in input.shape], np.int64))


@recipe(3)
def squeeze(g: Grower) -> None:
    data = any_value(g)
    ones = [axis for axis, size in enumerate(data.shape) if size == 1]
    if ones and g.rng.random() < 0.6:
        g.apply("Squeeze", data=data, axes=np.asarray(g.rng.sample(ones, g.rng.randint(1, len(ones))), np.int64))
    else:
        g.apply("Unsqueeze", data=data, axes=np.asarray([g.rng.randrange(data.ndim + 1)], np.int64))


@recipe(1)
def flatten(g: Grower) -> None:
    input = any_value(g)
    g.apply("Flatten", input=input, axis=g.rng.randint(-input.ndim, input.ndim))


@recipe(3)
def pad(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim and one.dtype.kind != "O")
    pads = [g.rng.choice((0, 0, 1, 2, -1)) for _ in range(2 * data.ndim)]
    mode = g.rng.choice(("constant", "constant", "edge", "reflect"))
    if mode != "constant":
        pads = [max(0, min(amount, data.shape[at % data.ndim] - 1)) for at, amount in enumerate(pads)]
    value = np.asarray(g.rng.choice((0, 1, 2)), data.dtype) if mode == "constant" and g.rng.random() < 0.5 else None
    g.apply("Pad", data=data, pads=np.asarray(pads, np.int64), mode=mode, constant_value=value)


def indices_of(g: Grower, size: int, shape: Sequence[int], negative: bool = True) -> np.ndarray:
    if not size:
        raise Refused
    return g.numbers.integers(-size if negative else 0, size, shape).astype(g.rng.choice((np.int64, np.int32)))


@recipe(3)
def gather(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim)
    axis = axis_of(g, data.ndim)
    shape = g.shape(g.rng.choice((0, 1, 1, 2)), most=32)
    g.apply("Gather", data=data, indices=indices_of(g, data.shape[axis], shape), axis=axis)


@recipe(2)
def gather_elements(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim and one.array.size)
    axis = axis_of(g, data.ndim)
    shape = list(data.shape)
    shape[axis] = g.rng.choice((1, 2, 3, data.shape[axis]))
    g.apply("GatherElements", data=data, indices=indices_of(g, data.shape[axis], shape), axis=axis)


@recipe(1)
def gather_nd(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim and one.array.size)
    depth = g.rng.randint(1, data.ndim)
    columns = [g.numbers.integers(-size, size, (3,)) for size in data.shape[:depth]]
    g.apply("GatherND", data=data, indices=np.stack(columns, axis=-1).astype(np.int64))


@recipe(2)
def scatter_elements(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim and one.array.size and one.dtype.kind != "O")
    axis = axis_of(g, data.ndim)
    count = g.rng.randint(1, data.shape[axis])
    order = g.numbers.permutation(data.shape[axis])[:count].astype(np.int64)
    shape = list(data.shape)
    shape[axis] = count
    along = [1] * data.ndim
    along[axis] = count
    indices = np.broadcast_to(order.reshape(along), shape).copy()
    reduction = g.rng.choice((None, "none", "add", "mul", "max", "min"))
    g.apply(
        "ScatterElements", data=data, indices=indices, updates=g.random_array(data.dtype, shape), axis=axis, reduction=reduction
    )


@recipe(1)
def scatter_nd(g: Grower) -> None:
    data = g.pick(lambda one: one.ndim and one.array.size and one.dtype.kind != "O")
    rows = g.numbers.permutation(data.shape[0])[: g.rng.randint(1, data.shape[0])]
    updates = g.random_array(data.dtype, (len(rows), *data.shape[1:]))
    g.apply("ScatterND", data=data, indices=rows.reshape(-1, 1).astype(np.int64), updates=updates)


@recipe(1)
def trilu(g: Grower) -> None:
    input = g.pick(lambda one: one.ndim >= 2)
    g.apply("Trilu", input=input, k=np.asarray(g.rng.randint(-3, 3), np.int64), upper=g.rng.randrange(2))


@recipe(1)
def blocks(g: Grower) -> None:
    input = g.floats(rank=4)
    op = g.rng.choice(("DepthToSpace", "SpaceToDepth"))
    mode = g.rng.choice(("DCR", "CRD")) if op == "DepthToSpace" else None
    g.apply(op, input=input, blocksize=g.rng.choice((1, 2)), mode=mode)


@recipe(1)
def one_hot(g: Grower) -> None:
    depth = g.rng.randint(1, 5)
    values = np.asarray([0, g.rng.choice((1, 3))], g.rng.choice((np.float32, np.int64)))
    indices = g.numbers.integers(-depth - 1, depth + 1, g.shape(g.rng.randrange(3), most=64)).astype(np.int64)
    g.apply("OneHot", indices=indices, depth=np.asarray(depth, np.int64), values=values, axis=-1)


@recipe(1)
def of_shape(g: Grower) -> None:
    data = any_value(g)
    (shape,) = g.apply("Shape", data=data)
    if g.rng.random() < 0.5 and data.array.size < 4096:
        g.apply(
            "ConstantOfShape", input=shape, value=np.asarray([g.rng.choice((0, 1, 7))], g.rng.choice((np.float32, np.int64)))
        )
    elif g.rng.random() < 0.5:
        g.apply("Size", data=data)


@recipe(1)
def eye_like(g: Grower) -> None:
    g.apply("EyeLike", input=g.pick(lambda one: one.ndim == 2 and one.dtype.kind != "O"), k=g.rng.randint(-2, 2))


@recipe(1)
def range_(g: Grower) -> None:
    dtype = g.rng.choice((np.int64, np.int32, np.float32))
    start, limit, delta = (
        np.asarray(number, dtype) for number in (g.rng.randint(-3, 3), g.rng.randint(-3, 12), g.rng.choice((1, 2, 3)))
    )
    g.apply("Range", start=start, limit=limit, delta=delta)


@recipe(1)
def selected(g: Grower) -> None:
    data = any_value(g)
    chance = g.rng.random()
    if chance < 0.4:
        g.apply("NonZero", X=data)
    elif chance < 0.7 and data.ndim:
        axis = g.rng.randrange(data.ndim)
        g.apply("Compress", input=data, condition=g.random_array(np.bool_, (data.shape[axis],)), axis=axis)
    else:
        g.apply("Unique", X=data, sorted=1, outputs=4)


@recipe(1)
def reverse_sequence(g: Grower) -> None:
    input = g.pick(lambda one: one.ndim >= 2 and one.array.size)
    lens = g.numbers.integers(1, input.shape[0] + 1, (input.shape[1],)).astype(np.int64)
    g.apply("ReverseSequence", input=input, sequence_lens=lens, batch_axis=1, time_axis=0)


@recipe(2)
def again(g: Grower) -> None:
    """The same node a second time: what the optimizer takes for a common subexpression."""
    import onnx

    nodes = [
        node for node in g.nodes if node.op_type not in ("Constant", "If", "Loop") and not node.op_type.startswith("Random")
    ]
    if not nodes:
        raise Refused
    original = g.rng.choice(nodes)
    node = onnx.NodeProto()
    node.CopyFrom(original)
    values = {place.name: place.array for place in g.places}
    if any(name and name not in values for name in original.output):
        raise Refused
    node.output[:] = [g.name() if name else "" for name in original.output]
    for name, twin in zip(original.output, node.output):
        if name:
            g.places.append(Place(twin, values[name]))
    g.nodes.append(node)
