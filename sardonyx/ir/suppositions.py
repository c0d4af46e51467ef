"""What the optimizer may suppose of a run's inputs. Rewrites note it in their journal, and whoever runs the model asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir import Dim
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Comparison:
    """Whether an input of the model, which has one element, is a number."""

    input: str
    number: int | float | bool
    is_equal: bool = True


@dataclass(frozen=True)
class Supposition:
    """Two sizes that are equal, in all runs or in those for which some comparisons are true."""

    left: Dim
    right: Dim
    comparisons: Sequence[Comparison] = ()
