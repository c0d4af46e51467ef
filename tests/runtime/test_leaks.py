"""Sessions come and go, and the process has no more of anything afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BEFORE, MEASURED = 40, 30
BEFORES = {"new_kernels": 60}
"""Of these the heap has its size later than of others, which have it after some forty: what they compile is garbage for a while."""
SHAPES = 64
"""How many a program remembers before it forgets them all."""
BYTES = {"new_kernels": 48 << 10}
"""Of a session: LLVM's callbacks of some compilations, 2 kB each, which llvmlite cannot free, and what the caches of kernels remember.
It was 400 kB and more."""
USUAL_BYTES = 8 << 10
"""Fragments of the heap. What was leaked before was 50 kB and more."""
OBJECTS = {"new_kernels": 40}
KINDS = (
    "same",
    "numpy_only",
    "external",
    "ort",
    "compiled",
    "new_kernels",
    "new_shapes",
    "profiled",
    "bound",
    "with_run_options",
    "bad_models",
    "failing_runs",
    "containers",
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self")
@pytest.mark.parametrize("kind", KINDS)
def test_sessions_leave_nothing_behind(kind: str) -> None:
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # what threads leave in arenas of their own is no leak
    if kind == "new_kernels":
        environment["SARDONYX_CACHE_DIR"] = ""
    before, measured = (SHAPES, SHAPES) if kind == "new_shapes" else (BEFORES.get(kind, BEFORE), MEASURED)
    command = [sys.executable, str(Path(__file__).with_name("leaks.py")), kind, str(before), str(measured)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert grown["mappings"] < 1 / 2 and grown["files"] < 1 / 2, grown
    assert grown["objects"] < OBJECTS.get(kind, 1) and grown["bytes"] < BYTES.get(kind, USUAL_BYTES), grown
