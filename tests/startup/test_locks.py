"""Forked children find no lock that nobody will release."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sardonyx
from sardonyx.compiler.jit import jit
from sardonyx.startup.locks import Lock, LockThatForksWaitFor
from sardonyx.startup.properties import cached_property
from tests.patience import HANG_SECONDS

PACKAGE = Path(sardonyx.__file__).parent
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a forked child that does something."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def held_elsewhere(lock: Lock) -> tuple[threading.Event, threading.Thread]:
    """Have another thread hold a lock until the event is set."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(HANG_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(HANG_SECONDS)
    return done, thread


def test_a_child_finds_a_held_lock_open_and_the_parent_does_not() -> None:
    lock = Lock()
    done, thread = held_elsewhere(lock)
    assert in_child(lambda: lock.__enter__()) == 0
    assert not lock.acquire(blocking=False)
    done.set()
    thread.join()
    assert lock.acquire(blocking=False)


def test_a_fork_waits_for_who_must_not_be_interrupted() -> None:
    lock = LockThatForksWaitFor()
    done, thread = held_elsewhere(lock)
    codes: list[int] = []
    forking = threading.Thread(target=lambda: codes.append(in_child(lambda: lock.__enter__())))
    forking.start()
    done.set()
    forking.join()
    thread.join()
    assert codes == [0] and lock.acquire(blocking=False)


def test_a_child_computes_though_another_thread_was_compiling() -> None:
    """A child makes a pool of its own, for which it asks the compiler."""
    session = sardonyx.InferenceSession(PACKAGE.parent / "examples" / "shapes.onnx")
    (value,) = session.get_inputs()
    feeds = {value.name: np.zeros([size if isinstance(size, int) else 1 for size in value.shape], np.float32)}
    wanted = session.run(None, feeds)[0]
    done, thread = held_elsewhere(jit()._lock)
    codes: list[int] = []

    def compute() -> None:
        assert np.array_equal(session.run(None, feeds)[0], wanted)

    forking = threading.Thread(target=lambda: codes.append(in_child(compute)))
    forking.start()
    done.set()
    forking.join()
    thread.join()
    assert codes == [0]


def test_a_child_computes_a_property_that_another_thread_was_computing() -> None:
    begun, done = threading.Event(), threading.Event()

    class Slow:
        is_slow = False

        @cached_property
        def number(self) -> int:
            if self.is_slow:
                begun.set()
                done.wait(HANG_SECONDS)
            return 7

    slow, quick = Slow(), Slow()
    slow.is_slow = True
    thread = threading.Thread(target=lambda: slow.number)
    thread.start()
    assert begun.wait(HANG_SECONDS)
    code = in_child(lambda: quick.number)
    done.set()
    thread.join()
    assert code == 0 and slow.number == 7 == vars(slow)["number"]


def test_there_are_no_other_locks() -> None:
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(
            r"threading\.(R?Lock|Condition|Semaphore)\(|import R?Lock|functools\.cached_property\b(?!`)|functools import .*cached_property",
            path.read_text(encoding="utf-8").replace("startup.locks import", ""),
        )
    ]
    assert found == ["startup/locks.py"]
