"""Models in which a reducing node stands behind an elementwise one that is not 0 at 0: what `test_prologues` runs.

A vector that reaches beyond the last column loads 0 there. Behind such a prologue these lanes hold something else,
which must not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import ml_dtypes
import numpy as np
from onnx import ModelProto, helper

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int64": np.int64,
    "int8": np.int8,
    "uint8": np.uint8,
    "bool": np.bool_,
}
FLOATS = ("float32", "float64", "float16", "bfloat16")
SINGLES = ("float32", "float64")
INTEGERS = ("int32", "int64")

Size = Union[int, str]


class Graph:
    """A graph being written, node by node."""

    def __init__(self, type: str, columns: int | None):
        self.type = type
        self.columns: Size = "C" if columns is None else columns
        """The size of the axis that is reduced; open if it is not known."""
        self.nodes: list[Any] = []
        self.inputs: dict[str, tuple[str, tuple[Size, ...]]] = {}
        self.constants: list[Any] = []
        self.outputs: list[str] = []

    def input(self, name: str, shape: Sequence[Size], type: str | None = None) -> str:
        """An input; its axes of size "C" are columns."""
        self.inputs[name] = (type or self.type, tuple(self.columns if size == "C" else size for size in shape))
        return name

    def constant(self, array: Any) -> str:
        name = f"constant{len(self.constants)}"
        array = np.asarray(array)
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.constants.append(helper.make_tensor(name, dtype, array.shape, array.tobytes(), raw=True))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.asarray(value, DTYPES[self.type]))

    def op(self, op_type: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{op_type}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def model(self, opset: int) -> ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[type])), shape)
            for name, (type, shape) in self.inputs.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        imports = [
            helper.make_opsetid(domain, version) for domain, version in (("", opset), ("com.microsoft", 1), ("ai.onnx.ml", 3))
        ]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def feeds(self, columns: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Numbers from 1/4 to 1, for which all prologues are defined and no result is very small."""
        feeds = {}
        for name, (type, shape) in self.inputs.items():
            sizes = [columns if size == "C" else int(size) for size in shape]
            dtype = np.dtype(DTYPES[type])
            if type == "bool":
                numbers = rng.random(sizes) < 0.5
            elif dtype.kind in "iu":
                numbers = rng.integers(1, 6, sizes).astype(dtype)
            else:
                numbers = (rng.integers(8, 32, sizes) / 32).astype(dtype)
            feeds[name] = _before_garbage(numbers)
        return feeds


def _before_garbage(numbers: np.ndarray) -> np.ndarray:
    """The same numbers in memory behind which large ones follow, or NaN."""
    memory = np.full(numbers.size + 64, np.nan if numbers.dtype.kind in "fV" else 1, numbers.dtype)
    memory[: numbers.size] = numbers.reshape(-1)
    return memory[: numbers.size].reshape(numbers.shape)


Build = Callable[[Graph, str], Union[str, Sequence[str]]]
Prologue = Callable[[Graph, str], str]


def _cast(graph: Graph, value: str) -> str:
    return graph.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[graph.type])))


FLOAT_PROLOGUES: dict[str, Prologue] = {
    "Exp": lambda g, x: g.op("Exp", x),
    "Cos": lambda g, x: g.op("Cos", x),
    "Add 1": lambda g, x: g.op("Add", x, g.number(1)),
    "Reciprocal": lambda g, x: g.op("Reciprocal", x),
    "Log": lambda g, x: g.op("Log", x),
    "Sigmoid": lambda g, x: g.op("Sigmoid", x),
    "Neg of Reciprocal": lambda g, x: g.op("Neg", g.op("Reciprocal", x)),
    "Cast of Not": lambda g, x: _cast(g, g.op("Not", g.op("Greater", x, g.number(0.5)))),
    "none": lambda g, x: x,
}
FEW_PROLOGUES = {name: FLOAT_PROLOGUES[name] for name in ("Exp", "Neg of Reciprocal", "none")}
"""For types other than float32, whose kernels differ in the type alone."""
INTEGER_PROLOGUES: dict[str, Prologue] = {
    "Add 1": lambda g, x: g.op("Add", x, g.number(1)),
    "BitwiseNot": lambda g, x: g.op("BitwiseNot", x),
    "Cast of Not": lambda g, x: _cast(g, g.op("Not", g.op("Greater", x, g.number(2)))),
    "none": lambda g, x: x,
}
BOOL_PROLOGUES: dict[str, Prologue] = {"Not": lambda g, x: g.op("Not", x), "none": lambda g, x: x}


def prologues_of(type: str) -> dict[str, Prologue]:
    """Those that stand before an op on elements of a type, by their names."""
    if type == "bool":
        return BOOL_PROLOGUES
    if "int" in type:
        return INTEGER_PROLOGUES
    return FLOAT_PROLOGUES if type == "float32" else FEW_PROLOGUES


@dataclass(frozen=True)
class Case:
    """A reducing op: what it is, and how a node of it is written behind a value."""

    op: str
    build: Build
    shape: tuple[Size, ...] = (3, "C")
    """Of the value; "C" stands for the columns."""
    domain: str = ""
    types: tuple[str, ...] = FLOATS
    opset: int = 24
    is_open: bool = True
    """Whether the columns may be open: constant weights tell them for some ops."""
    note: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.note}".strip()

    def graph(self, type: str, columns: int | None, prologues: Sequence[str]) -> Graph:
        """A node behind each of some prologues, side by side."""
        graph = Graph(type, columns)
        x = graph.input("x", self.shape)
        for name in prologues:
            outputs = self.build(graph, prologues_of(type)[name](graph, x))
            graph.outputs += [outputs] if isinstance(outputs, str) else outputs
        return graph
