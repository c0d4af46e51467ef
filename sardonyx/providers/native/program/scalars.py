"""Which scalar function computes an elementwise node, and with what attributes."""

from __future__ import annotations

import math
from typing import Any

from sardonyx.ir import Node, TensorType
from sardonyx.ops import checking
from sardonyx.ops.reading import attribute_value
from sardonyx.providers.native.program.values import has_texts, is_plain
from sardonyx.providers.scalars.table import Scalar, scalars

TAKE_TEXTS = {("", "Where")}
"""Elementwise ops that choose among strings."""


def find_scalar(node: Node) -> Scalar | None:
    """The scalar function of an elementwise node, None for other nodes."""
    entries = scalars.candidates(node.domain, node.op_type)
    if (
        not entries
        or len([output for output in node.outputs if output.name]) != 1
        or not all(map(is_plain, (*node.inputs, *node.outputs)))
        or (has_texts(node) and (node.domain, node.op_type) not in TAKE_TEXTS)
    ):
        return None
    version = checking.signature_of(node).since_version
    first = next((value for value in node.inputs if value is not None), node.outputs[0])
    dtype = first.type.dtype if isinstance(first.type, TensorType) else None
    for entry in entries:
        if entry.covers(version) and (entry.types is None or dtype in entry.types):
            count = len(node.inputs)
            if (
                (entry.variadic or count <= len(entry.positional))
                and _attributes_fit(node, entry)
                and (entry.claims is None or entry.claims(node))
            ):
                return entry
    return None


def _attributes_fit(node: Node, entry: Scalar) -> bool:
    """Whether every attribute that is set is one that the function knows, and of a kind that can be compared."""
    return all(
        name in entry.parameters and isinstance(attribute.value, (int, float, str, bytes))
        for name, attribute in node.attributes.items()
    )


def trailing_axes(entry: Scalar, node: Node, number: int) -> int:
    """How many axes of size 1 an operand of an elementwise node, whose function this is, gets behind its own before it broadcasts."""
    return 0 if entry.trailing is None else entry.trailing(node, number)


class NegativeZero(float):
    """-0.0, equal to no other zero: kernels are remembered by their attributes, and that of 0.0 computes something else."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NegativeZero)

    def __hash__(self) -> int:
        return hash(NegativeZero)


def told_apart(value: Any) -> Any:
    """A value for the key of a kernel, in which -0.0 is not 0.0."""
    return NegativeZero(value) if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0 else value


def scalar_attributes(node: Node, entry: Scalar) -> tuple[tuple[str, Any], ...]:
    """What a scalar function gets by name: the node's attributes and the defaults of its version."""
    signature = checking.signature_of(node)
    attributes = {}
    for name, definition in signature.attributes.items():
        attribute = node.attributes.get(name)
        value = attribute_value(attribute.value) if attribute is not None else definition.default
        if name in entry.parameters and value is not None:
            attributes[name] = told_apart(value)
    return tuple(sorted(attributes.items()))
