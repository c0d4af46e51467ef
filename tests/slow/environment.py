"""The virtual environment of test_packages.py: packages from outside at known versions, and this project.

`make test-slow` makes it before the tests; run by hand: python tests/slow/environment.py. SARDONYX_SLOW_ENV names another place.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def directory() -> Path:
    return Path(os.environ.get("SARDONYX_SLOW_ENV") or ROOT / ".venv-slow").resolve()


def interpreter() -> Path:
    """The environment's Python; the environment is made, or made again, where it does not match requirements.txt."""
    python = directory() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = directory() / ".ready"
    if not python.exists() or not stamp.exists() or stamp.read_text() != _wanted():
        venv.create(directory(), with_pip=True, clear=True)
        _install(python, "--no-deps", "--ignore-requires-python", "--requirement", str(REQUIREMENTS))
        _install(python, "--no-deps", "--editable", str(ROOT))
        stamp.write_text(_wanted())
    return python


def _install(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def _wanted() -> str:
    return f"{sys.version} {hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()}\n"


if __name__ == "__main__":
    print(interpreter())
