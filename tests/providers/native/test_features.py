"""The tests of this folder as on smaller machines: with SSE2 alone and with AVX2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.compiler.jit import host
from sardonyx.compiler.target import X86_LEVELS

HERE = Path(__file__).parent


@pytest.mark.slow  # every kernel is compiled anew
@pytest.mark.skipif(host().name not in X86_LEVELS, reason="these feature sets are of x86")
@pytest.mark.parametrize("level", [level for level in X86_LEVELS if level != host().name])
def test_native_code_agrees_on_smaller_machines(level: str) -> None:
    if list(X86_LEVELS).index(level) > list(X86_LEVELS).index(host().name):
        pytest.skip(f"this CPU has no {level}")
    command = [sys.executable, "-m", "pytest", str(HERE), "-q", "-n", "2", "-m", "not slow", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, env=os.environ | {"SARDONYX_CPU": level}, capture_output=True, text=True, cwd=HERE.parents[2]
    )
    assert done.returncode == 0, done.stdout[-3000:]
