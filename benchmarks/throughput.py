"""`python -m benchmarks.throughput`: many callers of one session, side by side with onnxruntime, in turns.

Each of several Python threads runs the same session again and again with one thread inside an op, as a service does; what counts is how
many runs all of them finish in a second. Networks are those of `benchmarks.networks` and `benchmarks.convnets`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import NETWORKS, PEER, TOLERANCE, refuse_unknown
from sardonyx.cli.bench import compare_outputs, enter

SHOWN = ("tiny", "mlp", "transformer", "encoder", "decoder", "gru", "trees_one_row", "mobilenet_v2", "resnet18")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: {', '.join(SHOWN)}")
    parser.add_argument("--callers", type=int, default=4, help="Python threads (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each runtime (default 5)")
    parser.add_argument("--seconds", type=float, default=0.8, help="how long a turn is (default 0.8)")
    options = parser.parse_args(arguments)
    refuse_unknown(parser, options.networks)
    table = Table(title=f"runs in a second, {options.callers} callers of one session", title_justify="left")
    for index, heading in enumerate(("network", "sardonyx", PEER, "ratio")):
        table.add_column(heading, justify="right" if index else "left")
    for name in options.networks or SHOWN:
        ours, theirs = measure(name, options.callers, options.rounds, options.seconds)
        table.add_row(name, f"{ours:,.1f}", f"{theirs:,.1f}", f"{ours / theirs:.2f}")
    Console().print(table)
    return 0


def measure(name: str, callers: int, rounds: int, seconds: float) -> list[float]:
    """Runs in a second of both runtimes, the median of their turns."""
    network = NETWORKS[name]()
    contestants = [enter(module, network.model, network.feeds, 1) for module in ("sardonyx", PEER)]
    difference = compare_outputs(contestants)
    if not difference <= TOLERANCE:
        raise SystemExit(f"{name}: results differ by {difference}")
    turns = [[runs_in_a_second(one.run, callers, seconds) for one in contestants] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*turns)]


def runs_in_a_second(run: Callable[[], Any], callers: int, seconds: float) -> float:
    """What all callers finish; each runs once at least, however late its thread begins."""
    counts = [0] * callers
    start = time.perf_counter()

    def call(number: int) -> None:
        while not counts[number] or time.perf_counter() < start + seconds:
            run()
            counts[number] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())
