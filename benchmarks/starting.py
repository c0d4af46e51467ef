"""`python -m benchmarks.starting`: from the start of a process to the first result, beside onnxruntime.

Each measurement is a fresh process that imports a runtime, makes a session, runs it once, and then makes and runs a second session.
sardonyx and onnxruntime take turns. The cache of sardonyx is in one of these states:

- seen: this machine has prepared the model before, in a process that lived until it was remembered;
- kernels: the model is new, all its kernels were compiled before;
- pack: the cache is empty, and a pack of kernels (`packaging/kernels`) is installed, or named by `--pack`;
- empty: the cache is empty, and there is no pack.

Models are the networks of `benchmarks`; with `SARDONYX_CORPUS` also all .onnx files of that folder for which inputs can be made up. Ratios
are sardonyx's figure over onnxruntime's: below 1 sardonyx is better. CPU time counts all threads, and what else the machine does moves it
less than wall time. Python's byte code is written before anything is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.__main__ import NETWORKS, PEER
from benchmarks.accuracy import feeds_for, open_session
from sardonyx import settings
from sardonyx.cli.terminal import time_text

STATES = ("seen", "kernels", "pack", "empty")
FIGURES = ("wall", "cpu", "peak", "again", "again_cpu")
"""Seconds from the start to the first result; seconds of CPU; bytes; seconds and seconds of CPU of a second session and its run."""
CHILD = Path(__file__).with_name("starting_child.py")
ROOT = Path(__file__).parent.parent
TINY = "tiny"
PACK_MODULE = "sardonyx_kernels"
Figures = dict[str, float]


class Bench:
    """A folder with models, feeds and caches, and processes that use them."""

    def __init__(self, folder: Path, threads: int, pack: Path | None):
        self.folder = folder
        self.threads = threads
        self.pack = pack
        self.byte_code = folder / "byte code"

    def environment(self, cache: Path | None, pack: bool = False) -> dict[str, str]:
        """Where a process finds sardonyx, its cache and a pack; all else is as by default."""
        dropped = {"PYTHONDONTWRITEBYTECODE", *map(str, settings.ENVIRONMENT)}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        paths = [str(ROOT), *([str(self.pack)] if pack and self.pack else [])]
        return kept | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONPYCACHEPREFIX": str(self.byte_code),
            settings.CACHE_DIRECTORY: str(cache or ""),
        }

    def start(self, runtime: str, model: Path, cache: Path | None = None, pack: bool = False, waits: bool = False) -> Figures:
        """The figures of one process. One that `waits` for the best code leaves all of it, and the model, in the cache."""
        environment = self.environment(cache, pack) | ({settings.HURRY: "0"} if waits else {})
        command = [sys.executable, str(CHILD), runtime, str(model), str(self.feeds_path(model)), str(self.threads)]
        started = time.perf_counter()
        finished = subprocess.run(command, capture_output=True, text=True, env=environment)
        if finished.returncode:
            raise RuntimeError(f"{runtime} does not run {model.stem}: {finished.stderr.strip().splitlines()[-1]}")
        found = json.loads(finished.stdout)
        found["wall"] = found.pop("done") - started
        return found

    def feeds_path(self, model: Path) -> Path:
        return self.folder / f"{model.stem}.feeds"

    def networks(self, names: Iterable[str]) -> Iterator[Path]:
        for name in names:
            network, path = NETWORKS[name](), self.folder / f"{name}.onnx"
            path.write_bytes(network.model)
            self.feeds_path(path).write_bytes(pickle.dumps(network.feeds))
            yield path

    def corpus(self, paths: Iterable[Path]) -> Iterator[Path]:
        for path in paths:
            self.feeds_path(path).write_bytes(pickle.dumps(feeds_for(open_session(PEER, path), path)))
            yield path

    def measure(self, model: Path, states: Sequence[str], turns: int) -> dict[str, Figures]:
        """The least figures of each state and of onnxruntime."""
        caches = {state: self.folder / "caches" / state for state in states}
        rows: dict[str, list[Figures]] = {state: [] for state in (*states, PEER)}
        warm = [state for state in states if state in ("seen", "kernels")]
        if warm:
            self.start("sardonyx", model, caches[warm[0]], waits=True)
        for state in warm[1:]:
            shutil.copytree(caches[warm[0]], caches[state])
        self.start(PEER, model)  # the file is in memory from now on for both
        for _ in range(turns):
            for state in states:
                _reset(state, caches[state])
                rows[state].append(self.start("sardonyx", model, caches[state], state == "pack"))
            rows[PEER].append(self.start(PEER, model))
        shutil.rmtree(self.folder / "caches", ignore_errors=True)
        return {name: _least(found) for name, found in rows.items()}


def _reset(state: str, cache: Path) -> None:
    """Bring a cache into a state once more."""
    if state in ("pack", "empty"):
        shutil.rmtree(cache, ignore_errors=True)
    elif state == "kernels":
        shutil.rmtree(cache / "models", ignore_errors=True)


def _least(rows: Sequence[Figures]) -> Figures:
    return {figure: min(row[figure] for row in rows) for figure in rows[0]}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starting", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of networks or models of the corpus (default: all)")
    parser.add_argument("--states", default="", help=f"some of {','.join(STATES)} (default: all, the pack's if there is one)")
    parser.add_argument("--turns", type=int, default=3, help="processes of each (default 3)")
    parser.add_argument("--threads", type=int, default=0, help="threads inside an op, 0 for all cores (default)")
    parser.add_argument("--pack", type=Path, help="a folder with an unpacked pack of kernels")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args(arguments)
    states = options.states.split(",") if options.states else [state for state in STATES if state != "pack" or options.pack]
    if not set(states) <= set(STATES):
        parser.error(f"there are the states {', '.join(STATES)}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.threads, options.pack)
        found = dict(measured(bench, options.models, states, options.turns))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    console = Console()
    console.print(table(found, states))
    console.print(summary(found, states), markup=False)
    return 0


def measured(bench: Bench, names: Sequence[str], states: Sequence[str], turns: int) -> Iterator[tuple[str, dict[str, Figures]]]:
    """The figures of all models, one model at a time."""
    for model in track(_models(bench, names), "starting", console=Console(stderr=True), total=None):
        try:
            yield model.stem, bench.measure(model, states, turns)
        except RuntimeError as error:
            print(error, file=sys.stderr)


def _models(bench: Bench, names: Sequence[str]) -> Iterator[Path]:
    yield from bench.networks(name for name in NETWORKS if not names or name in names)
    corpus = os.environ.get("SARDONYX_CORPUS")
    if corpus:
        yield from bench.corpus(path for path in sorted(Path(corpus).glob("*.onnx")) if not names or path.stem in names)


# --- what came out


def ratios(found: Mapping[str, Mapping[str, Figures]], state: str, figure: str) -> dict[str, float]:
    """Each model's figure over onnxruntime's."""
    return {name: row[state][figure] / row[PEER][figure] for name, row in found.items() if row[PEER][figure] > 0}


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def table(found: Mapping[str, Mapping[str, Figures]], states: Sequence[str]) -> Table:
    shown = Table(title="process start to first result: wall, CPU", title_justify="left")
    for heading in ("", *states, PEER):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, row in found.items():
        cells = (f"{time_text(row[state]['wall'])}, {time_text(row[state]['cpu'])}" for state in (*states, PEER))
        shown.add_row(name, *cells)
    return shown


def summary(found: Mapping[str, Mapping[str, Figures]], states: Sequence[str]) -> str:
    """Geometric means over all models, with the worst, as a table for a page."""
    lines = ["| onnxruntime = 1 | wall | worst | CPU | worst |", "|---|---:|---|---:|---|"]
    for state in states:
        lines.append(_line(f"first result, {state}", ratios(found, state, "wall"), ratios(found, state, "cpu")))
        if TINY in found:
            tiny = {TINY: found[TINY]}
            lines.append(_line(f"tiny model, {state}", ratios(tiny, state, "wall"), ratios(tiny, state, "cpu")))
    for state in states[:1]:
        lines.append(_line("second session and run", ratios(found, state, "again"), ratios(found, state, "again_cpu")))
    memory = [_line(f"peak memory, {state}", ratios(found, state, "peak")) for state in states]
    return "\n".join(lines + memory)


def _line(what: str, *columns: Mapping[str, float]) -> str:
    cells: list[str] = []
    for values in columns:
        worst = max(values, key=values.__getitem__, default="")
        cells += [f"{mean(values.values()):.2f}", f"{worst} {values[worst]:.2f}" if worst else ""]
    return f"| {what} | {' | '.join(cells + [''] * (4 - len(cells)))} |"


if __name__ == "__main__":
    sys.exit(main())
