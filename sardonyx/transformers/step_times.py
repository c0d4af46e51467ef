"""What programs measure of decoders: seconds of a step, tokens in a second, memory. They run on the CPU.

`models.llama.benchmark` and `models.llama.benchmark_e2e` are around this.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sardonyx.transformers.benchmark_helper import measure_memory, run_times


@dataclass(frozen=True)
class StepTimes:
    """Seconds of runs of one step."""

    seconds: Sequence[float]
    tokens: int = 1
    """How many tokens a run takes or makes, of all texts together."""

    @property
    def latency(self) -> float:
        """Seconds of a run, the mean."""
        return sum(self.seconds) / len(self.seconds)

    @property
    def throughput(self) -> float:
        """Tokens in a second."""
        return self.tokens / self.latency

    @property
    def figures(self) -> list[float]:
        """Milliseconds of a run and tokens in a second."""
        return [self.latency * 1000, self.throughput]

    def first(self, count: int) -> StepTimes:
        """The first of the runs; one at least."""
        return StepTimes(self.seconds[: max(count, 1)], self.tokens)

    def without_anomalies(self, factor: float = 10) -> StepTimes:
        """Without runs that took `factor` times as long as the fastest."""
        limit = factor * min(self.seconds)
        return StepTimes([seconds for seconds in self.seconds if seconds < limit], self.tokens)


def step_times(run: Callable[[], Any], warm_ups: int, runs: int, tokens: int = 1) -> StepTimes:
    """Times of so many runs, behind others that are not counted."""
    if runs < 1:
        raise ValueError(f"one run at least is measured, not {runs}")
    run_times(run, warm_ups)
    return StepTimes(run_times(run, runs), tokens)


def peak_memory(run: Callable[[], Any]) -> tuple[float, float]:
    """Megabytes that the process has before a run, and at most in it."""
    before = measure_memory(False, None) or 0.0
    return before, before + (measure_memory(False, run, start_memory=before) or 0.0)


def processor_share(run: Callable[[], Any]) -> float:
    """Which share of all processors a run keeps busy, 0 to 1."""
    elapsed, busy = time.perf_counter(), time.process_time()
    run()
    busy, elapsed = time.process_time() - busy, time.perf_counter() - elapsed
    return busy / elapsed / (os.cpu_count() or 1)


def add_device(parser: argparse.ArgumentParser) -> None:
    """The arguments of a device, of which the CPU is the only one."""
    parser.add_argument("-d", "--device", type=cpu_alone, default="cpu", help="cpu")
    parser.add_argument("-id", "--device-id", type=int, default=0, help="not used: there is one CPU")


def cpu_alone(device: str) -> str:
    """The device, which is refused if it is not the CPU."""
    if device != "cpu":
        raise argparse.ArgumentTypeError(f"models run on the CPU here, there is no provider for {device!r}")
    return device


def numbers(text: str) -> list[int]:
    """Numbers between spaces."""
    return [int(word) for word in text.split()]


def optimum_package(name: str = "optimum.onnxruntime") -> Any:
    """A module of optimum. It runs on what the environment has as onnxruntime: sardonyx, after `sardonyx shim`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} cannot be loaded: pip install optimum-onnx, and `sardonyx shim` in place of onnxruntime"
        ) from error
