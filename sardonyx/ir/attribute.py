"""Attributes of nodes: a value with its kind, or a reference to an attribute of the function around it."""

from __future__ import annotations

import enum
from typing import Any

from sardonyx.startup.records import dataclass


class Kind(enum.IntEnum):
    """Kinds of attributes, with the numbers of AttributeProto.AttributeType."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


@dataclass
class Attribute:
    """`value` is a float, int, str (bytes where they are no UTF-8), Tensor, SparseTensor, Graph, Type or a list of these, as `kind` says.

    In a function's body `reference` may name an attribute of the call instead; then `value` is None.
    """

    kind: Kind
    value: Any
    reference: str | None = None
    doc: str = ""

    @staticmethod
    def of(value: Any) -> Attribute:
        """An attribute whose kind is seen from its value; an empty list counts as INTS."""
        return Attribute(_kind_of(value), value)


def _kind_of(value: Any) -> Kind:
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.tensor import SparseTensor, Tensor

    if isinstance(value, (list, tuple)):
        return Kind(_kind_of(value[0]) + 5) if value else Kind.INTS
    for kinds, kind in (
        ((bool, int), Kind.INT),
        (float, Kind.FLOAT),
        ((str, bytes), Kind.STRING),
        (Tensor, Kind.TENSOR),
        (Graph, Kind.GRAPH),
        (SparseTensor, Kind.SPARSE_TENSOR),
    ):
        if isinstance(value, kinds):  # type: ignore[arg-type]
            return kind
    return Kind.TYPE_PROTO
