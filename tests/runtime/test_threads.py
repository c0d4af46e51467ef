"""Many threads on one session, runs that another thread stops, runs in the background."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.patience import HANG_SECONDS
from tests.runtime import models
from tests.runtime.side_by_side import BOTH

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BOTH_APIS = pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)


def test_ten_threads_share_a_session() -> None:
    session = sardonyx.InferenceSession(models.CHAIN)
    started = threading.Barrier(10)

    def work(number: int) -> bool:
        x = np.full((number + 1, 3), number, np.float32)
        expected = x * [1, 2, 3] + x
        started.wait(timeout=HANG_SECONDS)
        return all(np.array_equal(session.run(["y", "t"] if turn % 2 else None, {"x": x})[0], expected) for turn in range(50))

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(work, range(10)))


def long_run(ort: ModuleType, options: Any, failures: list[Exception]) -> threading.Thread:
    session = ort.InferenceSession(models.FOREVER)

    def work() -> None:
        try:
            session.run(None, {"x": np.array(0, np.float32), "count": np.array(10**9)}, options)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@BOTH_APIS
def test_another_thread_can_stop_a_run(ort: ModuleType) -> None:
    options, failures = ort.RunOptions(), []
    thread = long_run(ort, options, failures)
    time.sleep(0.2)
    assert thread.is_alive()
    options.terminate = True
    thread.join(timeout=HANG_SECONDS)
    assert not thread.is_alive()
    (error,) = failures
    assert type(error).__name__ == "Fail" and "Exiting due to terminate flag being set to true." in str(error)


@BOTH_APIS
def test_options_that_say_stop_let_no_run_begin(ort: ModuleType) -> None:
    session, options = ort.InferenceSession(models.DOUBLE), ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="Exiting due to terminate flag being set to true."):
        session.run(None, {"x": X}, options)
    options.terminate = False
    session.run(None, {"x": X}, options)


def test_a_stop_does_not_touch_other_runs_of_the_session() -> None:
    session, options, failures = sardonyx.InferenceSession(models.DOUBLE), sardonyx.RunOptions(), []
    thread = long_run(sardonyx, options, failures)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + X)
    options.terminate = True
    thread.join(timeout=HANG_SECONDS)
    assert len(failures) == 1


# --- in the background


def in_background(session: Any, *arguments: Any) -> tuple[Any, ...]:
    done, result = threading.Event(), []

    def callback(*given: Any) -> None:
        result.extend(given)
        done.set()

    session.run_async(*arguments, callback, "mine")
    assert done.wait(timeout=HANG_SECONDS)
    return tuple(result)


@BOTH_APIS
def test_results_come_to_the_callback(ort: ModuleType) -> None:
    session = ort.InferenceSession(models.DOUBLE)
    results, user_data, error = in_background(session, None, {"x": X})
    np.testing.assert_array_equal(results[0], X + X)
    assert user_data == "mine" and error == ""


@BOTH_APIS
@pytest.mark.parametrize("feed", [X[0], X.astype(np.float64)], ids=["rank", "dtype"])
def test_errors_come_to_the_callback_without_a_code(ort: ModuleType, feed: np.ndarray) -> None:
    results, user_data, error = in_background(ort.InferenceSession(models.DOUBLE), ["y"], {"x": feed})
    assert results == [] and user_data == "mine"
    assert error.startswith(("Invalid rank for input: x", "Unexpected input data type."))


@BOTH_APIS
def test_what_is_no_feed_is_refused_at_once(ort: ModuleType) -> None:
    session = ort.InferenceSession(models.DOUBLE)
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_async(None, {}, print, None)
    with pytest.raises(RuntimeError, match="Unable to handle object of type <class 'int'>"):
        session.run_async(None, {"x": 3}, print, None)


@BOTH_APIS
def test_one_thread_is_too_few_for_the_background(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    with pytest.raises(Exception, match="intra op thread pool must have at least one thread for RunAsync"):
        ort.InferenceSession(models.DOUBLE, options).run_async(None, {"x": X}, print, None)
