"""`python -m benchmarks.memory`: planned peaks beside what onnxruntime's allocator reports, for the models of a directory.

SARDONYX_CORPUS names the directory; it holds carried.json or generated.json or both, as the slow tests read them. `--update` puts the
table into docs/planning.md. `--numpy` measures without native code, `--threads` with another number of threads than there are CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx.ir import Value
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.api.memory_picture import human
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import Plan, Step, shrink
from sardonyx.runtime.preparation.sizes import given_symbols
from tests.slow.corpus import catalogue
from tests.slow.model_inputs import make_inputs

PAGE = Path(__file__).parent.parent / "docs" / "planning.md"
MARKS = re.compile(r"(<!-- memory -->).*(<!-- end -->)", re.DOTALL)
FATAL = 4
RUNS = 3
"""The first fills onnxruntime's arena, later ones use its memory pattern; the peak is over all of them."""


@dataclass(frozen=True)
class Row:
    """Peaks of one model in bytes."""

    model: str
    ours: int
    theirs: int
    values: int
    """Of theirs, what values took after some node: without workspace and without rounding."""
    measured: int
    """Ours as it is: NumPy's kernels have workspaces of their own."""

    def cells(self) -> tuple[str, ...]:
        ratio = f"{self.ours / self.theirs:.2f}" if self.theirs else "–"
        return self.model, human(self.ours), human(self.theirs), ratio, human(self.values), human(self.measured)


class Sizes:
    """Collects the values of symbols from the shapes that a run shows; stands in for a profiler."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def note(self, value: Value, array: Any) -> None:
        if isinstance(array, np.ndarray):
            for name, axis in given_symbols(value.type):
                self.found.setdefault(name, array.shape[axis])

    def step(self, step: Step, start_ns: int, end_ns: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        program = step.call.program if isinstance(step.call, CompiledProgram) else None
        for value, array in zip(step.node.outputs if program is None else program.outputs, outputs, strict=False):
            self.note(value, array)

    def kernels(self, step: Step, start_ns: int, times: Sequence[Any]) -> None:
        """Times are not wanted here."""


@dataclass(frozen=True)
class Setting:
    """How our sessions are made."""

    native: bool = True
    threads: int = 0
    """0 for as many as there are CPUs."""


def our_peaks(path: Path, feeds: Mapping[str, Any], setting: Setting) -> tuple[int, int]:
    """The planned peak for these feeds, and the measured one. A run comes before the first only where sizes depend on data."""
    options = sardonyx.SessionOptions()
    options.log_severity_level = FATAL
    options.intra_op_num_threads = setting.threads
    providers = [("CPUExecutionProvider", {"native": "1" if setting.native else "0"})]
    engine = sardonyx.InferenceSession(str(path), options, providers=providers)._engine
    plan: Plan = engine.plan
    converted, sizes = engine._converted(feeds), Sizes()
    for value in plan.graph.inputs:
        sizes.note(value, converted.get(value.name))
    if plan.memory.late_symbols:
        execute(plan, converted, profiler=sizes)
    return plan.memory.peak(sizes.found), _measured(plan, converted)


def _measured(plan: Plan, feeds: Mapping[str, Any]) -> int:
    execute(plan, feeds)  # what kernels prepare once is not part of a run
    shrink(plan)  # memory that waits for the next run belongs to it
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    execute(plan, feeds)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most - before


def reported_peak(path: Path, name: str, family: str) -> tuple[dict[str, Any], int, int]:
    """The feeds, onnxruntime's peak, and the most that its values took after a node."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = FATAL
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feeds = make_inputs(session.get_inputs(), name.partition(".")[0], family, 0)
        for _ in range(RUNS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [event["args"] for event in events if event.get("cat") == "Node"]
    return feeds, *(_above_start(nodes, *keys) for keys in STATISTICS)


STATISTICS = (
    ("mem_in_use_peak", "mem_bytes_in_use", "mem_in_use_delta"),
    ("mem_bytes_requested_in_use", "mem_bytes_requested_in_use", "mem_requested_in_use_delta"),
)


def _above_start(nodes: Sequence[Mapping[str, str]], peak: str, now: str, delta: str) -> int:
    """The most of a statistic, without what was in use before the first node: packed weights."""
    return max(int(node[peak]) for node in nodes) - (int(nodes[0][now]) - int(nodes[0][delta])) if nodes else 0


def measure(directory: Path, name: str, setting: Setting) -> Row:
    entry = catalogue(directory)[name]
    path = directory / entry["file"]
    feeds, theirs, values = reported_peak(path, name, entry["family"])
    planned, measured = our_peaks(path, feeds, setting)
    return Row(name, planned, theirs, values, measured)


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| model | planned | onnxruntime's peak | ratio | of it values | measured |",
        "|---|---:|---:|---:|---:|---:|",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="some of the directory's models (default: all)")
    parser.add_argument("--update", action="store_true", help="put the table into docs/planning.md")
    parser.add_argument("--numpy", action="store_true", help="without native code")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="of our sessions (default: one for each CPU)")
    options = parser.parse_args(arguments)
    if options.update and (options.numpy or options.threads or options.models):
        parser.error("the table is of all models as sessions run them by default")
    setting = Setting(native=not options.numpy, threads=options.threads)
    directory = os.environ.get("SARDONYX_CORPUS")
    if not directory:
        parser.error("set SARDONYX_CORPUS to a directory of models")
    rows = []
    for name in options.models or sorted(catalogue(Path(directory))):
        rows.append(measure(Path(directory), name, setting))
        print("  ".join(rows[-1].cells()), flush=True)
    if options.update:
        PAGE.write_text(MARKS.sub(lambda marks: f"{marks[1]}\n{table(rows)}\n{marks[2]}", PAGE.read_text()))
    larger = [row.model for row in rows if row.ours > row.theirs]
    print(f"{len(rows)} models, larger than onnxruntime's: {', '.join(larger) or 'none'}")
    return 1 if larger else 0


if __name__ == "__main__":
    sys.exit(main())
