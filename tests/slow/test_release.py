"""The wheel and the sdist: built, checked, and the wheel tried in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_release(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / ("Scripts/python" if sys.platform == "win32" else "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build", "twine"], check=True)
    finished = subprocess.run([python, ROOT / "packaging" / "release.py"], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "are ready in dist/" in finished.stdout
