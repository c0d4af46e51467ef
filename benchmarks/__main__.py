"""`python -m benchmarks`: sardonyx side by side with onnxruntime, in turns, on the networks of `benchmarks.networks`.

What counts are the ratios: absolute times differ from machine to machine and from minute to minute. Each setting of threads runs in a
process of its own, because NumPy's BLAS reads that setting once.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.convnets import CONVNETS
from benchmarks.networks import NETWORKS as OTHERS
from benchmarks.networks import Network
from sardonyx.cli.bench import Contestant, compare_outputs, enter, environment, measure
from sardonyx.cli.terminal import time_text

NETWORKS = OTHERS | CONVNETS
PEER = "onnxruntime"
HERE = Path(__file__).parent
PAGE, FRONT_PAGE = HERE / "README.md", HERE.parent / "README.md"
ON_FRONT_PAGE = (
    *("tiny", "encoder", "encoder16", "decoder", "chain", "layer_norm", "gru", "trees_one_row", "trees_many_rows"),
    *("resnet50", "resnet18", "vgg16", "mobilenet_v2", "unet", "efficientnet"),
)
MARKS = re.compile(r"(<!-- benchmark -->).*(<!-- end -->)", re.DOTALL)
TOLERANCE = 1e-3
"""A contestant whose outputs are further off is not measured, it is wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"some of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--runs", type=int, default=50, help="measured runs of each (default 50)")
    parser.add_argument(
        "--threads", type=int, action="append", help="threads inside an op, 0 for all cores (default: 1, then 0)"
    )
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO too, on the convolutional networks")
    parser.add_argument("--update", action="store_true", help="also put the table into README.md here and at the root")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    refuse_unknown(parser, options.networks)
    names = options.networks or list(NETWORKS)
    if options.child is not None:
        print(json.dumps([measure_network(name, options.child, options.runs, options.openvino) for name in names]))
        return 0
    rows = [row for threads in options.threads or [1, 0] for row in _in_child(names, threads, options.runs, options.openvino)]
    table = Measured(rows)
    table.show()
    if options.update:
        for page, text in ((PAGE, table.markdown()), (FRONT_PAGE, table.summary())):
            page.write_text(with_table(page.read_text(), text))
    return 1 if any(row["difference"] > TOLERANCE for row in rows) else 0


def refuse_unknown(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        parser.error(f"no network {unknown[0]!r}, there are {', '.join(NETWORKS)}")


def measure_network(name: str, threads: int, runs: int, openvino: bool = False) -> dict[str, Any]:
    """Ratios and times of one network."""
    network = NETWORKS[name]()
    contestants = [enter(module, network.model, network.feeds, threads) for module in ("sardonyx", PEER)]
    difference = compare_outputs(contestants)
    if openvino and name in CONVNETS:
        contestants.append(enter_openvino(network, threads))
    measure(contestants, range(runs))
    ours, theirs, *others = (contestant.report() for contestant in contestants)
    return {
        "network": name,
        "about": (NETWORKS[name].__doc__ or "").strip(),
        "threads": threads,
        "ours": ours,
        "theirs": theirs,
        "openvino": others[0] if others else None,
        "difference": difference,
    }


def enter_openvino(network: Network, threads: int) -> Contestant:
    """OpenVINO's own runtime, set to least latency and to float32."""
    import openvino

    core = openvino.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    settings |= {"INFERENCE_NUM_THREADS": str(threads)} if threads else {}
    start = time.perf_counter()
    compiled = core.compile_model(core.read_model(network.model), "CPU", settings)
    request = compiled.create_infer_request()
    creation = time.perf_counter() - start
    return Contestant(f"openvino {openvino.__version__}", creation, lambda: list(request.infer(network.feeds).values()))


def _in_child(names: Sequence[str], threads: int, runs: int, openvino: bool) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks", *names, "--child", str(threads), "--runs", str(runs)]
    command += ["--openvino"] if openvino else []
    finished = subprocess.run(command, env=environment(threads), stdout=subprocess.PIPE, check=True, text=True)
    return list(json.loads(finished.stdout))


class Measured:
    """Rows of one measurement as a table, for the terminal or for a page."""

    headings: tuple[str, ...] = ("network", "threads", "sardonyx", PEER, "speed", "creation")
    note = f"speed and creation: time of {PEER} / time of sardonyx, above 1 we are faster; medians of runs in turns"

    def __init__(self, rows: Sequence[dict[str, Any]]):
        self.rows = rows
        third = any(row["openvino"] for row in rows)
        if third:
            self.headings += ("OpenVINO's time / ours",)
        self.about = f"{datetime.date.today()}, {_machine()}, {rows[0]['ours']['runtime']} and {rows[0]['theirs']['runtime']}"
        self.cells = [
            (
                row["network"],
                str(row["threads"] or "all"),
                time_text(row["ours"]["median"]),
                time_text(row["theirs"]["median"]),
                f"{row['theirs']['median'] / row['ours']['median']:.2f}",
                f"{row['theirs']['creation'] / row['ours']['creation']:.2f}",
                *([_ratio(row["openvino"], row["ours"])] if third else []),
            )
            for row in rows
        ]

    def show(self) -> None:
        table = Table(title=self.about, caption=self.note, title_justify="left", caption_justify="left")
        for index, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if index else "left")
        for row in self.cells:
            table.add_row(*row)
        Console().print(table)

    def markdown(self) -> str:
        head = "| " + " | ".join(self.headings) + " |\n|---|" + "---:|" * (len(self.headings) - 1)
        body = "\n".join("| " + " | ".join(row) + " |" for row in self.cells)
        return f"{self.about}; {self.note}.\n\n{head}\n{body}"

    def summary(self) -> str:
        """A line for each of a few networks, with speeds alone."""
        speeds: dict[str, dict[int, str]] = {}
        for row in self.rows:
            if row["network"] in ON_FRONT_PAGE:
                speeds.setdefault(row["network"], {})[row["threads"]] = _ratio(row["theirs"], row["ours"])
        settings = sorted({row["threads"] for row in self.rows}, key=lambda threads: threads or math.inf)
        names = [f"{threads} thread{'s' if threads > 1 else ''}" if threads else "all cores" for threads in settings]
        abouts = {row["network"]: row["about"].rstrip(".") for row in self.rows}
        head = "| " + " | ".join(["network", "", *names]) + " |\n|---|---|" + "---:|" * len(names)
        lines = [
            f"| {name} | {abouts[name]} | " + " | ".join(found.get(threads, "") for threads in settings) + " |"
            for name, found in speeds.items()
        ]
        return f"Time of {PEER} / time of sardonyx, above 1 we are faster. {self.about}.\n\n{head}\n" + "\n".join(lines)


def _ratio(theirs: dict[str, Any] | None, ours: dict[str, Any]) -> str:
    return "" if theirs is None else f"{theirs['median'] / ours['median']:.2f}"


def with_table(page: str, table: str) -> str:
    """The page with `table` between its two marks."""
    return MARKS.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page)


def _machine() -> str:
    """The processor's name, as far as the system tells it, and how many cores we may use."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
