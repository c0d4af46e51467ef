"""One-node models with wrong operands, attributes and shapes end in errors of ours, or in the same numbers with native code as without.

`SARDONYX_FUZZ_CASES` says how many, as for damaged models; `tests/fuzz/operator_driver.py` how to repeat one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
USUAL = 600
CASES = int(os.environ.get("SARDONYX_FUZZ_CASES", USUAL))
PARTS = 2
FIRST = 0 if CASES <= USUAL else 1_000_000
"""More cases than usual are other cases than usual."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and time are of POSIX")


@pytest.mark.parametrize("part", range(PARTS))
def test_wrong_nodes_are_refused_with_our_own_errors_or_computed_as_numpy_does(part: int) -> None:
    count = -(-CASES // PARTS)
    command = [sys.executable, "-m", "tests.fuzz.operator_driver", str(FIRST + part * count), str(count), "--agree"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each BLAS thread reserves address space
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{count} cases" in done.stdout
