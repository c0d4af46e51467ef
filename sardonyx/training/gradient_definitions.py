"""Gradients that users define as lists of nodes, as `register_gradient` of onnxruntime takes them.

A node is (op, inputs, outputs) or (op, inputs, outputs, attributes). The op is a name, or a name and a domain. Inputs are `GO(i)`, `I(i)`
and `O(i)`, the gradient of an output, an input and an output of the forward node, or outputs of nodes before; `GI(i)` among the outputs
is the gradient of an input. An attribute is `{"value": v, "dtype": t, "is_tensor": b}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import Fail, InvalidArgument
from sardonyx.ir import Node, Tensor, Value
from sardonyx.ops.gradients.builder import TypedBuilder
from sardonyx.ops.gradients.table import gradients

OF_FORWARD = re.compile(r"(GO|GI|I|O)\((\d+)\)")
ELEMENT_OF = re.compile(r"(I|O)ElemType\((\d+)\)")
TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int": np.int64,
    "int64": np.int64,
    "int32": np.int32,
    "bool": np.bool_,
}
ATEN = "org.pytorch.aten"

Definition = Sequence[Sequence[Any]]
Maker = Callable[[], Definition]


def register_gradient(domain: str, name: str, *attributes: str) -> Callable[[Maker], Maker]:
    """Decorates a function that returns the nodes of an op's gradient, for the whole process, in place of the one that there was.

    Gradients of `org.pytorch.aten` change nothing: PyTorch differentiates its own ops.
    """

    def register(make: Maker) -> Maker:
        nodes = make()
        _check(f"{domain}:{name}", nodes)
        if domain != ATEN:
            gradients.load_all()
            gradients.remove(domain, name)

            def write(op: TypedBuilder, node: Node, incoming: Sequence[Value | None]) -> list[tuple[Value, Value]]:
                return _write(nodes, op, node, incoming)

            gradients.register(name, domain=domain)(write)
        return make

    return register


def _check(name: str, nodes: Definition) -> None:
    known: set[str] = set()
    for node in nodes:
        if len(node) not in (3, 4):
            raise InvalidArgument(f"{name}: a node is (op, inputs, outputs) or that with attributes, not {node!r}")
        for given in node[1]:
            is_forward = OF_FORWARD.fullmatch(given) is not None and not given.startswith("GI")
            if given and given not in known and not is_forward:
                raise InvalidArgument(
                    f"{name}: {given!r} is no output of a node before {node[0]!r}, and none of GO(i), I(i), O(i)"
                )
        known.update(node[2])
    if not any(made.startswith("GI(") for made in known):
        raise InvalidArgument(f"{name}: no node makes the gradient of an input, GI(i)")


def _write(nodes: Definition, op: TypedBuilder, node: Node, incoming: Sequence[Value | None]) -> list[tuple[Value, Value]]:
    values: dict[str, Value | None] = {}
    for kind, inputs, outputs, *rest in nodes:
        op_type, domain = (kind, "") if isinstance(kind, str) else kind
        operands = [values[name] if name in values else _of_forward(op, node, incoming, name) for name in inputs]
        attributes = {key: _content(op, node, given) for key, given in (rest[0] if rest else {}).items()}
        made = op.node(op_type, *operands, domain=domain, outputs=len(outputs), **attributes)
        values.update(zip(outputs, made if isinstance(made, list) else [made], strict=True))
    pairs = []
    for name, gradient in values.items():
        place = OF_FORWARD.fullmatch(name)
        if place is not None and place[1] == "GI" and gradient is not None:
            target = _at(node, node.inputs, int(place[2]), name)
            pairs += [] if target is None else [(target, gradient)]
    return pairs


def _at(node: Node, values: Sequence[Value | None], position: int, name: str) -> Value | None:
    if position >= len(values):
        raise Fail(f"{node}: its gradient names {name}, the node has {len(values)} of these")
    return values[position]


def _of_forward(op: TypedBuilder, node: Node, incoming: Sequence[Value | None], name: str) -> Value | None:
    place = OF_FORWARD.fullmatch(name)
    if place is None:
        return None
    kind, position = place[1], int(place[2])
    if kind == "I":
        return _at(node, node.inputs, position, name)
    if kind == "O":
        return op.result(node, position)
    return _at(node, incoming, position, name) or op.zeros(op.result(node, position))


def _content(op: TypedBuilder, node: Node, given: Mapping[str, Any]) -> Any:
    """An attribute; its type may be that of a value of the forward node."""
    value, name = given["value"], str(given["dtype"])
    if not given.get("is_tensor", False):
        return value
    like = ELEMENT_OF.fullmatch(name)
    if like is not None:
        source = _at(node, node.inputs if like[1] == "I" else node.outputs, int(like[2]), name)
        assert source is not None
        dtype: Any = op.dtype(source).numpy
    elif name in TYPES:
        dtype = TYPES[name]
    else:
        raise Fail(f"{node}: its gradient has an attribute of the unknown type {name!r}; there are {', '.join(TYPES)}")
    return Tensor.of(np.array(value, dtype))
