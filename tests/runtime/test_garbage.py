"""The garbage collector runs rarely while sessions are made, and as usual afterwards."""

from __future__ import annotations

import gc

import pytest

from sardonyx.runtime.preparation.garbage import ENOUGH, rarely_collected


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_collector_runs_rarely_until_the_last_is_outside():
    gc.set_threshold(700, 11, 12)
    with rarely_collected():
        assert gc.get_threshold() == (ENOUGH, 11, 12)
        with rarely_collected():
            assert gc.get_threshold() == (ENOUGH, 11, 12)
        assert gc.get_threshold() == (ENOUGH, 11, 12)
    assert gc.get_threshold() == (700, 11, 12)


def test_it_runs_as_usual_after_an_error():
    gc.set_threshold(700, 11, 12)
    with pytest.raises(ValueError, match="broken"), rarely_collected():
        raise ValueError("broken")
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("threshold", [0, 10 * ENOUGH])
def test_a_collector_that_is_off_or_rare_stays_so(threshold):
    gc.set_threshold(threshold, 11, 12)
    with rarely_collected():
        assert gc.get_threshold() == (threshold, 11, 12)
    assert gc.get_threshold() == (threshold, 11, 12)
