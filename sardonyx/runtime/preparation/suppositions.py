"""Sizes that the optimizer has supposed to be equal. An engine asks before each run whether they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.ir import Value
from sardonyx.runtime.preparation.sizes import given_symbols, size_with

if TYPE_CHECKING:
    from sardonyx.optimizer.rewrite import Supposition

MAX_SHAPES = 64
"""How many sets of shapes are known to be right."""

Run = Callable[[Mapping[str, Any]], "list[Any] | None"]


class Suppositions:
    """What was supposed, and the inputs that tell whether it is true. Any number of threads may ask."""

    def __init__(self, supposed: Sequence[Supposition], inputs: Sequence[Value]):
        self._supposed = supposed
        self._places = {value.name: symbols for value in inputs if (symbols := list(given_symbols(value.type)))}
        self._compared = list(dict.fromkeys(one.input for supposition in supposed for one in supposition.comparisons))
        self._right: set[tuple[Any, ...]] = set()

    def hold(self, feeds: Mapping[str, Any]) -> bool:
        """Whether all sizes are as supposed."""
        shapes = tuple([getattr(feeds.get(name), "shape", None) for name in self._places])
        numbers = tuple([_number(feeds.get(name)) for name in self._compared]) if self._compared else ()
        if (shapes, numbers) in self._right:
            return True
        is_right = self._is_right(self._sizes(shapes), dict(zip(self._compared, numbers)))
        if is_right and len(self._right) < MAX_SHAPES:
            self._right.add((shapes, numbers))
        return is_right

    def _is_right(self, sizes: Mapping[str, int], numbers: Mapping[str, Any]) -> bool:
        for supposition in self._supposed:
            if any(numbers[one.input] is None for one in supposition.comparisons):
                return False
            if all((numbers[one.input] == one.number) is one.is_equal for one in supposition.comparisons):
                left, right = (size_with(size, sizes) for size in (supposition.left, supposition.right))
                if left is None or left != right:
                    return False
        return True

    def _sizes(self, shapes: Sequence[Sequence[int] | None]) -> dict[str, int]:
        """The values of symbols; none where shapes contradict each other."""
        rows = zip(shapes, self._places.values())
        found = {(symbol, shape[axis]) for shape, places in rows if shape for symbol, axis in places if axis < len(shape)}
        sizes = dict(found)
        return sizes if len(sizes) == len(found) else {}

    def guarded(self, run: Run | None) -> Run | None:
        """A way to run that is taken only where they hold."""
        return None if run is None else lambda feeds: run(feeds) if isinstance(feeds, dict) and self.hold(feeds) else None


def _number(fed: Any) -> Any:
    """The one number of an array; None for anything else."""
    return fed.item() if getattr(fed, "size", None) == 1 and hasattr(fed, "item") else None
