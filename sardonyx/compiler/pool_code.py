"""The generated code of the pool: the loop in which workers live, and the one that runs a list of steps. `pool` loads it."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable, Sequence

from sardonyx.compiler.arrays import ARRAY_DATA
from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, key_of
from sardonyx.compiler.pool import (
    ALONE_UNTIL,
    ARGUMENTS,
    CALL_ARRAYS,
    CALL_COUNT,
    CALL_PLACE_COUNT,
    CALL_PLACES,
    CALL_POOL,
    CALL_QUIET,
    CALL_STATUS,
    CALL_STEPS,
    CALL_STOP,
    CALL_WIDTH,
    CLOSED,
    DONE,
    FUTEX,
    GAINED,
    GENERATION,
    GRAIN,
    JOB_ARGUMENTS,
    JOB_GRAIN,
    JOB_KERNEL,
    JOB_STATUS,
    JOB_STOP,
    JOB_TOTAL,
    JOB_WIDTH,
    JUMP,
    KERNEL,
    LOCK,
    MAX_THREADS,
    NEXT,
    PIECE_BITS,
    PLACE_WORDS,
    SLEEP,
    SLEEPERS,
    SPINS,
    SPINS_IN_RUN,
    STEP_WORDS,
    STOP,
    TICKS,
    TOTAL,
    WAITING,
)
from sardonyx.compiler.types import BOOL, I8, I32, I64, PTR
from sardonyx.startup.records import dataclass

_PAUSE = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}.get(platform.machine(), "")
CALLER_SPINS = 6000
"""How often a caller looks whether pieces of others are done before it sleeps, too: the system has put one of them off."""
COMMON_WAIT = 1 << 17
"""Ticks that a caller may wait for others, besides twice what it did itself: pieces are not all alike. What is longer is lost."""
MOST_GAINED = 1 << 23
"""Ticks of gain that are remembered: some milliseconds, a few turns of the system's scheduler."""
ALONE_FACTOR = 16
"""A loss that gains do not cover is followed by so many times its ticks in which steps are not shared: no more than that part is lost."""
WAIT, WAKE = 128, 129
"""What a futex is told."""


@functools.cache
def kernels() -> list[Kernel]:
    """What runs a call, the same with times, and the loop of a worker."""
    return [_kernel("run", _run, False), _kernel("run timed", _run, True), _kernel("worker", _work)]


def _kernel(title: str, write: Callable[..., str], *arguments: bool) -> Kernel:
    key = key_of(write, *arguments, platform.machine(), ARRAY_DATA)
    return Kernel(title, functools.partial(write, *arguments), key=key)


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

    def swap(self, word: int, value: Value | int) -> Value:
        return self.f.emit(I64, f"atomicrmw xchg {self._place(word)}, {self.f.as_value(value, I64)} seq_cst")

    def replace(self, word: int, before: Value, after: Value) -> Value:
        """Write a value if another is still there; whether it was."""
        pair = self.f.emit(I64, f"cmpxchg {self._place(word)}, {before}, {after} seq_cst seq_cst")
        return self.f.emit(BOOL, f"extractvalue {{ i64, i1 }} {pair.ref}, 1")


def _pause(f: Function) -> None:
    if _PAUSE:
        f.declare(f"declare void @{_PAUSE}()")
        f.line(f"call void @{_PAUSE}()")


@dataclass(frozen=True)
class _Job:
    """A step that is shared."""

    kernel: Value
    arguments: Value
    total: Value
    grain: Value
    width: Value
    words: Sequence[Value]
    """Where it stands that the run shall stop."""

    def has(self, ticket: Value) -> Value:
        """Whether there is a piece with the number of a ticket, a word that was NEXT."""
        number = ticket & CLOSED
        return (number != CLOSED) & (number * self.grain < self.total)

    def compute(self, f: Function, ticket: Value, worker: Value) -> None:
        begin = (ticket & CLOSED) * self.grain
        f.call(self.kernel, self.arguments, begin, f.minimum(begin + self.grain, self.total), worker)


def _help(f: Function, pool: _Words, worker: Value) -> None:
    """Run pieces of the open job until none is left, or its run shall stop.

    What is read of a job may be that of the next one, until a piece is claimed: that fails if NEXT has changed meanwhile. The run goes on
    once all claimed pieces are counted, so a piece is counted after the next one is claimed: till then the run's memory is there.
    """
    is_counted = f.variable(True, BOOL)
    with f.while_() as body:
        ticket = pool.get(NEXT)
        job = _read_job(f, pool)
        wanted, claimed = f.variable(job.has(ticket) & (worker < job.width), BOOL), f.variable(False, BOOL)
        with f.if_(~is_counted.get()):
            wanted.set(wanted.get() & ~_is_set(f, job.words))
        with f.if_(wanted.get()):
            claimed.set(pool.replace(NEXT, ticket, ticket + 1))
        with f.if_(~is_counted.get()):
            _count_piece(f, pool)
            is_counted.set(True)
        body.leave_if(~wanted.get())
        with f.if_(claimed.get()):
            job.compute(f, ticket, worker)
            is_counted.set(False)


def _read_job(f: Function, pool: _Words) -> _Job:
    kernel, arguments, stop, status = (
        f.as_pointer(pool.get(word)) for word in (JOB_KERNEL, JOB_ARGUMENTS, JOB_STOP, JOB_STATUS)
    )
    return _Job(kernel, arguments, pool.get(JOB_TOTAL), pool.get(JOB_GRAIN), pool.get(JOB_WIDTH), (stop, status))


def _count_piece(f: Function, pool: _Words) -> None:
    pool.add(DONE, 1)
    with f.if_(pool.get(WAITING) != 0):
        _futex(f, pool, DONE, WAKE, f.const(I64, 1))


def _share(f: Function, pool: _Words, job: _Job, quiet: Value) -> None:
    """Run a step together with workers: do what none of them has begun, then wait for those that have."""
    opened = _moment(f)
    _open(f, pool, job)
    with f.if_((quiet == 0) & (pool.get(SLEEPERS) > 0)):
        _futex(f, pool, GENERATION, WAKE, f.const(I64, MAX_THREADS))
    mine, shortest = f.variable(0, I64), f.variable(MOST_GAINED, I64)
    with f.while_() as body:
        # looked at before a piece is taken: the one after it may wait for what this one does
        body.leave_if(_is_set(f, job.words))
        ticket = pool.get(NEXT)
        body.leave_if(~job.has(ticket))
        with f.if_(pool.replace(NEXT, ticket, ticket + 1)):
            begun = _moment(f)
            job.compute(f, ticket, f.const(I64, 0))
            shortest.set(f.minimum(shortest.get(), _moment(f) - begun))
            mine.set(mine.get() + 1)
    finished = _moment(f)
    others = (pool.swap(NEXT, CLOSED) & CLOSED) - mine.get()
    _wait_for(f, pool, others)
    closed = _moment(f)
    saved = others * f.select(mine.get() > 0, shortest.get(), 0)
    _weigh(f, pool, closed, saved, closed - finished - 2 * (finished - opened) - COMMON_WAIT)


def _open(f: Function, pool: _Words, job: _Job) -> None:
    """Let workers that are awake see a step."""
    for word, value in ((JOB_TOTAL, job.total), (JOB_GRAIN, job.grain), (JOB_WIDTH, job.width), (DONE, 0)):
        pool.set(word, value)
    for word, pointer in ((JOB_KERNEL, job.kernel), (JOB_ARGUMENTS, job.arguments), *zip((JOB_STOP, JOB_STATUS), job.words)):
        pool.set(word, f.as_number(pointer))
    pool.set(NEXT, (pool.get(GENERATION) + 1) << PIECE_BITS)
    pool.add(GENERATION, 1)


def _wait_for(f: Function, pool: _Words, pieces: Value) -> None:
    """Wait until others have done as many pieces; asleep if that takes long, so that whoever has put them off gets on."""
    spins = f.variable(0, I64)
    with f.while_() as spinning:
        spinning.leave_if((pool.get(DONE) >= pieces) | (spins.get() >= CALLER_SPINS))
        _pause(f)
        spins.set(spins.get() + 1)
    with f.if_(pool.get(DONE) < pieces):
        pool.set(WAITING, 1)  # before looking at what is done: then whoever does it sees that we wait
        with f.while_() as sleeping:
            done = pool.get(DONE)
            sleeping.leave_if(done >= pieces)
            _futex(f, pool, DONE, WAIT, done)
        pool.set(WAITING, 0)


def _weigh(f: Function, pool: _Words, now: Value, saved: Value, lost: Value) -> None:
    """Count what sharing a step has saved and lost. Where losses prevail, share nothing for a while."""
    gained = f.minimum(pool.get(GAINED) + saved - f.maximum(lost, 0), MOST_GAINED)
    with f.if_(gained < 0):
        pool.set(ALONE_UNTIL, now - gained * ALONE_FACTOR)
    pool.set(GAINED, f.maximum(gained, 0))


def _is_set(f: Function, words: Sequence[Value]) -> Value:
    """Whether somebody has said that a run shall stop, or a kernel that it cannot go on."""
    stop, status = (f.load(word, 0, I64) for word in words)
    return stop | status != 0


def _futex(f: Function, pool: _Words, word: int, operation: int, value: Value) -> None:
    """Wait on a word while it has this value, or wake so many of those who do; elsewhere than on Linux, nap."""
    sleep = f.as_pointer(pool.get(SLEEP))
    number = FUTEX.get(platform.machine(), 0) if sys.platform == "linux" else 0
    if number:
        place = f.address(pool.base, word, I64)
        f.emit(
            I64, f"call i64 (i64, ...) {sleep.ref}(i64 {number}, {place}, i32 {operation}, {f.convert(value, I32)}, ptr null)"
        )
    elif operation == WAIT:
        f.line(f"call void {sleep.ref}(i32 {1 if sys.platform == 'win32' else 50})")


def _patience(f: Function, pool: _Words) -> Value:
    """How often a worker looks for work before it sleeps. While a run goes on its next step may come at any moment."""
    return f.select(pool.get(LOCK) != 0, pool.get(SPINS_IN_RUN), pool.get(SPINS))


def _work() -> str:
    """The loop in which a worker lives: look for a new job, sleep if none comes, join it."""
    f = Function([("pool", PTR), ("worker", I64)])
    pool, worker = _Words(f, f["pool"]), f["worker"]
    seen_generation = f.variable(pool.get(GENERATION))
    with f.while_() as life:
        spins = f.variable(0, I64)
        with f.while_() as waiting:
            is_new = pool.get(GENERATION) != seen_generation.get()
            waiting.leave_if(is_new | (pool.get(STOP) != 0) | (spins.get() >= _patience(f, pool)))
            _pause(f)
            spins.set(spins.get() + 1)
        life.leave_if(pool.get(STOP) != 0)
        with f.if_(pool.get(GENERATION) == seen_generation.get()):
            pool.add(SLEEPERS, 1)
            _futex(f, pool, GENERATION, WAIT, seen_generation.get())  # returns at once if the generation has changed meanwhile
            pool.add(SLEEPERS, -1)
        with f.if_(pool.get(GENERATION) != seen_generation.get()):
            seen_generation.set(pool.get(GENERATION))
            _help(f, pool, worker)
    return f.text(PLACEHOLDER)


def _run(timed: bool) -> str:
    """Run a call's list of steps, each shared with up to `width` - 1 workers."""
    f = Function([("call", PTR)])
    _fill_in_addresses(f, f["call"])
    steps = f.load(f["call"], CALL_STEPS, PTR)
    words = [f.load(f["call"], CALL_STOP, PTR), f.address(f["call"], CALL_STATUS, I64)]
    count, width = f.load(f["call"], CALL_COUNT, I64), f.load(f["call"], CALL_WIDTH, I64)
    pool, quiet = _Words(f, f.load(f["call"], CALL_POOL, PTR)), f.load(f["call"], CALL_QUIET, I64)
    mine = f.variable(0, I64)
    with f.if_(width > 1):
        mine.set(f.select(pool.swap(LOCK, 1) == 0, width, 0))
    index = f.variable(0, I64)
    with f.while_() as remaining:
        remaining.leave_if((index.get() >= count) | _is_set(f, words))
        step = f.address(steps, index.get() * STEP_WORDS, I64)
        kernel, arguments = f.load(step, KERNEL, PTR), f.load(step, ARGUMENTS, PTR)
        total, grain = f.load(step, TOTAL, I64), f.load(step, GRAIN, I64)
        start = _ticks(f) if timed else None
        job = _Job(kernel, arguments, total, grain, mine.get(), words)
        with f.if_else(_is_worth_sharing(f, pool, job)) as otherwise:
            _share(f, pool, job, quiet)
            otherwise()
            _run_alone(f, kernel, arguments, total, f.maximum(grain, 1), words)
        if start is not None:
            f.store(f.load(step, TICKS, I64) + _ticks(f) - start, step, TICKS, I64)
        index.set(index.get() + _distance(f, step, arguments))
    with f.if_(mine.get() > 1):
        pool.set(LOCK, 0)
    return f.text(PLACEHOLDER)


def _is_worth_sharing(f: Function, pool: _Words, job: _Job) -> Value:
    """Whether a step has several pieces, workers are ours, and they are not put off by a busy machine."""
    is_worth = f.variable((job.width > 1) & (job.total > job.grain) & (job.total >> PIECE_BITS - 1 < job.grain), BOOL)
    with f.if_(is_worth.get()):
        is_worth.set(_moment(f) >= pool.get(ALONE_UNTIL))
    return is_worth.get()


def _distance(f: Function, step: Value, arguments: Value) -> Value:
    """How many steps further on the next one is: 1, unless this one jumps."""
    distance = f.variable(1, I64)
    jump = f.load(step, JUMP, I64)
    with f.if_(jump != 0), f.if_(f.load(f.load(arguments, 0, PTR), 0, I64) != 0):
        distance.set(jump)
    return distance.get()


def _run_alone(f: Function, kernel: Value, arguments: Value, total: Value, grain: Value, words: Sequence[Value]) -> None:
    """Run the pieces of a step one after the other, until the run shall stop."""
    begin = f.variable(0, I64)
    with f.while_() as body:
        body.leave_if((begin.get() >= total) | _is_set(f, words))
        f.call(kernel, arguments, begin.get(), f.minimum(begin.get() + grain, total), f.const(I64, 0))
        begin.set(begin.get() + grain)


def _fill_in_addresses(f: Function, call: Value) -> None:
    """Write the addresses of a call's arrays among the arguments of its steps."""
    arrays, places = f.load(call, CALL_ARRAYS, PTR), f.load(call, CALL_PLACES, PTR)
    with f.loop(0, f.load(call, CALL_PLACE_COUNT, I64)) as index:
        place = f.address(places, index * PLACE_WORDS, I64)
        array = f.load(f.address(arrays, f.load(place, 1, I64), I8), 0, PTR)
        data = f.load(f.address(array, ARRAY_DATA, I8), 0, I64)
        f.store(data + f.load(place, 2, I64), f.load(place, 0, PTR), 0, I64)


def _moment(f: Function) -> Value:
    """A time in ticks; always the same one where programs may not read the counter, as on ARM: then sharing is never weighed."""
    return _ticks(f) if _PAUSE else f.const(I64, 0)


def _ticks(f: Function) -> Value:
    f.declare("declare i64 @llvm.readcyclecounter()")
    return f.emit(I64, "call i64 @llvm.readcyclecounter()")
