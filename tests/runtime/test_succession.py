"""A model that gives one name to sizes which differ is prepared once more, in place of what was prepared before."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import Fail
from sardonyx.runtime.preparation.alternatives import Alternatives
from tests.patience import HANG_SECONDS

OPSETS = '<ir_version: 8, opset_import: ["" : 17]>'
SAME_NAMES = """g (float[N,S] a, float[N,S] b) => (float[N,N] z) <float[1] w = {-1}> {
    t = Transpose<perm=[1,0]>(b) u = Relu(a) v = Mul(t, w) z = MatMul(u, v) }"""
DIFFERENT = {"a": (2, 5), "b": (4, 5)}


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


def test_a_mistake_leaves_everything_as_it_was() -> None:
    one = session("g (float[N,S] a, float[N,S] b) => (float[N,S] z) { t = Relu(a) z = Add(t, b) }")
    for _ in range(2):
        with pytest.raises(Exception, match="Add"):
            one.run(None, feeds((2, 5), (4, 5)))
        assert one._sess._succession.successor is None
        assert one.run(None, feeds((2, 5), (2, 5)))[0].shape == (2, 5)
        assert one._sess.direct is not None and one._sess.direct(feeds((2, 5), (2, 5))) is not None
    assert one.run(None, feeds((1, 5), (2, 5)))[0].shape == (2, 5)


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
