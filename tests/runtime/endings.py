"""Programs that end, or let go of things, while native code runs; `test_endings` runs each in a process of its own.

The argument is the name of a function. A thread that shall be inside native code runs a session again and again, and the rest begins
when it has done so once.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import sardonyx

SIZE, LAYERS, ROWS = 512, 40, 512
X = np.linspace(-1, 1, ROWS * SIZE, dtype=np.float32).reshape(ROWS, SIZE)


def model(shift: float = 0.0) -> bytes:
    """Products with the identity, and a shift that makes code of its own."""
    nodes = [helper.make_node("MatMul", [f"y{layer}", "eye"], [f"y{layer + 1}"]) for layer in range(LAYERS)]
    nodes.append(helper.make_node("Add", [f"y{LAYERS}", "shift"], ["out"]))
    constants = [
        numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "eye"),
        numpy_helper.from_array(np.float32(shift), "shift"),
    ]
    given = helper.make_tensor_value_info("y0", TensorProto.FLOAT, ["n", SIZE])
    made = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", SIZE])
    graph = helper.make_graph(nodes, "g", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def opened(native: str = "1", **options: Any) -> Any:
    settings = sardonyx.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    return sardonyx.InferenceSession(model(), settings, providers=[("CPUExecutionProvider", {"native": native})])


def again_and_again(work: Callable[[], Any]) -> None:
    """Begin to do something in a daemon thread; returns when it was done once."""
    done = threading.Event()

    def loop() -> None:
        while True:
            work()
            done.set()

    threading.Thread(target=loop, daemon=True).start()
    done.wait()


def run(session: Any) -> None:
    session.run(None, {"y0": X})


def during_a_run() -> None:
    session = opened()
    again_and_again(lambda: run(session))


def during_runs_of_several_threads() -> None:
    sessions = [opened() for _ in range(3)]
    for session in sessions:
        again_and_again(lambda session=session: run(session))  # type: ignore[misc]


def during_a_run_of_numpy() -> None:
    session = opened("0")
    again_and_again(lambda: run(session))


def during_a_profiled_run() -> None:
    session = opened(enable_profiling=True, profile_file_prefix=os.path.join(tempfile.mkdtemp(), "profile"))
    again_and_again(lambda: run(session))


def during_a_bound_run() -> None:
    session = opened()
    binding = session.io_binding()
    binding.bind_cpu_input("y0", X)
    binding.bind_output("out")
    again_and_again(lambda: session.run_with_iobinding(binding))


def during_an_asynchronous_run() -> None:
    session = opened()
    session.run_async(None, {"y0": X}, lambda *results: None, None)


def during_compilation() -> None:
    shifts = iter(range(10**9))
    again_and_again(lambda: sardonyx.InferenceSession(model(next(shifts) + os.getpid() / 1e6)))


def while_workers_wait() -> None:
    run(opened())
    sys.exit(0)


def by_the_short_way() -> None:
    session = opened()
    again_and_again(lambda: run(session))
    os._exit(0)


def in_a_forked_child() -> None:
    session = opened()
    again_and_again(lambda: run(session))
    child = os.fork()
    if child == 0:
        again_and_again(lambda: run(session))
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0


def session_let_go_of() -> None:
    """Threads inside a session that nobody else holds any more."""
    results: list[np.ndarray] = []
    for _ in range(4):
        session = opened()
        threads = [threading.Thread(target=_collect, args=(session, results)) for _ in range(2)]
        for thread in threads:
            thread.start()
        del session
        gc.collect()
        for thread in threads:
            thread.join()
    assert len(results) == 8 and all(np.array_equal(result, X) for result in results)


def _collect(session: Any, results: list[np.ndarray]) -> None:
    run = session.run
    del session
    results.append(run(None, {"y0": X})[0])


def bindings_let_go_of() -> None:
    """Arrays that are bound to a run, and that nobody else holds, while others take their places."""
    session = opened()
    binding = session.io_binding()
    binding.bind_cpu_input("y0", X.copy())
    binding.bind_output("out")
    again_and_again(lambda: session.run_with_iobinding(binding))
    for _ in range(30):
        binding.bind_cpu_input("y0", X.copy())
        binding.bind_output("out")
        gc.collect()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
