"""Making nodes in a graph by writing calls: `op.Transpose(x, perm=[1, 0])` adds the node and returns its output value."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx.ir import Graph, Node, Tensor, Value
from sardonyx.ops import schemas


class Builder:
    """Adds nodes to `graph` before the node `before`, or at the end. Ops are of the opsets given, by default the newest."""

    def __init__(
        self, graph: Graph, before: Node | None = None, opsets: Mapping[str, int] | None = None, prefix: str = "built"
    ):
        self.graph = graph
        self.before = before
        self.opsets = dict(opsets or {})
        self.prefix = prefix
        self.made: list[Node] = []
        self._numbers = itertools.count()
        self._taken = {value.name for value in graph.values()}

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return functools.partial(self.node, op_type)

    def node(
        self, op_type: str, *inputs: Value | None, outputs: int = 1, domain: str = "", name: str = "", **attributes: Any
    ) -> Any:
        """Add one node; returns its output, or the list of them if `outputs` is not 1. Attributes that are None are left out."""
        version = self.opsets.get(domain) or schemas.newest_version(domain) or 1
        results = [Value(self.unique(op_type)) for _ in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        node = Node(op_type, inputs, results, given, domain=domain, version=version, name=name or results[0].name)
        self.add(node)
        return results[0] if outputs == 1 else results

    def add(self, node: Node) -> Node:
        """Put a finished node in place."""
        if self.before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.before, node)
        self.made.append(node)
        return node

    def constant(self, array: Any) -> Value:
        """Add an initializer."""
        name = self.unique("constant")
        return self.graph.add_initializer(name, Tensor.of(np.asarray(array), name))

    def unique(self, stem: str) -> str:
        """A name that no value of the graph has."""
        for number in self._numbers:
            name = f"{self.prefix}_{stem}_{number}"
            if name not in self._taken:
                self._taken.add(name)
                return name
        raise AssertionError("unreachable")
