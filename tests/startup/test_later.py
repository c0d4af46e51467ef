"""Work that waits is done once: after its time, when somebody needs it, or at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sardonyx.startup import later
from tests.patience import HANG_SECONDS


@pytest.fixture(autouse=True)
def _nothing_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    later.finish()
    monkeypatch.setattr(later, "_is_watched", False)  # a thread of another test may still be asleep
    yield
    later.finish()


def test_work_is_done_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", 0.001)
    for turn in range(20):  # a thread that is about to end takes no more work, and another one begins
        done = threading.Event()
        later.put_off(f"key {turn}", done.set)
        assert done.wait(HANG_SECONDS)


def test_who_needs_work_has_it_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    done: list[str] = []
    for key in ("a", "b", "c", "a"):
        later.put_off(key, lambda key=key: done.append(key))
    assert not done
    later.finish("b")
    later.finish("b")
    later.finish("unknown")
    assert done == ["b"]
    later.finish()
    assert done == ["b", "c", "a"]


def test_who_needs_work_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(HANG_SECONDS)
        done.set()

    later.put_off("key", work)
    worker = threading.Thread(target=later.finish)
    worker.start()
    assert begun.wait(HANG_SECONDS)
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: (later.finish("key"), seen.append(done.is_set())))
    waiter.start()
    later.finish("another")  # does not wait
    go_on.set()
    for thread in (worker, waiter):
        thread.join(HANG_SECONDS)
    assert seen == [True]


def test_work_that_is_needed_does_not_wait_for_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    later.put_off("long", work)
    later.put_off("short", done.set)
    worker = threading.Thread(target=later.finish)
    worker.start()
    assert begun.wait(HANG_SECONDS)
    later.finish("short")
    assert done.is_set() and list(later._waiting) == ["long"]
    go_on.set()
    worker.join(HANG_SECONDS)


def test_work_may_put_itself_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    turns: list[int] = []

    def work() -> None:
        turns.append(len(turns))
        if len(turns) < 3:
            later.put_off("key", work)

    later.put_off("key", work)
    for turn in range(1, 5):
        later.finish()
        assert len(turns) == min(turn, 3)
    assert not later._waiting


def test_a_process_that_ends_goes_on_for_a_bounded_time() -> None:
    program = """
from sardonyx.startup import later
later.DELAY, later.SECONDS_AT_END, turns = 1000, {seconds}, []
def work():
    while later.is_time() and len(turns) < 5:
        turns.append(1)
    print(len(turns), later.is_ending())
    later.put_off("again", work)
later.put_off("key", work)
"""
    for seconds, turns in ((0, 0), (1000, 5)):
        done = subprocess.run([sys.executable, "-c", program.format(seconds=seconds)], capture_output=True, text=True)
        assert (done.stdout.split(), done.stderr) == ([str(turns), "True"], "")


def test_a_process_that_ends_waits_until_its_threads_have_stopped() -> None:
    program = """
import threading
from sardonyx.startup import later
later.DELAY, later.SECONDS_AT_END, begun = 0.001, 0, threading.Event()
def work():
    begun.set()
    while later.is_time():
        pass
    print("stopped")
later.put_off("key", work)
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_leaves_the_work_to_its_parent_but_for_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    monkeypatch.setattr(later, "DELAY_IN_CHILDREN", 0.001)
    done = threading.Event()
    later.put_off("key", lambda: None)
    later.put_off("own", done.set, in_children=True)
    child = os.fork()
    if child == 0:
        is_done = done.wait(HANG_SECONDS)
        os._exit(0 if is_done and "key" not in later._waiting else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(later._waiting) == ["key", "own"] and not done.is_set()
