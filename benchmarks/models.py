"""`python -m benchmarks.models FOLDER`: every model of a folder with each of its inputs, in turns with onnxruntime.

What counts are the ratios of the smallest times; of one thread in processor time, so that what else a machine does matters little. Two
threads want a quiet machine. Inputs are made from what a model declares, as the slow tests do; their results are compared before.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gemm import PEER, best_times, clock_for
from sardonyx.cli.bench import enter
from sardonyx.cli.terminal import time_text
from tests.slow.corpus import base_name, catalogue
from tests.slow.model_inputs import make_inputs, variant_count

SECONDS = 0.15
TURNS = 4


@dataclass(frozen=True)
class Measured:
    """A model with one of its inputs."""

    model: str
    variant: int
    threads: int
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("SARDONYX_CORPUS"), help="where the models are")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models alone")
    parser.add_argument("--without", nargs="+", default=[], metavar="TEXT", help="no models whose name contains one of these")
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"time per input and runtime (default {SECONDS})")
    options = parser.parse_args(arguments)
    if options.folder is None:
        parser.error("name a folder of models, or set SARDONYX_CORPUS")
    for threads in options.threads or (1, 2):
        show(list(measured(Path(options.folder), options, threads)), threads)
    return 0


def measured(folder: Path, options: argparse.Namespace, threads: int) -> Iterator[Measured]:
    """All chosen models, the smallest first; what cannot be measured is said on standard error."""
    entries = catalogue(folder)
    for name, entry in sorted(entries.items(), key=lambda item: (folder / item[1]["file"]).stat().st_size):
        if (options.only and name not in options.only) or any(text in name for text in options.without):
            continue
        try:
            yield from measure(folder / entry["file"], name, entry["family"], threads, options.seconds)
        except Exception as error:  # a model that onnxruntime refuses, or that wants other inputs
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr, flush=True)


def measure(path: Path, name: str, family: str, threads: int, seconds: float) -> Iterator[Measured]:
    declared = declared_inputs(path)
    for variant in range(variant_count(declared)):
        feeds = make_inputs(declared, base_name(name), family, variant)
        runs = [enter(module, str(path), feeds, threads).run for module in ("sardonyx", PEER)]
        for run in runs * 2:
            run()
        row = Measured(name, variant, threads, *best_times(runs, seconds, clock_for(threads), TURNS))
        print(f"{name} {variant}: {row.ratio:.2f}", file=sys.stderr, flush=True)
        yield row


def declared_inputs(path: Path) -> Sequence[Any]:
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()


def show(rows: Sequence[Measured], threads: int) -> None:
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}", title_justify="left")
    for heading in ("model", "input", "sardonyx", PEER, "speed"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row in sorted(rows, key=lambda row: (row.model, row.variant)):
        table.add_row(row.model, str(row.variant), time_text(row.ours), time_text(row.theirs), f"{row.ratio:.2f}")
    mean = math.exp(sum(math.log(row.ratio) for row in rows) / max(1, len(rows)))
    slower = sum(row.ratio < 1 for row in rows)
    table.caption = f"speed: time of {PEER} / time of sardonyx; geometric mean {mean:.2f}, {slower} of {len(rows)} below 1"
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
