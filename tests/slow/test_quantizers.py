"""Programs written for onnxruntime.quantization run unchanged on sardonyx: optimum, other packages, scripts as they are published.

Each program in quantizers/ runs twice, on the original and on sardonyx in its place, and prints what it got. The models of digits.py are
trained by the program itself; what sardonyx writes of them is then run by the real onnxruntime.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.slow import environment
from tests.slow.test_packages import HERE, differences, drive
from tests.tolerance import QUANTIZERS

pytestmark = pytest.mark.slow

PROGRAMS = HERE / "quantizers"
LOST_POINTS = 0.5
"""Percent of accuracy that 8 bits may cost."""
COMPARED = sorted(path for path in PROGRAMS.glob("*.py") if path.stem != "digits")


def both(program: Path, folder: Path):
    """The results of a program on the original and on sardonyx, whose modules must be all that it got."""
    results = []
    for runtime in ("onnxruntime", "sardonyx"):
        place = folder / runtime
        place.mkdir()
        found, modules = drive(runtime, program, str(place), kind=environment.QUANTIZERS)
        results.append(found)
    foreign = [file for file in modules.values() if environment.ROOT / "sardonyx" not in Path(file).parents]
    assert not [file for file in foreign if Path(file).parent.name == "onnxruntime"], "the real onnxruntime was imported"
    return results


@pytest.mark.parametrize("program", COMPARED, ids=[program.stem for program in COMPARED])
def test_programs_get_what_the_original_gives_them(program: Path, tmp_path: Path) -> None:
    expected, found = both(program, tmp_path)
    assert differences(found, expected, QUANTIZERS) == []


def test_8_bits_cost_at_most_half_a_point(tmp_path: Path) -> None:
    program = PROGRAMS / "digits.py"
    found, _ = drive("sardonyx", program, str(tmp_path), kind=environment.QUANTIZERS)
    test = np.load(tmp_path / "test.npz")
    for network, accuracies in found.items():
        assert accuracies["float"] > 90, "the network has learnt nothing"
        for kind, percent in accuracies.items():
            assert percent >= accuracies["float"] - LOST_POINTS, f"{network} {kind}"
            session = onnxruntime.InferenceSession(tmp_path / f"{network}.{kind}.onnx", providers=["CPUExecutionProvider"])
            right = session.run(None, {"pictures": test["pictures"]})[0].argmax(1) == test["labels"]
            assert 100 * right.mean() >= accuracies["float"] - LOST_POINTS, f"{network} {kind} in onnxruntime"
