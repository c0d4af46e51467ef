"""The benchmark of models compiled ahead of time runs, and knows all its contestants."""

from __future__ import annotations

from pathlib import Path

from benchmarks import aot


def test_contestants_are_measured(tmp_path: Path) -> None:
    found = aot.compare(aot._built("tiny", tmp_path), tmp_path, turns=1)
    assert found.keys() == aot.CONTESTANTS.keys()
    assert all(0 < figures[name] < 60 for figures in found.values() for name in aot.FIGURES)
    aot.show("tiny", found)
