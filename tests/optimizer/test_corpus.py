"""Real models: what exporters spell out is recognized, and every level computes what the model says.

The models are those of the directory that SARDONYX_CORPUS names, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optimizer.corpus import RECOGNIZED
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

SPELLED_OUT = {"Softmax", "Erf", "Tanh", "Sqrt", "Reciprocal", "ReduceMean", "Sigmoid"}
"""Of these nothing is left in a model whose attention, normalizations and activations are recognized."""


@pytest.mark.parametrize("name", NAMES or [pytest.param("any", marks=UNSET)])
def test_every_level_computes_what_the_model_says(name: str) -> None:
    command = [sys.executable, "-m", "tests.optimizer.corpus", str(DIRECTORY), name]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["problems"] == []
    wanted = RECOGNIZED.get(name, {})
    assert {op: report["ops"].get(op, 0) for op in wanted} == wanted
    if wanted:
        assert not SPELLED_OUT & set(report["ops"])
