"""Inputs with defaults, which feeds may replace. Hardly anyone does: exporters list all weights among the inputs if told to. So a session
takes defaults for constants, and prepares the model once more, with true inputs, when a run brings another value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.dtypes import from_name
from sardonyx.ir import TensorType, Value
from sardonyx.runtime.api.metadata import NodeArg


class Defaults:
    """The inputs of a model that have defaults, and are constants of its graph."""

    def __init__(self, values: Sequence[Value], described: Sequence[NodeArg] | None = None):
        """`described` is what users see of them, if the values do not tell."""
        self.inputs: dict[str, Value] = {value.name: value for value in values}
        self.described = [NodeArg._of(value) for value in values] if described is None else list(described)

    def as_words(self) -> list[Any]:
        """What JSON can hold of them: names, types and shapes, not the values."""
        return [[shown.name, shown.type, shown.shape] for shown in self.described]

    @classmethod
    def of_words(cls, words: Sequence[Any]) -> Defaults | None:
        """Defaults whose values only code knows; None if there are none. They are tensors, as all constants."""
        described = [NodeArg(*row) for row in words]
        elements = [shown.type.removeprefix("tensor(").removesuffix(")") for shown in described]
        values = [Value(shown.name, TensorType(from_name(element))) for shown, element in zip(described, elements)]
        return cls(values, described) if values else None

    def are_replaced(self, feeds: Mapping[str, Any]) -> bool:
        return not self.inputs.keys().isdisjoint(feeds)
