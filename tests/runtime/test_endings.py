"""The process ends, or things are let go of, while native code runs: nothing is freed that a thread still uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = (
    "during_a_run",
    "during_runs_of_several_threads",
    "during_a_run_of_numpy",
    "during_a_profiled_run",
    "during_a_bound_run",
    "during_an_asynchronous_run",
    "during_compilation",
    "while_workers_wait",
    "by_the_short_way",
    "in_a_forked_child",
    "session_let_go_of",
    "bindings_let_go_of",
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and fork are POSIX's")
@pytest.mark.parametrize("name", NAMES)
def test_a_process_ends_without_a_signal(name: str) -> None:
    command = [sys.executable, "-X", "faulthandler", Path(__file__).with_name("endings.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
