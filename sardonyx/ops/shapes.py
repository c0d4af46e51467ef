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
    return tuple(_broadcast_dim(column, known) for column in zip(*as_they_fit(*known), strict=True))


def as_they_fit(*shapes: Shape) -> list[Shape]:
    """Shapes that are to be broadcast together, of one rank, and simplified by what must hold for that.

    min(16, n) and n in one axis fit only where n is at most 16, and then min(16, m) is m for every m up to n. Exported decoders cut
    their masks out of a table so: max(min(16, past + length) - min(16, past), 0) is the length.
    """
    rank = max(map(len, shapes), default=0)
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    caps = [cap for column in zip(*aligned, strict=True) if len(column) > 1 for cap in _caps(column)]
    if not caps:
        return aligned

    def uncapped(size: Dim) -> Dim:
        call = size.call if isinstance(size, dim.Expression) else None
        if call is None or call.function != "min" or len(call.arguments) != 2:
            return size
        for number, other in (call.arguments, call.arguments[::-1]):
            if isinstance(number, int) and any(number >= most and dim.is_nonnegative(whole - other) for most, whole in caps):
                return other
        return size

    return [tuple(dim.rewritten(size, uncapped) for size in shape) for shape in aligned]


def _caps(column: Sequence[Dim]) -> Iterable[tuple[int, Dim]]:
    """(16, n) for an axis in which n and min(16, n) meet."""
    for size in column:
        call = size.call if isinstance(size, dim.Expression) else None
        if call is not None and call.function == "min" and len(call.arguments) == 2:
            for number, whole in (call.arguments, call.arguments[::-1]):
                if isinstance(number, int) and number > 1 and whole in column:
                    yield number, whole


def _broadcast_dim(dims: Sequence[Dim], shapes: Sequence[Shape]) -> Dim:
    others: list[Dim] = []
    for size in dims:
        if not (isinstance(size, int) and size == 1) and size not in others:
            others.append(size)
    if len(others) == 1:
        return others[0]
    numbers = [size for size in others if isinstance(size, int)]
    if len(numbers) > 1:
        raise InferenceError("Incompatible dimensions: shapes cannot be broadcast together: " + " and ".join(map(text, shapes)))
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
        raise InferenceError(f"{name} {axis} is outside [{-rank}, {rank - 1}], {name} must be in [-rank, rank-1]")
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
