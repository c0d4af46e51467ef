"""Real models survive the ORT format, written and read by either runtime: every model of the directory that SARDONYX_CORPUS names."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.slow.test_corpus import DIRECTORY, NAMES, ROOT, SECONDS, UNSET

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES or [pytest.param("any", marks=UNSET)])
def test_outputs_stay_the_same_through_the_ort_format(name: str) -> None:
    command = [sys.executable, "-m", "tests.slow.ort_trips", str(DIRECTORY), name]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    report = json.loads(process.stdout.splitlines()[-1])
    print(report["seconds"], report["bytes"])
    assert report["problems"] == {}
