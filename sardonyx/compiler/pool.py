"""The threads that run generated code. Workers are Python threads inside a generated loop; a run of steps shares each step among them.

A step is a kernel `void (args, begin, end, worker)` with the number of its items. The thread that runs a list of steps takes part; workers
that are awake join until the items are gone. If another run has the workers, the steps run on the caller's thread alone, so any number of
sessions and threads never use more threads than there are. A worker is waited for only if it has begun a piece. Where the system puts
workers off inside of pieces, because the machine is busy, callers go on alone for a while.
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
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.startup.locks import Lock

STEP_WORDS = 6
"""A step in memory: kernel, its arguments, number of items, items per piece, ticks it took, steps to jump.

A step that may jump says so by a word to which its first argument points: set, the run goes on so many steps further on, or back.
"""
KERNEL, ARGUMENTS, TOTAL, GRAIN, TICKS, JUMP = range(6)

CALL_WORDS = 16
"""A call in memory, the one argument of a run. What a run of small steps costs is the way from Python to them, so little goes over it."""
CALL_STEPS, CALL_COUNT, CALL_POOL, CALL_WIDTH, CALL_STOP, CALL_STATUS, CALL_ARRAYS, CALL_PLACES, CALL_PLACE_COUNT = range(9)
CALL_QUIET = 9
"""Set for a run that is over before a sleeping worker would have got up: only those that are awake take part."""
PLACE_WORDS = 3
"""An argument that is the address of an array: where it stands, the array's place in the tuple at CALL_ARRAYS in bytes, an offset."""

# the pool in memory: words of 64 bits, each group on a cache line of its own
GENERATION, NEXT, DONE, WAITING, JOB, LOCK, SLEEPERS, STOP, SETTINGS, SHARING = (8 * line for line in range(10))
JOB_KERNEL, JOB_ARGUMENTS, JOB_TOTAL, JOB_GRAIN, JOB_WIDTH, JOB_STOP, JOB_STATUS = (JOB + word for word in range(7))
SLEEP, SPINS, SPINS_IN_RUN = SETTINGS, SETTINGS + 1, SETTINGS + 2
PIECE_BITS = 32
"""NEXT has the number of the next piece in its lower bits, and in the upper ones to which generation of jobs it belongs."""
CLOSED = (1 << PIECE_BITS) - 1
"""The number of the next piece while there is no job."""
GAINED, ALONE_UNTIL = SHARING, SHARING + 1
"""What sharing has gained lately, in ticks, and until when steps are not shared because it has cost more."""
POOL_WORDS = 88

MAX_THREADS = 64
SPINS_AWAKE = 12000
"""How often a worker looks for work before it sleeps: a fourth of a millisecond, more than Python needs between two runs of a loop."""
SHORT_BREAK = 150e-6
"""Seconds in which a worker that has got up does not fall asleep again."""
FUTEX = {"x86_64": 202, "aarch64": 98}


_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def _sleep_function() -> int:
    """The address of what puts a thread to sleep: the futex call on Linux, a short nap elsewhere."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.Sleep
    else:
        function = getattr(
            ctypes.CDLL(None), "syscall" if FUTEX.get(platform.machine()) and sys.platform == "linux" else "usleep"
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
        self._memory[[SPINS, SPINS_IN_RUN]] = SPINS_AWAKE
        self._memory[NEXT] = CLOSED
        self._words_view = self._memory.data
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._caller = -1
        self._last = 0.0
        self._threads: list[threading.Thread] = []
        self._lock = Lock()
        run, timed, work = _code or _generated()
        self.enter = _RUN(run)
        """Run the call at an address."""
        self.enter_timed = _RUN(timed)
        self._work = _WORK(work)

    def ensure(self, width: int) -> int:
        """Have enough workers for runs of this width; returns how wide a run can be."""
        width = max(1, min(width, MAX_THREADS))
        if len(self._threads) < width - 1:
            with self._lock:
                while len(self._threads) < width - 1:
                    self._start(len(self._threads) + 1)
        return width

    def run(self, steps: np.ndarray, width: int, stop: int = 0, timed: bool = False) -> None:
        """Run a list of steps with all arguments in place. `stop` is the address of a word that is set to leave out the rest."""
        call = np.zeros(CALL_WORDS, np.int64)
        call[[CALL_STEPS, CALL_COUNT, CALL_POOL, CALL_WIDTH]] = steps.ctypes.data, steps.size // STEP_WORDS, self.address, width
        call[CALL_STOP] = stop or call.ctypes.data + 8 * CALL_STATUS
        (self.enter_timed if timed else self.enter)(call.ctypes.data)

    def sleep_at_once(self) -> None:
        """Let workers sleep when a run is over: less CPU time, slower starts. Holds for the whole process."""
        self._memory[SPINS] = 0

    def _start(self, number: int) -> None:
        thread = threading.Thread(target=self._work, args=(self.address, number), name=f"sardonyx-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def comes_alone(self) -> bool:
        """Whether a short run comes long after the last one: those that follow each other closely are worth waking workers for."""
        return time.perf_counter() - self._last > SHORT_BREAK

    def note_end(self) -> None:
        """After a short run."""
        self._last = time.perf_counter()

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
        if sys.platform == "linux" and platform.machine() in FUTEX:
            place = ctypes.c_void_p(self.address + 8 * GENERATION)
            ctypes.CDLL(None).syscall(FUTEX[platform.machine()], place, 129, MAX_THREADS, None)


def _cpu_function() -> Any:
    """What tells the CPU that the calling thread runs on; None where threads cannot be bound."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


_current_cpu = _cpu_function()

_code: Sequence[int] = ()
_kept: object = None
_pool: Pool | None = None
_pool_lock = Lock()


def use_code(addresses: Sequence[int], kept: object) -> None:
    """Have pools that are made later run code that came with a compiled model: then none needs to be generated. `kept` keeps it there."""
    global _code, _kept
    if not _code:
        _code, _kept = addresses, kept


def _generated() -> Sequence[int]:
    from sardonyx.compiler.jit import jit
    from sardonyx.compiler.pool_code import kernels

    return jit().addresses(kernels())


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
    global _pool
    _pool = None


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
