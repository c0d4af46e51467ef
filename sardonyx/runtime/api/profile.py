"""The trace of a session: events in Chrome's trace form, one JSON object per line, with the names that onnxruntime's tools look for."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.runtime.execution.shares import TimeShares
from sardonyx.runtime.preparation.plan import Step
from sardonyx.startup.locks import Lock

MAX_EVENTS = 1_000_000
"""A session that runs for days must not fill the memory with events."""

logger = logging.getLogger("sardonyx.runtime")


class Profiler:
    """Collects events; `finish` writes them. Used by the session for its own events and by the executor for steps."""

    def __init__(self, prefix: str):
        now = time.time_ns()
        self.start_ns = now
        """When profiling began, on the wall clock as in the original."""
        self._start = time.perf_counter_ns()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now // 10**9))
        self.path = f"{prefix}_{stamp}_{now // 10**6 % 1000:03d}.json"
        self._events: list[dict[str, Any]] = []
        self._finished = False
        self._lock = Lock()

    @contextlib.contextmanager
    def event(self, name: str) -> Iterator[None]:
        """An event of the session, as long as what happens inside."""
        start = time.perf_counter_ns()
        yield
        self._add("Session", name, start, time.perf_counter_ns(), {})

    def step(self, step: Step, start_ns: int, end_ns: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """A step has run."""
        node = step.node
        constants = [value is not None and value.is_constant for value in node.inputs]
        sizes = [_size(value) for value in inputs]
        arguments = {
            "op_name": node.op_type if len(step.nodes) == 1 else "+".join(member.op_type for member in step.nodes),
            "provider": step.provider.public_name,
            "node_index": str(step.index),
            "input_type_shape": _described(inputs),
            "output_type_shape": _described(outputs),
            "parameter_size": str(sum(size for size, constant in zip(sizes, constants, strict=False) if constant)),
            "activation_size": str(sum(size for size, constant in zip(sizes, constants, strict=False) if not constant)),
            "output_size": str(sum(_size(value) for value in outputs)),
            "thread_scheduling_stats": {"main_thread": {"thread_id": str(threading.get_ident())}, "sub_threads": {}},
        }
        name = node.name or f"{node.op_type}_{step.index}"
        self._add("Node", f"{name}_kernel_time", start_ns, end_ns, arguments)

    def kernels(self, step: Step, start_ns: int, times: Sequence[Any]) -> None:
        """The kernels of a compiled step have run, one after the other."""
        for number, kernel_time in enumerate(times):
            arguments = {
                "op_name": kernel_time.label,
                "provider": step.provider.public_name,
                "node_index": str(step.index),
                "kernel": kernel_time.kernel,
                "nodes": ", ".join(kernel_time.nodes),
                "flops": str(kernel_time.flops),
                "bytes": str(kernel_time.traffic),
                "percent_of_limit": f"{100 * kernel_time.share:.1f}",
            }
            end = start_ns + int(kernel_time.seconds * 1e9)
            self._add("Kernel", f"{number} {kernel_time.kernel}: {kernel_time.label}", start_ns, end, arguments)
            start_ns = end

    def shares(self, shares: TimeShares) -> None:
        """A run has ended, whose steps were measured: how much of it was spent outside of machine code."""
        end = time.perf_counter_ns()
        arguments = {"percent": f"{100 * shares.outside_share:.1f}", "nodes": ", ".join(map(str, shares.numpy))}
        self._add("Summary", "outside_machine_code", end - shares.outside, end, arguments)

    def _add(self, category: str, name: str, start_ns: int, end_ns: int, arguments: dict[str, Any]) -> None:
        event = {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": (end_ns - start_ns) // 1000,
            "ts": (start_ns - self._start) // 1000,
            "ph": "X",
            "name": name,
            "args": arguments,
        }
        with self._lock:
            if len(self._events) < MAX_EVENTS and not self._finished:
                self._events.append(event)
                if len(self._events) == MAX_EVENTS:
                    logger.error("Maximum number of events reached, could not record profile event.")

    def finish(self) -> str:
        """Write the file and return its name; "" if that was done before."""
        with self._lock:
            if self._finished:
                return ""
            self._finished = True
            events, self._events = self._events, []
        lines = ",\n".join(json.dumps(event, separators=(",", " :")) for event in events)
        try:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(f"[\n{lines}\n]\n")
        except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
            reason = error.strerror if isinstance(error, OSError) else error
            logger.error("The profile cannot be written to %s: %s", self.path, reason)
        return self.path


def _described(values: Sequence[Any]) -> list[dict[str, list[int]]]:
    arrays = (value for value in values if isinstance(value, np.ndarray))
    return [{dtypes.from_numpy(array.dtype).name: list(array.shape)} for array in arrays]


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(_size(item) for item in value) if isinstance(value, list) else 0
