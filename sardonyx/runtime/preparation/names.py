"""Sizes that a model gives one name. An engine asks before each run whether those of its inputs are equal, and after runs that were left
to NumPy whether others may have been to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.ir import Value
from sardonyx.runtime.preparation.sizes import given_symbols

SEPARATOR = ";"
"""Between the names that the setting lists."""
COMPUTED = "*"
"""In that list, for all names of sizes that are not those of inputs."""


class SharedNames:
    """The axes of inputs that have one name with others. Any number of threads may ask."""

    def __init__(self, axes: Sequence[tuple[str, int, str]]):
        self._axes = axes
        """Inputs, axes of them, and their names."""

    @classmethod
    def of(cls, inputs: Sequence[Value]) -> SharedNames | None:
        """None if each axis has a name of its own."""
        axes = [(value.name, axis, symbol) for value in inputs for symbol, axis in given_symbols(value.type)]
        counts = Counter(symbol for _, _, symbol in axes if SEPARATOR not in symbol)
        shared = [(name, axis, symbol) for name, axis, symbol in axes if counts[symbol] > 1]
        return cls(shared) if shared else None

    def contradicted(self, feeds: Mapping[str, Any]) -> list[str]:
        """Names that stand for sizes which differ."""
        sizes: dict[str, int] = {}
        wrong: dict[str, None] = {}
        for name, axis, symbol in self._axes:
            shape = getattr(feeds.get(name), "shape", None)
            if shape is not None and sizes.setdefault(symbol, shape[axis]) != shape[axis]:
                wrong[symbol] = None
        return list(wrong)
