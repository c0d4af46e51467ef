"""Types of values: tensor, sparse tensor, sequence, map, optional, opaque. Immutable; printed as ONNX type strings."""

from __future__ import annotations

from typing import Union

from sardonyx.dtypes import ElementType
from sardonyx.ir.dim import Dim
from sardonyx.startup.records import dataclass

Shape = tuple[Dim, ...]
MAX_RANK = 64
"""More axes than this no array can have: NumPy's bound."""
SHOWN_AXES = 16
"""Shapes longer than this are abbreviated in messages."""


@dataclass(frozen=True)
class TensorType:
    """A dense tensor; `shape` is None while the rank is unknown, `dtype` None while nothing is."""

    dtype: ElementType | None
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"tensor({self.dtype.name})" if self.dtype else "tensor(?)"

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    def with_shape(self, shape: Shape | None) -> TensorType:
        return TensorType(self.dtype, shape)


@dataclass(frozen=True)
class NoTensorType(TensorType):
    """What the elements of an empty sequence are: any tensors of one element type may join them."""


@dataclass(frozen=True)
class SparseTensorType:
    """A sparse tensor."""

    dtype: ElementType | None
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse_tensor({self.dtype})"


@dataclass(frozen=True)
class SequenceType:
    """A list of values of one type."""

    element: Type

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True)
class MapType:
    """A mapping from integers or strings."""

    key: ElementType
    value: Type

    def __str__(self) -> str:
        return f"map({self.key},{self.value})"


@dataclass(frozen=True)
class OptionalType:
    """A value or nothing."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True)
class OpaqueType:
    """A type that only some domain knows."""

    domain: str
    name: str

    def __str__(self) -> str:
        return f"opaque({self.domain},{self.name})"


Type = Union[TensorType, SparseTensorType, SequenceType, MapType, OptionalType, OpaqueType]


def described(type: Type | None) -> str:
    """The type with its shape, for messages and listings: `float[N, 3]`."""
    match type:
        case None:
            return "unknown"
        case TensorType(dtype, shape):
            return f"{dtype or '?'}{_shape_text(shape)}"
        case SparseTensorType(dtype, shape):
            return f"sparse {dtype or '?'}{_shape_text(shape)}"
        case SequenceType(element):
            return f"seq({described(element)})"
        case OptionalType(element):
            return f"optional({described(element)})"
        case MapType(key, value):
            return f"map({key}, {described(value)})"
    return str(type)


def _shape_text(shape: Shape | None) -> str:
    if shape is None:
        return "[...]"
    shown = [str(size) for size in shape[:SHOWN_AXES]]
    return "[" + ", ".join(shown if len(shape) <= SHOWN_AXES else [*shown, f"… {len(shape)} axes"]) + "]"
