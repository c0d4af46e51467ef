"""Damaged ORT format models never get anything but our own errors out of us: no other exception, no crash, no hang, no memory without
bound. Most are only loaded, which is quick; of one in ten a session is made, which replays the optimizations that the file names.

`SARDONYX_FUZZ_CASES` says how many; `tests/fuzz/driver.py` how to repeat one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CASES = int(os.environ.get("SARDONYX_FUZZ_CASES", "1000"))
FIRST = 0 if CASES <= 1000 else 1_000_000
"""More cases than usual are other cases than usual."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and time are of POSIX")


@pytest.mark.parametrize(
    ("first", "count", "flags"), [(0, CASES, ["--load-only"]), (CASES, CASES // 10, [])], ids=["load", "session"]
)
def test_only_our_own_errors_come_out(first: int, count: int, flags: list[str]) -> None:
    command = [sys.executable, "-m", "tests.fuzz.driver", str(FIRST + first), str(count), "--ort", *flags]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each BLAS thread reserves address space
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{count} cases" in done.stdout
