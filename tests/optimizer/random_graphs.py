"""Small random graphs out of what the optimizer's rules look at: arithmetic with 0 and 1, views, slices, casts, idioms spelled out.

`random_model(seed)` makes one; the same seed makes the same. Sizes N and S are symbolic. Values that rounding cannot have touched are
remembered as exact: only these are compared, cast to integers or used as conditions, where a rounding error would become a jump.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sardonyx import dtypes, ops
from sardonyx.dtypes import ElementType
from sardonyx.ir import Attribute, Graph, Kind, Model, Node, TensorType, Value, dim
from sardonyx.ops.builder import Builder
from sardonyx.ops.inference import Driver
from sardonyx.providers.cpu.provider import evaluate

OPSETS = (11, 13, 14, 17, 18, 20, 21, 23)
N, S = dim.symbol("N"), dim.symbol("S")
TENSORS = [(N, S, 8), (N, S, 8), (N, S, 4), (N, 8), (2, 8), (1, S, 8), (8,), (N, 4, S), (N, 3, 8, 6), ()]
IMAGES = [(N, 3, 8, 6), (2, 4, 6, 6), (N, 2, 7, 8), (N, 2, 7, 8)]
Move = Callable[["Maker"], "Value | None"]
MOVES: list[Move] = []
IMAGE_MOVES: list[Move] = []


def move(function: Move) -> Move:
    """Make a function one of the steps by which graphs grow."""
    MOVES.append(function)
    return function


def image_move(function: Move) -> Move:
    """The same, and a frequent one in every third graph, whose inputs are images."""
    IMAGE_MOVES.append(function)
    return move(function)


class Maker:
    """A graph under construction; every node is typed as soon as it is there."""

    def __init__(self, seed: int):
        ops.load_families()
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.dtype: ElementType = self.choice([dtypes.float32] * 8 + [dtypes.float16, dtypes.float64])
        self.graph = Graph("random")
        self.model = Model(self.graph, {"": self.opset, "com.microsoft": 1}, 8)
        self.op = Builder(self.graph, opsets=self.model.opsets, prefix="r")
        self.driver = Driver(self.model, evaluate)
        self.is_image = self.chance(0.33)
        self.pool: list[Value] = []
        self.exact: set[Value] = set()
        for index in range(int(self.rng.integers(1, 4))):
            value = Value(f"x{index}", TensorType(self.dtype, self.choice(IMAGES if self.is_image else TENSORS)))
            self.pool.append(self.graph.add_input(value))
            self.exact.add(value)

    def choice(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *, rank: int | tuple[int, ...] | None = None, exact: bool = False) -> Value | None:
        """A float value of some rank, mostly one of the last."""
        ranks = (rank,) if isinstance(rank, int) else rank
        fitting = [
            value
            for value in self.pool
            if value.type.dtype is self.dtype
            and value.type.shape is not None
            and (ranks is None or len(value.type.shape) in ranks)
            and (not exact or value in self.exact)
        ]
        return self.choice(fitting[-4:]) if fitting else None

    def add(self, op_type: str, *inputs, exact: bool = False, outputs: int = 1, **operands):
        made = self.op.node(op_type, *inputs, outputs=outputs, **operands)
        results = made if outputs > 1 else [made]
        self.driver.node(results[0].producer)
        if exact and all(value is None or value.constant is not None or value in self.exact for value in inputs):
            self.exact.update(results)
        return made

    def constant(self, content, dtype=None) -> Value:
        return self.op.constant(np.asarray(content, self.dtype.numpy if dtype is None else dtype))

    def weights(self, *shape: int, scale: float = 0.5) -> Value:
        return self.constant(self.rng.standard_normal(shape) * scale)

    def ones(self, rank: int) -> tuple[int, ...]:
        """The shape of a constant of one element; now and then it enlarges what it is combined with."""
        return (1,) * (rank + 1 if self.chance(0.06) and rank < 3 else int(self.rng.integers(0, rank + 1)))

    def either(self, op: str, a: Value, b: Value) -> Value:
        """A commutative op with its operands in some order."""
        return self.add(op, b, a) if self.chance(0.5) else self.add(op, a, b)

    def number(self, value: float, like: Value) -> Value:
        return self.constant(np.full(self.ones(len(like.type.shape)), value))


def random_model(seed: int) -> Model:
    """A typed model of a few moves."""
    maker = Maker(seed)
    for _ in range(int(maker.rng.integers(2, 8))):
        made = maker.choice(IMAGE_MOVES if maker.is_image and maker.chance(0.6) else MOVES)(maker)
        if made is not None:
            maker.pool.append(made)
    outputs = {value: None for value in maker.pool if value.producer is not None and not value.uses}
    if maker.chance(0.2):
        outputs |= {value: None for value in maker.pool[-3:] if value.producer is not None}
    maker.graph.outputs = list(outputs) or [maker.add("Identity", maker.pool[0])]
    for index, value in enumerate(maker.graph.outputs):
        value.name = f"y{index}"
    return maker.model


def size_of(value: Value, axis: int) -> int | None:
    size = value.type.shape[axis]
    return size if isinstance(size, int) else None


# --- elementwise


@image_move
def neutral(m: Maker) -> Value | None:
    x = m.pick()
    op = m.choice(["Add", "Sub", "Mul", "Div"])
    content = np.full(m.ones(len(x.type.shape)), 0.0 if op in ("Add", "Sub") else 1.0)
    if m.chance(0.3):
        content = content + 0.5
    return m.add(op, x, m.constant(content), exact=True)


@image_move
def unary(m: Maker) -> Value | None:
    op = m.choice(["Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Identity", "Dropout"])
    return m.add(op, m.pick(), exact=op not in ("Tanh", "Sigmoid"))


@image_move
def binary(m: Maker) -> Value | None:
    a = m.pick()
    same = [value for value in m.pool if value.type == a.type]
    return m.add(m.choice(["Add", "Sub", "Mul"]), a, m.choice(same))


@move
def reciprocal_product(m: Maker) -> Value | None:
    x = m.pick()
    positive = m.add("Add", m.add("Abs", x), m.number(1.0, x))
    return m.either("Mul", m.add("Div", m.number(1.0, x), positive), x)


@image_move
def clipped(m: Maker) -> Value | None:
    x = m.pick()
    if m.chance(0.7):
        x = m.add("Relu", x, exact=True)
    low, high = float(m.choice([-1.0, 0.0, 0.5])), float(m.choice([1.0, 6.0]))
    if m.dtype is not dtypes.float32 and m.opset < 12:
        return None
    return m.add("Clip", x, min=np.array(low, m.dtype.numpy), max=np.array(high, m.dtype.numpy), exact=True)


@move
def chosen(m: Maker) -> Value | None:
    x = m.pick(exact=True)
    if x is None:
        return None
    condition = m.add("Greater", x, m.constant(0.0), exact=True)
    if m.chance(0.7):
        condition = m.add("Not", condition)
    return m.add("Where", condition, x, m.add("Neg", x))


@move
def casts(m: Maker) -> Value | None:
    x = m.pick(exact=True) or m.pick()
    between = m.choice([dtypes.float16, dtypes.float32, dtypes.float64] + [dtypes.int32, dtypes.int64] * (x in m.exact))
    wide = m.add("Cast", x, to=between.code, exact=True)
    if m.chance(0.3):
        wide = m.add("Cast", wide, to=m.choice([between, dtypes.float64]).code, exact=True)
    return m.add("Cast", wide, to=m.dtype.code, exact=True)


# --- views and moves


@move
def reshaped_by_shape(m: Maker) -> Value | None:
    """Heads split off, or two axes joined, with the sizes taken from the tensor."""
    x = m.pick(rank=3)
    if x is None or (size := size_of(x, 2)) not in (2, 4, 8):
        return None
    source = m.add("Cast", x, to=dtypes.float16.code) if m.chance(0.2) else x
    shape = m.add("Shape", source)
    parts = [m.add("Gather", shape, m.constant(axis, np.int64), axis=0) for axis in (0, 1)]
    parts = [m.add("Unsqueeze", part, axes=np.array([0])) for part in parts]
    ends = [m.constant([number], np.int64) for number in m.choice([(2, size // 2), (size,), (-1,), (size // 2, -1)])]
    if m.chance(0.5):
        joined = [m.add("Mul", *parts), m.constant([size], np.int64)]
        parts, ends = m.choice([joined, [parts[0], m.add("Mul", parts[1], m.constant([size], np.int64))]]), []
    return m.add("Reshape", x, m.add("Concat", *parts, *ends, axis=0), exact=True)


@move
def viewed(m: Maker) -> Value | None:
    x = m.pick(rank=(1, 2, 3, 4))
    if x is None:
        return None
    rank = len(x.type.shape)
    for _ in range(int(m.rng.integers(1, 4))):
        rank = len(x.type.shape)
        kind = m.choice(["Unsqueeze", "Squeeze", "Flatten", "Reshape"])
        ones = [axis for axis, size in enumerate(x.type.shape) if size == 1]
        if kind == "Unsqueeze" and rank < 5:
            x = m.add("Unsqueeze", x, axes=np.array([int(m.rng.integers(0, rank + 1))]), exact=True)
        elif kind == "Squeeze" and ones:
            x = m.add("Squeeze", x, axes=np.array([m.choice(ones)]), exact=True)
        elif kind == "Flatten" and rank:
            x = m.add("Flatten", x, axis=int(m.rng.integers(0, rank + 1)), exact=True)
        elif kind == "Reshape" and rank:
            target = m.choice([[0] * rank, [0] * (rank - 1) + [-1], [-1], [0] * (rank - 1) + [-1, 1]])
            x = m.add("Reshape", x, m.constant(target, np.int64), exact=True)
    return x if len(x.type.shape) < 5 else None


@move
def transposed(m: Maker) -> Value | None:
    x = m.pick(rank=(2, 3, 4))
    return None if x is None else m.add("Transpose", x, perm=m.rng.permutation(len(x.type.shape)).tolist(), exact=True)


@move
def sliced(m: Maker) -> Value | None:
    x = m.pick(rank=(2, 3, 4))
    if x is None:
        return None
    axis = int(m.rng.integers(len(x.type.shape)))
    start, end, step = m.choice([(0, 2**62, 1), (0, 2**31 - 1, 1), (0, 2**62, 2), (1, 2**62, 1), (0, -1, 1)])
    if m.chance(0.2):
        end_value = m.add("Gather", m.add("Shape", x), m.constant([axis], np.int64), axis=0)
        return m.add("Slice", x, m.constant([0], np.int64), end_value, m.constant([axis], np.int64), exact=True)
    bounds = [m.constant([number], np.int64) for number in (start, end, axis, step)]
    return m.add("Slice", x, *bounds, exact=True)


@move
def cut_up(m: Maker) -> Value | None:
    """All parts of an axis, by gathers or slices."""
    x = m.pick(rank=(2, 3))
    if x is None or (size := size_of(x, -1)) is None or size > 8 or size < 2:
        return None
    axis = len(x.type.shape) - 1
    if m.chance(0.5) and size <= 4:
        parts = [m.add("Gather", x, m.constant(index, np.int64), axis=axis, exact=True) for index in range(size)]
    else:
        if size % 2:
            return None
        first, middle, last, along = (m.constant([number], np.int64) for number in (0, size // 2, size, axis))
        parts = [m.add("Slice", x, start, end, along, exact=True) for start, end in ((first, middle), (middle, last))]
    return m.add("Mul", parts[0], m.add("Tanh", parts[-1]))


@move
def expanded(m: Maker) -> Value | None:
    x = m.pick(rank=(1, 2, 3))
    if x is None:
        return None
    rank = len(x.type.shape)
    if m.chance(0.5):
        return m.add("Expand", x, m.add("Shape", x) if m.chance(0.6) else m.constant([1] * rank, np.int64), exact=True)
    return m.add("Tile", x, m.constant([1] * rank if m.chance(0.6) else [2] + [1] * (rank - 1), np.int64), exact=True)


@move
def ranged(m: Maker) -> Value | None:
    x = m.pick(rank=(2, 3))
    if x is None or (size := size_of(x, -1)) is None:
        return None
    start, limit, delta = (m.constant(number, np.int64) for number in (m.choice([0, 1]), size, m.choice([1, 2])))
    return m.add("Gather", x, m.add("Range", start, limit, delta), axis=len(x.type.shape) - 1, exact=True)


@move
def positions(m: Maker) -> Value | None:
    """Rows of a table up to the length of a sequence, added as position embeddings are."""
    x = m.pick(rank=3)
    if x is None or x.type.shape[1] != S or (size := size_of(x, 2)) is None:
        return None
    length = m.add("Gather", m.add("Shape", x), m.constant(1, np.int64), axis=0)
    rows = m.add("Range", m.constant(m.choice([0, 0, 1]), np.int64), length, m.constant(1, np.int64))
    table = m.add("Gather", m.weights(8, size), rows, axis=0)
    return m.either("Add", x, table) if table.type.shape[0] == S else table


@image_move
def quarters(m: Maker) -> Value | None:
    x = m.pick(rank=4)
    if x is None or any(size_of(x, axis) is None or size_of(x, axis) % 2 for axis in (2, 3)):
        return None
    parts = []
    for row, column in m.choice([[(0, 0), (1, 0), (0, 1), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]]):
        bounds = [m.constant(numbers, np.int64) for numbers in ([row, column], [2**62, 2**62], [2, 3], [2, 2])]
        parts.append(m.add("Slice", x, *bounds, exact=True))
    return m.add("Concat", *parts, axis=1, exact=True)


# --- matrix products


def bias(m: Maker, size: int) -> Value:
    return m.constant(np.zeros(size)) if m.chance(0.2) else m.weights(size)


@move
def dense(m: Maker) -> Value | None:
    """A product with weights and perhaps a bias, batch normalization, an activation."""
    x = m.pick(rank=(2, 3))
    if x is None or (size := size_of(x, -1)) is None:
        return None
    columns = m.choice([4, 8])
    y = m.add("MatMul", x, m.weights(size, columns, scale=1 / math.sqrt(size or 1)))
    if m.chance(0.7):
        y = m.either("Add", y, bias(m, columns))
    if m.chance(0.3) and len(y.type.shape) == 2:
        y = normalized_batch(m, y, columns)
    return activated(m, y) if m.chance(0.5) else y


@move
def gemm(m: Maker) -> Value | None:
    x = m.pick(rank=2)
    if x is None or (size := size_of(x, 1)) is None:
        return None
    trans = int(m.chance(0.5))
    w = m.weights(*((4, size) if trans else (size, 4)), scale=1 / math.sqrt(size or 1))
    if m.chance(0.3):
        w, trans = m.add("Transpose", w, perm=[1, 0]), 1 - trans
    y = m.add("Gemm", x, w, *([bias(m, 4)] if m.chance(0.5) or m.opset < 11 else []), transB=trans, alpha=m.choice([1.0, 0.5]))
    if m.chance(0.3):
        y = m.either(m.choice(["Add", "Sum"]), y, bias(m, 4))
    if m.chance(0.3):
        y = normalized_batch(m, y, 4)
    if m.chance(0.3):
        y = m.add("Transpose", y, perm=[1, 0])
    return activated(m, y) if m.chance(0.5) else y


@move
def products_of_activations(m: Maker) -> Value | None:
    """Scores as in attention: scaled, one factor transposed."""
    x = m.pick(rank=(3, 4))
    if x is None:
        return None
    rank = len(x.type.shape)
    order = [*range(rank - 2), rank - 1, rank - 2]
    other = m.add("Transpose", m.add("Tanh", x), perm=order)
    first = m.add("Mul", x, m.number(0.25, x)) if m.chance(0.5) else x
    y = m.add("MatMul", first, other)
    return m.add("Div", y, m.number(8.0, y)) if m.chance(0.5) else y


def activated(m: Maker, x: Value) -> Value:
    op = m.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Clip"])
    if op == "Clip":
        if m.dtype is not dtypes.float32 and m.opset < 12:
            return x
        return m.add("Clip", x, min=np.array(0, m.dtype.numpy), max=np.array(6, m.dtype.numpy))
    return m.add(op, x)


def normalized_batch(m: Maker, x: Value, channels: int) -> Value:
    variance = m.constant(m.rng.uniform(0.5, 2.0, channels))
    return m.add("BatchNormalization", x, m.weights(channels), m.weights(channels), m.weights(channels), variance)


# --- images


@image_move
def convolved(m: Maker) -> Value | None:
    x = m.pick(rank=4)
    if x is None or (channels := size_of(x, 1)) is None or None in (size_of(x, 2), size_of(x, 3)):
        return None
    if min(size_of(x, 2), size_of(x, 3)) < 3:
        return None
    if m.chance(0.4):
        x = m.add("Pad", x, pads=np.array([0, 0, 1, 0, 0, 0, 1, 1]))
    is_transposed = m.chance(0.2)
    made = m.choice([2, channels])
    shape = (channels, made, 3, 3) if is_transposed else (made, channels, 3, 3)
    w = m.weights(*shape, scale=1 / math.sqrt(9 * channels or 1))
    own = {"pads": [1, 1, 1, 1]} if m.chance(0.5) else {}
    y = m.add("ConvTranspose" if is_transposed else "Conv", x, w, *([bias(m, made)] if m.chance(0.5) else []), **own)
    if m.chance(0.3):
        y = m.either(m.choice(["Add", "Mul"]), y, m.weights(*m.choice([(made, 1, 1), (1, made, 1, 1), ()])))
    if m.chance(0.5):
        y = normalized_batch(m, y, made)
    residuals = [value for value in m.pool if value.type == y.type]
    if residuals and m.chance(0.6):
        y = m.either("Add", y, m.choice(residuals))
    return activated(m, y) if m.chance(0.7) else y


@image_move
def pooled(m: Maker) -> Value | None:
    x = m.pick(rank=4)
    if x is None or None in (size_of(x, 2), size_of(x, 3)) or min(size_of(x, 2), size_of(x, 3)) < 3:
        return None
    if m.chance(0.5):
        x = m.add("Relu", x)
    if m.chance(0.7):
        x = m.add("Pad", x, pads=np.array([0, 0, 1, m.choice([0, 1, 3]), 0, 0, 0, 1]))
    own = {"pads": [1, 0, 0, 1]} if m.chance(0.3) else {}
    return m.add(m.choice(["MaxPool", "AveragePool"]), x, kernel_shape=[3, 3], strides=m.choice([[1, 1], [2, 2]]), **own)


# --- idioms


@move
def gelu(m: Maker) -> Value | None:
    x = m.pick()
    if m.chance(0.4):
        size = size_of(x, -1) if x.type.shape else None
        x = x if size is None else m.either("Add", x, bias(m, size))
    if m.chance(0.5):
        scaled = (
            m.add("Div", x, m.number(math.sqrt(2), x)) if m.chance(0.5) else m.either("Mul", x, m.number(math.sqrt(0.5), x))
        )
        f = m.add("Erf", scaled)
    else:
        cube = m.either("Mul", x, m.add("Mul", x, x)) if m.chance(0.5) else m.add("Pow", x, m.constant(3.0))
        total = m.either("Add", x, m.either("Mul", cube, m.constant(0.044715)))
        f = m.add("Tanh", m.either("Mul", total, m.constant(math.sqrt(2 / math.pi))))
    f = m.either("Add", f, m.number(1.0, x))
    half = m.number(0.5, x)
    kind = m.choice([0, 1, 2])
    if kind == 0:
        return m.either("Mul", m.either("Mul", x, f), half)
    return m.either("Mul", x, m.either("Mul", f, half)) if kind == 1 else m.either("Mul", m.either("Mul", x, half), f)


@move
def silu(m: Maker) -> Value | None:
    x = m.pick()
    inner = m.either("Mul", x, m.number(1.702, x)) if m.chance(0.5) else x
    return m.either("Mul", x, m.add("Sigmoid", inner))


def over_root(m: Maker, numerator: Value, x: Value, axes: np.ndarray) -> Value:
    square = m.add("Mul", x, x) if m.chance(0.4) else m.add("Pow", x, m.constant(2.0))
    variance = m.add("ReduceMean", square, axes=axes)
    root = m.add("Sqrt", m.either("Add", variance, m.constant(0.01)))
    if m.chance(0.5):
        return m.add("Div", numerator, root)
    inverse = m.add("Reciprocal", root) if m.chance(0.5) else m.add("Div", m.constant(1.0), root)
    return m.either("Mul", numerator, inverse)


@move
def layer_norm(m: Maker) -> Value | None:
    x = m.pick(rank=(2, 3))
    if x is None or (size := size_of(x, -1)) is None:
        return None
    if m.chance(0.5):
        x = m.either("Add", x, m.add("Tanh", x))
        if m.chance(0.5):
            x = m.either("Add", m.either("Add", x, bias(m, size)), m.add("Sigmoid", x))
    axes = np.array([m.choice([-1, len(x.type.shape) - 1])])
    if m.chance(0.4):
        y = over_root(m, x, x, axes)
    else:
        centred = m.add("Sub", x, m.add("ReduceMean", x, axes=axes))
        again = m.add("Sub", x, m.add("ReduceMean", x, axes=axes)) if m.chance(0.3) else centred
        y = over_root(m, again, centred, axes)
    if m.chance(0.8):
        y = m.either("Mul", y, m.constant(np.ones(size)) if m.chance(0.3) else m.weights(size))
        y = m.either("Add", y, bias(m, size)) if m.chance(0.7) else y
    if m.chance(0.3):
        m.pool.append(x)
    return y


# --- control flow


@move
def decided(m: Maker) -> Value | None:
    x = m.pick()
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = Graph(name)
        op = Builder(inner, opsets=m.model.opsets, prefix=f"{name}{len(m.graph)}")
        y = op.Mul(x, op.constant(np.asarray(2.0, m.dtype.numpy))) if m.chance(0.5) else op.Neg(op.Relu(x))
        inner.outputs = [y]
        branches[name] = Attribute(Kind.GRAPH, inner)
    condition = m.constant(m.chance(0.5), np.bool_)
    output = Value(m.op.unique("If"))
    node = m.op.add(Node("If", [condition], [output], branches, version=m.opset))
    m.driver.node(node)
    return output
