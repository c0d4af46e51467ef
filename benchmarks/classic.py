"""`python -m benchmarks.classic`: estimators of scikit-learn as skl2onnx converts them, side by side with onnxruntime, in turns.

Each is fitted on small seeded data (`benchmarks.estimators`) and run with one row and with 10,000. What counts are the ratios of the
smallest times. The table also shows which nodes are computed in NumPy. scikit-learn and skl2onnx must be installed; `--models FOLDER`
keeps the converted models there, and needs neither where the folder has them.
"""

from __future__ import annotations

import argparse
import math
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.estimators import TABLE, Fitted, missing_packages
from sardonyx.cli.bench import Contestant, enter
from sardonyx.cli.terminal import time_text
from sardonyx.startup.records import dataclass

PEER = "onnxruntime"
ROWS = (1, 10_000)
ROUNDS = 4
TOLERANCE = 1e-3
"""Largest difference of a number, relative to its size or to 1: beyond it a row is marked."""
HEADINGS = ("model", "threads", "rows", "sardonyx", PEER, "speed", "native", "in NumPy")


@dataclass(frozen=True)
class Row:
    """What was measured of one model."""

    name: str
    threads: int
    rows: int
    ours: float
    theirs: float
    numpy: Sequence[str]
    """Ops that NumPy computed, with how many nodes there are of each."""
    agree: bool

    @property
    def speed(self) -> float:
        return self.theirs / self.ours

    @property
    def cells(self) -> tuple[str, ...]:
        times = time_text(self.ours), time_text(self.theirs), f"{self.speed:.2f}" + ("" if self.agree else " differ")
        return self.name, str(self.threads), f"{self.rows:,}", *times, "no" if self.numpy else "yes", ", ".join(self.numpy)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classic", description=__doc__)
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--rows", type=int, action="append", help="rows of the input (default: 1, then 10,000)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each runtime (default {ROUNDS})")
    parser.add_argument("--models", type=Path, help="a folder in which converted models are kept")
    parser.add_argument("--markdown", action="store_true", help="print the table as a page has it")
    options = parser.parse_args(arguments)
    measured: list[Row] = []
    for name in (name for name in TABLE if options.only is None or options.only in name):
        fitted = fitted_model(name, options.models)
        for threads in options.threads or (1, 2) if fitted is not None else ():
            measured += measure(name, fitted, threads, options.rows or ROWS, options.rounds)
    _show(measured, options.markdown)
    return 0 if all(row.agree for row in measured) else 1


def fitted_model(name: str, folder: Path | None) -> Fitted | None:
    """A model out of the folder, or made and put there; None if it cannot be made, which is said."""
    file = None if folder is None else folder / f"{name}.pickle"
    if file is not None and file.exists():
        return pickle.loads(file.read_bytes())  # type: ignore[no-any-return]
    if missing := missing_packages():
        raise SystemExit(f"models are made with {' and '.join(missing)}: pip install {' '.join(missing)}")
    try:
        fitted = TABLE[name]()
    except Exception as error:
        print(f"{name} cannot be converted: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
        return None
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(fitted))
    return fitted


def measure(name: str, fitted: Fitted, threads: int, rows: Iterable[int], rounds: int) -> Iterator[Row]:
    """The best times of both with each number of rows."""
    for count in rows:
        feeds = fitted.feeds(count)
        if feeds is None:
            continue
        ours, theirs = (enter(module, fitted.model, feeds, threads) for module in ("sardonyx", PEER))
        agree = are_close(ours.run(), theirs.run())
        best = best_times([ours.run, theirs.run], rounds)
        yield Row(name, threads, count, *best, computed_in_numpy(fitted.model), agree)


def best_times(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The smallest time of each, measured in turns of a few runs."""
    contestants = [Contestant("", 0.0, run) for run in runs]
    for _ in range(rounds):
        for contestant in contestants:
            contestant.measure()
    return [min(contestant.seconds) for contestant in contestants]


def are_close(ours: Any, theirs: Any) -> bool:
    """Whether results are the same but for rounding: lists and maps element by element, text exactly."""
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(are_close, ours, theirs))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(are_close(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, float):
        return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if ours.dtype.kind != "f":
        return bool((ours == theirs).mean() > 1 - TOLERANCE) if ours.size else ours.shape == theirs.shape
    return bool((abs(ours - theirs) <= TOLERANCE * (1 + abs(theirs))).mean() > 1 - TOLERANCE)


def computed_in_numpy(model: bytes) -> list[str]:
    """Ops of the nodes that NumPy computes, with their number."""
    import sardonyx

    plan = sardonyx.InferenceSession(model)._engine.plan
    counts = Counter(node.op_type for step in plan.steps if not step.compiled for node in step.nodes)
    return [op if count == 1 else f"{op} ×{count}" for op, count in counts.items()]


def _show(rows: Sequence[Row], as_markdown: bool) -> None:
    caption = f"speed: time of {PEER} / time of sardonyx, above 1 we are faster; smallest times of turns. {_summary(rows)}"
    if as_markdown:
        print(caption + "\n")
        print(
            "\n".join(
                "| " + " | ".join(cells) + " |" for cells in (HEADINGS, ("---",) * len(HEADINGS), *(row.cells for row in rows))
            )
        )
        return
    table = Table(caption=caption, caption_justify="left")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if 0 < index < 6 else "left")
    for row in rows:
        table.add_row(*row.cells)
    Console().print(table)


def _summary(rows: Sequence[Row]) -> str:
    """Means and the number of slower rows, for each number of rows and of threads."""
    parts = []
    for threads, count in dict.fromkeys((row.threads, row.rows) for row in rows):
        speeds = [row.speed for row in rows if (row.threads, row.rows) == (threads, count)]
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
        slower = sum(speed < 1 for speed in speeds)
        parts.append(f"{count:,} rows, {threads} threads: geometric mean {mean:.2f} of {len(speeds)}, {slower} below 1.")
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
