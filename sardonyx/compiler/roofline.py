"""What this machine can do at most: multiply-adds and bytes a second, measured once a process. Profiles set kernels against it."""

from __future__ import annotations

import ctypes
import functools
import time

import numpy as np

from sardonyx.compiler.builder import Function
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, jit
from sardonyx.compiler.pool import ARGUMENTS as ARGUMENTS_WORD
from sardonyx.compiler.pool import GRAIN, KERNEL, STEP_WORDS, TOTAL, pool
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32, I64, PTR
from sardonyx.startup.records import dataclass

ACCUMULATORS = 10
"""Independent sums: enough to hide the latency of a multiply-add on any CPU."""
ROUNDS = 200_000
STREAM_BYTES = 64 << 20
"""Beyond every cache."""
REPEATS = 3


@dataclass(frozen=True)
class Roofline:
    """Limits of a run with some number of threads."""

    flops: float
    """float32 operations a second; a multiply-add counts as two."""
    bandwidth: float
    """Bytes a second from memory."""
    ticks: float
    """Ticks of the CPU's counter a second."""

    def share(self, seconds: float, flops: float, traffic: float) -> float:
        """How close to the limit work was done that took so long: 1 is as fast as the machine can."""
        return max(flops / self.flops, traffic / self.bandwidth) / seconds if seconds > 0 else 0.0


def _function() -> Function:
    return Function([("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)])


def _multiply_adds(target: Target) -> Kernel:
    f = _function()
    lanes = target.lanes(F32)
    type = F32.vector(lanes)
    factor = f.splat(f.load(f.load(f["args"], 0, PTR), 0, F32), lanes)
    sums = [f.variable(f.const(type, float(n)), type) for n in range(ACCUMULATORS)]
    with f.loop(f["begin"], f["end"]), f.loop(0, ROUNDS):
        for accumulator in sums:
            accumulator.set(f.fma(accumulator.get(), factor, factor))
    total = sums[0].get()
    for accumulator in sums[1:]:
        total = total + accumulator.get()
    with f.if_(f.reduce("add", total) == 12345.0):  # never: it keeps the sums from being left out
        f.store(1.0, f.load(f["args"], 0, PTR), 0, F32)
    return Kernel("multiply-adds", f.text(PLACEHOLDER))


def _reads(target: Target) -> Kernel:
    f = _function()
    lanes = target.lanes(F32)
    type = F32.vector(lanes)
    data = f.load(f["args"], 0, PTR)
    sums = [f.variable(f.const(type, 0.0), type) for _ in range(4)]
    with f.loop(f["begin"] * (4 * lanes), f["end"] * (4 * lanes), 4 * lanes) as i:
        for n, accumulator in enumerate(sums):
            accumulator.set(accumulator.get() + f.load(data, i + n * lanes, F32, lanes))
    total = sums[0].get() + sums[1].get() + sums[2].get() + sums[3].get()
    with f.if_(f.reduce("add", total) == 12345.0):
        f.store(1.0, data, 0, F32)
    return Kernel("reads", f.text(PLACEHOLDER))


def _seconds(kernel: Kernel, data: np.ndarray, items: int, threads: int) -> float:
    workers = pool()
    arguments = np.array([data.ctypes.data], np.int64)
    step = np.zeros(STEP_WORDS, np.int64)
    step[[KERNEL, ARGUMENTS_WORD, TOTAL, GRAIN]] = [
        jit().addresses([kernel])[0],
        arguments.ctypes.data,
        items,
        -(-items // threads),
    ]
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        workers.run(step, threads)
        best = min(best, time.perf_counter() - start)
    return best


@functools.cache
def roofline(threads: int) -> Roofline:
    """The limits with so many threads; takes a tenth of a second the first time."""
    target = jit().target
    lanes = target.lanes(F32)
    data = np.zeros(STREAM_BYTES // 4, np.float32)
    width = pool().ensure(threads)
    computing = _seconds(_multiply_adds(target), data, threads, width)
    flops = 2.0 * lanes * ACCUMULATORS * ROUNDS * threads / computing
    reading = _seconds(_reads(target), data, data.size // (4 * lanes), width)
    return Roofline(flops, data.nbytes / reading, _ticks_per_second())


def _ticks_per_second() -> float:
    """How fast the counter runs that timed steps read."""
    f = Function([("place", PTR)])
    f.declare("declare i64 @llvm.readcyclecounter()")
    f.store(f.emit(I64, "call i64 @llvm.readcyclecounter()"), f["place"], 0, I64)
    read = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(jit().addresses([Kernel("ticks", f.text(PLACEHOLDER))])[0])
    place = ctypes.c_int64(0)
    read(ctypes.addressof(place))
    first, start = place.value, time.perf_counter()
    time.sleep(0.01)
    read(ctypes.addressof(place))
    return max(1.0, (place.value - first) / (time.perf_counter() - start))
