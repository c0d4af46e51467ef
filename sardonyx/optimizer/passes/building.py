"""Building in passes: nodes that get their types as they are made, and values that take the place of others."""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.inference import Driver, refined, same_kind


class TypingBuilder(Builder):
    """A Builder that infers the type of each node, so that what is built next can depend on it."""

    def __init__(self, graph: Graph, before: Node | None, opsets: Mapping[str, int], prefix: str, driver: Driver):
        super().__init__(graph, before, opsets, prefix)
        self.driver = driver

    def add(self, node: Node) -> Node:
        super().add(node)
        self.driver.node(node)
        return node

    def undo(self) -> None:
        """Remove all that was made."""
        for node in reversed(self.made):
            self.graph.remove(node)
        for value in self.constants:
            self.graph.remove_initializer(value)


def replace_value(old: Value, new: Value) -> None:
    """Let `new` stand wherever `old` does; what was known of the type of either holds for both."""
    if old.type is not None and new.type is not None and same_kind(old.type, new.type):
        new.type = refined(new.type, old.type)
    edit.replace_all_uses(old, new)
