"""A model that gives one name to sizes which differ is prepared once more, in place of what was prepared before."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import Fail
from sardonyx.runtime.preparation.alternatives import Alternatives
from sardonyx.runtime.saving import remembered
from sardonyx.startup import authors, later
from tests.patience import HANG_SECONDS

OPSETS = '<ir_version: 8, opset_import: ["" : 17]>'
SAME_NAMES = """g (float[N,S] a, float[N,S] b) => (float[N,N] z) <float[1] w = {-1}> {
    t = Transpose<perm=[1,0]>(b) u = Relu(a) v = Mul(t, w) z = MatMul(u, v) }"""
DIFFERENT = {"a": (2, 5), "b": (4, 5)}
COMPUTED_NAMES = """g (float[N,S] a, int64 turns) => (float[T,S] z) <bool yes = {1}, int64 two = {2}> {
    z = Loop(turns, yes, a) <body = body (int64 i, bool c, float[P,S] s) => (bool c, float[P,S] t) {
        odd = Mod(i, two) is_odd = Cast<to=9>(odd)
        t = If(is_odd) <then_branch = then () => (float[P,S] grown) { grown = Concat<axis=0>(s, a) },
                        else_branch = other () => (float[P,S] kept) { kept = Neg(s) }> }> }"""
"""A loop whose state grows every second turn, and keeps the name of its size."""


def session(text: str = SAME_NAMES, **entries: str) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for name, value in entries.items():
        options.add_session_config_entry(f"sardonyx.{name}", value)
    return sardonyx.InferenceSession(onnx.parser.parse_model(OPSETS + text).SerializeToString(), options)


def feeds(a: tuple[int, int], b: tuple[int, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(sum(a))
    return {"a": random.standard_normal(a).astype(np.float32), "b": random.standard_normal(b).astype(np.float32)}


def wanted(fed: dict[str, np.ndarray]) -> np.ndarray:
    return np.maximum(fed["a"], 0) @ -fed["b"].T


def check(one: sardonyx.InferenceSession, a: tuple[int, int], b: tuple[int, int]) -> None:
    fed = feeds(a, b)
    for _ in range(2):  # the second run may take the fast path
        np.testing.assert_allclose(one.run(None, fed)[0], wanted(fed), rtol=1e-5, atol=1e-6)


def in_numpy(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "NumPy computes" in record.getMessage()]


def test_sizes_of_one_name_may_differ(caplog: pytest.LogCaptureFixture) -> None:
    one = session()
    described = [(value.name, value.shape) for value in (*one.get_inputs(), *one.get_outputs())]
    check(one, (3, 5), (3, 5))
    assert one._sess._succession.successor is None
    for a, b in (((2, 5), (4, 5)), ((3, 5), (3, 5)), ((1, 7), (9, 7)), ((0, 5), (2, 5))):
        check(one, a, b)
    assert one._sess._succession.successor is not None and not in_numpy(caplog)
    assert [(value.name, value.shape) for value in (*one.get_inputs(), *one.get_outputs())] == described
    assert one._sess.direct is not None and one._sess.direct(feeds((2, 5), (4, 5))) is not None
    assert one.explain() and one.memory_plan().peak is not None


def test_there_is_one_plan() -> None:
    one = session()
    gone = weakref.ref(one._sess.plan.steps[0].call)
    check(one, **DIFFERENT)
    gc.collect()
    assert gone() is None and one._sess.plan is one._sess._succession.successor.plan


def test_names_that_are_said_to_differ_cost_nothing() -> None:
    one = session(unequal_sizes="N")
    check(one, **DIFFERENT)
    assert one._sess._succession.successor is None


def test_one_name_after_the_other_may_turn_out_wrong() -> None:
    one = session("g (float[N,S] a, float[N,S] b) => (float[M,T] z) { t = Relu(a) u = Relu(b) z = Concat<axis=0>(t, u) }")
    assert one.run(None, feeds((2, 5), (4, 5)))[0].shape == (6, 5)
    with pytest.raises(Exception, match="Concat"):
        one.run(None, feeds((2, 5), (4, 6)))
    assert one.run(None, feeds((1, 5), (4, 5)))[0].shape == (5, 5)


def check_mistakes(one: sardonyx.InferenceSession) -> None:
    for _ in range(2):
        with pytest.raises(Fail, match="running Add node.*Attempting to broadcast"):
            one.run(None, feeds((2, 5), (4, 5)))
        assert one._sess._succession.successor is None
        assert one.run(None, feeds((2, 5), (2, 5)))[0].shape == (2, 5)
        assert one._sess.direct is not None and one._sess.direct(feeds((2, 5), (2, 5))) is not None
    assert one.run(None, feeds((1, 5), (2, 5)))[0].shape == (2, 5)


SUM_OF_SAME_NAMES = "g (float[N,S] a, float[N,S] b) => (float[N,S] z) { t = Relu(a) z = Add(t, b) }"


def test_a_mistake_leaves_everything_as_it_was() -> None:
    check_mistakes(session(SUM_OF_SAME_NAMES))


def test_bound_memory_and_other_threads_find_the_successor() -> None:
    one, fed = session(), feeds(**DIFFERENT)
    binding = one.io_binding()
    for name, array in fed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("z")
    one.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], wanted(fed), rtol=1e-5)
    done: list[Any] = []
    came = threading.Event()
    one.run_async(None, fed, lambda results, _, error: (done.append((results, error)), came.set()), None)
    assert came.wait(HANG_SECONDS)
    np.testing.assert_allclose(done[0][0][0], wanted(fed), rtol=1e-5)
    np.testing.assert_allclose(one.run(["t"], fed)[0], fed["b"].T)


def test_runs_that_come_meanwhile_wait() -> None:
    one, failures = session(), []

    def work(rows: int) -> None:
        try:
            for other in (rows, 4, rows):
                check(one, (rows, 5), (other, 5))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (2, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_first_engine_goes_on_if_there_can_be_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Fail("there is no other")

    monkeypatch.setattr(Alternatives, "with_unequal_sizes", fail)
    one = session()
    check(one, **DIFFERENT)
    check(one, (3, 5), (3, 5))


# --- names of sizes that are computed


def grown(rows: int, turns: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    a = feeds((rows, 5), (1, 1))["a"]
    state = a
    for turn in range(turns):
        state = np.concatenate([state, a]) if turn % 2 else -state
    return {"a": a, "turns": np.array(turns)}, state


def check_growth(one: sardonyx.InferenceSession) -> None:
    for rows, turns in ((3, 1), (3, 4), (3, 4), (1, 7), (0, 3), (3, 0)):
        fed, state = grown(rows, turns)
        assert np.array_equal(one.run(None, fed)[0], state)


def test_a_run_that_is_left_to_numpy_for_a_name_is_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    one = session(COMPUTED_NAMES)
    described = [(value.name, value.shape) for value in (*one.get_inputs(), *one.get_outputs())]
    check_growth(one)
    assert len(in_numpy(caplog)) == 1
    assert "NumPy computed" not in one.explain() and "NumPy: 0 nodes" in one.explain()
    assert [(value.name, value.shape) for value in (*one.get_inputs(), *one.get_outputs())] == described


def test_wrong_names_that_are_said_before_cost_no_run(caplog: pytest.LogCaptureFixture) -> None:
    one = session(COMPUTED_NAMES, unequal_sizes="*")
    check_growth(one)
    assert not in_numpy(caplog) and one._sess._succession.successor is None


def test_names_of_inputs_and_of_computed_sizes_may_both_be_wrong(caplog: pytest.LogCaptureFixture) -> None:
    one = session(COMPUTED_NAMES.replace("int64 turns)", "int64 turns, float[N,S] other)"))
    for _ in range(2):
        for rows in (3, 2):
            fed, state = grown(3, 4)
            assert np.array_equal(one.run(None, {**fed, "other": np.zeros((rows, 5), np.float32)})[0], state)
    assert len(in_numpy(caplog)) <= 2 and "NumPy computed" not in one.explain()


def test_a_mistake_in_a_run_asks_for_no_other_model() -> None:
    one = session(
        COMPUTED_NAMES.replace("Concat<axis=0>(s, a)", "Add(s, b)").replace("int64 turns)", "int64 turns, float[R,S] b)")
    )
    fed, _ = grown(3, 4)
    with pytest.raises(Exception, match="Add"):
        one.run(None, {**fed, "b": np.zeros((2, 5), np.float32)})
    one.run(None, {**fed, "b": np.zeros((3, 5), np.float32)})
    assert one._sess._succession.successor is None


@pytest.fixture
def _remembering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SARDONYX_REMEMBER", "small")
    monkeypatch.setattr(remembered, "WORTH_KEEPING", 0)
    monkeypatch.setattr(later, "DELAY", 0)
    monkeypatch.setattr(authors, "_others", set())  # which other tests of the process may have filled


@pytest.mark.usefixtures("_remembering")
def test_a_mistake_leaves_a_remembered_model_as_it_was() -> None:
    session(SUM_OF_SAME_NAMES).run(None, feeds((2, 5), (2, 5)))
    again = session(SUM_OF_SAME_NAMES)
    assert again._sess._compiled is not None
    check_mistakes(again)


@pytest.mark.usefixtures("_remembering")
def test_a_mistake_leaves_a_remembered_model_that_tells_of_itself() -> None:
    text = "g (float[N,S] a, float[N,S] b) => (float[N,S] z) { t = Relu(a) z = Add(t, b) }"
    session(text).run(None, feeds((2, 5), (2, 5)))
    again = session(text)
    assert again._sess._compiled is not None
    for _ in range(2):
        with pytest.raises(Exception, match="Add"):
            again.run(None, feeds((2, 5), (4, 5)))
        for _ in range(2):  # the second run may take the fast path
            assert again.run(None, feeds((2, 5), (2, 5)))[0].shape == (2, 5)
    assert again.explain() and again.memory_plan().peak is not None


@pytest.mark.usefixtures("_remembering")
def test_a_remembered_model_gives_way_too(caplog: pytest.LogCaptureFixture) -> None:
    check_growth(session(COMPUTED_NAMES))
    again = session(COMPUTED_NAMES)
    assert again._sess._compiled is not None
    gone = weakref.ref(again._sess.plan.steps[0].call)
    check_growth(again)
    gc.collect()
    assert gone() is None
    caplog.clear()
    check_growth(again)
    assert not in_numpy(caplog) and "NumPy computed" not in again.explain()
