"""The graph that every stage reads and changes: Model, Graph, Node, Value, Tensor, Type, Dim."""

from sardonyx.ir import dim
from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.dim import Dim
from sardonyx.ir.graph import Denotation, Graph, Node, Value, released_on_failure
from sardonyx.ir.model import Function, FunctionKey, Model, SavedOptimization, SavedOptimizations, TypeStrings
from sardonyx.ir.tensor import ExternalLocation, PackedLocation, SparseTensor, Tensor
from sardonyx.ir.types import (
    MapType,
    NoTensorType,
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
    "Denotation",
    "Dim",
    "ExternalLocation",
    "Function",
    "FunctionKey",
    "Graph",
    "Kind",
    "MapType",
    "Model",
    "NoTensorType",
    "Node",
    "OpaqueType",
    "OptionalType",
    "PackedLocation",
    "SavedOptimization",
    "SavedOptimizations",
    "SequenceType",
    "Shape",
    "SparseTensor",
    "SparseTensorType",
    "Tensor",
    "TensorType",
    "Type",
    "TypeStrings",
    "Value",
    "described",
    "dim",
    "released_on_failure",
]
