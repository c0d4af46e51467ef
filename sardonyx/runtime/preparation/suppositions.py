"""Sizes that the optimizer has supposed to be equal. An engine asks before each run whether they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.ir import Dim, Value
from sardonyx.runtime.preparation.sizes import given_symbols, size_with

MAX_SHAPES = 64
"""How many sets of shapes are known to be right."""

Run = Callable[[Mapping[str, Any]], "list[Any] | None"]


class Suppositions:
    """Pairs of sizes, and the inputs whose shapes tell them. Any number of threads may ask."""

    def __init__(self, pairs: Sequence[tuple[Dim, Dim]], inputs: Sequence[Value]):
        self._pairs = pairs
        self._places = {value.name: symbols for value in inputs if (symbols := list(given_symbols(value.type)))}
        self._right: set[tuple[Any, ...]] = set()

    def hold(self, feeds: Mapping[str, Any]) -> bool:
        """Whether all sizes are as supposed."""
        shapes = tuple([getattr(feeds.get(name), "shape", None) for name in self._places])
        if shapes in self._right:
            return True
        sizes = self._sizes(shapes)
        numbers = [[size_with(size, sizes) for size in pair] for pair in self._pairs]
        is_right = all(left is not None and left == right for left, right in numbers)
        if is_right and len(self._right) < MAX_SHAPES:
            self._right.add(shapes)
        return is_right

    def _sizes(self, shapes: Sequence[Sequence[int] | None]) -> dict[str, int]:
        """The values of symbols; none where shapes contradict each other."""
        rows = zip(shapes, self._places.values())
        found = {(symbol, shape[axis]) for shape, places in rows if shape for symbol, axis in places if axis < len(shape)}
        sizes = dict(found)
        return sizes if len(sizes) == len(found) else {}

    def guarded(self, run: Run | None) -> Run | None:
        """A way to run that is taken only where they hold."""
        return None if run is None else lambda feeds: run(feeds) if isinstance(feeds, dict) and self.hold(feeds) else None
