"""The program that measures packed weights: its files and figures, on a small network."""

from __future__ import annotations

from pathlib import Path

import pytest

import sardonyx
from benchmarks import prepacking


def test_files_are_made_and_loaded(tmp_path: Path) -> None:
    prepacking.make_files(tmp_path, "mlp")
    assert {path.name for path in tmp_path.iterdir()} == {
        *("feeds.npz", "model.onnx", "plain.onnx", "plain.bin", "packed.onnx", "packed.bin", "theirs.ort")
    }
    counts = [sardonyx.InferenceSession(str(tmp_path / f"{name}.onnx")).prepacking_counts() for name in ("plain", "packed")]
    assert counts[0].packed == counts[1].loaded > 0 and counts[1].packed == 0
    for contestant in prepacking.CONTESTANTS:
        found = prepacking.times(contestant.package, str(tmp_path), contestant.file)
        assert found["first"] > 0 and found["later"] > 0


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from /proc")
def test_memory_is_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    prepacking.make_files(tmp_path, "mlp")
    (found,) = prepacking.resident(tmp_path, "packed.onnx", sessions=2, sharing=True)
    assert found["Rss"] >= found["Pss"] > 1 << 20


def test_unknown_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="neither in the corpus"):
        prepacking.make_files(tmp_path, "nothing")
