"""Threads, sessions, shapes and forks together, a thousand times; and processes that end while native code runs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

import sardonyx
from tests.patience import HANG_SECONDS
from tests.runtime.test_native import MODEL, feeds, wanted

ROUNDS = 1000
EXITS = 20


def session(threads: int) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    return sardonyx.InferenceSession(MODEL, options)


def check(one: sardonyx.InferenceSession, seed: int) -> None:
    generator = random.Random(seed)
    given = feeds(generator.randint(1, 300), generator.randint(1, 200))
    np.testing.assert_allclose(one.run(None, given)[0], wanted(given), rtol=1e-5, atol=1e-5)


def together(sessions: list[sardonyx.InferenceSession], seed: int) -> None:
    """Four threads, each with runs of its own on sessions of all."""
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for run in range(4):
                check(sessions[(number + run) % len(sessions)], seed * 100 + number * 10 + run)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def in_a_child(sessions: list[sardonyx.InferenceSession], seed: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            check(sessions[seed % len(sessions)], seed)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_thousand_rounds() -> None:
    sessions = [session(threads) for threads in (1, 2, 3)]
    for number in range(ROUNDS):
        together(sessions, number)
        if number % 5 == 0:
            in_a_child(sessions, number)
        if number % 50 == 0:
            sessions[number % 3] = session(1 + number % 3)


PROGRAM = """
import threading, time
from tests.runtime.test_stress import check, session
sessions = [session(2) for _ in range(2)]
def forever(number):
    while True:
        check(sessions[number % 2], number)
for number in range(3):
    threading.Thread(target=forever, args=(number,), daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_process_may_end_while_runs_go_on() -> None:
    for _ in range(EXITS):
        ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_SECONDS)
        assert ended.returncode == 0, ended.stderr
