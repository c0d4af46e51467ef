"""Throughput counts the runs of all callers."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from benchmarks import throughput
from benchmarks.throughput import main, runs_in_a_second


class Clock:
    """A clock that only runs move on: each caller sees the time of its own, everybody else that of the last."""

    def __init__(self):
        self.runs = Counter()

    def run(self):
        self.runs[threading.current_thread()] += 1

    def perf_counter(self):
        own = self.runs.get(threading.current_thread())
        return max(self.runs.values(), default=0) if own is None else own


@pytest.mark.parametrize("callers", [1, 4])
def test_runs_of_all_callers_count(callers, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(throughput, "time", clock)
    assert runs_in_a_second(clock.run, callers, 20) == callers
    assert list(clock.runs.values()) == [20] * callers


def test_a_caller_that_begins_too_late_runs_once():
    seen = []
    assert runs_in_a_second(lambda: seen.append(threading.current_thread()), 3, 0) > 0
    assert len(set(seen)) == len(seen) == 3


def test_a_table_comes_out(capsys):
    assert main(["tiny", "--callers", "2", "--rounds", "1", "--seconds", "0.05"]) == 0
    assert "tiny" in capsys.readouterr().out


def test_unknown_networks_are_named(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no network 'nothing'" in capsys.readouterr().err
