"""Making nodes in a graph by writing calls: `op.Transpose(x, perm=[1, 0])` adds the node and returns its output value.

Keywords are operands by their names in the spec: what the op's version has as an attribute becomes one, what it has as an input becomes
a constant, so whoever builds need not know opset numbers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx.ir import Attribute, Graph, Kind, Node, Tensor, Value
from sardonyx.ops import schemas
from sardonyx.ops.signatures import Signature


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
        self.constants: list[Value] = []

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return functools.partial(self.node, op_type)

    def node(
        self, op_type: str, *inputs: Value | None, outputs: int = 1, domain: str = "", name: str = "", **operands: Any
    ) -> Any:
        """Add one node; returns its output, or the list of them if `outputs` is not 1. Operands that are None are left out."""
        version = self.opsets.get(domain) or schemas.opset_for(domain, op_type)
        signature = schemas.find(domain, op_type, version)
        if signature is None:
            raise ValueError(f"there is no op {domain}:{op_type} at version {version}")
        results = [Value(self.unique(op_type)) for _ in range(outputs)]
        positional, attributes = self._sorted(signature, list(inputs), operands)
        return self._added(
            Node(op_type, positional, results, attributes, domain=domain, version=version, name=name or results[0].name)
        )

    def _added(self, node: Node) -> Any:
        self.add(node)
        return node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)

    def _sorted(
        self, signature: Signature, inputs: list[Value | None], operands: Mapping[str, Any]
    ) -> tuple[list[Value | None], dict[str, Attribute]]:
        attributes: dict[str, Attribute] = {}
        for name, value in operands.items():
            if value is None:
                continue
            if name in signature.attributes:
                attributes[name] = Attribute(signature.attributes[name].kind, _as_kind(value, signature.attributes[name].kind))
            elif name in signature.operand_names:
                position = signature.operand_names.index(name)
                inputs.extend([None] * (position + 1 - len(inputs)))
                inputs[position] = value if isinstance(value, Value) else self.constant(value)
            else:
                raise ValueError(f"{signature} has no operand {name!r}")
        return inputs, attributes

    def add(self, node: Node) -> Node:
        """Put a finished node in place."""
        if self.before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.before, node)
        self.made.append(node)
        return node

    def constant(self, content: Any) -> Value:
        """Add an initializer: a tensor, an array, or a number or list of integers (int64) or floats (float32)."""
        tensor = content if isinstance(content, Tensor) else Tensor.of(_array_of(content))
        tensor.name = self.unique("constant")
        value = self.graph.add_initializer(tensor.name, tensor)
        self.constants.append(value)
        return value

    def unique(self, stem: str) -> str:
        """A name that no value of the model has: numbers are given out once in a process."""
        return f"{self.prefix}/{stem}_{next(_numbers)}"


_numbers = itertools.count()


def _as_kind(value: Any, kind: Kind) -> Any:
    if kind is Kind.FLOAT:
        return float(value)
    if kind is Kind.INT:
        return int(value)
    if kind is Kind.INTS:
        return [int(item) for item in value]
    if kind is Kind.TENSOR and not isinstance(value, Tensor):
        return Tensor.of(np.asarray(value))
    return value


def _array_of(content: Any) -> np.ndarray:
    if isinstance(content, (np.ndarray, np.generic)):
        return np.asarray(content)
    array = np.array(content)
    return array.astype(np.float32) if array.dtype == np.float64 else array
