"""What a session tells about its model: NodeArg, ModelMetadata, and which provider got which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.ir import Dim, Model, Node, OptionalType, SparseTensorType, TensorType, Type, Value

UNKNOWN_VERSION = 2**63 - 1
"""What the original shows for a model file without a version."""


class NodeArg:
    """Name, type and shape of an input or output. A symbolic size is its name, an unnamed one None."""

    __slots__ = ("_name", "_type", "_shape")

    def __init__(self, name: str, type: str, shape: Sequence[int | str | None]):
        self._name = name
        self._type = type
        self._shape = list(shape)

    @classmethod
    def _of(cls, value: Value, type: Type | None = None) -> NodeArg:
        """What users see of a value, or of one of another type in its place."""
        type = value.type if type is None else type
        return cls(value.name, "" if type is None else str(type), _visible_shape(type, value.declared))

    @property
    def name(self) -> str:
        """The name by which runs feed or fetch it."""
        return self._name

    @property
    def type(self) -> str:
        """Its type as text: "tensor(float)"."""
        return self._type

    @property
    def shape(self) -> list[int | str | None]:
        """Sizes; also empty where the rank is unknown, and for sequences and maps."""
        return list(self._shape)

    def __str__(self) -> str:
        return f"NodeArg(name='{self._name}', type='{self._type}', shape={self._shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        return NodeArg, (self._name, self._type, self._shape)


def _visible_shape(found: Type | None, said: Type | None) -> list[int | str | None]:
    """Inferred numbers win over the declared names, declared names over inferred ones."""
    inferred, declared = _dims(found), _dims(said)
    if inferred is None:
        return []
    if declared is None or len(declared) != len(inferred):
        declared = inferred
    return [_visible_dim(mine, theirs) for mine, theirs in zip(inferred, declared, strict=True)]


def _dims(type: Type | None) -> Sequence[Dim] | None:
    if isinstance(type, OptionalType):
        type = type.element
    return type.shape if isinstance(type, (TensorType, SparseTensorType)) else None


def _visible_dim(inferred: Dim, declared: Dim) -> int | str | None:
    for size in (inferred, declared):
        if isinstance(size, int):
            return size
    symbols = [size.symbol for size in (declared, inferred) if not isinstance(size, int) and size.symbol is not None]
    names = (symbol.name for symbol in symbols if not symbol.is_anonymous)
    return next(names, None) or next((symbol.mark for symbol in symbols if symbol.mark), None)


class ModelMetadata:
    """What a model's file says about itself."""

    __slots__ = ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map")

    def __init__(self, model: Model):
        self.producer_name = model.producer_name
        self.graph_name = model.graph.name
        self.domain = model.domain
        self.description = model.doc
        self.graph_description = model.graph.doc
        self.version = UNKNOWN_VERSION if model.model_version is None else model.model_version
        self.custom_metadata_map = dict(model.metadata)


class OrtEpAssignedNode:
    """A node that a provider got. `reason` is ours: why a provider that was asked before it has not, native code for one; "" if it has."""

    __slots__ = ("name", "domain", "op_type", "reason")

    def __init__(self, node: Node, reason: str = ""):
        self.name = node.name
        self.domain = node.domain
        self.op_type = node.op_type
        self.reason = reason


class OrtEpAssignedSubgraph:
    """Nodes that a provider runs as one step."""

    __slots__ = ("ep_name", "_nodes")

    def __init__(self, ep_name: str, nodes: Sequence[Node], reason: str = ""):
        self.ep_name = ep_name
        self._nodes = [OrtEpAssignedNode(node, reason) for node in nodes]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes of the step."""
        return list(self._nodes)


class OrtExternalInitializerInfo:
    """Where an initializer's data lies: a file, an offset and a size."""

    __slots__ = ("filepath", "file_offset", "byte_size")

    def __init__(self, filepath: str, file_offset: int, byte_size: int):
        self.filepath = filepath
        self.file_offset = file_offset
        self.byte_size = byte_size
