"""Real models give the outputs of onnxruntime: every model of the directory that SARDONYX_CORPUS names, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow.corpus import catalogue

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = Path(os.environ.get("SARDONYX_CORPUS") or "nowhere").resolve()
NAMES = sorted(catalogue(DIRECTORY))
UNSET = pytest.mark.skipif(
    not os.environ.get("SARDONYX_CORPUS"),
    reason="SARDONYX_CORPUS is not set: it names a directory of models with carried.json or generated.json",
)
SECONDS = 900


@UNSET
def test_the_directory_holds_models() -> None:
    assert NAMES, f"{DIRECTORY} holds none of the models that carried.json and generated.json there should list"


@pytest.mark.parametrize("name", NAMES or [pytest.param("any", marks=UNSET)])
def test_model_gives_the_outputs_of_onnxruntime(name: str) -> None:
    command = [sys.executable, "-m", "tests.slow.corpus", str(DIRECTORY), name]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    report = json.loads(process.stdout.splitlines()[-1])
    print(report["seconds"])
    assert report["problems"] == []
