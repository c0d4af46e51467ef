"""A few hundred random and hostile cases of each kind find nothing; `make attack` runs as many as there is time for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.attack.__main__ import SHARES
from tests.attack.supervision import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and CPU time are judged by Linux's /proc"),
]
CASES_PER_SHARE = 25


@pytest.mark.parametrize("kind", sorted(SHARES))
def test_attacks_find_nothing(kind: str) -> None:
    command = [sys.executable, "-m", "tests.attack", "--kinds", kind, "--cases", str(CASES_PER_SHARE * SHARES[kind])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
