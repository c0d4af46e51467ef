"""A thousand steps whose batches and lengths change: memory, compilations, and the same bits in each process and for any threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

ROOT = Path(__file__).parents[3]


def run(steps: int, threads: int) -> dict[int, dict[str, Any]]:
    """What a process of its own tells of its steps."""
    command = [sys.executable, "-m", "tests.training.pytorch.many_steps", "--steps", str(steps), "--threads", str(threads)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return {line["step"]: line for line in map(json.loads, finished.stdout.splitlines())}


@pytest.fixture(scope="module")
def thousand() -> dict[int, dict[str, Any]]:
    return run(1000, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_memory_stays_flat_after_the_tenth_step(thousand: dict[int, dict[str, Any]]) -> None:
    tenth = thousand[10]["memory"]
    assert len(thousand) == 11
    assert max(line["memory"] for line in thousand.values()) < 1.03 * tenth


def test_each_axis_that_changes_compiles_once_more(thousand: dict[int, dict[str, Any]]) -> None:
    assert thousand[1000]["compilations"] <= 1 + 2


@pytest.mark.parametrize("threads", [1, 2])
def test_another_process_computes_the_same_bits(threads: int, thousand: dict[int, dict[str, Any]]) -> None:
    again = run(200, threads)
    assert [line["bits"] for line in again.values()] == [thousand[step]["bits"] for step in (10, 100, 200)]
