"""What rules and passes share while one model is optimized: the model, inference, constant evaluation, options, the journal."""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.ir import Graph, Model, Node, edit
from sardonyx.ops.inference import Driver, Evaluate
from sardonyx.optimizer.bounds import GROWTH, SMALL, Edits
from sardonyx.optimizer.pattern import OpName
from sardonyx.optimizer.rewrite import Journal
from sardonyx.startup.records import dataclass, field


@dataclass
class Rewriting:
    """Handed to every pass. `options` are the session's config entries by key."""

    model: Model
    evaluate: Evaluate
    options: Mapping[str, str] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        self.driver = Driver(self.model, self.evaluate)
        """Infers the types of new nodes: `rewriting.driver.node(node)`."""

        self.size = sum(len(graph) for graph in edit.all_graphs(self.model.graph))
        """How many nodes there were at first: bounds on rewriting grow with it."""
        self.edited: list[Node] = Edits(self.size)
        """Nodes that are new, or have got or lost operands or users, in the order in which that happened in any graph of the model."""
        self.graphs: list[Graph] = []
        """The graphs of the model, outer ones first."""
        self.ops: set[OpName] = set()
        """All ops that nodes have or had."""
        self._looked_at = 0
        self.look()

    def look(self) -> None:
        """Take note of the graphs and ops that edits have brought."""
        new = set(self.edited[self._looked_at :])
        if len(self.graphs) != 1 or any(True for node in new for _ in node.subgraphs):
            self.graphs = list(edit.all_graphs(self.model.graph))
            for graph in self.graphs:
                if graph.edited is not self.edited:
                    graph.edited = self.edited
                    new.update(graph.nodes)
                    self.edited += graph.nodes
        self.ops.update((node.domain, node.op_type) for node in new)
        self._looked_at = len(self.edited)

    def count(self) -> int:
        """How many nodes there are."""
        return sum(map(len, self.graphs))

    def has_grown_too_far(self) -> bool:
        """Whether there are more nodes than any sound rewriting makes of those at first."""
        return self.count() > GROWTH * max(self.size, SMALL)

    def close(self) -> None:
        """No longer follow what is edited."""
        for graph in self.graphs:
            graph.edited = None
