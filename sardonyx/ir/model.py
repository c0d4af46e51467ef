"""A model: its main graph, its functions, and what the file says about itself."""

from __future__ import annotations

from pathlib import Path

from sardonyx.ir.attribute import Attribute
from sardonyx.ir.graph import Graph, Node
from sardonyx.startup.records import dataclass, field

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


@dataclass(frozen=True)
class SavedOptimization:
    """A rewrite that an ORT format file names and leaves to the runtime.

    `nodes` are numbers of nodes: those that feed the inputs of the target, the target, those that read its outputs; `inputs` and
    `outputs` say how many stand before and after it. If the last input or output is variadic, it is as many nodes as
    `variadic_inputs` or `variadic_outputs` says.
    """

    action: str
    nodes: tuple[int, ...]
    inputs: int = 0
    outputs: int = 0
    variadic_inputs: int | None = None
    variadic_outputs: int | None = None
    produced: tuple[str, ...] = ()
    """Ids of the ops that the rewrite makes, in the order in which it makes them: `domain:op_type:since_version`."""


@dataclass
class SavedOptimizations:
    """All saved rewrites of one graph, by the name of the optimizer that found them, and its nodes by the numbers that they use."""

    graph: Graph
    nodes: dict[int, Node]
    by_optimizer: dict[str, list[SavedOptimization]]


TypeStrings = dict[str, dict[str, list[tuple[int, int]]]]
"""Of each op, by its id, the arguments behind each type string: `{":Add:14": {"T": [(0, 0), (0, 1), (1, 0)]}}`, where the first
number is 0 for an input and 1 for an output."""


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
    ort_version: int | None = None
    """The version of the ORT format that the model was read from, None for other formats. Such a model has been optimized."""
    stored_types: TypeStrings | None = None
    """What the file says about the type strings of its ops, by which kernels are matched; None: ask the signatures."""
    saved_optimizations: list[SavedOptimizations] = field(default_factory=list)
    holds_all: bool = False
    """Whether whoever needs a part of the model holds the model too, so that all its parts can go when it goes.

    Graphs are linked in circles. Without this, weights would stay until garbage is collected, which may be late.
    """

    def __del__(self) -> None:
        if self.holds_all:
            for graph in (self.graph, *(function.graph for function in self.functions.values())):
                graph.release()
