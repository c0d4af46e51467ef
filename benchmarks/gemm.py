"""`python -m benchmarks.gemm`: matrix products side by side with onnxruntime, in turns, for shapes that networks have.

The second factor is constant, as weights are, but for the shapes with a batch. What counts are the ratios; the smallest time of many is
taken, because a single product is short and other programs disturb it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sardonyx.cli.bench import PAUSE, compare_outputs, enter
from sardonyx.cli.terminal import time_text

PEER = "onnxruntime"
SHAPES: dict[str, tuple[int, ...]] = {
    "1024³": (1024, 1024, 1024),
    "BERT projection": (128, 768, 768),
    "BERT up": (128, 768, 3072),
    "BERT down": (128, 3072, 768),
    "pointwise convolution": (196, 1024, 256),
    "one row up": (1, 768, 3072),
    "one row, large": (1, 4096, 4096),
    "four rows": (4, 768, 768),
    "eight rows": (8, 512, 512),
    "small square": (64, 64, 64),
    "attention scores": (12, 128, 64, 128),
    "attention values": (12, 128, 128, 64),
    "Whisper projection": (1500, 384, 384),
    "ViT query, key, value": (197, 768, 2304),
    "classifier": (32, 2048, 1000),
    "short inner axis": (1000, 16, 1000),
    "tiny": (5, 5, 5),
    "one column": (512, 512, 1),
    "dot product": (1, 512, 1),
    "narrow": (2048, 32, 64),
    "few columns": (256, 256, 10),
}
TOLERANCE = 1e-4
"""Largest difference, relative to the largest result: beyond it nothing is measured."""
SECONDS = 0.4
"""For how long each product of each runtime is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gemm", description=__doc__)
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time per shape and runtime (default 0.4)")
    parser.add_argument("--only", help="shapes whose name or sizes contain this")
    options = parser.parse_args(arguments)
    for threads in options.threads or [1, 2]:
        _show(threads, [measure(name, sizes, threads, options.seconds) for name, sizes in chosen(options.only)])
    return 0


def chosen(text: str | None) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, sizes) for name, sizes in SHAPES.items() if text is None or text in name or text in sizes_text(sizes)]


def sizes_text(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))


def product_model(sizes: Sequence[int]) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of one MatMul with its feeds. The weights are constant, unless there is a batch of them."""
    from onnx import TensorProto, helper, numpy_helper

    *batch, rows, inner, columns = sizes
    random = np.random.RandomState(0)
    a = random.standard_normal((*batch, rows, inner)).astype(np.float32)
    b = random.standard_normal((*batch, inner, columns)).astype(np.float32)
    inputs = {"a": a, "b": b} if batch else {"a": a}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*batch, rows, columns])],
        [] if batch else [numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString(), inputs


def measure(name: str, sizes: tuple[int, ...], threads: int, seconds: float) -> dict[str, Any]:
    """The best times of both."""
    model, feeds = product_model(sizes)
    contestants = [enter(module, model, feeds, threads) for module in ("sardonyx", PEER)]
    largest = max(1.0, float(np.abs(contestants[1].run()[0]).max()))
    if not compare_outputs(contestants) <= TOLERANCE * largest:
        raise SystemExit(f"{name}: results differ by {compare_outputs(contestants)}")
    ours, theirs = best_times([contestant.run for contestant in contestants], seconds)
    return {"name": name, "sizes": sizes, "ours": ours, "theirs": theirs}


def clock_for(threads: int) -> Callable[[], float]:
    """What times are read from: of one thread the processor time, in which a run that had to wait for a core is not longer."""
    return time.process_time if threads == 1 else time.perf_counter


def best_times(
    runs: Sequence[Callable[[], Any]], seconds: float, clock: Callable[[], float] = time.perf_counter, turns: int = 1
) -> list[float]:
    """The smallest time of each, measured in turns of a few runs, in so many of them at least."""
    best = [math.inf] * len(runs)
    end = time.perf_counter() + seconds * len(runs)
    turn = 0
    while turn < turns or time.perf_counter() < end:
        for number, run in enumerate(runs):
            best[number] = min(best[number], *_times(run, clock))
        turn += 1
    return best


def _times(run: Callable[[], Any], clock: Callable[[], float]) -> list[float]:
    """A few runs in a row, after a pause: another runtime's threads may still spin on the cores."""
    time.sleep(PAUSE)
    found = []
    for _ in range(5):
        start = clock()
        run()
        found.append(clock() - start)
    return found


def _show(threads: int, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}", title_justify="left")
    for heading in ("product", "sizes", "sardonyx", PEER, "Gflop/s", "speed"):
        table.add_column(heading, justify="left" if heading == "product" else "right")
    for row in rows:
        rate = 2 * math.prod(row["sizes"]) / row["ours"] / 1e9
        cells = [time_text(row["ours"]), time_text(row["theirs"]), f"{rate:.1f}", f"{row['theirs'] / row['ours']:.2f}"]
        table.add_row(row["name"], sizes_text(row["sizes"]), *cells)
    mean = math.exp(sum(math.log(row["theirs"] / row["ours"]) for row in rows) / len(rows)) if rows else 1
    table.caption = f"speed: time of {PEER} / time of sardonyx; geometric mean {mean:.2f}"
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
