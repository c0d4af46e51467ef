"""Inputs with defaults, which feeds may replace. Hardly anyone does: exporters list all weights among the inputs if told to. So a session
takes defaults for constants, and prepares the model once more, with true inputs, when a run brings another value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.ir import Graph, Value
from sardonyx.runtime.api.metadata import NodeArg
from sardonyx.runtime.preparation.loading import fix_defaults


class Defaults:
    """The inputs of a model that have defaults; they are constants of its graph from now on."""

    def __init__(self, graph: Graph):
        self.inputs: dict[str, Value] = {value.name: value for value in fix_defaults(graph)}
        self.described = [NodeArg._of(value) for value in self.inputs.values()]

    def are_replaced(self, feeds: Mapping[str, Any]) -> bool:
        return not self.inputs.keys().isdisjoint(feeds)
