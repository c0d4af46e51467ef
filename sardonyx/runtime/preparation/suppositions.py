"""Sizes that the optimizer has supposed to be equal. An engine asks before each run whether they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.ir import Value, dim
from sardonyx.ir.suppositions import Comparison, Supposition
from sardonyx.providers.native.program.size_terms import dim_of, terms_of
from sardonyx.runtime.preparation.sizes import given_symbols, size_with

MAX_SHAPES = 64
"""How many sets of shapes are known to be right."""

Run = Callable[[Mapping[str, Any]], "list[Any] | None"]


class Suppositions:
    """What was supposed, and the inputs that tell whether it is true. Any number of threads may ask."""

    def __init__(self, supposed: Sequence[Supposition], places: Mapping[str, Sequence[tuple[str, int]]]):
        """`places` are the symbols that the shapes of inputs tell, with their axes, by the names of the inputs."""
        self._supposed = supposed
        self._places = places
        self._compared = list(dict.fromkeys(one.input for supposition in supposed for one in supposition.comparisons))
        self._right: set[tuple[Any, ...]] = set()

    @classmethod
    def of(cls, supposed: Sequence[Supposition], inputs: Sequence[Value]) -> Suppositions:
        """What was supposed of a model with these inputs."""
        return cls(supposed, {value.name: symbols for value in inputs if (symbols := list(given_symbols(value.type)))})

    def as_words(self) -> list[Any]:
        """What JSON can hold of them."""
        sizes = [size for one in self._supposed for size in (one.left, one.right)]
        numbers = {
            name: number for number, name in enumerate(sorted({symbol.name for size in sizes for symbol in dim.symbols(size)}))
        }
        rows = [
            [
                terms_of(one.left, numbers, {}),
                terms_of(one.right, numbers, {}),
                [[comparison.input, comparison.number, comparison.is_equal] for comparison in one.comparisons],
            ]
            for one in self._supposed
        ]
        return [list(numbers), {name: list(map(list, symbols)) for name, symbols in self._places.items()}, rows]

    @classmethod
    def of_words(cls, words: Sequence[Any]) -> Suppositions | None:
        """None if nothing is supposed."""
        if not words:
            return None
        names, places, rows = words
        supposed = [
            Supposition(dim_of(left, names), dim_of(right, names), [Comparison(*comparison) for comparison in comparisons])
            for left, right, comparisons in rows
        ]
        return cls(supposed, {name: [(symbol, axis) for symbol, axis in symbols] for name, symbols in places.items()})

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
