"""What a machine says of its caches, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.compiler import caches, jit
from sardonyx.compiler.caches import LARGEST_LAST, Caches, sensible
from sardonyx.providers.native.program import budgets

NAMES = ("first", "second", "last", "ways", "line")


def describe(folder: Path, number: int, **facts: object) -> None:
    """A cache as Linux describes it."""
    place = folder / f"index{number}"
    place.mkdir()
    for name, fact in facts.items():
        (place / name).write_text(f"{fact}\n")


def test_caches_are_read_from_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(tmp_path, 0, level=1, type="Data", size="48K", ways_of_associativity=12, coherency_line_size=64)
    describe(tmp_path, 1, level=1, type="Instruction", size="32K", ways_of_associativity=8, coherency_line_size=64)
    describe(tmp_path, 2, level=2, type="Unified", size="2048K", ways_of_associativity=16, coherency_line_size=64)
    describe(tmp_path, 3, level=3, type="Unified", size="36864K", ways_of_associativity=12, coherency_line_size=64)
    monkeypatch.setattr(caches, "SYSTEM", tmp_path)
    told = dict(caches._linux())
    assert sensible(told) == Caches(48 << 10, 2 << 20, 36 << 20, 12, 64)


def test_a_system_that_tells_nothing_has_common_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "SYSTEM", tmp_path / "absent")
    assert sensible(dict(caches._linux())) == Caches()
    describe(tmp_path, 0, level=1, type="Data", size="much")
    monkeypatch.setattr(caches, "SYSTEM", tmp_path)
    assert sensible(dict(caches._linux())) == Caches()


def test_a_last_level_cache_is_shared_with_others() -> None:
    assert sensible({"last": 1 << 30}).last == LARGEST_LAST
    assert sensible({"last": 1 << 10}).last == Caches().second


@given(st.dictionaries(st.sampled_from(NAMES[:4]), st.integers(0, 1 << 40)))
def test_whatever_is_told_budgets_are_positive(told: dict[str, int]) -> None:
    found = sensible(told)
    assert found.first % found.ways == 0 and found.second <= found.last
    assert all(getattr(budgets.of(found), name) > 0 for name in budgets.Budgets.__match_args__)


def test_generated_code_is_for_the_caches_of_this_machine() -> None:
    assert jit.host().caches == caches.here()
