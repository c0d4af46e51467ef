"""Sessions under several threads at once: other shapes, new sessions, termination, forks and garbage collection in between."""

from __future__ import annotations

import gc
import os
import random
import threading
from typing import Any

import numpy as np
from numpy.testing import assert_allclose  # before any fork: NumPy imports it under a lock, which a child would find held

import sardonyx
from sardonyx import errors
from tests.attack.kinds import shapes
from tests.attack.subject import Problem, Subject, session_of

THREADS = 4
RUNS = 12
DISTURBANCES = 100
"""Not without end: after them a deadlock is a process that sleeps, and its supervisor sees it."""


def run(rng: random.Random) -> None:
    subjects = [shapes.make(rng) for _ in range(2)]
    prepared = [(subject, *_singles(subject)) for subject in subjects]
    seeds = [rng.getrandbits(32) for _ in range(THREADS)]
    disturb = rng.choice((nothing, collect, create, terminate, fork))
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            own = random.Random(seed)
            for _ in range(RUNS):
                subject, session, wanted = own.choice(prepared)
                _check(session, subject, wanted, own.randrange(len(wanted)))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    try:
        for _ in range(DISTURBANCES):
            if not any(thread.is_alive() for thread in threads):
                break
            disturb(rng, prepared)
            threads[0].join(0.001)
    finally:
        for thread in threads:
            thread.join()
    if problems:
        error = problems[0]
        raise Problem(f"with {disturb.__name__}: {type(error).__name__}: {error}") from error


def _singles(subject: Subject) -> tuple[sardonyx.InferenceSession, list[Any]]:
    """A session, and what another gives for each feed in one thread; None where it refuses."""
    alone = session_of(subject.model, level=subject.levels[0], threads=subject.threads)
    wanted: list[Any] = []
    for feeds in subject.notes["feeds"]:
        try:
            wanted.append(alone.run(None, dict(feeds)))
        except errors.CODED:
            wanted.append(None)
    return session_of(subject.model, level=subject.levels[0], threads=subject.threads), wanted


def _check(session: sardonyx.InferenceSession, subject: Subject, wanted: list[Any], at: int) -> None:
    try:
        results = session.run(None, dict(subject.notes["feeds"][at]))
    except errors.CODED:
        if wanted[at] is not None:
            raise
        return
    for got, other in zip(results, wanted[at], strict=True):
        # sums may be cut elsewhere when fewer threads are free, so not bit by bit
        assert_allclose(got, other, rtol=1e-4, atol=1e-4 * np.abs(other).max(initial=0), err_msg=subject.notes["name"])


Prepared = list[tuple[Subject, sardonyx.InferenceSession, list[Any]]]


def nothing(rng: random.Random, prepared: Prepared) -> None:
    pass


def collect(rng: random.Random, prepared: Prepared) -> None:
    gc.collect()


def create(rng: random.Random, prepared: Prepared) -> None:
    """New sessions come and go."""
    subject, _, wanted = rng.choice(prepared)
    _check(session_of(subject.model, threads=rng.choice((1, 2))), subject, wanted, rng.randrange(len(wanted)))


def terminate(rng: random.Random, prepared: Prepared) -> None:
    """A run of this thread is stopped by another one; it ends with an error of ours or with the result."""
    subject, session, wanted = rng.choice(prepared)
    options = sardonyx.RunOptions()
    at = rng.randrange(len(wanted))
    stopper = threading.Thread(target=setattr, args=(options, "terminate", True))
    stopper.start()
    try:
        results = session.run(None, dict(subject.notes["feeds"][at]), options)
    except errors.CODED:
        return
    finally:
        stopper.join()
    for got, other in zip(results, wanted[at] or (), strict=False):
        assert_allclose(got, other, rtol=1e-4, atol=1e-4 * np.abs(other).max(initial=0))


def fork(rng: random.Random, prepared: Prepared) -> None:
    """A child uses a session of its parent."""
    subject, session, wanted = rng.choice(prepared)
    at = rng.randrange(len(wanted))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _check(session, subject, wanted, at)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise Problem(f"a forked child ends with {code}")
