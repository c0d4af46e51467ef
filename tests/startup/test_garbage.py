"""The garbage collector runs rarely while sessions are made, and as usual a moment later."""

from __future__ import annotations

import gc
import os

import pytest

from sardonyx.startup import garbage, later
from sardonyx.startup.garbage import ENOUGH, rarely_collected
from tests.patience import HANG_SECONDS


@pytest.fixture(autouse=True)
def usual(monkeypatch):
    later.finish()
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    monkeypatch.setattr(garbage, "_have_waited", set())
    before = gc.get_threshold()
    yield
    later.finish()
    gc.set_threshold(*before)


def test_the_collector_runs_rarely_until_the_last_is_outside():
    gc.set_threshold(700, 11, 12)
    with rarely_collected("sessions"):
        assert gc.get_threshold() == (ENOUGH, 11, 12)
        with rarely_collected("sessions"):
            assert gc.get_threshold() == (ENOUGH, 11, 12)
        later.finish()
        assert gc.get_threshold() == (ENOUGH, 11, 12)
    assert gc.get_threshold() == (ENOUGH, 11, 12)
    with rarely_collected("sessions"):
        pass
    later.finish()
    assert gc.get_threshold() == (700, 11, 12)


def test_later_sessions_do_not_put_it_off():
    gc.set_threshold(700, 11, 12)
    with rarely_collected("sessions"):
        pass
    later.finish()
    with rarely_collected("sessions"):
        assert gc.get_threshold() == (ENOUGH, 11, 12)
    assert gc.get_threshold() == (700, 11, 12)


def test_a_session_waits_for_its_results_however_long_it_takes_after_the_imports():
    gc.set_threshold(700, 11, 12)
    with rarely_collected("imports"):
        pass
    with rarely_collected("sessions"):
        later.finish()  # the moment after the imports is over
    assert gc.get_threshold() == (ENOUGH, 11, 12)
    later.finish()
    assert gc.get_threshold() == (700, 11, 12)


def test_it_runs_as_usual_after_an_error():
    gc.set_threshold(700, 11, 12)
    with pytest.raises(ValueError, match="broken"), rarely_collected("sessions"):
        raise ValueError("broken")
    later.finish()
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("threshold", [0, 10 * ENOUGH])
def test_a_collector_that_is_off_or_rare_stays_so(threshold):
    gc.set_threshold(threshold, 11, 12)
    with rarely_collected("sessions"):
        assert gc.get_threshold() == (threshold, 11, 12)
    later.finish()
    assert gc.get_threshold() == (threshold, 11, 12)


def test_what_a_program_chooses_meanwhile_stays():
    gc.set_threshold(700, 11, 12)
    with rarely_collected("sessions"):
        gc.set_threshold(900, 5, 5)
    later.finish()
    assert gc.get_threshold() == (900, 5, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_collects_as_usual():
    gc.set_threshold(700, 11, 12)
    with rarely_collected("sessions"):
        child = os.fork()
        if child == 0:
            os._exit(int(gc.get_threshold() != (700, 11, 12)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
