"""Virtual environments of tests (packages, quantizers, TensorFlow): packages from outside at known versions, and this project.

`make test-slow` makes two of them before the tests, test_quantizers.py and test_tensorflow.py make their own; run by hand:
python tests/slow/environment.py [KIND].
SARDONYX_SLOW_ENV names another place. Those for packages that need PyTorch are large, and stand apart.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch"
"""The environment of packages that need PyTorch."""
QUANTIZERS = "quantizers"
"""The environment of programs that quantize models."""
TENSORFLOW = "tensorflow"
"""The environment of TensorFlow, and of the last version of the package transformers that knows it."""


def requirements(kind: str = "") -> Path:
    return Path(__file__).with_name(f"requirements-{kind}.txt" if kind else "requirements.txt")


def directory(kind: str = "") -> Path:
    plain = Path(os.environ.get("SARDONYX_SLOW_ENV") or ROOT / ".venv-slow").resolve()
    return plain.with_name(f"{plain.name}-{kind}") if kind else plain


def interpreter(kind: str = "") -> Path:
    """The environment's Python; the environment is made, or made again, where it does not match its list."""
    python = directory(kind) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = directory(kind) / ".ready"
    if not python.exists() or not stamp.exists() or stamp.read_text() != _wanted(kind):
        venv.create(directory(kind), with_pip=True, clear=True)
        _install(python, "--no-deps", "--ignore-requires-python", "--requirement", str(requirements(kind)))
        _install(python, "--no-deps", "--editable", str(ROOT))
        stamp.write_text(_wanted(kind))
    return python


def _install(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def _wanted(kind: str) -> str:
    return f"{sys.version} {hashlib.sha256(requirements(kind).read_bytes()).hexdigest()}\n"


if __name__ == "__main__":
    print(interpreter(*sys.argv[1:2]))
