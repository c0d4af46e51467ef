"""Sessions come and go, and the process has no more of anything afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BEFORE, MEASURED = 40, 30
BEFORES = {"new_kernels": 60, "in_a_hurry": 60, "improved": 60}
"""Of these the heap has its size later than of others, which have it after some forty."""
ROOT = Path(__file__).parents[2]
SHAPES = 64
"""How many a program remembers before it forgets them all."""
BYTES = dict.fromkeys((*BEFORES, "several_plans"), 48 << 10)
"""Of a session: LLVM's callbacks of some compilations, 2 kB each, which llvmlite cannot free, and what the caches of kernels remember.
It was 400 kB and more. Sizes without a name of the model's fill the cache of `ir.dim`, which has a limit."""
USUAL_BYTES = 8 << 10
"""Fragments of the heap. What was leaked before was 50 kB and more."""
OBJECTS = {**dict.fromkeys(BEFORES, 40), "several_plans": 400}
KINDS = (
    "same",
    "numpy_only",
    "external",
    "ort",
    "compiled",
    "new_kernels",
    "in_a_hurry",
    "improved",
    "fresh",
    "control_flow",
    "several_plans",
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
    if kind in BEFORES:
        environment["SARDONYX_CACHE_DIR"] = ""
    before, measured = (SHAPES, SHAPES) if kind == "new_shapes" else (BEFORES.get(kind, BEFORE), MEASURED)
    command = [sys.executable, "-m", "tests.runtime.leaks", kind, str(before), str(measured)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert not grown["garbage"]
    assert grown["mappings"] < 1 / 2 and grown["files"] < 1 / 2, grown
    assert grown["objects"] < OBJECTS.get(kind, 1) and grown["bytes"] < BYTES.get(kind, USUAL_BYTES), grown
