"""`sardonyx bench`: how long a run takes, alone or side by side with another runtime in one interleaved measurement."""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import sardonyx
from sardonyx import formats
from sardonyx.cli import feeds, native
from sardonyx.cli.preparing import prepared
from sardonyx.cli.terminal import FATAL, Terminal, UsageError, count_text, time_text
from sardonyx.runtime.execution.executor import execute as run_plan
from sardonyx.startup import later
from sardonyx.startup.records import dataclass, field

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
WARM_UP_RUNS = 3
PAUSE = 0.08
"""Seconds. Threads of onnxruntime spin for fifty milliseconds after a run."""
TURN = 0.02
"""Seconds in which as many runs are timed as fit, at least one."""


@dataclass
class Contestant:
    """One runtime with its session and its times."""

    name: str
    creation: float
    run: Callable[[], Sequence[Any]]
    seconds: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Time a run, or some short ones, after a pause and a run that does not count: another runtime's threads may still spin."""
        time.sleep(PAUSE)
        self.run()
        started = time.perf_counter()
        while True:
            begin = time.perf_counter()
            self.run()
            end = time.perf_counter()
            self.seconds.append(end - begin)
            if end - started + self.seconds[-1] > TURN:
                break

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def report(self) -> dict[str, Any]:
        return {"runtime": self.name, "creation": self.creation, "median": self.median, "min": min(self.seconds)}


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("bench", parents=[shared], help="measure the time of a run", description=__doc__)
    feeds.add_options(parser)
    parser.add_argument("--against", metavar="MODULE", help="measure this runtime too, in turns with ours: onnxruntime")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="measured runs of each (default 20)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads inside an op (default: all cores)")
    parser.add_argument(
        "--profile", action="store_true", help="also show where the time goes: each native kernel, and NumPy's part"
    )
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.runs < 1 or options.threads < 0:
        raise UsageError("--runs is at least 1, --threads at least 0")
    if options.threads and os.environ.get(THREAD_VARIABLES[0]) != str(options.threads):
        return _with_threads(options)
    inputs = feeds.make_feeds(formats.load(options.model).graph.inputs, options)
    values = {name: feed.value for name, feed in inputs.items()}
    contestants = []
    for module in filter(None, ("sardonyx", options.against)):
        with terminal.working(f"loading with {module}"):
            contestants.append(enter(module, options.model, values, options.threads))
    difference = compare_outputs(contestants)
    measure(contestants, terminal.progress(range(options.runs), "measuring"))
    _show(terminal, contestants, difference if options.against else None, options.runs)
    if options.profile:
        _show_profile(terminal, options, values)
    return 0


def _show_profile(terminal: Terminal, options: argparse.Namespace, values: Mapping[str, Any]) -> None:
    """Run once more, watched."""
    settings = sardonyx.SessionOptions()
    settings.intra_op_num_threads = options.threads
    plan = prepared(options.model, "plan", settings).plan
    assert plan is not None
    watch = Watch()
    for _ in range(WARM_UP_RUNS):
        watch.clear()
        run_plan(plan, values, profiler=watch)
    native.show_times(terminal, watch.times)
    native.show_slowest(terminal, watch.times)
    if watch.steps:
        rows = [(name, time_text(seconds)) for name, seconds in sorted(watch.steps, key=lambda item: -item[1])[:20]]
        terminal.table("in NumPy", ("node", "time"), rows, right=(1,))


class Watch:
    """Collects the times of a run."""

    def __init__(self) -> None:
        self.times: list[Any] = []
        self.steps: list[tuple[str, float]] = []

    def clear(self) -> None:
        self.times, self.steps = [], []

    def step(self, step: Any, start_ns: int, end_ns: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if not step.compiled:
            self.steps.append((str(step.node), (end_ns - start_ns) / 1e9))

    def kernels(self, step: Any, start_ns: int, times: Sequence[Any]) -> None:
        self.times += times


def _with_threads(options: argparse.Namespace) -> int:
    """Do the same in a process of its own: NumPy's BLAS reads its number of threads once, when it is loaded."""
    return subprocess.call([sys.executable, "-m", "sardonyx.cli", *options.arguments], env=environment(options.threads))


def environment(threads: int) -> dict[str, str]:
    """The environment of a process in which NumPy uses so many threads, or all cores for 0."""
    return os.environ | (dict.fromkeys(THREAD_VARIABLES, str(threads)) if threads else {})


def enter(module: str, model: Any, values: Mapping[str, Any], threads: int = 0) -> Contestant:
    """Create a session of the runtime called `module` for a model (path or bytes) with these feeds."""
    try:
        runtime = importlib.import_module(module)
    except ImportError:
        raise UsageError(f"{module} is not installed (`pip install {module}`)") from None
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = FATAL
    for _ in range(2):  # the first one also loads modules
        start = time.perf_counter()
        session = runtime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        creation = time.perf_counter() - start
    later.finish()  # the code that stays is what counts
    return Contestant(f"{module} {runtime.__version__}", creation, lambda: session.run(None, values))


def measure(contestants: Sequence[Contestant], rounds: Iterable[Any]) -> None:
    """Time one run of each contestant per round, so that what else the machine does meets all alike."""
    for contestant in contestants:
        for _ in range(WARM_UP_RUNS):
            contestant.run()
    for _ in rounds:
        for contestant in contestants:
            contestant.measure()


def compare_outputs(contestants: Sequence[Contestant]) -> float:
    """How far the contestants' outputs are apart at most."""
    return largest_difference(contestants[0].run(), contestants[-1].run())


def largest_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest absolute difference between numbers of two lists of outputs."""
    largest = 0.0
    for mine, theirs_here in zip(ours, theirs, strict=True):
        if isinstance(mine, list):
            largest = max(largest, largest_difference(mine, theirs_here))
        elif isinstance(mine, np.ndarray) and mine.dtype.kind in "biuf" and mine.size:
            apart = np.abs(mine.astype(np.float64) - np.asarray(theirs_here).astype(np.float64))
            largest = max(largest, float(np.nanmax(apart, initial=0.0)))
    return largest


def _show(terminal: Terminal, contestants: Sequence[Contestant], difference: float | None, runs: int) -> None:
    reports: list[Mapping[str, Any]] = [contestant.report() for contestant in contestants]
    rows = [
        (
            report["runtime"],
            time_text(report["creation"]),
            time_text(report["median"]),
            time_text(report["min"]),
            f"{report['median'] / reports[0]['median']:.2f}",
        )
        for report in reports
    ]
    headings = ("runtime", "creation", "median", "min", "relative")
    terminal.table(f"{count_text(runs, 'run')} each, in turns", headings, rows, right=(1, 2, 3, 4))
    result: dict[str, Any] = {"runs": runs, "runtimes": reports}
    if difference is not None:
        ratio = reports[1]["median"] / reports[0]["median"]
        terminal.line(
            f"speed relative to {reports[1]['runtime']}: {ratio:.2f}; largest difference of outputs: {difference:.3g}"
        )
        result |= {"ratio": ratio, "largest_difference": difference}
    terminal.result(result)
