"""What `python -m benchmarks.quantized` measures: single ops are right, and all names make an entry."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import quantized
from sardonyx import InferenceSession


def test_names_are_told_apart() -> None:
    names = [name for name, _ in quantized.entries()]
    assert len(set(names)) == len(names)
    assert {name.split()[0] for name in names} >= set(quantized.SOURCES)


@pytest.mark.parametrize("signs", quantized.SIGNS)
def test_products_are_exact(signs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(quantized.PRODUCTS, "small", (3, 10, 5))
    entry = quantized.product("small", signs)
    (found,) = InferenceSession(entry.model).run(None, entry.feeds)
    b = quantized._numbers(quantized.SIGNS[signs][1], 10, 5)
    np.testing.assert_array_equal(found, (entry.feeds["a"].astype(np.int64) - 3) @ b.astype(np.int64))


def test_a_measurement_has_all_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(quantized.CONVOLUTIONS, "small", (4, 4, 3, 5, 1, 1))
    measured = quantized.measure(quantized.convolution("small", "u8s8"), 1, 0.001)
    assert set(measured["times"]) == {"sardonyx", quantized.PEER}
    assert all(time > 0 for time in measured["times"].values())
