"""Sessions whose models run in native code: what users see of it, and what they must not see."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.compiler.jit import jit
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.preparation.plan import all_steps
from tests.patience import HANG_SECONDS
from tests.runtime import models

MODEL = models.parsed("g (float[N,S] x, float[S] b) => (float[N,S] y) { t = Add(x, b) u = Mul(t, t) y = Sub(u, x) }")


def feeds(n: int, s: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(n * 100 + s)
    return {"x": generator.standard_normal((n, s), np.float32), "b": generator.standard_normal(s, np.float32)}


def wanted(given: dict[str, np.ndarray]) -> np.ndarray:
    t = given["x"] + given["b"]
    return t * t - given["x"]


def is_native(session: Any) -> bool:
    return any(isinstance(step.call, CompiledProgram) for step in all_steps(session._engine.plan))


def test_the_public_name_stands_for_both() -> None:
    session = sardonyx.InferenceSession(MODEL)
    assert is_native(session)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}


def test_native_can_be_turned_off() -> None:
    session = sardonyx.InferenceSession(MODEL, providers=[("CPUExecutionProvider", {"native": "0"})])
    assert not is_native(session)
    given = feeds(2, 3)
    np.testing.assert_allclose(session.run(None, given)[0], wanted(given), rtol=1e-5, atol=1e-6)


def test_a_run_may_ask_to_give_memory_back() -> None:
    session = sardonyx.InferenceSession(MODEL)
    given = feeds(300, 1000)
    result = session.run(None, given)[0]
    (program,) = (step.call for step in all_steps(session._engine.plan))
    assert program._idle
    options = sardonyx.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    np.testing.assert_array_equal(session.run(None, given, options)[0], result)
    assert not program._idle
    np.testing.assert_array_equal(session.run(None, given)[0], result)


def test_assignment_names_the_public_provider() -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = sardonyx.InferenceSession(MODEL, options)
    assert {one.ep_name for one in session.get_provider_graph_assignment_info()} == {"CPUExecutionProvider"}


def test_the_direct_way_gives_the_same_and_leaves_oddities_to_the_ordinary_one() -> None:
    session = sardonyx.InferenceSession(MODEL)
    assert session._engine.direct is not None
    given = feeds(4, 5)
    first = session.run(None, given)[0]
    second = session.run(["y"], given)[0]
    assert first is not second and not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, wanted(given), rtol=1e-5, atol=1e-6)
    strided = {"x": np.asfortranarray(given["x"]), "b": given["b"]}
    np.testing.assert_array_equal(session.run(None, strided)[0], first)
    np.testing.assert_array_equal(session.run(None, {"x": given["x"].tolist(), "b": given["b"]})[0], first)
    with pytest.raises(Exception, match="Unexpected input data type"):
        session.run(None, {"x": given["x"].astype(np.float64), "b": given["b"]})
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {"x": given["x"]})
    with pytest.raises(Exception, match="Invalid input name"):
        session.run(None, given | {"z": given["b"]})
    with pytest.raises(Exception, match="Invalid rank"):
        session.run(None, {"x": given["b"], "b": given["b"]})


def test_a_run_can_be_stopped() -> None:
    session = sardonyx.InferenceSession(MODEL)
    options = sardonyx.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="terminate flag"):
        session.run(None, feeds(2, 2), options)
    options.terminate = False
    given = feeds(2, 2)
    np.testing.assert_allclose(session.run(None, given, options)[0], wanted(given), rtol=1e-5, atol=1e-6)


def test_the_trace_has_an_event_per_kernel(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = sardonyx.InferenceSession(MODEL, options)
    session.run(None, feeds(300, 100))
    events = json.loads(Path(session.end_profiling()).read_text())
    (kernel,) = [event for event in events if event["cat"] == "Kernel"]
    assert kernel["args"]["op_name"] == "Add+Mul+Sub" and kernel["args"]["kernel"] == "elementwise"
    assert int(kernel["args"]["flops"]) == 3 * 300 * 100 and float(kernel["args"]["percent_of_limit"]) >= 0
    assert kernel["args"]["provider"] == "CPUExecutionProvider"


def test_events_bear_the_op_whose_node_they_name(tmp_path: Path) -> None:
    """Also where an op makes an elementwise chain compute its operand first."""
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    text = """g (float[N, 8] x, bool[N, 8] seen, float[8] s) => (float[N, 8] y, float[N, 8] z) {
        [turn] d = Neg(x) [mask] m = Where(seen, x, d) [norm] y = LayerNormalization(m, s) [soft] z = Softmax(m) }"""
    session = sardonyx.InferenceSession(models.parsed(text), options)
    numbers = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    session.run(None, {"x": numbers, "seen": numbers > 0, "s": np.ones(8, np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = {event["args"]["op_name"]: event["args"]["nodes"] for event in events if event["cat"] == "Kernel"}
    assert kernels["LayerNormalization"] == "LayerNormalization 'norm'" and kernels["Softmax"] == "Softmax 'soft'"


WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = None
import numpy as np, sardonyx
for _ in range(2):
    session = sardonyx.InferenceSession(sys.argv[1])
x = np.arange(6, dtype=np.float32).reshape(2, 3)
print(session.run(None, {"x": x, "b": x[0]})[0].tolist())
"""


def test_without_llvm_everything_runs_in_numpy_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL)
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVM, str(path)], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[0.0, 3.0, 14.0], [6.0, 21.0, 44.0]]
    assert ended.stderr.count("pip install llvmlite") == 1


def test_threads_sessions_and_shapes_together() -> None:
    sessions = [sardonyx.InferenceSession(MODEL, _threads(count)) for count in (1, 2, 3)]
    compiled = jit().compilations
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(60):
                given = feeds(1 + (seed + number) % 5, 1 + number % 40)
                np.testing.assert_allclose(sessions[number % 3].run(None, given)[0], wanted(given), rtol=1e-5, atol=1e-6)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert jit().compilations == compiled


def _threads(count: int) -> Any:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = count
    return options


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_runs_sessions_of_its_parent() -> None:
    session = sardonyx.InferenceSession(MODEL, _threads(2))
    given = feeds(200, 100)
    result = session.run(None, given)[0]
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(session.run(None, given)[0], result) for _ in range(5))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(session.run(None, given)[0], result)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs a system that tells a process its memory")
def test_memory_stays_flat_over_runs_of_changing_shapes() -> None:
    session = sardonyx.InferenceSession(MODEL, _threads(2))

    def runs(count: int) -> None:
        for number in range(count):
            session.run(None, {"x": np.zeros((1 + number % 97, 64), np.float32), "b": np.zeros(64, np.float32)})

    runs(3000)
    gc.collect()
    before = resident()
    runs(10_000)
    gc.collect()
    assert resident() - before < 2 << 20


def test_sessions_give_back_their_memory() -> None:
    session = sardonyx.InferenceSession(MODEL)
    session.run(None, feeds(2, 2))
    program = next(step.call for step in all_steps(session._engine.plan) if isinstance(step.call, CompiledProgram))
    gone = weakref.ref(program)
    del session, program
    gc.collect()
    assert gone() is None


LARGE = models.parsed("g (float[N] x) => (float[N] y) { y = Add(x, x) }")


def test_memory_of_large_outputs_is_used_again_but_never_while_somebody_holds_it() -> None:
    session = sardonyx.InferenceSession(LARGE)
    x = np.ones(1 << 20, np.float32)
    first = session.run(None, {"x": x})[0]
    part = first[10:20].reshape(2, 5)
    address = first.ctypes.data
    del first
    second = session.run(None, {"x": 2 * x})[0]
    assert second.ctypes.data != address and (part == 2).all() and (second == 4).all()
    del part
    gc.collect()
    third = session.run(None, {"x": 3 * x})[0]
    assert third.ctypes.data == address and (third == 6).all() and (second == 4).all()
    assert third.flags.writeable and third.flags.c_contiguous


def test_a_session_may_go_before_its_results() -> None:
    session = sardonyx.InferenceSession(LARGE)
    result = session.run(None, {"x": np.ones(1 << 20, np.float32)})[0]
    del session
    gc.collect()
    assert (result == 2).all()
