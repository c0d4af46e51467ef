"""The threads: every item is done once, whoever does it, also with many callers, after fork, and when the process ends meanwhile."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from sardonyx.compiler import pool as module
from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, jit
from sardonyx.compiler.pool import ARGUMENTS, GRAIN, KERNEL, STEP_WORDS, TICKS, TOTAL, Pool, available_threads, pool
from sardonyx.compiler.types import I64, PTR
from tests.patience import HANG_SECONDS


def add_one() -> int:
    """A kernel that adds 1 to each of its items, slowly enough that workers get some."""
    f = Function([("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)])
    data = f.load(f["args"], 0, PTR)
    with f.loop(f["begin"], f["end"]) as i, f.loop(0, 50):
        f.line(f"store volatile {f.load(data, i, I64)}, {f.address(data, i, I64)}")
    with f.loop(f["begin"], f["end"]) as i:
        f.store(f.load(data, i, I64) + 1, data, i, I64)
    return jit().addresses([Kernel("add one", f.text(PLACEHOLDER))])[0]


class Job:
    """A list of equal steps over one array."""

    def __init__(self, items: int, steps: int, grain: int):
        self.data = np.zeros(items, np.int64)
        self.arguments = np.array([self.data.ctypes.data], np.int64)
        self.steps = np.zeros((steps, STEP_WORDS), np.int64)
        self.steps[:, KERNEL] = add_one()
        self.steps[:, ARGUMENTS] = self.arguments.ctypes.data
        self.steps[:, TOTAL] = items
        self.steps[:, GRAIN] = grain
        self.stop = ctypes.c_int64(0)

    def run(self, workers: Pool, width: int, timed: bool = False) -> None:
        workers.run(self.steps, width, ctypes.addressof(self.stop), timed)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize(("items", "grain"), [(0, 1), (1, 1), (7, 1), (100, 3), (1000, 1000), (1000, 2000)])
def test_every_item_is_done_once(width: int, items: int, grain: int) -> None:
    job = Job(items, 20, grain)
    workers = pool()
    job.run(workers, workers.ensure(width))
    assert (job.data == 20).all()


def test_callers_at_the_same_time_do_not_disturb_each_other() -> None:
    workers = pool()
    width = workers.ensure(3)
    jobs = [Job(64, 50, 4) for _ in range(6)]

    def repeat(job: Job) -> None:
        for _ in range(30):
            job.run(workers, width)

    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((job.data == 1500).all() for job in jobs)


def test_workers_that_sleep_wake_up() -> None:
    workers = Pool()
    workers.sleep_at_once()
    width = workers.ensure(2)
    job = Job(100, 3, 1)
    for _ in range(50):
        job.run(workers, width)
    assert (job.data == 150).all()
    workers.stop()


def test_workers_stay_awake_until_the_run_is_over() -> None:
    workers = Pool()
    workers.sleep_at_once()
    workers._memory[module.SPINS_IN_RUN] = 1 << 62
    workers.ensure(2)
    _await_sleepers(workers, 1)
    workers._memory[module.LOCK] = 1  # as a run that has the workers and does a step alone
    workers._wake()
    _await_sleepers(workers, 0)
    for _ in range(20):
        time.sleep(0.001)
        assert not workers._memory[module.SLEEPERS]
    workers._memory[module.LOCK] = 0
    _await_sleepers(workers, 1)
    workers.stop()


def _await_sleepers(workers: Pool, count: int) -> None:
    while workers._memory[module.SLEEPERS] != count:
        time.sleep(0.001)


def test_a_quiet_run_lets_workers_sleep() -> None:
    workers = Pool()
    workers.sleep_at_once()
    width = workers.ensure(2)
    job = Job(100, 3, 1)
    call = np.zeros(module.CALL_WORDS, np.int64)
    call[[module.CALL_STEPS, module.CALL_COUNT]] = job.steps.ctypes.data, len(job.steps)
    call[[module.CALL_POOL, module.CALL_WIDTH, module.CALL_QUIET]] = workers.address, width, 1
    call[module.CALL_STOP] = call.ctypes.data + 8 * module.CALL_STATUS
    generation = workers._memory[module.GENERATION]
    _await_sleepers(workers, 1)
    for _ in range(20):
        workers.enter(call.ctypes.data)
        assert workers._memory[module.SLEEPERS] == 1
    assert (job.data == 60).all()
    assert workers._memory[module.GENERATION] == generation + 60  # the steps were there to be shared
    workers.stop()


def test_short_runs_that_follow_each_other_do_not_come_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))
    workers = Pool()
    workers.note_end()
    now += module.SHORT_BREAK / 2
    assert not workers.comes_alone()
    now += module.SHORT_BREAK
    assert workers.comes_alone()


def test_a_run_that_is_stopped_leaves_out_the_rest() -> None:
    job = Job(10, 5, 100)
    job.stop.value = 1
    job.run(pool(), 1)
    assert (job.data == 0).all()


def test_timed_runs_count_ticks() -> None:
    job = Job(1000, 3, 10)
    job.run(pool(), pool().ensure(2), timed=True)
    assert (job.data == 3).all() and (job.steps[:, TICKS] > 0).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    parent = pool()
    parent.ensure(2)
    child = os.fork()
    if child == 0:
        job = Job(100, 20, 1)
        workers = pool()
        job.run(workers, workers.ensure(2))
        os._exit(0 if workers is not parent and (job.data == 20).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    job = Job(100, 20, 1)
    job.run(parent, 2)
    assert (job.data == 20).all()


EXIT_WHILE_RUNNING = """
import threading, time
from tests.compiler.test_pool import Job, pool
workers = pool()
width = workers.ensure(2)
def forever():
    job = Job(1000, 1000, 10)
    while True:
        job.run(workers, width)
for _ in range(2):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
"""


def test_the_process_may_end_while_threads_run() -> None:
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", EXIT_WHILE_RUNNING], capture_output=True, text=True, timeout=HANG_SECONDS)
        assert ended.returncode == 0, ended.stderr


def test_available_threads_respects_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_threads() >= 1
    monkeypatch.setattr(module, "_quota", lambda: 1)
    assert available_threads.__wrapped__() == 1


def stop_at_third() -> int:
    """A kernel that marks its items, and says at the third piece of one item that the run shall stop."""
    f = Function([("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)])
    data, stop = f.load(f["args"], 0, PTR), f.load(f["args"], 1, PTR)
    with f.loop(f["begin"], f["end"]) as i:
        f.store(1, data, i, I64)
        with f.if_(i == 2):
            f.store(1, stop, 0, I64)
    return jit().addresses([Kernel("stop at third", f.text(PLACEHOLDER))])[0]


def test_a_run_stops_between_two_pieces_of_a_step() -> None:
    job = Job(1000, 2, 1)
    job.arguments = np.array([job.data.ctypes.data, ctypes.addressof(job.stop)], np.int64)
    job.steps[:, KERNEL], job.steps[:, ARGUMENTS] = stop_at_third(), job.arguments.ctypes.data
    job.run(pool(), 1)
    assert job.data.sum() == 3


def test_threads_leave_a_step_whose_run_shall_stop() -> None:
    job = Job(1000, 2, 1)
    job.stop.value = 1
    workers = pool()
    job.run(workers, workers.ensure(2))
    assert not job.data.any()


@pytest.mark.parametrize("width", [1, 2])
def test_a_step_that_cannot_go_on_ends_a_run_that_others_may_stop(width: int) -> None:
    """Steps behind one that has checked their numbers rely on it, whoever else may stop the run."""
    job = Job(1000, 2, 1)
    workers = pool()
    call = np.zeros(module.CALL_WORDS, np.int64)
    call[[module.CALL_STEPS, module.CALL_COUNT, module.CALL_POOL]] = job.steps.ctypes.data, 2, workers.address
    call[[module.CALL_WIDTH, module.CALL_STOP]] = workers.ensure(width), ctypes.addressof(job.stop)
    call[module.CALL_STATUS] = 1
    workers.enter(call.ctypes.data)
    assert not job.data.any()


def wait_for_words() -> int:
    """A kernel whose caller waits until another thread has begun an item, and whose workers wait until the caller sleeps."""
    f = Function([("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)])
    data, pool_words = f.load(f["args"], 0, PTR), f.load(f["args"], 1, PTR)

    def wait(place: Value) -> None:
        with f.while_() as waiting:
            waiting.leave_if(f.emit(I64, f"load atomic i64, {place} seq_cst, align 8") != 0)

    with f.if_else(f["worker"] == 0) as otherwise:
        wait(f.address(data, 2, I64))
        otherwise()
        f.line(f"store atomic i64 1, {f.address(data, 2, I64)} seq_cst, align 8")
        wait(f.address(pool_words, module.WAITING, I64))
    f.store(f.load(data, f["begin"], I64) + 1, data, f["begin"], I64)
    return jit().addresses([Kernel("wait for words", f.text(PLACEHOLDER))])[0]


def test_a_caller_sleeps_until_a_piece_that_takes_long_is_done() -> None:
    workers = Pool()
    workers.sleep_at_once()
    width = workers.ensure(2)
    while not workers._memory[module.SLEEPERS]:
        time.sleep(0.001)  # one that begins behind the job does not see it
    job = Job(2, 1, 1)
    job.data = np.zeros(3, np.int64)
    job.arguments = np.array([job.data.ctypes.data, workers.address], np.int64)
    job.steps[:, KERNEL], job.steps[:, ARGUMENTS] = wait_for_words(), job.arguments.ctypes.data
    job.run(workers, width)
    assert job.data.tolist() == [1, 1, 1]
    assert not workers._memory[module.WAITING]
    workers.stop()


def test_steps_are_not_shared_while_sharing_costs_more_than_it_gains() -> None:
    workers = Pool()
    width = workers.ensure(2)
    job = Job(100, 3, 1)
    generation = workers._memory[module.GENERATION]
    workers._memory[module.ALONE_UNTIL] = np.iinfo(np.int64).max
    job.run(workers, width)
    assert workers._memory[module.GENERATION] == generation
    workers._memory[module.ALONE_UNTIL] = 0
    job.run(workers, width)
    assert workers._memory[module.GENERATION] > generation
    assert (job.data == 6).all()
    workers.stop()


def test_a_loss_that_gains_do_not_cover_puts_sharing_off() -> None:
    workers = Pool()
    width = workers.ensure(2)
    workers._memory[module.GAINED] = -(1 << 40)  # as after a wait of minutes
    job = Job(100, 3, 1)
    generation = workers._memory[module.GENERATION]
    job.run(workers, width)
    assert workers._memory[module.GENERATION] == generation + 1  # the first step finds out, the others are not shared
    assert workers._memory[module.GAINED] == 0 and workers._memory[module.ALONE_UNTIL] > 0
    assert (job.data == 3).all()
    workers.stop()
