"""`python -m benchmarks.aot`: how long sessions of models take that were compiled ahead of time, beside onnxruntime's `.ort` sessions.

Both runtimes make the files that they load best: sardonyx compiles the model, onnxruntime optimizes it and saves it in the ORT format.
A child process per measurement imports the runtime, makes the first session, runs it once, and then makes more sessions; runtimes take
turns. Of onnxruntime there are two: as it is, and with the file mapped into memory.

Models are files, by default those of `SARDONYX_CORPUS` that are called resnet50.onnx and bert_base.onnx; without them, networks that are
built here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sardonyx.cli.terminal import time_text

MODELS = ("resnet50.onnx", "bert_base.onnx")
NETWORKS = ("encoder", "cnn")
CONTESTANTS = {
    "sardonyx": ("sardonyx", "ctx.onnx", {"session.allow_compiled_code": "1", "session.map_files": "1"}),
    "sardonyx .ort": ("sardonyx", "ctx.ort", {"session.allow_compiled_code": "1", "session.map_files": "1"}),
    "onnxruntime": ("onnxruntime", "ort", {}),
    "onnxruntime mapped": (
        "onnxruntime",
        "ort",
        {"session.use_memory_mapped_ort_model": "1", "session.use_ort_model_bytes_for_initializers": "1"},
    ),
}
"""Module, ending of the file, session configuration."""
FIGURES = ("process", "first", "run", "again")
"""From the start of Python to a session; the first session alone; the first run; a later session."""
CHILD = Path(__file__).with_name("aot_child.py")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aot", description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="paths of .onnx files")
    parser.add_argument("--turns", type=int, default=5, help="processes of each (default 5)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for path in options.models or _models(Path(folder)):
            show(path.stem, compare(path, Path(folder), options.turns))
    return 0


def _models(folder: Path) -> list[Path]:
    corpus = Path(os.environ.get("SARDONYX_CORPUS", ""))
    found = [corpus / name for name in MODELS if os.environ.get("SARDONYX_CORPUS") and (corpus / name).exists()]
    return found or [_built(name, folder) for name in NETWORKS]


def _built(name: str, folder: Path) -> Path:
    from benchmarks.networks import NETWORKS as BUILT

    path = folder / f"{name}.onnx"
    path.write_bytes(BUILT[name]().model)
    return path


def prepare(path: Path, folder: Path) -> None:
    """Make the files that the runtimes load."""
    import onnxruntime

    import sardonyx

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / f"{path.stem}.ort")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for ending in ("ctx.onnx", "ctx.ort"):
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), path).compile_to_file(folder / f"{path.stem}.{ending}")


def compare(path: Path, folder: Path, turns: int) -> dict[str, dict[str, float]]:
    """The medians of all figures."""
    prepare(path, folder)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(turns):
        for name, (module, ending, config) in CONTESTANTS.items():
            command = [sys.executable, str(CHILD), module, str(folder / f"{path.stem}.{ending}"), json.dumps(config)]
            started = time.perf_counter()
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # what goes wrong is seen on stderr
            found = json.loads(done.stdout)
            found["process"] = found.pop("created") - started
            rows[name].append(found)
    return {
        name: {figure: statistics.median(row[figure] for row in found) for figure in FIGURES} for name, found in rows.items()
    }


def show(name: str, found: Mapping[str, Mapping[str, float]]) -> None:
    table = Table(title=name, title_justify="left")
    for heading in ("", "process to session", "first session", "first run", "later session"):
        table.add_column(heading, justify="left" if not heading else "right")
    for contestant, figures in found.items():
        table.add_row(contestant, *(time_text(figures[figure]) for figure in FIGURES))
    Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())
