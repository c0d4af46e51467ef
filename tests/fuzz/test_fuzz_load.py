"""Damaged models never get anything but our own errors out of us: no other exception, no crash, no hang, no memory without bound.

`SARDONYX_FUZZ_CASES` says how many; `tests/fuzz/driver.py` how to repeat one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CASES = int(os.environ.get("SARDONYX_FUZZ_CASES", "4000"))
PARTS = 4
FIRST = 0 if CASES <= 4000 else 1_000_000
"""More cases than usual are other cases than usual."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and time are of POSIX")


@pytest.mark.parametrize("part", range(PARTS))
def test_only_our_own_errors_come_out(part: int) -> None:
    count = -(-CASES // PARTS)
    command = [sys.executable, "-m", "tests.fuzz.driver", str(FIRST + part * count), str(count)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each BLAS thread reserves address space
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{count} cases" in done.stdout
