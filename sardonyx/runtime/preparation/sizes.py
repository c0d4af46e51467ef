"""How many bytes values take: symbolic before a run, numbers once the sizes of the inputs are known. For orders and memory plans."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from sardonyx import dtypes
from sardonyx.ir import Dim, TensorType, Type, dim


@functools.lru_cache(maxsize=4096)
def bytes_of(type: Type | None) -> Dim | None:
    """The bytes of a tensor in memory; None for texts, for what is no tensor, and where the rank or the element type is unknown."""
    if not isinstance(type, TensorType) or type.shape is None or type.dtype is None or type.dtype is dtypes.string:
        return None
    return dim.product(type.shape) * type.dtype.numpy.itemsize


def size_with(size: Dim, sizes: Mapping[str, int]) -> int | None:
    """A symbolic size as a number, at least 0; None if a symbol in it has no value."""
    try:
        return max(dim.evaluate(size, sizes), 0)
    except KeyError:
        return None


def given_symbols(type: Type | None) -> Iterator[tuple[str, int]]:
    """Symbols that are the whole size of an axis of a tensor, with that axis: its shape tells their values."""
    if isinstance(type, TensorType):
        for axis, size in enumerate(type.shape or ()):
            if not isinstance(size, int) and size.symbol is not None:
                yield size.symbol.name, axis


def sizes_in(types: Mapping[str, Type | None], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The values of symbols that these shapes of values tell."""
    return {
        symbol: shapes[name][axis]
        for name, type in types.items()
        if name in shapes
        for symbol, axis in given_symbols(type)
        if axis < len(shapes[name])
    }
