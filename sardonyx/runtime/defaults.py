"""Inputs with defaults, which feeds may replace. Hardly anyone does: exporters list all weights among the inputs if told to. So an engine
takes defaults for constants, and prepares the model once more, with true inputs, when a run brings another value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sardonyx.ir import Graph, Value
from sardonyx.runtime.loading import fix_defaults
from sardonyx.runtime.metadata import NodeArg

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine


class Defaults:
    """The inputs of an engine's model that have defaults; they are constants of its graph from now on."""

    def __init__(self, graph: Graph, make: Callable[[], Engine]):
        self.inputs: dict[str, Value] = {value.name: value for value in fix_defaults(graph)}
        self.described = [NodeArg._of(value) for value in self.inputs.values()]
        self._make = make
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def are_replaced(self, feeds: Mapping[str, Any]) -> bool:
        return not self.inputs.keys().isdisjoint(feeds)

    @property
    def engine(self) -> Engine:
        """One for runs that replace some."""
        with self._lock:
            if self._engine is None:
                self._engine = self._make()
            return self._engine
