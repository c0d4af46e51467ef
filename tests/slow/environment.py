"""The virtual environments of test_packages.py and test_quantizers.py: packages from outside at known versions, and this project.

`make test-slow` makes the first before the tests; run by hand: python tests/slow/environment.py. SARDONYX_SLOW_ENV and
SARDONYX_QUANTIZER_ENV name other places.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("requirements.txt", ".venv-slow", "SARDONYX_SLOW_ENV")
QUANTIZERS = ("quantizers.txt", ".venv-quantizers", "SARDONYX_QUANTIZER_ENV")
"""A list of packages, where its environment lies, and the variable that names another place."""


def interpreter(kind: tuple[str, str, str] = PACKAGES) -> Path:
    """The environment's Python; the environment is made, or made again, where it does not match its list."""
    name, place, variable = kind
    requirements = Path(__file__).with_name(name)
    directory = Path(os.environ.get(variable) or ROOT / place).resolve()
    python = directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = directory / ".ready"
    wanted = f"{sys.version} {hashlib.sha256(requirements.read_bytes()).hexdigest()}\n"
    if not python.exists() or not stamp.exists() or stamp.read_text() != wanted:
        venv.create(directory, with_pip=True, clear=True)
        _install(python, "--no-deps", "--ignore-requires-python", "--requirement", str(requirements))
        _install(python, "--no-deps", "--editable", str(ROOT))
        stamp.write_text(wanted)
    return python


def _install(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


if __name__ == "__main__":
    print(interpreter())
