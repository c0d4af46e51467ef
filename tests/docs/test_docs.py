"""The Python in the documentation runs: the blocks of each page, one after the other, in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.stem)
def test_code_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(BLOCK.findall(page.read_text())))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", program]
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
