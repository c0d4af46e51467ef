"""What an inference function gets for each operand of a node, and what it may return for each output."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ir.dim import Dim, Expression
from sardonyx.ir.types import SequenceType, Shape, SparseTensorType, TensorType, Type, described
from sardonyx.startup.records import dataclass

MAX_KNOWN_ELEMENTS = 4096
"""Values larger than this are not followed through the graph."""


@dataclass
class Operand:
    """Type of an operand and, if known, its content: an array of numbers, or an object array of sizes some of which are symbolic."""

    type: Type | None
    value: np.ndarray | None = None

    @property
    def dtype(self) -> ElementType | None:
        return self.type.dtype if isinstance(self.type, (TensorType, SparseTensorType)) else None

    @property
    def shape(self) -> Shape | None:
        return self.type.shape if isinstance(self.type, (TensorType, SparseTensorType)) else None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def element(self) -> Type | None:
        """Type of a sequence's or optional's content."""
        return getattr(self.type, "element", None)

    @property
    def is_concrete(self) -> bool:
        """Whether the content is known down to the last number."""
        return self.value is not None and not is_symbolic(self.value)

    @property
    def dims(self) -> tuple[Dim, ...] | None:
        """The content of an integer vector (or scalar) as sizes."""
        if self.value is None:
            return None
        return tuple(d if isinstance(d, Expression) else int(d) for d in self.value.reshape(-1).tolist())

    @property
    def ints(self) -> list[int] | None:
        """The content as plain integers, None if some are symbolic or unknown."""
        dims = self.dims
        return None if dims is None or any(isinstance(d, Expression) for d in dims) else list(dims)  # type: ignore[arg-type]

    @property
    def item(self) -> Any:
        """The only element, None if it is unknown or there are several."""
        return self.value.reshape(-1)[0] if self.value is not None and self.value.size == 1 else None

    def as_size(self, name: str) -> Dim:
        """The only element as a size, a fresh one if it is not known; refused if there are none or several."""
        self.require_one(name)
        return dim.fresh() if self.dims is None else self.dims[0]

    def require_one(self, name: str) -> None:
        """Refuse none or several elements."""
        count = None if self.shape is None else dim.product(self.shape)
        if isinstance(count, int) and count != 1:
            raise InferenceError(f"{name} must be one number, it is {described(self.type)}")

    def require_rank(self, *ranks: int, name: str = "input") -> Shape | None:
        """The shape, refused if its rank is known and none of these."""
        if self.shape is not None and len(self.shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise InferenceError(f"{name} must have rank {wanted}, not {len(self.shape)} ({described(self.type)})")
        return self.shape

    def require_sizes(self, *sizes: int | None, name: str = "input") -> Shape | None:
        """The shape, refused if it is known and another than this one; None stands for any size."""
        shape = self.require_rank(len(sizes), name=name)
        pairs = zip(shape or (), sizes)
        if any(isinstance(size, int) and wanted is not None and size != wanted for size, wanted in pairs):
            expected = ", ".join("any" if size is None else str(size) for size in sizes)
            raise InferenceError(f"{name} must have the sizes [{expected}], not {described(self.type)}")
        return shape


@dataclass
class Known:
    """An output of which the content is known too. `type` is a Type, a shape (the element type follows from the schema), or None."""

    type: Type | Shape | None
    value: np.ndarray | None


Result = Type | Shape | Known | None
"""What an inference function returns for one output; None means that the rank is unknown."""


def is_symbolic(value: np.ndarray) -> bool:
    """Whether an array holds sizes that are expressions."""
    return value.dtype.kind == "O" and any(isinstance(item, Expression) for item in value.reshape(-1).tolist())


def sizes(dims: Any) -> np.ndarray:
    """A one-dimensional content made of sizes: int64 if all are numbers, an object array otherwise."""
    items = list(dims)
    if any(isinstance(item, Expression) for item in items):
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array
    try:
        return np.array(items, dtype=np.int64)
    except OverflowError:
        raise InferenceError(f"there is a number beyond 64 bits among {items}") from None


def settled(value: Any, dtype: ElementType | None) -> np.ndarray | None:
    """A content in the array type that it should have: the element type's if all is known, object if it is symbolic.

    NumPy hands out the bare item where it computes on a rank-0 object array; that is taken too.
    """
    value = np.asarray(value)
    if value.size > MAX_KNOWN_ELEMENTS or dtype is None:
        return None
    if is_symbolic(value):
        return value
    return value if value.dtype == dtype.numpy else value.astype(dtype.numpy)


def sequence_of(type: Type | None) -> Type | None:
    return None if type is None else SequenceType(type)
