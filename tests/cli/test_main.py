"""What all commands share."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["run", "inspect", "check", "bench"])
def test_every_command_explains_itself(command, call):
    result = call(command, "--help")
    assert result.code == 0 and "MODEL" in result.out


def test_no_command_is_exit_code_2(call):
    assert call().code == 2


def test_the_version_is_printed(call):
    result = call("--version")
    assert result.code == 0 and result.out.startswith("sardonyx ")


def test_the_module_can_be_run(affine):
    finished = subprocess.run([sys.executable, "-m", "sardonyx.cli", "check", str(affine)], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
