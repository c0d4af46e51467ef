"""The threads that run generated code. Workers are Python threads inside a generated loop; a run of steps shares each step among them.

A step is a kernel `void (args, begin, end, worker)` with the number of its items. The thread that runs a list of steps takes part; workers
that are awake join until the items are gone. If another run has the workers, the steps run on the caller's thread alone, so any number of
sessions and threads never use more threads than there are.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import platform
import sys
import threading
from typing import Any

import numpy as np

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import Kernel, jit
from sardonyx.compiler.types import I32, I64, PTR

STEP_WORDS = 6
"""A step in memory: kernel, its arguments, number of items, items per piece, ticks it took, unused."""
KERNEL, ARGUMENTS, TOTAL, GRAIN, TICKS = range(5)

# the pool in memory: words of 64 bits, each group on a cache line of its own
GENERATION, OPEN, NEXT, INSIDE, JOB, LOCK, SLEEPERS, STOP, SETTINGS = (8 * line for line in range(9))
JOB_KERNEL, JOB_ARGUMENTS, JOB_TOTAL, JOB_GRAIN, JOB_WIDTH = (JOB + word for word in range(5))
SLEEP, SPINS = SETTINGS, SETTINGS + 1
POOL_WORDS = 80

MAX_THREADS = 64
SPINS_AWAKE = 4000
"""How often a worker looks for work before it sleeps: some tens of microseconds."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}.get(platform.machine(), "")


class _Words:
    """The pool's memory as generated code sees it: every access is atomic and in order."""

    def __init__(self, f: Function, base: Value):
        self.f = f
        self.base = base

    def _place(self, word: int) -> Value:
        return self.f.address(self.base, word, I64)

    def get(self, word: int) -> Value:
        return self.f.emit(I64, f"load atomic i64, {self._place(word)} seq_cst, align 8")

    def set(self, word: int, value: Value | int) -> None:
        self.f.line(f"store atomic {self.f.as_value(value, I64)}, {self._place(word)} seq_cst, align 8")

    def add(self, word: int, value: Value | int) -> Value:
        """Add, and return what was there before."""
        return self.f.emit(I64, f"atomicrmw add {self._place(word)}, {self.f.as_value(value, I64)} seq_cst")

    def swap(self, word: int, value: int) -> Value:
        return self.f.emit(I64, f"atomicrmw xchg {self._place(word)}, i64 {value} seq_cst")


def _pause(f: Function) -> None:
    if _PAUSE:
        f.declare(f"declare void @{_PAUSE}()")
        f.line(f"call void @{_PAUSE}()")


def _take_items(f: Function, pool: _Words, worker: Value) -> None:
    """Run pieces of the open job until none is left."""
    kernel, arguments = f.as_pointer(pool.get(JOB_KERNEL)), f.as_pointer(pool.get(JOB_ARGUMENTS))
    total, grain = pool.get(JOB_TOTAL), pool.get(JOB_GRAIN)
    with f.while_() as body:
        begin = pool.add(NEXT, grain)
        body.leave_if(begin >= total)
        f.call(kernel, arguments, begin, f.minimum(begin + grain, total), worker)


def _futex(f: Function, pool: _Words, operation: int, value: Value) -> None:
    """Wait on the generation's word while it has this value, or wake those who do; elsewhere than on Linux, nap."""
    sleep = f.as_pointer(pool.get(SLEEP))
    number = _FUTEX.get(platform.machine(), 0) if sys.platform == "linux" else 0
    if number:
        place = f.address(pool.base, GENERATION, I64)
        f.emit(
            I64, f"call i64 (i64, ...) {sleep.ref}(i64 {number}, {place}, i32 {operation}, {f.convert(value, I32)}, ptr null)"
        )
    elif operation == 128:
        f.line(f"call void {sleep.ref}(i32 {1 if sys.platform == 'win32' else 50})")


def _worker_kernel() -> Kernel:
    """The loop in which a worker lives: look for a new job, sleep if none comes, join it."""
    f = Function([("pool", PTR), ("worker", I64)])
    pool, worker = _Words(f, f["pool"]), f["worker"]
    seen = f.variable(pool.get(GENERATION))
    with f.while_() as life:
        spins = f.variable(0, I64)
        with f.while_() as waiting:
            waiting.leave_if((pool.get(GENERATION) != seen.get()) | (pool.get(STOP) != 0) | (spins.get() >= pool.get(SPINS)))
            _pause(f)
            spins.set(spins.get() + 1)
        life.leave_if(pool.get(STOP) != 0)
        with f.if_(pool.get(GENERATION) == seen.get()):
            pool.add(SLEEPERS, 1)
            _futex(f, pool, 128, seen.get())  # returns at once if the generation has changed meanwhile
            pool.add(SLEEPERS, -1)
        with f.if_(pool.get(GENERATION) != seen.get()):
            seen.set(pool.get(GENERATION))
            pool.add(INSIDE, 1)  # before looking whether the job is open: then whoever closes it waits for us
            with f.if_((pool.get(OPEN) != 0) & (worker < pool.get(JOB_WIDTH))):
                _take_items(f, pool, worker)
            pool.add(INSIDE, -1)
    return Kernel("worker", f.text("kernel"))


def _run_kernel(timed: bool) -> Kernel:
    """Run a list of steps, each shared with up to `width` - 1 workers."""
    f = Function([("steps", PTR), ("count", I64), ("pool", PTR), ("width", I64), ("stop", PTR)])
    pool, width = _Words(f, f["pool"]), f["width"]
    mine = f.variable(0, I64)
    with f.if_(width > 1):
        mine.set(f.select(pool.swap(LOCK, 1) == 0, width, 0))
    with f.loop(0, f["count"]) as index:
        step = f.address(f["steps"], index * STEP_WORDS, I64)
        kernel, arguments = f.load(step, KERNEL, PTR), f.load(step, ARGUMENTS, PTR)
        total, grain = f.load(step, TOTAL, I64), f.load(step, GRAIN, I64)
        start = _ticks(f) if timed else None
        with f.if_(f.load(f["stop"], 0, I64) == 0), f.if_else((mine.get() > 1) & (total > grain)) as otherwise:
            _share(f, pool, kernel, arguments, total, grain, mine.get())
            otherwise()
            with f.if_(total > 0):
                f.call(kernel, arguments, f.const(I64, 0), total, f.const(I64, 0))
        if start is not None:
            f.store(_ticks(f) - start, step, TICKS, I64)
    with f.if_(mine.get() > 1):
        pool.set(LOCK, 0)
    return Kernel("run timed" if timed else "run", f.text("kernel"))


def _share(f: Function, pool: _Words, kernel: Value, arguments: Value, total: Value, grain: Value, width: Value) -> None:
    for word, value in ((JOB_TOTAL, total), (JOB_GRAIN, grain), (JOB_WIDTH, width), (NEXT, 0)):
        pool.set(word, value)
    for word, pointer in ((JOB_KERNEL, kernel), (JOB_ARGUMENTS, arguments)):
        pool.set(word, f.emit(I64, f"ptrtoint {pointer} to i64"))
    pool.set(OPEN, 1)
    pool.add(GENERATION, 1)
    with f.if_(pool.get(SLEEPERS) > 0):
        _futex(f, pool, 129, f.const(I64, MAX_THREADS))
    _take_items(f, pool, f.const(I64, 0))
    pool.set(OPEN, 0)
    with f.while_() as waiting:
        waiting.leave_if(pool.get(INSIDE) == 0)
        _pause(f)


def _ticks(f: Function) -> Value:
    f.declare("declare i64 @llvm.readcyclecounter()")
    return f.emit(I64, "call i64 @llvm.readcyclecounter()")


_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def _sleep_function() -> int:
    """The address of what puts a thread to sleep: the futex call on Linux, a short nap elsewhere."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.Sleep
    else:
        function = getattr(
            ctypes.CDLL(None), "syscall" if _FUTEX.get(platform.machine()) and sys.platform == "linux" else "usleep"
        )
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Pool:
    """The process's workers; they start when a run first wants them."""

    def __init__(self) -> None:
        self._words = np.zeros(POOL_WORDS + 8, np.int64)
        skipped = -self._words.ctypes.data % 64 // 8
        self._memory = self._words[skipped:]
        self.address = self._memory.ctypes.data
        self._memory[SLEEP] = _sleep_function()
        self._memory[SPINS] = SPINS_AWAKE
        self._words_view = self._memory.data
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._caller = -1
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        run, timed, work = jit().addresses([_run_kernel(False), _run_kernel(True), _worker_kernel()])
        self.run = _RUN(run)
        """run(steps, count, pool address, width, address of a word that is set to leave out the rest)."""
        self.run_timed = _RUN(timed)
        self._work = _WORK(work)

    def ensure(self, width: int) -> int:
        """Have enough workers for runs of this width; returns how wide a run can be."""
        width = max(1, min(width, MAX_THREADS))
        if len(self._threads) < width - 1:
            with self._lock:
                while len(self._threads) < width - 1:
                    self._start(len(self._threads) + 1)
        return width

    def sleep_at_once(self) -> None:
        """Let idle workers sleep without looking for work first: less CPU time, slower starts. Holds for the whole process."""
        self._memory[SPINS] = 0

    def _start(self, number: int) -> None:
        thread = threading.Thread(target=self._work, args=(self.address, number), name=f"sardonyx-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def arrange(self) -> None:
        """Before a run: have workers that sleep get up on other CPUs than the caller's.

        Some systems wake a thread where its waker runs, and leave it waiting there while another CPU is idle.
        """
        if not self._words_view[SLEEPERS] or _current_cpu is None:
            return
        here = _current_cpu()
        if here != self._caller:
            self._caller = here
            others = [cpu for cpu in self._cpus if cpu != here] or self._cpus
            with contextlib.suppress(OSError):
                for number, thread in enumerate(self._threads):
                    os.sched_setaffinity(thread.native_id or 0, {others[number % len(others)]})

    def stop(self) -> None:
        """Let the workers leave; for the end of the process."""
        self._memory[STOP] = 1
        for thread in self._threads:
            while thread.is_alive():
                self._wake()
                thread.join(0.001)
        self._threads.clear()

    def _wake(self) -> None:
        """An empty job: every sleeper gets up and sees that it shall stop."""
        self._memory[GENERATION] += 1
        if sys.platform == "linux" and platform.machine() in _FUTEX:
            place = ctypes.c_void_p(self.address + 8 * GENERATION)
            ctypes.CDLL(None).syscall(_FUTEX[platform.machine()], place, 129, MAX_THREADS, None)


def _cpu_function() -> Any:
    """What tells the CPU that the calling thread runs on; None where threads cannot be bound."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


_current_cpu = _cpu_function()

_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """The process's pool, made when it is first wanted and made anew in a forked child."""
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = Pool()
    return _pool


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


def _finish() -> None:
    if _pool is not None:
        _pool.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(_finish)


@functools.cache
def available_threads() -> int:
    """How many threads can really run at once: affinity and the cgroup's quota are looked at."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, _quota() or count))


def _quota() -> int | None:
    """CPUs that the control group allows, rounded up; None without a limit."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            allowed, period = file.read().split()[:2]
    except (OSError, ValueError):
        return _quota_v1()
    return None if allowed == "max" else -(-int(allowed) // int(period))


def _quota_v1() -> int | None:
    try:
        with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") as quota, open("/sys/fs/cgroup/cpu/cpu.cfs_period_us") as period:
            allowed, length = int(quota.read()), int(period.read())
    except (OSError, ValueError):
        return None
    return -(-allowed // length) if allowed > 0 else None
