"""Work that waits is done once: after its time, when somebody needs it, or at the end."""

from __future__ import annotations

import os
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
    assert done == ["b", "a", "c"]


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_leaves_the_work_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    later.put_off("key", lambda: None)
    child = os.fork()
    if child == 0:
        os._exit(len(later._waiting))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(later._waiting) == ["key"]
