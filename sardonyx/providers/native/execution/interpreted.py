"""A cluster computed node by node in NumPy: for shapes of another form than the model says, and data that a kernel does not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.errors import NodeFailed
from sardonyx.ir import Graph, Node, Type, Value
from sardonyx.ir.attribute import Kind
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.provider import Cluster
from sardonyx.providers.steps import FastPath
from sardonyx.providers.termination import watched
from sardonyx.startup.properties import cached_property

Found = dict[Value, Any]


class Interpreted:
    """Called with the values of a cluster's inputs, it returns those of its outputs."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    @cached_property
    def _steps(self) -> _Steps:
        return _Steps(self._cluster.nodes)

    @cached_property
    def alone(self) -> FastPath | None:
        """The fast path of the one node that the cluster is, if its kernel has one whose results are its own."""
        node, *others = self._cluster.nodes
        if others or None in node.inputs or list(node.outputs) != list(self._cluster.outputs):
            return None
        kernel, inputs = CPUExecutionProvider().bind_kernel(node), list(self._cluster.inputs)
        fast = kernel.fast_path() if not (kernel.sharing.alias or kernel.sharing.view) else None
        if fast is None or list(node.inputs) == inputs:
            return fast
        values = [value for value in node.inputs if value is not None]
        constants = [None if value.constant is None else value.constant.numpy() for value in values]
        places = [-1 if constant is not None else inputs.index(value) for value, constant in zip(values, constants)]
        return lambda arrays: fast([arrays[at] if at >= 0 else constant for at, constant in zip(places, constants)])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        found: Found = dict(zip(self._cluster.inputs, inputs))
        self._steps.run(found)
        return [found[value] for value in self._cluster.outputs]


class _Steps:
    """Nodes with their kernels, and the graphs inside of them."""

    def __init__(self, nodes: Sequence[Node]):
        provider = CPUExecutionProvider()
        self._steps = [(node, provider.bind_kernel(node), _graphs_of(node)) for node in nodes]

    def run(self, found: Found) -> None:
        """Add what the nodes compute to what there is."""
        for node, kernel, graphs in watched(self._steps):
            given = [None if value is None else _value(value, found) for value in node.inputs]
            bodies = {name: _Body(graph, steps, found) for name, (graph, steps) in graphs.items()}
            try:
                results = kernel.run_with_bodies(given, bodies) if bodies else kernel(given)
            except NodeFailed:
                raise
            except Exception as error:
                raise NodeFailed(node, given) from error
            found.update(zip(node.outputs, results))


def _graphs_of(node: Node) -> Mapping[str, tuple[Graph, _Steps]]:
    found = {name: attribute.value for name, attribute in node.attributes.items() if attribute.kind is Kind.GRAPH}
    return {name: (graph, _Steps(graph.nodes)) for name, graph in found.items()}


class _Body:
    """A graph inside a node, as the node's kernel calls it."""

    def __init__(self, graph: Graph, steps: _Steps, outer: Found):
        self._graph = graph
        self._steps = steps
        self._outer = outer

    @property
    def input_types(self) -> list[Type | None]:
        return [value.type for value in self._graph.inputs]

    @property
    def output_types(self) -> list[Type | None]:
        return [value.type for value in self._graph.outputs]

    def __call__(self, *arguments: Any) -> list[Any]:
        found = self._outer | dict(zip(self._graph.inputs, arguments, strict=True))
        for steps in watched([self._steps]):  # a Loop around no nodes would go on for ever
            steps.run(found)
        return [_value(value, found) for value in self._graph.outputs]


def _value(value: Value, found: Found) -> Any:
    if value in found:
        return found[value]
    assert value.constant is not None
    return value.constant.numpy()
