"""Shape arithmetic that inference functions share: broadcasting, axes, merging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ir.dim import Dim
from sardonyx.ir.types import Shape
from sardonyx.ops.operand import Operand, Result

MAX_SIZES = 1 << 16
"""More sizes than any shape or list of parts has; a model may ask for any number of them in a few bytes."""


def text(shape: Iterable[Dim]) -> str:
    """A shape as messages show it."""
    return "[" + ", ".join(map(str, shape)) + "]"


def broadcast(*shapes: Shape | None) -> Shape | None:
    """The common shape of operands under ONNX's multidirectional broadcasting, None if a rank is unknown."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(shape) for shape in known), default=0)
    columns = zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in known), strict=True) if rank else ()
    return tuple(_broadcast_dim(column, known) for column in columns)


def _broadcast_dim(dims: Sequence[Dim], shapes: Sequence[Shape]) -> Dim:
    others: list[Dim] = []
    for size in dims:
        if not (isinstance(size, int) and size == 1) and size not in others:
            others.append(size)
    if len(others) == 1:
        return others[0]
    numbers = [size for size in others if isinstance(size, int)]
    if len(numbers) > 1:
        raise InferenceError("shapes cannot be broadcast together: " + " and ".join(map(text, shapes)))
    if numbers:
        return numbers[0]
    # min(512, n) and n fit together only where they are the same: positions are cut from a table by the length of the ids
    largest = next((size for size in others if all(dim.is_capped(other, size) for other in others)), None)
    if largest is not None:
        return largest
    # a multiple of 2 is never the 1 that stands for others: maps of a pyramid are doubled and added to the next
    multiple = next((size for size in others if dim.common_factor(size) > 1), None)
    if multiple is not None:
        return multiple
    return dim.broadcast(*others)


def require_positive(**numbers: int | None) -> None:
    """Refuse an attribute that counts something, heads or groups say, and is zero or negative."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise InferenceError(f"{name} must be positive, it is {number}")


def element_type(code: int, name: str = "dtype") -> ElementType:
    """The element type that an attribute names by its number."""
    try:
        return dtypes.from_code(code)
    except KeyError:
        raise InferenceError(f"{name} {code} is no element type") from None


def axis_index(axis: int, rank: int, name: str = "axis") -> int:
    """A non-negative axis; refuses one outside [-rank, rank-1]."""
    if not -rank <= axis < rank:
        raise InferenceError(f"{name} {axis} is outside [{-rank}, {rank - 1}]")
    return axis % rank


def axis_indices(axes: Iterable[int], rank: int, name: str = "axes") -> list[int]:
    """Non-negative axes in the given order; refuses a repeated one."""
    indices = [axis_index(int(axis), rank, name) for axis in axes]
    if len(set(indices)) < len(indices):
        raise InferenceError(f"{name} {indices} names an axis twice")
    return indices


def merge_dims(a: Dim, b: Dim, what: str) -> Dim:
    """Two views of one size as one: numbers win over symbols, names over anonymous symbols; two numbers must agree."""
    if isinstance(a, int) and isinstance(b, int):
        if a != b:
            raise InferenceError(f"{what}: {a} and {b} differ")
        return a
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    return b if dim.is_anonymous(a) else a


def merge_shapes(a: Shape | None, b: Shape | None, what: str) -> Shape | None:
    """Two views of one shape as one."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise InferenceError(f"{what}: ranks differ, {text(a)} and {text(b)}")
    return tuple(merge_dims(x, y, what) for x, y in zip(a, b, strict=True))


def fresh_shape(rank: int) -> Shape:
    """A shape of which only the rank is known."""
    if rank > MAX_SIZES:
        raise InferenceError(f"a rank of {rank} is too much")
    return tuple(dim.fresh() for _ in range(rank))


def common_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """What two alternatives have in common: a fresh size where they differ, None where the ranks do."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else dim.fresh() for x, y in zip(a, b, strict=True))


def same_as(name: str) -> Callable[..., Result]:
    """An inference function: the output has the shape of operand `name`."""

    def infer(**operands: Operand) -> Result:
        return operands[name].shape

    return infer
