"""Machine code and NumPy agree about integers at the ends of their types: both refuse the node, or both compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sardonyx.providers import memory_limit
from tests.ops.test_open_refusals import MODULES, MOST_ELEMENTS
from tests.ops.test_other_ranks import a_few_runs, check

ENDLESS = {"Loop"}
"""Turn as often as they are told."""
MEMORY = 1 << 28
"""What a result may take: a window as long as an integer can tell would be computed on a machine that has room for it."""


def _extremes(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """An array of the least and of the greatest integers, and with one of them alone."""
    for value in (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max):
        yield f"all {value}", np.full_like(array, value)
        if array.size > 1:
            one = array.copy()
            one.flat[-1] = value
            yield f"the last {value}", one


@pytest.mark.filterwarnings("ignore")  # integers that wrap, and divisions by nothing
@pytest.mark.parametrize("module", MODULES)
def test_machine_code_and_numpy_agree_about_extreme_integers(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "largest_bytes", lambda: MEMORY)
    for variant, inputs in a_few_runs(module):
        if variant.case.op in ENDLESS:
            continue
        for place, (name, value, type) in enumerate(inputs):
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or not 0 < value.size <= MOST_ELEMENTS:
                continue
            for change, other in _extremes(value):
                changed: list[Any] = [*inputs[:place], (name, other, type), *inputs[place + 1 :]]
                for view in ("", "symbolic"):
                    check(variant, changed, f"{change} of {name}, sizes {view or 'known'}", view)
