"""Kernels that nobody has compiled yet: first in a hurry, then well, with the same results and without a pause between runs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
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
from sardonyx.compiler.pool import KERNEL, pool
from sardonyx.providers.native import provider
from sardonyx.runtime.saving import remembered
from sardonyx.startup import authors, later
from tests.patience import HANG_SECONDS

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
MODEL = f"""{HEAD} g (float[N, 24] x, float[24, 40] w) => (float[N, 40] y) {{
    a = MatMul(x, w) b = Tanh(a) y = Softmax<axis = 1>(b) }}"""
NON_ZERO = f"{HEAD} g (float[N] x) => (int64[1, K] y) {{ t = Mul(x, x) y = NonZero(t) }}"


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[compiler.Jit]:
    """A compiler that has compiled nothing yet, for sessions that are in a hurry."""
    later.finish()
    pool()  # whose own code is always the best
    monkeypatch.setenv("SARDONYX_HURRY", "1")
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    monkeypatch.setattr(later, "_is_watched", True)  # no thread does it meanwhile
    fresh = compiler.Jit(compiler.host(), cache.ObjectCache(tmp_path / "cache"))
    monkeypatch.setattr(provider, "jit", lambda: fresh)
    monkeypatch.setattr(compiler, "jit", lambda: fresh)
    yield fresh
    later._waiting.clear()


@pytest.fixture
def fresh(_nothing_is_compiled: compiler.Jit) -> compiler.Jit:
    return _nothing_is_compiled


def session_of(text: str) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())


def kernels_that_wait() -> list[str]:
    return [key for key, work in later._waiting.items() if work.in_children]


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
    assert fresh.compilations == best and not kernels_that_wait()


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
    assert fresh.compilations and not kernels_that_wait()
    check(session, 2)


def test_who_is_not_in_a_hurry_waits(fresh: compiler.Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_HURRY", "0")
    session = session_of(MODEL)
    assert fresh.compilations and not kernels_that_wait()
    check(session, 2)


def test_sessions_whose_results_must_not_vary_wait(fresh: compiler.Jit) -> None:
    options = sardonyx.SessionOptions()
    options.use_deterministic_compute = True
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    check(sardonyx.InferenceSession(model, options), 2)
    assert fresh.compilations and not kernels_that_wait()
    sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"hurry": "0"})])
    assert not kernels_that_wait()


def test_slow_code_is_kept_until_there_is_better(fresh: compiler.Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = program_of(session_of(MODEL)).program.kernels
    slow, best = ([fresh._key(kernel, kind) for kernel in kernels] for kind in (compiler.SLOW, "object"))
    assert all(map(fresh.cache.get, slow)) and not any(map(fresh.cache.get, best))
    other = compiler.Jit(compiler.host(), fresh.cache)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_llvm", lambda: pytest.fail("LLVM is asked"))
        assert other.load_in_a_hurry(kernels)[1] == list(kernels)
    fresh.load(kernels)
    assert all(map(fresh.cache.get, best)) and not any(map(fresh.cache.get, slow))
    assert not compiler.Jit(compiler.host(), fresh.cache).load_in_a_hurry(kernels)[1]


def test_damaged_slow_code_is_compiled_again(fresh: compiler.Jit) -> None:
    kernels = program_of(session_of(MODEL)).program.kernels
    for kernel in kernels:
        fresh.cache.write(fresh._key(kernel, compiler.SLOW), b"damaged")
    other = compiler.Jit(compiler.host(), fresh.cache)
    other.load_in_a_hurry(kernels)
    assert all(fresh.cache.get(fresh._key(kernel, compiler.SLOW)) for kernel in kernels)


def test_improving_stops_between_kernels_and_goes_on_where_it_stopped(fresh: compiler.Jit) -> None:
    kernels = program_of(session_of(MODEL)).program.kernels
    turns = iter([True, False])
    assert fresh.improved(kernels, lambda: next(turns)) is None
    assert fresh.compilations == 1 < len(kernels)
    functions = fresh.improved(kernels, lambda: True)
    assert functions is not None and fresh.compilations == len(kernels)
    assert functions.addresses == fresh.load(kernels).addresses


def test_another_session_of_a_model_does_not_wait_for_the_best_code(
    fresh: compiler.Jit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SARDONYX_REMEMBER", "small")
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "models"))
    monkeypatch.setattr(remembered, "WORTH_KEEPING", 0)
    monkeypatch.setattr(authors, "_others", set())  # which other tests of the process may have filled
    first, second = session_of(MODEL), session_of(MODEL)
    assert fresh.compilations == 0
    later.finish()
    assert not kernels_that_wait() and not any(program_of(session).awaits_code for session in (first, second))
    third = session_of(MODEL)
    assert program_of(third).program is None  # it comes out of a file
    check(third, 3)


CHILD = """
import sys, numpy as np
from sardonyx.runtime.saving import remembered
from sardonyx.startup import authors, later
remembered.WORTH_KEEPING = 0
later.DELAY, later.SECONDS_AT_END = 1000, float(sys.argv[2])
import sardonyx
session = sardonyx.InferenceSession(sys.argv[1])
rows = np.linspace(-1, 1, 72, dtype=np.float32).reshape(3, 24)
result = session.run(None, {"x": rows, "w": np.linspace(-2, 2, 960, dtype=np.float32).reshape(24, 40)})[0]
step, = session._engine.plan.steps
print(step.call.awaits_code, step.call.program is None, "llvmlite.binding" in sys.modules, result.tobytes().hex())
"""


def test_short_processes_lose_nothing(tmp_path: Path) -> None:
    """The first compiles in a hurry, the second finds that, the third ends after all is compiled well, the fourth finds the model."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    variables = {"SARDONYX_CACHE_DIR": str(tmp_path / "shared"), "SARDONYX_HURRY": "1", "SARDONYX_REMEMBER": "small"}
    found = []
    for seconds in (0, 0, 1000, 0):
        command = [sys.executable, "-c", CHILD, str(path), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)
        assert (done.returncode, done.stderr) == (0, "")
        found.append(done.stdout.split())
    assert [row[:2] for row in found] == [["True", "False"]] * 3 + [["False", "True"]]
    assert [row[2] for row in found[1:]] == ["False"] * 3
    slow, best = (np.frombuffer(bytes.fromhex(found[number][3]), np.float32) for number in (0, 3))
    assert np.allclose(slow, best, rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_gets_the_best_code_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY_IN_CHILDREN", 0.001)
    session = session_of(MODEL)
    check(session, 3)
    child = os.fork()
    if child == 0:
        later.finish()
        check(session, 3)
        os._exit(int(program_of(session).awaits_code))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert program_of(session).awaits_code


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
