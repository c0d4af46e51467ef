"""Symbolic sizes of torch (SymInt, sympy expressions) as sizes of ours, as values in a graph, and as numbers in a run.

A symbol is read from the shape of a tensor that has it, so that inference knows all sizes; only one that no shape shows is fed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch

from sardonyx import dtypes
from sardonyx.ir import Dim, TensorType, Value, dim
from sardonyx.ops.gradients.builder import TypedBuilder
from sardonyx.training.torch.types import Unsupported

Size = Any
"""An int or a torch.SymInt."""


def expression_of(size: Size) -> Any:
    """The sympy expression of a size; of a plain number a sympy Integer."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size))


def dim_of(size: Size) -> Dim:
    """A size as inference has it."""
    return size if type(size) is int else _Dims().of(expression_of(size))


class _Arithmetic:
    """Walks a sympy expression of whole numbers; subclasses say what a step makes."""

    number: Callable[[int], Any]
    symbol: Callable[[str], Any]
    add: Callable[[Any, Any], Any]
    multiply: Callable[[Any, Any], Any]
    divide: Callable[[Any, Any], Any]
    remainder: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    minimum: Callable[[Any, Any], Any]

    def of(self, expression: Any) -> Any:
        if expression.is_Integer:
            return self.number(int(expression))
        if expression.is_Symbol:
            return self.symbol(expression.name)
        parts = [self.of(part) for part in expression.args]
        name = type(expression).__name__
        if isinstance(expression, sympy.Add):
            return self.joined(self.add, parts)
        if isinstance(expression, sympy.Mul):
            return self.joined(self.multiply, parts)
        if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and int(expression.exp) > 0:
            return self.joined(self.multiply, [parts[0]] * int(expression.exp))
        if name in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
            return self.divide(*parts)
        if name in ("Mod", "PythonMod"):
            return self.remainder(*parts)
        if name in ("Max", "Min"):
            return self.joined(self.maximum if name == "Max" else self.minimum, parts)
        raise Unsupported(f"the size {expression} has no counterpart")

    @staticmethod
    def joined(function: Any, parts: Sequence[Any]) -> Any:
        whole = parts[0]
        for part in parts[1:]:
            whole = function(whole, part)
        return whole


class _Dims(_Arithmetic):
    def number(self, content: int) -> Dim:
        return content

    def symbol(self, name: str) -> Dim:
        return dim.named(name)

    def add(self, a: Dim, b: Dim) -> Dim:
        return a + b

    def multiply(self, a: Dim, b: Dim) -> Dim:
        return a * b

    divide, remainder = staticmethod(dim.floordiv), staticmethod(dim.mod)
    maximum, minimum = staticmethod(dim.maximum), staticmethod(dim.minimum)


class SizeValues(_Arithmetic):
    """Sizes as int64 values of one element in the graph that is being built."""

    def __init__(self, op: TypedBuilder):
        self._op = op
        self._places: dict[str, tuple[Value, int]] = {}
        """Of each symbol, a graph input and the axis along which it is that long."""
        self._known: dict[Any, Value] = {}
        self.fed: dict[str, Value] = {}
        """Symbols that no shape shows: inputs of their own."""

    def learn(self, value: Value, shape: Iterable[Size]) -> None:
        """Take note of the symbols in the shape of a graph input."""
        for axis, size in enumerate(shape):
            if isinstance(size, torch.SymInt) and expression_of(size).is_Symbol:
                self._places.setdefault(expression_of(size).name, (value, axis))

    def value(self, size: Size) -> Value:
        """A size as a vector of one number."""
        if type(size) is int:
            return self.number(size)
        return self.of(expression_of(size))

    def vector(self, sizes: Sequence[Size]) -> Value:
        """Sizes as one vector; a constant if all are numbers."""
        if all(type(size) is int for size in sizes):
            return self._op.constant(np.array(sizes, np.int64))
        return self._op.Concat(*map(self.value, sizes), axis=0)

    def of(self, expression: Any) -> Value:
        if expression not in self._known:
            self._known[expression] = super().of(expression)
        return self._known[expression]

    def number(self, content: int) -> Value:
        return self._op.constant(np.array([content], np.int64))

    def symbol(self, name: str) -> Value:
        if name not in self._places:
            value = Value(name, TensorType(dtypes.int64, (1,)))
            self.fed[name] = self._op.graph.add_input(value)
            return value
        value, axis = self._places[name]
        return self._op.Shape(value, start=axis, end=axis + 1)

    def add(self, a: Value, b: Value) -> Value:
        return self._op.Add(a, b)

    def multiply(self, a: Value, b: Value) -> Value:
        return self._op.Mul(a, b)

    def divide(self, a: Value, b: Value) -> Value:
        return self._op.Div(a, b)

    def remainder(self, a: Value, b: Value) -> Value:
        return self._op.Mod(a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        return self._op.Max(a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        return self._op.Min(a, b)


def evaluated(size: Size, symbols: Mapping[str, int]) -> int:
    """A size in a run."""
    return size if type(size) is int else int(dim.evaluate(dim_of(size), symbols))
