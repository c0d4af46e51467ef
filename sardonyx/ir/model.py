"""A model: its main graph, its functions, and what the file says about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sardonyx.ir.attribute import Attribute
from sardonyx.ir.graph import Graph

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function."""


@dataclass
class Function:
    """A model-local function, or what a standard op means: a body whose nodes may refer to attributes of the call.

    An output of a standard op's body that it does not make is a value without name and producer.
    """

    domain: str
    name: str
    graph: Graph
    opsets: dict[str, int]
    required_attributes: list[str] = field(default_factory=list)
    default_attributes: dict[str, Attribute] = field(default_factory=dict)
    overload: str = ""
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> FunctionKey:
        return self.domain, self.name, self.overload


@dataclass
class Model:
    """All that a model file holds. `folder` is where external data may lie, `path` the file it came from, if any."""

    graph: Graph
    opsets: dict[str, int]
    ir_version: int = 10
    functions: dict[FunctionKey, Function] = field(default_factory=dict)
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int | None = None
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    path: Path | None = None
    folder: Path | None = None
