"""The table of ATen ops that become ours.

A function takes a builder and the op's arguments under torch's names: tensors as values, sizes as ints or SymInts, all else as it is. It
returns the value of the result, or a tuple of values if there are several; None stands for one that nobody may use.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import Graph, Node, TensorType, Value
from sardonyx.ops.gradients.builder import TypedBuilder
from sardonyx.startup.families import load_package
from sardonyx.startup.records import dataclass
from sardonyx.training.torch.sizes import Size, SizeValues, dim_of
from sardonyx.training.torch.types import TORCH_TYPES, Unsupported, element_type

Lowering = Callable[..., Any]

_lowerings: dict[str, Lowering] = {}


def aten(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of ops such as "mul.Tensor"; without an overload's name all overloads are meant."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in _lowerings:
                raise ValueError(f"aten::{name} has a lowering already")
            _lowerings[name] = function
        return function

    return register


def lowering_of(target: Any) -> Lowering | None:
    """The lowering of what an FX node calls."""
    load_package("sardonyx.training.torch.aten")
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims", "sardonyx"):
        return None
    packet = target.overloadpacket.__name__
    return _lowerings.get(f"{packet}.{target._overloadname}") or _lowerings.get(packet)


def supported_ops() -> list[str]:
    """The names of all ops that have a lowering."""
    load_package("sardonyx.training.torch.aten")
    return sorted(_lowerings)


@functools.cache
def _parameters(function: Lowering) -> tuple[frozenset[str], bool]:
    """The names that a lowering takes, and whether it takes all."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(parameter.name for parameter in parameters), any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters
    )


Draw = Callable[[Sequence[int], torch.dtype], torch.Tensor]


@dataclass(frozen=True)
class Drawing:
    """What is drawn for an input of a graph."""

    draw: Draw
    shape: Sequence[Size]
    dtype: torch.dtype


class AtenBuilder(TypedBuilder):
    """Writes the nodes of one graph. `out` describes the results of the op that is being written, as torch traced them."""

    sizes: SizeValues
    out: Any = None
    traced: dict[Value, Any]
    """What torch knows of the values that are results of its nodes."""

    def __init__(self, graph: Graph, infer: Callable[[Node], None], opsets: Mapping[str, int]):
        super().__init__(graph, infer, opsets=opsets, prefix="aten")
        self.sizes = SizeValues(self)
        self.traced = {}
        self.draws: list[Drawing] = []
        """Of the inputs behind those of the traced graph, in the order in which torch would draw them."""

    def lower(self, function: Lowering, target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], out: Any) -> Any:
        """Write an op. Arguments that its lowering does not name must have the values that torch gives them by itself."""
        self.out = out
        names, takes_all = _parameters(function)
        named = {}
        for number, argument in enumerate(target._schema.arguments):
            if number < len(arguments):
                content = arguments[number]
            elif argument.name in keywords:
                content = keywords[argument.name]
            elif argument.has_default_value():
                content = argument.default_value
            else:
                continue
            if argument.name in names or takes_all:
                named[argument.name] = content
            elif argument.name not in IGNORED and content not in (None, False):
                raise Unsupported(f"{argument.name}={content} of {target}")
        return function(self, **named)

    # --- random numbers

    def drawn(self, draw: Draw, traced: Any) -> Value:
        """A tensor that torch draws before each run."""
        value = Value(self.unique("drawn"), TensorType(element_type(traced.dtype), tuple(map(dim_of, traced.shape))))
        self.draws.append(Drawing(draw, list(traced.shape), traced.dtype))
        return self.graph.add_input(value)

    # --- constants

    def ints(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def shape_value(self, sizes: Sequence[Size]) -> Value:
        """A shape, symbolic or not, as a vector."""
        return self.sizes.vector(list(sizes))

    def scalar(self, content: Any, dtype: ElementType) -> Value:
        """A number, or a symbolic one, as a scalar of a type."""
        if isinstance(content, (torch.SymInt, torch.SymFloat)):
            if isinstance(content, torch.SymFloat):
                raise Unsupported("numbers that are computed from sizes as floats")
            return self.as_type(self.Squeeze(self.sizes.value(content), axes=[0]), dtype)
        return self.constant(np.array(content).astype(dtype.numpy))

    def traced_shape(self, value: Value) -> Sequence[Size]:
        """The shape of an operand as torch traced it, with symbols."""
        return tuple(self.traced[value].shape)

    def from_front(self, indices: Value) -> Value:
        """Indices that a run refuses below zero, as torch does: ONNX counts these from the end."""
        dtype = self.dtype(indices)
        outside = self.scalar(np.iinfo(dtype.numpy).min, dtype)
        return self.Where(self.Less(indices, self.scalar(0, dtype)), outside, indices)

    # --- types

    @property
    def out_dtype(self) -> ElementType:
        return element_type(self.first_out.dtype)

    @property
    def first_out(self) -> Any:
        return self.out[0] if isinstance(self.out, (tuple, list)) else self.out

    def as_type(self, value: Value, dtype: ElementType) -> Value:
        if self.dtype(value) is dtype:
            return value
        return self.Cast(value, to=dtype.code)

    def operand(self, content: Any, dtype: ElementType) -> Value:
        """A tensor or a number in a type."""
        return self.as_type(content, dtype) if isinstance(content, Value) else self.scalar(content, dtype)

    def common_type(self, a: Any, b: Any) -> ElementType:
        """The type in which torch computes on two tensors, or on a tensor and a number."""
        return element_type(torch.result_type(self._sample(a), self._sample(b)))

    def _sample(self, operand: Any) -> Any:
        """Something of an operand's type and rank, for torch's rules of promotion."""
        if isinstance(operand, Value):
            return torch.empty([1] * self.rank(operand), dtype=TORCH_TYPES[self.dtype(operand)])
        return operand if isinstance(operand, (bool, int, float)) else 1

    def is_float(self, value: Value) -> bool:
        return self.dtype(value) in dtypes.FLOATS

    def axis(self, value: Value, axis: int) -> int:
        return axis % max(self.rank(value), 1)

    def reshaped(self, value: Value, sizes: Sequence[Size]) -> Value:
        """The same elements in another shape, whose sizes are known as far as torch's tracing knows them."""
        return self.Reshape(value, self.shape_value(sizes), allowzero=1)


IGNORED = {
    "device",
    "layout",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "implicit",
    "requires_grad",
    "generator",
    "dtype",
    "copy",
}
"""Arguments that do not change what is computed on a CPU. `dtype` shows in the result."""
