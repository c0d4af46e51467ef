"""What generated code has to know of a value: the type of its elements, its sizes. Lowerings ask here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.compiler.types import TEXT, Type, of_elements
from sardonyx.ir import Dim, Node, NoTensorType, OptionalType, SequenceType, TensorType, Value, dim
from sardonyx.ir import Type as ValueType
from sardonyx.providers.provider import CannotCompile

if TYPE_CHECKING:
    from sardonyx.providers.native.program.views import Dims


def element_of(value: Value) -> Type | None:
    """The type of a value's elements in generated code; None for what it does not know."""
    return of_elements(value.type.dtype) if isinstance(value.type, TensorType) else None


def shape_of(value: Value) -> Dims | None:
    """The sizes of a tensor, None if not even the rank is known."""
    return tuple(value.type.shape) if isinstance(value.type, TensorType) and value.type.shape is not None else None


def is_plain(value: Value | None) -> bool:
    """Whether a value is a tensor that generated code can hold."""
    return value is None or (element_of(value) is not None and shape_of(value) is not None)


def tensors_in(value: Value | None) -> TensorType | None:
    """The type of the tensors in a sequence that generated code can hold; None for anything else."""
    return _held_tensors(None if value is None else value.type)


def _held_tensors(type: ValueType | None) -> TensorType | None:
    element = type.element if isinstance(type, SequenceType) else None
    if not isinstance(element, TensorType) or of_elements(element.dtype) in (None, TEXT):
        return None
    return element if isinstance(element, NoTensorType) or element.shape is not None else None


def is_optional(value: Value | None) -> bool:
    """Whether a value may be nothing."""
    return value is not None and isinstance(value.type, OptionalType)


def is_held(value: Value | None) -> bool:
    """Whether a value inside a program can be held there: a tensor, a sequence of them, or either as an optional value."""
    if is_plain(value):
        return True
    assert value is not None
    type = value.type.element if isinstance(value.type, OptionalType) else value.type
    if isinstance(type, TensorType):
        return of_elements(type.dtype) is not None and type.shape is not None
    return _held_tensors(type) is not None


def is_text(value: Value | None) -> bool:
    """Whether a value is a tensor of strings."""
    return value is not None and element_of(value) == TEXT


def has_texts(node: Node) -> bool:
    """Whether a node takes or makes strings."""
    return any(map(is_text, (*node.inputs, *node.outputs)))


# --- of values in a cluster, where all this is known


def required(value: Value | None) -> Value:
    """An input that a kernel cannot do without."""
    if value is None:
        raise CannotCompile("an input is missing")
    return value


def dims(value: Value) -> Dims:
    shape = shape_of(value)
    if shape is None:
        raise CannotCompile(f"nobody knows how many axes {value.name} has")
    return shape


def fixed(size: Dim, name: str) -> int:
    """A size that shapes the code, and not only its arguments."""
    if not isinstance(size, int):
        raise CannotCompile(f"{name} must be a number before runs, not {size}")
    return size


def rank_of(value: Value) -> int:
    return len(dims(value))


def stored(value: Value) -> Type:
    """The type of a value's elements in memory."""
    type = element_of(value)
    if type is None:
        raise CannotCompile(f"{value.name} is {value.type}")
    return type


def stored_in(value: Value) -> Type:
    """The same of the tensors in a sequence."""
    tensors = tensors_in(value)
    type = None if tensors is None else of_elements(tensors.dtype)
    if type is None:
        raise CannotCompile(f"{value.name} is {value.type}")
    return type


def computed(value: Value) -> Type:
    """The type that they are computed in."""
    return stored(value).computed


def bytes_of(value: Value) -> Dim:
    """How much memory a value takes."""
    return dim.product(dims(value)) * stored(value).bytes


def may_equal(size: Dim, other: Dim) -> bool:
    """Whether two sizes can be the same in a run."""
    return size == other or not isinstance(size - other, int)


def may_have_shape(shape: Dims | None, wanted: Dims) -> bool:
    """Whether a shape can be another one in a run."""
    return shape is not None and len(shape) == len(wanted) and all(map(may_equal, shape, wanted))
