"""Blocks: each adds nodes to the current model and returns the name of its result."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from sardonyx.training.onnxblock.current import current, unique


class Block(ABC):
    """Something that adds to the current model. `build` is given names of values and returns those of its results."""

    def __init__(self, temp_file_name: str = "temp.onnx"):
        self.base: Any = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Add nodes to `self.base`, the current `onnx.ModelProto`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.base = current().model
        return self.build(*args, **kwargs)

    def node(
        self, op_type: str, inputs: Sequence[str], stem: str = "", domain: str = "", outputs: int = 1, **attributes: Any
    ) -> Any:
        """Add one node; returns the name of its output, or a list of them."""
        names = [unique(stem or f"{op_type.lower()}_output") for _ in range(outputs)]
        made = onnx.helper.make_node(op_type, list(inputs), names, unique(op_type), domain=domain, **attributes)
        self.base.graph.node.append(made)
        return names[0] if outputs == 1 else names

    def initializer(self, content: Any, stem: str) -> str:
        """Add a constant."""
        name = unique(stem)
        self.base.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(content), name))
        return name


class _Simple(Block):
    """One node of one op; a keyword of the op may be set."""

    op_type = ""

    def build(self, *names: str) -> str:
        return str(self.node(self.op_type, names))


class Add(_Simple):
    op_type = "Add"


class Sub(_Simple):
    op_type = "Sub"


class Mul(_Simple):
    op_type = "Mul"


class Div(_Simple):
    op_type = "Div"


class Sigmoid(_Simple):
    op_type = "Sigmoid"


class Log(_Simple):
    op_type = "Log"


class Neg(_Simple):
    op_type = "Neg"


class Abs(_Simple):
    op_type = "Abs"


class SequenceConstruct(Block):
    def build(self, *names: str) -> str:
        return str(self.node("SequenceConstruct", names))


class ReduceAllL2(Block):
    def build(self, *names: str) -> str:
        return str(self.node("ReduceAllL2", names, domain="com.microsoft"))


class Pow(Block):
    """A power with a fixed exponent."""

    def __init__(self, exponent: float):
        super().__init__()
        self._exponent = exponent

    def build(self, name: str) -> str:
        exponent = self.initializer(np.array([self._exponent], np.float32), "pow_exponent")
        return str(self.node("Pow", [name, exponent]))


class _Reduce(Block):
    op_type = ""

    def __init__(self, keepdims: bool = True):
        super().__init__()
        self._keepdims = keepdims

    def build(self, name: str) -> str:
        return str(self.node(self.op_type, [name], keepdims=int(self._keepdims)))


class ReduceMean(_Reduce):
    op_type = "ReduceMean"


class ReduceSum(_Reduce):
    op_type = "ReduceSum"


class Constant(Block):
    """A number, as a tensor of one element."""

    def __init__(self, value_float: float):
        super().__init__()
        self._value = value_float

    def build(self) -> str:
        return self.initializer(np.array([self._value], np.float32), "initializer")


class Clip(Block):
    def __init__(self, clip_min: float | None = None, clip_max: float | None = None):
        super().__init__()
        self._bounds = (clip_min, clip_max)

    def build(self, name: str) -> str:
        bounds = [
            "" if bound is None else self.initializer(np.array(bound, np.float32), "clip_bound") for bound in self._bounds
        ]
        return str(self.node("Clip", [name, *bounds]))


class PassThrough(Block):
    """Returns what it is given."""

    def build(self, *names: str) -> Any:
        return names[0] if len(names) == 1 else names


class Cast(Block):
    def __init__(self, to: int):
        super().__init__()
        self._to = to

    def build(self, name: str) -> str:
        return str(self.node("Cast", [name], to=self._to))


class Linear(Block):
    """A layer with random weights, which become initializers of the model."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, alpha: float = 1.0, beta: float = 1.0):
        super().__init__()
        self._sizes, self._bias, self._scales = (in_features, out_features), bias, (alpha, beta)

    def build(self, name: str) -> str:
        inner, outer = self._sizes
        random, bound = np.random.default_rng(), 1 / max(1, inner) ** 0.5
        inputs = [name, self.initializer(random.uniform(-bound, bound, (outer, inner)).astype(np.float32), "linear.weight")]
        if self._bias:
            inputs.append(self.initializer(random.uniform(-bound, bound, outer).astype(np.float32), "linear.bias"))
        alpha, beta = self._scales
        return str(self.node("Gemm", inputs, transB=1, alpha=alpha, beta=beta))


class LabelEncoder(Block):
    """Maps values to others, with ai.onnx.ml's op."""

    def __init__(self, default_float: float = 0.0, keys_floats: Sequence[float] = (), values_floats: Sequence[float] = ()):
        super().__init__()
        self._form: dict[str, Any] = {
            "default_float": default_float,
            "keys_floats": list(keys_floats),
            "values_floats": list(values_floats),
        }

    def build(self, name: str) -> str:
        if not any(entry.domain == "ai.onnx.ml" for entry in self.base.opset_import):
            self.base.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
        return str(self.node("LabelEncoder", [name], domain="ai.onnx.ml", **self._form))


class InputLike(Block):
    """A further input of the model, of the type and shape of a known value."""

    def __init__(self, like: str | None):
        super().__init__()
        self._like = like

    def build(self, input_name: str) -> str:
        return add_input(self.base, input_name, self._like)


def add_input(model: onnx.ModelProto, name: str, like: str | None) -> str:
    """An input like a value that the graph declares, unless there is a value of that name."""
    graph = model.graph
    if has_value(graph, name):
        return name
    declared = next((value for value in (*graph.value_info, *graph.output, *graph.input) if value.name == like), None)
    if declared is None:
        raise LookupError(f"The provided name {like} is not a graph value info or a graph output.")
    made = copy.deepcopy(declared)
    made.name = name
    graph.input.append(made)
    return name


def has_value(graph: onnx.GraphProto, name: str) -> bool:
    """Whether an input, an initializer or a node's output has a name."""
    given = any(value.name == name for value in (*graph.input, *graph.initializer))
    return given or any(name in node.output for node in graph.node)
