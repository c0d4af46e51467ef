"""The graph that every stage reads and changes: Model, Graph, Node, Value, Tensor, Type, Dim."""

from sardonyx.ir import dim
from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.dim import Dim
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.model import Function, FunctionKey, Model
from sardonyx.ir.tensor import ExternalLocation, SparseTensor, Tensor
from sardonyx.ir.types import (
    MapType,
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    Type,
    described,
)

__all__ = [
    "Attribute",
    "Dim",
    "ExternalLocation",
    "Function",
    "FunctionKey",
    "Graph",
    "Kind",
    "MapType",
    "Model",
    "Node",
    "OpaqueType",
    "OptionalType",
    "SequenceType",
    "Shape",
    "SparseTensor",
    "SparseTensorType",
    "Tensor",
    "TensorType",
    "Type",
    "Value",
    "described",
    "dim",
]
