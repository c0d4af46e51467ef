"""Programs written for onnxruntime run unchanged: packages that carry their models, on the real one and on sardonyx in its place.

Each driver in packages/ and in torch_packages/ is an ordinary program that uses one package's own interface and prints what it got.
Those of torch_packages/ make their models themselves, and run in an environment with PyTorch.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.slow import environment
from tests.tolerance import OTHER_PACKAGES, PACKAGES

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ENVIRONMENTS = {"packages": "", "torch_packages": environment.TORCH}
DRIVERS = sorted(path for folder in ENVIRONMENTS for path in (HERE / folder).glob("*.py"))


@cache
def python(kind: str) -> Path:
    return environment.interpreter(kind)


def drive(runtime: str, program: Path, *arguments: str, kind: str | None = None) -> tuple[Any, dict[str, str]]:
    """The driver's results, and the files of the modules of onnxruntime or of its stand-in."""
    interpreter = python(ENVIRONMENTS[program.parent.name] if kind is None else kind)
    command = [str(interpreter), str(HERE / "drive.py"), runtime, str(program), *arguments]
    # PYTHONPATH might bring in packages of another environment
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    surroundings |= {"PYTHONIOENCODING": "utf-8", "HF_HUB_OFFLINE": "1"}  # nothing is to be fetched
    process = subprocess.run(command, capture_output=True, encoding="utf-8", env=surroundings, timeout=900, check=False)
    assert process.returncode == 0, f"{program.stem} on {runtime}:\n{process.stderr[-4000:]}"
    *_, results, _, modules = process.stdout.splitlines()
    return json.loads(results), json.loads(modules)


def differences(got: Any, expected: Any, tolerance: float, where: str = "results") -> list[str]:
    if isinstance(expected, dict) and isinstance(got, dict) and got.keys() == expected.keys():
        return [text for key in expected for text in differences(got[key], expected[key], tolerance, f"{where}[{key!r}]")]
    if isinstance(expected, list) and isinstance(got, list) and len(got) == len(expected):
        pairs = enumerate(zip(got, expected, strict=True))
        return [text for index, (one, other) in pairs for text in differences(one, other, tolerance, f"{where}[{index}]")]
    if isinstance(expected, float) and isinstance(got, float):
        same = math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance) or (got != got and expected != expected)
    else:
        same = got == expected
    return [] if same else [f"{where} is {got!r}, onnxruntime gives {expected!r}"]


@pytest.mark.parametrize("program", DRIVERS, ids=[program.stem for program in DRIVERS])
def test_package_gets_the_results_of_onnxruntime(program: Path) -> None:
    expected, real_modules = drive("onnxruntime", program)
    got, our_modules = drive("sardonyx", program)
    assert "onnxruntime" in real_modules, "the driver never imported onnxruntime"
    assert Path(real_modules["onnxruntime"]).parent.name == "onnxruntime"
    assert environment.ROOT / "sardonyx" in Path(our_modules["onnxruntime"]).parents
    foreign = [file for file in our_modules.values() if environment.ROOT / "sardonyx" not in Path(file).parents]
    assert not foreign, f"the real onnxruntime was imported: {foreign}"
    assert differences(got, expected, PACKAGES.get(program.stem, OTHER_PACKAGES)) == []
