"""What rules and passes ask about values: element type, shape as far as it is certain, exact constants, non-negativity."""

from __future__ import annotations

import numpy as np

from sardonyx.dtypes import FLOATS, UNSIGNED, ElementType, bfloat16, float16, float32
from sardonyx.ir import Node, TensorType, Value
from sardonyx.ir.dim import Dim
from sardonyx.ir.types import Shape
from sardonyx.ops.reading import constant
from sardonyx.ops.table import facts_of

CONTRIB_TYPES = frozenset({float32, float16, bfloat16})
"""Types to which ops of com.microsoft are applied; onnxruntime has no kernels of most of them for double."""

FIRST_BROADCASTING = 7
"""From this opset on arithmetic and logical ops, and Gemm its C, broadcast as NumPy does it; before, by flags."""


def dtype_of(value: Value) -> ElementType | None:
    """The element type of a tensor."""
    return value.type.dtype if isinstance(value.type, TensorType) else None


def shape_of(value: Value) -> Shape | None:
    """The shape of a tensor, None while its rank is not known."""
    return value.type.shape if isinstance(value.type, TensorType) else None


def rank_of(value: Value) -> int | None:
    """How many axes a tensor has."""
    shape = shape_of(value)
    return None if shape is None else len(shape)


def is_float(value: Value) -> bool:
    """Whether arithmetic on a value rounds."""
    return dtype_of(value) in FLOATS


def same_shape(a: Value, b: Value) -> bool:
    """Whether two tensors certainly have the same shape."""
    return shape_of(a) is not None and shape_of(a) == shape_of(b)


def broadcasts_into(small: Value, large: Value) -> bool:
    """Whether the two together certainly have the shape of `large`."""
    inner, outer = shape_of(small), shape_of(large)
    if inner == ():
        return True
    return inner is not None and outer is not None and shape_fits(inner, outer)


def shape_fits(inner: Shape, outer: Shape) -> bool:
    """Whether broadcasting `inner` with `outer` certainly gives `outer`."""
    if len(inner) > len(outer):
        return False
    return all(size in (1, wanted) for size, wanted in zip(reversed(inner), reversed(outer), strict=False))


def stays_finite(result: np.ndarray, before: np.ndarray) -> bool:
    """Whether no number of an array became infinite or NaN, if all were finite before."""
    return bool(np.isfinite(result.astype(np.float64)).all()) or not np.isfinite(before.astype(np.float64)).all()


def is_exactly(value: Value, number: float) -> bool:
    """Whether `value` is a constant all of whose elements are `number` and nothing near it."""
    array = constant(value)
    if array is None or array.size == 0 or array.dtype == object:
        return False
    return bool(np.all(array == array.dtype.type(number)))


def size_of(value: Value) -> int | None:
    """How many elements a constant has, which is known before any is read; None if the value is not constant."""
    if value.is_constant and value.constant is not None:
        return value.constant.size
    return None if value.known is None or value.known.dtype == object else value.known.size


def scalar(value: Value | None) -> float | None:
    """The number that a constant of one element holds."""
    array = constant(value) if value is not None and size_of(value) == 1 else None
    if array is None or array.dtype == object:
        return None
    return float(array.reshape(-1)[0])


def sizes_in(value: Value) -> list[Dim] | None:
    """The content of an integer vector as sizes, some of which may be symbolic."""
    array = constant(value)
    array = value.known if array is None else array
    if array is None or array.ndim > 1:
        return None
    return [int(size) if isinstance(size, (int, np.integer)) else size for size in array.reshape(-1).tolist()]


def has_one_output(node: Node) -> bool:
    """Whether nobody uses any output of a node but the first."""
    return not any(output.uses or output.is_graph_output for output in node.outputs[1:])


def is_non_negative(value: Value, depth: int = 16) -> bool:
    """Whether no element of `value` can be below zero; NaN counts as not below."""
    array = constant(value)
    if array is not None and array.dtype != object:
        return not bool(np.any(array < 0))
    if not is_float(value):  # integers wrap around
        return dtype_of(value) in UNSIGNED
    node = value.producer
    if node is None or depth == 0 or value is not node.outputs[0]:
        return False
    facts = facts_of(node)
    needed = node.inputs[:1] if facts.moves else facts.non_negative(node)
    return needed is not None and all(operand is not None and is_non_negative(operand, depth - 1) for operand in needed)
