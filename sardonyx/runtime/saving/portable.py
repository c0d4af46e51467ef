"""Models that onnxruntime shall load from the ORT format: what it cannot compute as it stands is put into other words before saving.

Of an `.onnx` file the original itself expands ops that it has no kernel for, and casts float16 around those that it computes in
float32 only. An ORT file it takes as it is, so whoever writes one has done that. `runtime.saving` comes here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sardonyx.ir import Graph, Model, Node, Value, edit
from sardonyx.optimizer.widening import CAST_SINCE, Widening, is_half
from sardonyx.providers.matching import OPEN, KernelDefinition, KernelDefinitions
from sardonyx.runtime.preparation.expand import Expansion

TABLE = Path(__file__).with_name("onnxruntime_kernels.txt")
SMALL = 1024
"""Constants of up to so many elements do not keep the ops that move them in float16."""


def make_portable(model: Model, *, fold: bool) -> None:
    """Change a typed model so that onnxruntime's CPU computes all that it can compute at all.

    `fold` lets float16 weights that are used as float32 be stored so, instead of being cast in each run.
    """
    kernels = known_kernels()
    expansion = Expansion(model, aligned=True)
    while expansion(
        [node for node in model.graph.all_nodes() if not kernels.computes(node) and not kernels.computes_wide(node)]
    ):
        pass
    if model.opsets.get("", 0) >= CAST_SINCE:
        choice = _Choice(model, kernels, fold)
        for graph in list(edit.all_graphs(model.graph)):
            choice.graph(graph)


# --- what there are kernels for


class Kernels(KernelDefinitions):
    """Those of onnxruntime's CPU."""

    def computes(self, node: Node) -> bool:
        """Whether there is a kernel for the node as it stands."""
        return self.find_for(node) is not None

    def computes_wide(self, node: Node) -> bool:
        """Whether there is one that takes float32 where the node has float16."""
        return self.find_for(node, instead={"tensor(float16)": "tensor(float)"}) is not None


@functools.cache
def known_kernels() -> Kernels:
    """The table that comes with the package."""
    sets: dict[str, frozenset[str]] = {}
    kernels = Kernels("kernels of onnxruntime")
    for line in TABLE.read_text().splitlines():
        head, *rest = line.split(" ")
        if head.startswith("="):
            sets[head[1:]] = frozenset(rest)
        elif not head.startswith("#"):
            domain, _, op = head.rpartition(":")
            since, _, until = rest[0].partition("-")
            for spelled in rest[1:] or [""]:
                pairs = (entry.partition("=") for entry in spelled.split(";") if entry)
                types = {name: sets[number] for name, _, number in pairs}
                kernels.add(KernelDefinition(domain, op, int(since), int(until or OPEN), types))
    return kernels


# --- float16


class _Choice:
    """Finds the nodes of a model that shall work in float32, since they have no kernel for float16."""

    def __init__(self, model: Model, kernels: Kernels, fold: bool):
        self.kernels = kernels
        self.widening = Widening(model, fold)

    def graph(self, graph: Graph) -> None:
        nodes = list(graph.nodes)
        wide = {node for node in nodes if self._needs(node)}
        if not wide:
            return
        wide |= set(self._between(nodes, wide))
        self.widening.widen(graph, [node for node in nodes if node in wide])

    def _needs(self, node: Node) -> bool:
        return any(map(is_half, node.inputs)) and not self.kernels.computes(node) and self.kernels.computes_wide(node)

    # --- nodes that could stay in float16, but stand between nodes that cannot

    def _between(self, nodes: Sequence[Node], wide: set[Node]) -> Iterator[Node]:
        """Nodes all of whose neighbours in float16 work in float32: two casts less for each group of them."""
        movable = {node for node in nodes if node not in wide and self._is_movable(node)}
        while movable:
            group = _connected(movable.pop(), movable)
            movable -= group
            if all(self._is_enclosed(node, wide, group) for node in group):
                yield from group

    def _is_movable(self, node: Node) -> bool:
        halves = any(map(is_half, (*node.inputs, *node.outputs)))
        return halves and node.op_type != "Cast" and not any(node.subgraphs) and self.kernels.computes_wide(node)

    def _is_enclosed(self, node: Node, wide: set[Node], group: set[Node]) -> bool:
        for value in node.inputs:
            if value is not None and is_half(value) and value.producer not in wide and value.producer not in group:
                if value.constant is None or not value.is_constant or value.constant.size > SMALL:
                    return False
        return all(_ends_inside(value, wide, group) for value in node.outputs if is_half(value))


def _ends_inside(value: Value, wide: set[Node], group: set[Node]) -> bool:
    return bool(value.uses) and not value.is_graph_output and all(user in wide or user in group for user in value.users)


def _connected(start: Node, nodes: Iterable[Node]) -> set[Node]:
    """Those of the nodes that float16 values connect with `start`."""
    allowed, connected, pending = set(nodes), {start}, [start]
    while pending:
        node = pending.pop()
        before = [value.producer for value in node.inputs if value is not None and is_half(value)]
        after = [user for value in node.outputs if is_half(value) for user in value.users]
        for other in (*before, *after):
            if other in allowed and other not in connected:
                connected.add(other)
                pending.append(other)
    return connected
