"""Throughput counts the runs of all callers."""

from __future__ import annotations

import threading
import time

import pytest

from benchmarks.throughput import main, runs_in_a_second


def test_runs_of_all_callers_count():
    def run():
        time.sleep(0.01)

    alone, together = (runs_in_a_second(run, callers, 0.2) for callers in (1, 4))
    assert 10 < alone <= 100
    assert 2 * alone < together <= 400


def test_all_callers_call():
    seen = set()
    runs_in_a_second(lambda: (seen.add(threading.get_ident()), time.sleep(0.01)), 3, 0.1)
    assert len(seen) == 3


def test_a_table_comes_out(capsys):
    assert main(["tiny", "--callers", "2", "--rounds", "1", "--seconds", "0.05"]) == 0
    assert "tiny" in capsys.readouterr().out


def test_unknown_networks_are_named(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no network 'nothing'" in capsys.readouterr().err
