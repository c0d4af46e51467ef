"""Models in the ORT format, run by a process that has fewer packages than this one; tests/runtime and tests/slow share this.

The other process gets a pickled list of jobs and gives back what the models gave.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import sardonyx

PROGRAM = """
import pickle, sys

absent = sys.argv[3].split()

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import numpy, sardonyx

with open(sys.argv[1], "rb") as file:
    jobs = pickle.load(file)
results = []
for path, feeds in jobs:
    session = sardonyx.InferenceSession(path)
    results.append([session.run(None, feed) for feed in feeds])
loaded = sorted({name.partition(".")[0] for name in sys.modules})
with open(sys.argv[2], "wb") as file:
    pickle.dump((results, loaded, sardonyx.get_build_info()), file)
"""


@dataclass
class Job:
    """A model to run, on every one of `feeds`."""

    path: Path
    feeds: list[dict[str, Any]]


@dataclass
class Report:
    """What the other process did."""

    results: list[list[list[Any]]]
    """Outputs by job and feed."""
    loaded: list[str]
    """Packages that it had imported in the end."""
    build_info: str
    errors: str
    """What it wrote to stderr."""


@dataclass
class Environment:
    """A Python to run jobs with; `absent` packages cannot be imported there though they may be installed."""

    python: Path = Path(sys.executable)
    absent: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=lambda: {"PYTHONPATH": str(Path(__file__).parent.parent)})

    def start(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run this Python to its end; it must end well."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | self.variables
        command = [str(self.python), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=variables)
        assert ended.returncode == 0, ended.stderr[-4000:]
        return ended

    def run(self, jobs: Sequence[Job], folder: Path) -> Report:
        given, taken = folder / "jobs.pickle", folder / "results.pickle"
        given.write_bytes(pickle.dumps([(str(job.path), job.feeds) for job in jobs]))
        ended = self.start("-c", PROGRAM, str(given), str(taken), " ".join(self.absent), folder=folder)
        return Report(*pickle.loads(taken.read_bytes()), ended.stderr)


def convert(runtime: ModuleType, model: Path, converted: Path, *, optimize: bool = False) -> None:
    """Save a model in the ORT format with onnxruntime or with sardonyx, whose API is the same."""
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(converted)
    options.add_session_config_entry("session.save_model_format", "ORT")
    runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def expected_of(model: Path) -> tuple[dict[str, Any], list[Any]]:
    """Feeds for a model, and what it makes of them here, where every package is."""
    options = sardonyx.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = sardonyx.InferenceSession(str(model), options)
    feeds = make_feeds(session)
    return feeds, session.run(None, feeds)


def make_feeds(session: Any) -> dict[str, Any]:
    """Something for every input; open sizes are 3, and integers are 1, be they sizes, counts or indices."""
    rng = np.random.default_rng(7)
    return {value.name: _make(value.type, value.shape, rng) for value in session.get_inputs()}


def _make(type: str, shape: Sequence[Any], rng: np.random.Generator) -> np.ndarray:
    sizes = tuple(size if isinstance(size, int) else 3 for size in shape)
    match type.removeprefix("tensor(").removesuffix(")"):
        case "string":
            return rng.choice(np.array(["red", "white", "blue"], object), sizes)
        case "bool":
            return np.asarray(rng.integers(0, 2, sizes) == 1)
        case "float" | "float16" as name:
            return np.asarray(rng.standard_normal(sizes)).astype(np.float32 if name == "float" else name)
        case name:
            return np.ones(sizes, name)
