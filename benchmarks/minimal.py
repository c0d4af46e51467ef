"""`python -m benchmarks.minimal`: how large installs are and how soon they run a model, beside onnxruntime.

Each install gets a virtual environment of its own; what is measured is a fresh process, its interpreter running already: importing, and
importing and making the first session. `--update` puts the table into docs/minimal.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from benchmarks.__main__ import NETWORKS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "minimal.md"
MARKS = re.compile(r"(<!-- minimal -->).*(<!-- end -->)", re.DOTALL)
NETWORK = "cnn"
OURS = "sardonyx"
PEER = "onnxruntime"
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
"""What every virtual environment has."""

INSTALLS = {
    "sardonyx-minimal": ("packaging/minimal", ("ort",)),
    "sardonyx-minimal[native]": ("packaging/minimal[native]", ("ort",)),
    "sardonyx": (".", ("ort", "onnx")),
    f"{PEER} {onnxruntime.__version__}": (f"{PEER}=={onnxruntime.__version__}", ("ort", "onnx")),
}
"""What pip is given, and the formats that the install reads."""

PROGRAM = """
import importlib, json, sys, time
start = time.perf_counter()
runtime = importlib.import_module(sys.argv[1])
runtime.InferenceSession
imported = time.perf_counter()
if len(sys.argv) > 2:
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    runtime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
print(json.dumps([imported - start, time.perf_counter() - start]))
"""


@dataclass
class Install:
    """An environment and what was found of it; times in seconds, the least of several."""

    name: str
    python: Path
    formats: Sequence[str]
    size: int
    times: dict[str, float]

    def measure(self, models: dict[str, Path]) -> None:
        module = PEER if self.name.startswith(PEER) else OURS
        for kind in self.formats:
            imported, ready = json.loads(_run(self.python, "-c", PROGRAM, module, str(models[kind])))
            self._note("import", imported)
            self._note(kind, ready)

    def _note(self, what: str, seconds: float) -> None:
        self.times[what] = min(seconds, self.times.get(what, seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minimal", description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="processes of each install and format, in turns (default 15)")
    parser.add_argument("--update", action="store_true", help="also put the table into docs/minimal.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        models = _models(Path(folder))
        sources = Path(folder) / "sources"
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT, sources, ignore=ignored)  # building leaves files
        installs = [_install(name, Path(folder) / str(number), sources) for number, name in enumerate(INSTALLS)]
        for _ in range(options.runs):
            for install in installs:
                install.measure(models)
    print(table(installs))
    if options.update:
        PAGE.write_text(MARKS.sub(lambda marks: f"{marks[1]}\n{table(installs)}\n{marks[2]}", PAGE.read_text()))
    return 0


def _models(folder: Path) -> dict[str, Path]:
    """The same network in both formats, not optimized beforehand."""
    paths = {kind: folder / f"{NETWORK}.{kind}" for kind in ("onnx", "ort")}
    paths["onnx"].write_bytes(NETWORKS[NETWORK]().model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(paths["ort"])
    onnxruntime.InferenceSession(str(paths["onnx"]), options, providers=["CPUExecutionProvider"])
    return paths


def _install(name: str, folder: Path, sources: Path) -> Install:
    wanted, formats = INSTALLS[name]
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = wanted if wanted.startswith(PEER) else str(sources / wanted)
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", where)
    (packages,) = json.loads(_run(python, "-c", "import json, site; print(json.dumps(site.getsitepackages()[:1]))"))
    kept = [path for path in Path(packages).iterdir() if not path.name.startswith(TOOLS)]
    return Install(name, python, formats, sum(map(_size, kept)), {})


def _size(path: Path) -> int:
    """Bytes on disk, in whole blocks."""
    paths = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(one.lstat().st_blocks * 512 for one in paths)


def _run(python: Path, *arguments: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    return subprocess.run(
        [python, *arguments], check=True, capture_output=True, text=True, env=variables, cwd=python.parent
    ).stdout


def table(installs: Sequence[Install]) -> str:
    rows = [
        f"{datetime.date.today()}, {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}; the network "
        f"`{NETWORK}` of `benchmarks`; times in ms.",
        "",
        "| install | size | import | import and first session, .ort | the same, .onnx |",
        "|---|---:|---:|---:|---:|",
    ]
    for install in installs:
        times = [f"{install.times[what] * 1e3:.0f}" if what in install.times else "–" for what in ("import", "ort", "onnx")]
        rows.append(f"| {install.name} | {install.size / 1e6:.0f} MB | {' | '.join(times)} |")
    return "\n".join(rows)


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
