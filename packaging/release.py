"""Builds the wheel and the sdist into dist/, checks them, and runs the wheel as a user would: in an environment of its own.

`make release` calls this. It needs the packages `build` and `twine`, and uploads nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = ROOT / "dist"
PACKAGE = ROOT / "sardonyx"

SMOKE = """
import numpy as np
import sardonyx
from sardonyx.datasets import get_example

session = sardonyx.InferenceSession(get_example("mul_1.onnx"))
(product,) = session.run(None, {"X": np.ones((3, 2), np.float32)})
assert product.tolist() == [[1, 2], [3, 4], [5, 6]], product
assert "site-packages" in sardonyx.__file__, sardonyx.__file__
print(sardonyx.get_build_info())
"""


def main() -> None:
    version = declared_version()
    check_changelog(version)
    shutil.rmtree(DISTRIBUTIONS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "build", "--outdir", DISTRIBUTIONS, copied_sources(Path(folder))])
    wheel = DISTRIBUTIONS / f"sardonyx-{version}-py3-none-any.whl"
    sdist = DISTRIBUTIONS / f"sardonyx-{version}.tar.gz"
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    check_content(wheel, sdist, version)
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder), version)
    print(
        f"{wheel.name} ({wheel.stat().st_size >> 10} KB) and {sdist.name} ({sdist.stat().st_size >> 10} KB) are ready in dist/"
    )


def declared_version() -> str:
    """The version, from the one place that says it."""
    found = re.search(r'^__version__ = "(.+)"$', (PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("sardonyx/__init__.py does not say the version")
    return found[1]


def check_changelog(version: str) -> None:
    if f"\n## {version}" not in (ROOT / "CHANGELOG.md").read_text():
        raise SystemExit(f"CHANGELOG.md has no section for {version}")


def copied_sources(folder: Path) -> Path:
    """What is under version control, apart from what was built before: building leaves files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def check_content(wheel: Path, sdist: Path, version: str) -> None:
    """Each file of the package is in both, with its data, and the wheel has nothing else."""
    kinds = (".py", ".txt", ".onnx", ".typed")
    wanted = {
        path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.suffix in kinds or path.name == "py.typed"
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith(f"sardonyx-{version}.dist-info/")}
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    for name, missing in {"wheel": wanted - packed, "sdist": wanted - sources}.items():
        if missing:
            raise SystemExit(f"the {name} lacks {sorted(missing)[:5]}")
    if packed - wanted:
        raise SystemExit(f"the wheel has {sorted(packed - wanted)[:5]}, which the package does not")


def try_wheel(wheel: Path, folder: Path, version: str) -> None:
    """Install it with its requirements, run a model and a command."""
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
    python = programs / "python"
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel])
    run([python, "-c", SMOKE], folder)
    installed = run([python, "-c", "from importlib.metadata import version; print(version('sardonyx'))"], folder).strip()
    if installed != version:
        raise SystemExit(f"the wheel calls itself {installed}, not {version}")
    run([programs / "sardonyx", "run", ROOT / "examples" / "shapes.onnx", "--dim", "N=1", "--json"], folder)


def run(command: Sequence[str | Path], folder: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    if finished.returncode:
        raise SystemExit(f"{' '.join(map(str, command[:4]))} failed:\n{finished.stdout}{finished.stderr}")
    return finished.stdout


if __name__ == "__main__":
    main()
