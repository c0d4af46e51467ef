"""The interface between the runtime and whoever computes: a provider claims nodes, alone or fused, and turns them into callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.errors import NotImplemented as NotImplementedByUs
from sardonyx.ir import Graph, Kind, Node, SparseTensorType, Tensor, TensorType, Value
from sardonyx.ops import checking
from sardonyx.providers.base import BoundKernel, Kernel, KernelTable, UnsupportedAttribute, bind

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""A compiled cluster: given the values of its inputs, it returns those of its outputs."""


@dataclass(frozen=True)
class Capability:
    """What a provider offers to take: one node for which it has a kernel, or several that it compiles into one call."""

    nodes: Sequence[Node]
    fused: bool = False


@dataclass(frozen=True)
class Cluster:
    """A fused subgraph on its way to `compile`: nodes in order, values that enter and values that leave."""

    name: str
    nodes: Sequence[Node]
    inputs: Sequence[Value]
    outputs: Sequence[Value]


class ExecutionProvider:
    """Base of all providers. One that only has kernels needs `name` and `kernels`; one that compiles overrides two methods."""

    name = "ExecutionProvider"
    kernels = KernelTable("ExecutionProvider")

    def __init__(self, options: Mapping[str, str] | None = None):
        self.options = dict(options or {})

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        """What this provider would take of `nodes`, the ones of `graph` that are still free. By default each that has a kernel."""
        for node in nodes:
            if self.find_kernel(node) is not None:
                yield Capability([node])

    def compile(self, cluster: Cluster) -> Compiled:
        """Turn a fused subgraph into one callable."""
        raise NotImplementedByUs(f"{self.name} claimed {cluster.name} as fused but does not compile")

    def find_kernel(self, node: Node) -> Kernel | None:
        """The kernel that fits a node's op, version and types."""
        signature = checking.signature_of(node)
        return self.kernels.find(signature, constraint_types(node))

    def bind_kernel(self, node: Node) -> BoundKernel:
        """The node's kernel with its attributes fixed."""
        kernel = self.find_kernel(node)
        if kernel is None:
            raise missing_kernel(node)
        graphs = [name for name, attribute in node.attributes.items() if attribute.kind in (Kind.GRAPH, Kind.GRAPHS)]
        try:
            return bind(
                kernel,
                checking.signature_of(node),
                {name: attribute_value(attribute.value) for name, attribute in node.attributes.items()},
                [None if value is None else element_type(value) for value in node.inputs],
                [element_type(value) for value in node.outputs],
                graphs,
            )
        except UnsupportedAttribute as error:
            raise NotImplementedByUs(f"{node}: {error}") from error

    def from_host(self, array: np.ndarray) -> Any:
        """Copy a value into this provider's memory; the host's own by default."""
        return array

    def to_host(self, value: Any) -> Any:
        """Copy a value back."""
        return value


def missing_kernel(node: Node) -> Exception:
    """What to raise when no provider can compute a node."""
    signature = checking.signature_of(node)
    types = ", ".join(f"{value.name}: {value.type}" for value in node.inputs if value is not None)
    return NotImplementedByUs(
        f"Could not find an implementation for {node.op_id}({signature.since_version}) node with name '{node.name}' (inputs {types})"
    )


def element_type(value: Value) -> ElementType | None:
    """The element type of a tensor value, None for other kinds of values."""
    return value.type.dtype if isinstance(value.type, (TensorType, SparseTensorType)) else None


def constraint_types(node: Node) -> dict[str, ElementType | None]:
    """The element type behind each type constraint, by the first argument that has it."""
    signature = checking.signature_of(node)
    types: dict[str, ElementType | None] = {}
    for index, value in enumerate(node.inputs):
        if value is not None:
            types.setdefault(signature.input_at(index).type_string, element_type(value))
    for index, value in enumerate(node.outputs):
        types.setdefault(signature.output_at(index).type_string, element_type(value))
    return types


def attribute_value(value: Any) -> Any:
    """An attribute as kernels get it: tensors as arrays."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return [tensor.numpy() for tensor in value]
    return value
