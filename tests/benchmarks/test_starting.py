"""The benchmark of starts runs its processes, and counts as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import starting


def test_processes_of_both_runtimes_are_measured(tmp_path: Path) -> None:
    bench = starting.Bench(tmp_path, threads=1, pack=None)
    (model,) = bench.networks(["tiny"])
    found = bench.measure(model, ["seen", "empty"], turns=1)
    assert found.keys() == {"seen", "empty", starting.PEER}
    assert all(row[figure] > 0 for row in found.values() for figure in starting.FIGURES)
    assert found["seen"]["compilations"] == 0 < found["empty"]["compilations"]
    assert found["seen"]["modules"] < found["empty"]["modules"]
    starting.table({"tiny": found}, ["seen", "empty"])


def test_a_model_that_does_not_run_says_why(tmp_path: Path) -> None:
    bench = starting.Bench(tmp_path, threads=1, pack=None)
    model = tmp_path / "none.onnx"
    bench.feeds_path(model).write_bytes(b"\x80\x04}\x94.")
    with pytest.raises(RuntimeError, match="sardonyx does not run none: .*NoSuchFile"):
        bench.start("sardonyx", model, tmp_path / "cache")


def test_means_are_geometric_and_the_worst_is_named() -> None:
    row = {"wall": 1.0, "cpu": 2.0, "peak": 3.0, "again": 1.0, "again_cpu": 1.0}
    slower = {figure: 4 * value for figure, value in row.items()}
    found = {"a": {"seen": row, starting.PEER: row}, "b": {"seen": slower, starting.PEER: row}}
    assert starting.mean(starting.ratios(found, "seen", "wall").values()) == pytest.approx(2)
    assert "| first result, seen | 2.00 | b 4.00 | 2.00 | b 4.00 |" in starting.summary(found, ["seen"])
