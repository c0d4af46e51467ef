"""Kernels that nobody has compiled yet: first in a hurry, then well, with the same results and without a pause between runs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.compiler import cache
from sardonyx.compiler import jit as compiler
from sardonyx.compiler.pool import KERNEL
from sardonyx.providers.native import provider
from sardonyx.startup import later
from tests.patience import HANG_SECONDS

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
MODEL = f"""{HEAD} g (float[N, 24] x, float[24, 40] w) => (float[N, 40] y) {{
    a = MatMul(x, w) b = Tanh(a) y = Softmax<axis = 1>(b) }}"""
NON_ZERO = f"{HEAD} g (float[N] x) => (int64[1, K] y) {{ t = Mul(x, x) y = NonZero(t) }}"


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[compiler.Jit]:
    """A compiler that has compiled nothing yet, for sessions that are in a hurry."""
    later.finish()
    monkeypatch.setenv("SARDONYX_HURRY", "1")
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    monkeypatch.setattr(later, "_is_watched", True)  # no thread does it meanwhile
    fresh = compiler.Jit(compiler.host(), cache.ObjectCache(tmp_path / "cache"))
    monkeypatch.setattr(provider, "jit", lambda: fresh)
    yield fresh
    later._waiting.clear()


@pytest.fixture
def fresh(_nothing_is_compiled: compiler.Jit) -> compiler.Jit:
    return _nothing_is_compiled


def session_of(text: str) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())


def program_of(session: sardonyx.InferenceSession) -> Any:
    (step,) = session._engine.plan.steps
    return step.call


def feeds(rows: int) -> dict[str, np.ndarray]:
    numbers = np.random.RandomState(rows)
    return {"x": numbers.randn(rows, 24).astype(np.float32), "w": numbers.randn(24, 40).astype(np.float32)}


def check(session: sardonyx.InferenceSession, rows: int) -> None:
    given = feeds(rows)
    squashed = np.exp(np.tanh(given["x"].astype(np.float64) @ given["w"]))
    wanted = squashed / squashed.sum(axis=1, keepdims=True)
    assert np.allclose(session.run(None, given)[0], wanted, rtol=1e-4, atol=1e-6)


def test_the_best_code_comes_between_runs(fresh: compiler.Jit) -> None:
    session = session_of(MODEL)
    program = program_of(session)
    slow = program.argument_table._kernels.copy()
    assert fresh.compilations == 0
    check(session, 3)
    later.finish()
    assert fresh.compilations == len(program.program.kernels)
    assert not np.isin(program.argument_table._kernels, slow).any()
    for rows in (3, 5):
        check(session, rows)
        assert (program._idle[-1].steps[:, KERNEL] == program.argument_table._kernels).all()
    best = fresh.compilations
    check(session_of(MODEL), 3)
    assert fresh.compilations == best and not later._waiting


def test_sizes_that_runs_settle_survive_the_change() -> None:
    session, x = session_of(NON_ZERO), np.arange(300, dtype=np.float32) % 3
    for _ in range(2):
        assert session.run(None, {"x": x})[0].tolist() == [np.flatnonzero(x).tolist()]
        later.finish()


def test_runs_go_on_while_code_changes() -> None:
    session, is_over, failed = session_of(MODEL), threading.Event(), []

    def run(rows: int) -> None:
        try:
            while not is_over.is_set():
                check(session, rows)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (1, 2, 7)]
    for thread in threads:
        thread.start()
    program = program_of(session)
    functions = program.jit.load(program.program.kernels)
    hurried, new = program.jit.load_in_a_hurry(program.program.kernels)
    assert not new and hurried.addresses == functions.addresses
    for _ in range(200):
        later.finish()
        program.use(functions.addresses, functions)
    is_over.set()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert not failed
    check(session, 2)


def test_nothing_is_compiled_for_sessions_that_are_gone(fresh: compiler.Jit) -> None:
    session = session_of(MODEL)
    check(session, 1)
    del session
    gc.collect()
    later.finish()
    assert fresh.compilations == 0


def test_large_programs_wait_for_the_best_code(fresh: compiler.Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "LARGEST_IN_A_HURRY", -1)
    session = session_of(MODEL)
    assert fresh.compilations and not later._waiting
    check(session, 2)


def test_who_is_not_in_a_hurry_waits(fresh: compiler.Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_HURRY", "0")
    session = session_of(MODEL)
    assert fresh.compilations and not later._waiting
    check(session, 2)


def test_slow_code_stays_where_there_is_no_better(
    fresh: compiler.Jit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> bytes:
        raise RuntimeError("no registers left")

    monkeypatch.setenv("SARDONYX_STRICT", "0")
    session = session_of(MODEL)
    monkeypatch.setattr(fresh, "_compile", refuse)
    later.finish()
    assert "no registers left" in caplog.text
    check(session, 2)
