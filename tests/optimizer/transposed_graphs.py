"""Random graphs of movers, elementwise ops and Transposes, for property tests of layouts: all numbers are small and whole, so that
whatever order of axes a graph is computed in, its results are equal to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from sardonyx import ops
from sardonyx.dtypes import float32
from sardonyx.ir import Graph, Model, TensorType, Value, dim
from sardonyx.ops.builder import Builder
from sardonyx.ops.inference import Driver
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import SIZES

Draw = st.DrawFn


class Growing:
    """A graph under construction: typed values and one method per way to grow."""

    def __init__(self, draw: Draw, opset: int):
        ops.load_families()
        self.draw = draw
        self.graph = Graph("random")
        self.model = Model(self.graph, opsets={"": opset, "com.microsoft": 1})
        self.op = Builder(self.graph, opsets={"": opset})
        self.driver = Driver(self.model, evaluate)
        self.values: list[Value] = []

    def add_input(self, shape: tuple[dim.Dim, ...]) -> None:
        self.values.append(self.graph.add_input(Value(f"x{len(self.values)}", TensorType(float32, shape))))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self) -> Value:
        return self.values[self.number(0, len(self.values) - 1)]

    def grow(self) -> None:
        ways = [
            self.transpose,
            self.transpose,
            self.transpose,
            self.unary,
            self.binary,
            self.along_axis,
            self.mover,
            self.reduce,
        ]
        made = ways[self.number(0, len(ways) - 1)](self.pick())
        for node in self.op.made:
            self.driver.node(node)
        self.op.made.clear()
        self.values.extend(made if isinstance(made, list) else [] if made is None else [made])

    def transpose(self, x: Value):
        return self.op.Transpose(x, perm=self.draw(st.permutations(range(len(shape(x))))))

    def unary(self, x: Value):
        name = self.draw(st.sampled_from(["Neg", "Relu", "Abs", "Identity", "Floor", "Shape", "Quantize"]))
        if name == "Shape":
            return self.op.Cast(self.op.Shape(x), to=1)
        if name == "Quantize":
            zero = self.op.constant(np.int8(3))
            return self.op.DequantizeLinear(self.op.QuantizeLinear(x, self.op.constant(1.0), zero), self.op.constant(1.0), zero)
        return self.op.node(name, x)

    def binary(self, x: Value):
        name = self.draw(st.sampled_from(["Add", "Sub", "Max", "Min"]))
        fitting = [one for one in self.values if _broadcast(shape(one), shape(x))]
        other = self.draw(st.sampled_from([*fitting, None, None]))
        if other is None:
            other = self._constant_for(x)
        left, right = (x, other) if self.number(0, 1) else (other, x)
        return self.op.node(name, left, right)

    def _constant_for(self, x: Value) -> Value:
        sizes = shape(x)[self.number(0, len(shape(x))) :]
        kept = [size if isinstance(size, int) and self.number(0, 1) else 1 for size in sizes]
        return self.op.constant(np.arange(int(np.prod(kept)), dtype=np.float32).reshape(kept) % 5)

    def along_axis(self, x: Value):
        rank = len(shape(x))
        if not rank:
            return None
        axis = self.number(-rank, rank - 1)
        name = self.draw(st.sampled_from(["Concat", "Split", "CumSum", "ArgMax", "Gather"]))
        if name == "Concat":
            same = [one for one in self.values if shape(one) == shape(x)]
            return self.op.Concat(x, same[self.number(0, len(same) - 1)], axis=axis)
        if name == "Split" and shape(x)[axis] == 4:
            return self.op.Split(x, split=[1, 3], outputs=2, axis=axis)
        if name == "CumSum":
            return self.op.CumSum(x, self.op.constant(axis))
        if name == "ArgMax":
            return self.op.Cast(self.op.ArgMax(x, axis=axis, keepdims=self.number(0, 1)), to=1)
        indices = [np.array(0), np.array([0, 0]), np.zeros((1, 2), np.int64)][self.number(0, 2)]
        return self.op.Gather(x, self.op.constant(indices), axis=axis) if rank < 5 else None

    def mover(self, x: Value):
        rank = len(shape(x))
        name = self.draw(st.sampled_from(["Slice", "Pad", "Tile", "Unsqueeze", "Squeeze", "Expand", "Reshape"]))
        if not rank or (name in ("Unsqueeze", "Expand") and rank > 4):
            return None
        axis = self.number(0, rank - 1)
        if name == "Slice":
            return self.op.Slice(x, *(self.op.constant([number]) for number in (0, 2, axis, 1)))
        if name == "Pad":
            return self.op.Pad(x, self.op.constant([self.number(0, 1) for _ in range(2 * rank)]))
        if name == "Tile":
            return self.op.Tile(x, self.op.constant([1 + (one == axis) for one in range(rank)]))
        if name == "Unsqueeze":
            return self.op.Unsqueeze(x, axes=[axis])
        if name == "Squeeze":
            ones = [one for one, size in enumerate(shape(x)) if size == 1]
            return self.op.Squeeze(x, axes=ones[:1]) if ones else None
        if name == "Expand":
            return self.op.Expand(x, self.op.constant([2] + [1] * rank))
        return self.reshape(x, axis)

    def reshape(self, x: Value, axis: int):
        """Axis `axis` and the next as one."""
        rest = shape(x)[axis + 2 :]
        if any(not isinstance(size, int) for size in rest):
            return None
        return self.op.Reshape(x, self.op.constant([0] * axis + [-1, *rest]))

    def reduce(self, x: Value):
        rank = len(shape(x))
        axes = self.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=2, unique=True)) if rank else []
        if not axes:
            return None
        name = self.draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMin"]))
        return self.op.node(name, x, axes=axes, keepdims=self.number(0, 1))


def shape(value: Value) -> tuple[dim.Dim, ...]:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    return value.type.shape


def _broadcast(a: tuple[dim.Dim, ...], b: tuple[dim.Dim, ...]) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b), strict=False))


@st.composite
def transposed_models(draw: Draw, opsets: tuple[int, ...] = (11, 13, 18, 21), length: int = 14) -> Model:
    """A typed model; some of its sizes are symbolic."""
    growing = Growing(draw, draw(st.sampled_from(opsets)))
    sizes = st.sampled_from([1, 2, 4, dim.symbol("N"), dim.symbol("S")])
    for _ in range(growing.number(1, 2)):
        growing.add_input(tuple(draw(st.lists(sizes, min_size=2, max_size=4))))
    for _ in range(growing.number(3, length)):
        growing.grow()
    made = [value for value in growing.values if value.producer is not None]
    unused = [value for value in made if not value.uses]
    extra = draw(st.lists(st.sampled_from(made), max_size=1)) if made else []
    growing.graph.outputs = list(dict.fromkeys([*unused, *extra]))
    return growing.model


def whole_feeds(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Small whole numbers for all inputs."""
    rng = np.random.default_rng(seed)
    return {
        value.name: rng.integers(-4, 5, [dim.evaluate(size, SIZES) for size in shape(value)]).astype(np.float32)
        for value in model.graph.inputs
    }
