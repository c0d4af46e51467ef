"""A batch in parts: how many of its entries go through all steps of a program before the next ones come. Layouts ask here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler import caches
from sardonyx.providers.native.program import budgets
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.sizes import Shapes

WORTH_WEIGHTS = 16
"""How many operations a part must have for each byte of weights: reading these is then hidden behind them."""


@dataclass(frozen=True)
class Batch:
    """The first axis of some inputs and of all outputs, along which a program may be cut."""

    symbol: str
    elements: Sequence[int]
    """Of each input and output: the bytes of an element if it has this axis, else 0."""
    weights: int
    """Bytes of constants that every part reads."""

    def count(self, shapes: Shapes) -> int:
        """How many entries there are."""
        return next(shape[0] for shape, bytes in zip(shapes, self.elements) if bytes)

    def part(self, shapes: Shapes, count: int) -> Shapes:
        """The shapes of so many entries."""
        return tuple((count, *shape[1:]) if bytes else shape for shape, bytes in zip(shapes, self.elements))


def entries_at_once(count: int, arena: int, flops: int, weights: int) -> int:
    """How many of `count` entries a part has, if all of them take so much memory and so many operations."""
    cached = budgets.of(caches.here()).arena
    if count < 2 or arena <= cached:
        return count
    fitting = count * cached // arena
    worth = -(-count * WORTH_WEIGHTS * weights // max(flops, 1))
    return min(count, max(1, fitting, worth))
