"""However a session of a real model starts, its results are the same within rounding: in a hurry, well compiled, or remembered.

Every model of the directory that SARDONYX_CORPUS names, in a process of its own, with an empty cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow.test_corpus import DIRECTORY, NAMES, ROOT, SECONDS, UNSET

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES or [pytest.param("any", marks=UNSET)])
def test_every_start_of_a_model_has_the_same_results(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.slow.starts", str(DIRECTORY), name]
    environment = os.environ | {"SARDONYX_CACHE_DIR": str(tmp_path)}
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS, env=environment, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    report = json.loads(process.stdout.splitlines()[-1])
    print(report)
    assert report["problems"] == []
