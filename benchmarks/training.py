"""Training steps through the torch.compile backend beside eager torch, and beside inductor where it works.

    python -m benchmarks.training [--threads 1] [--models mlp bert] [--seconds 10] [--inductor]

Steps of all of them are taken in turns in one process. What is printed are minima: processor time and wall time of forward, loss and
backward in milliseconds, their ratios to eager torch, and the largest difference of a gradient in parts of the largest gradient. Memory is
what waits between forward and backward, besides parameters and inputs, and the peak of a step besides parameters and their gradients: in
a step that makes these gradients, and in one that adds to others. What compiled programs hold from step to step counts too. `recompute` is
sardonyx with a memory budget of 0.1.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.training_models import MODELS, Step

Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"processor": time.process_time, "wall": time.perf_counter}

STEPS_IN_TURN = 5
"""Steps that follow each other, as in a training loop: the first finds the caches full of what another runtime has left."""


class Runner:
    """One way to take steps of a model."""

    def __init__(self, name: str, model: torch.nn.Module, step: Step, backend: str | None, **options: Any):
        self.name = name
        self.model = copy.deepcopy(model)
        self.step = step
        self.call = self.model if backend is None else torch.compile(self.model, backend=backend, options=options or None)
        self.best = dict.fromkeys(CLOCKS, math.inf)
        started = time.process_time()
        self.take()
        self.first = time.process_time() - started

    def take(self) -> None:
        self.model.zero_grad()
        self.step(self.call).backward()

    def measure(self) -> None:
        for _ in range(STEPS_IN_TURN):
            starts = {name: clock() for name, clock in CLOCKS.items()}
            self.take()
            for name, clock in CLOCKS.items():
                self.best[name] = min(self.best[name], clock() - starts[name])

    def kept(self) -> int:
        """Bytes that wait between forward and backward, besides parameters."""
        kept: dict[int, int] = {}
        own = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = self.step(self.call)
        loss.backward()
        return sum(kept.values())

    def peak(self, accumulates: bool = False) -> int:
        """The most bytes that a step takes besides parameters and one set of gradients, with what compiled programs hold all the time."""
        self.take()
        self.model.zero_grad(set_to_none=not accumulates)
        gc.collect()
        held = held_by_programs()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS")
        self.step(self.call).backward()
        gradients = 0 if accumulates else sum(parameter.grad.nbytes for parameter in self.model.parameters())
        return memory("VmHWM") - before + held - gradients


def memory(name: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def held_by_programs() -> int:
    """What programs of sardonyx keep from run to run: arenas, and blocks of results that wait for the next one."""
    from sardonyx.providers.native.execution.arenas import Arenas
    from sardonyx.providers.native.execution.compiled import CompiledProgram

    objects = gc.get_objects()
    programs = [one for one in objects if type(one) is CompiledProgram]
    arenas = sum(state.arena.nbytes for program in programs for state in program._idle)
    shared = sum(one.nbytes for one in objects if type(one) is Arenas)
    shelves = [shelf for program in programs for shelf in program._memory._shelves.values()]
    return arenas + shared + sum(len(block) for shelf in shelves for block in shelf.blocks)


def gap(ours: torch.nn.Module, theirs: torch.nn.Module) -> float:
    """The largest difference of gradients in parts of the largest gradient."""
    pairs = [(mine.grad, other.grad) for mine, other in zip(ours.parameters(), theirs.parameters())]
    largest = max(float(other.abs().max()) for _, other in pairs)
    return max(float((mine - other).abs().max()) for mine, other in pairs) / largest


def compare(name: str, seconds: float, with_inductor: bool) -> float:
    """Print the lines of a model; returns the ratio of processor times."""
    torch.manual_seed(0)
    model, step = MODELS[name]()
    backends = {"eager": None, "sardonyx": "sardonyx"} | ({"inductor": "inductor"} if with_inductor else {})
    runners = {label: Runner(label, model, step, backend) for label, backend in backends.items()}
    eager = runners["eager"]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for runner in runners.values():
            runner.measure()
    for runner in runners.values():
        ratios = [runner.best[clock] / eager.best[clock] for clock in CLOCKS]
        times = "  ".join(f"{clock} {1000 * runner.best[clock]:8.2f} ms ({ratio:.2f})" for clock, ratio in zip(CLOCKS, ratios))
        print(f"{name:10} {runner.name:9} {times}  first step {runner.first:6.1f} s  gap {gap(runner.model, eager.model):.0e}")
    return runners["sardonyx"].best["processor"] / eager.best["processor"]


def compare_memory(name: str) -> None:
    """Print what steps of a model keep and take; each way alone, so that none holds memory while another is measured."""
    ways = {"eager": (None, {}), "sardonyx": ("sardonyx", {}), "recompute": ("sardonyx", {"memory_budget": 0.1})}
    for label, (backend, options) in ways.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, step = MODELS[name]()
        runner = Runner(label, model, step, backend, **options)
        figures = {"kept": runner.kept(), "peak": runner.peak(), "peak while gradients add up": runner.peak(accumulates=True)}
        print(f"{name:10} {label:9} " + "  ".join(f"{title} {size / 1e6:7.2f} MB" for title, size in figures.items()))
        del runner
        gc.collect()


def optimizers(seconds: float) -> None:
    """AdamW over four million parameters."""
    from sardonyx.training.optim import AdamWMode, FusedAdam

    parameters = [torch.nn.Parameter(torch.randn(1000, 1000)) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    ways = {
        "torch foreach": torch.optim.AdamW(parameters, foreach=True),
        "torch fused": torch.optim.AdamW(parameters, fused=True),
        "FusedAdam": FusedAdam(parameters, adam_w_mode=AdamWMode.ADAMW_TORCH, weight_decay=0.01),
    }
    best = {label: dict.fromkeys(CLOCKS, math.inf) for label in ways}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for label, optimizer in ways.items():
            starts = {name: clock() for name, clock in CLOCKS.items()}
            optimizer.step()
            for name, clock in CLOCKS.items():
                best[label][name] = min(best[label][name], clock() - starts[name])
    for label, times in best.items():
        print(
            f"AdamW, 4 M parameters: {label:13} " + "  ".join(f"{name} {1000 * taken:.2f} ms" for name, taken in times.items())
        )


def call_overhead(count: int = 500) -> None:
    """Forward and backward of a tiny Linear."""
    model, rows = torch.nn.Linear(4, 4), torch.randn(2, 4)
    ways = {
        "eager": model,
        "aot_autograd alone": torch.compile(model, backend="aot_eager"),
        "sardonyx": torch.compile(model, backend="sardonyx"),
    }
    best = dict.fromkeys(ways, math.inf)
    for _ in range(count):
        for label, call in ways.items():
            started = time.process_time()
            call(rows).sum().backward()
            best[label] = min(best[label], time.process_time() - started)
    print("a call of a tiny Linear: " + ", ".join(f"{label} {1e6 * taken:.0f} µs" for label, taken in best.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model")
    parser.add_argument("--inductor", action="store_true", help="needs a C++ compiler, and minutes")
    parser.add_argument("--memory", action="store_true", help="measure memory in place of time (Linux)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    if options.memory:
        for name in options.models:
            compare_memory(name)
        return
    ratios = [compare(name, options.seconds, options.inductor) for name in options.models]
    print(f"geometric mean of processor time against eager torch: {math.prod(ratios) ** (1 / len(ratios)):.2f}")
    optimizers(options.seconds / 4)
    call_overhead()


if __name__ == "__main__":
    main()
