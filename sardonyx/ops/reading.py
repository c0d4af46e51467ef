"""How a node is read: operands by their names in the spec, whether the model gives them as attributes or as inputs.

Rules, passes and lowerings ask here, so that an attribute which became an input in a later version is one operand to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.ir import Node, Tensor, Value
from sardonyx.ops import checking, schemas


def operand(node: Node, name: str) -> Any:
    """An operand by its name: an attribute's value or default, or the content of a constant input. None if there is none."""
    if name in node.attributes:
        return attribute_value(node.attributes[name].value)
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None:
        return None
    if name in signature.attributes:
        return signature.attributes[name].default
    value = input_named(node, name)
    content = None if value is None else constant(value)
    return None if content is None else content.tolist()


def word(node: Node, name: str, default: str) -> str:
    """A mode or the like; `default` where the node's version has no such attribute. An empty word is a word, too."""
    value = operand(node, name)
    return default if value is None else str(value)


def input_named(node: Node, name: str) -> Value | None:
    """An input by its name; None if it is absent."""
    signature = schemas.find(node.domain, node.op_type, node.version)
    names = () if signature is None else signature.operand_names
    position = names.index(name) if name in names else len(node.inputs)
    return node.inputs[position] if position < len(node.inputs) else None


def inputs_named(node: Node, *names: str) -> list[Value | None]:
    """Some inputs by their names; None for what is absent."""
    return [input_named(node, name) for name in names]


def constant(value: Value) -> np.ndarray | None:
    """The content of a value that is the same in every run, None if it is not or if nobody knows."""
    if value.is_constant and value.constant is not None:
        return value.constant.numpy()
    if value.known is not None and value.known.dtype != object:
        return value.known
    return None


def attribute_value(value: Any) -> Any:
    """An attribute as kernels get it: tensors as arrays."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return [tensor.numpy() for tensor in value]
    return value


def given_attributes(node: Node) -> dict[str, Any]:
    """What a node's attributes are set to, for a node like it."""
    return {name: attribute.value for name, attribute in node.attributes.items()}


def all_attributes(node: Node) -> dict[str, Any]:
    """A node's attributes as kernels get them, with the defaults of its version."""
    definitions = checking.signature_of(node).attributes.items()
    values = {name: definition.default for name, definition in definitions if definition.default is not None}
    values.update((name, attribute_value(attribute.value)) for name, attribute in node.attributes.items())
    return values
