"""Makes many sessions of one kind and tells what the process has more of afterwards; `test_leaks` runs it.

Arguments: the kind, and how many sessions before and while it is measured. It prints one JSON object: memory in bytes, mappings, open files
and Python objects, each per session, and which objects of ours one more session leaves to the garbage collector.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.compiler import jit
from sardonyx.startup import later
from tests.garbage import left_behind
from tests.runtime.models import parsed

WIDTH = 64
X = np.linspace(-1, 1, 8 * WIDTH, dtype=np.float32).reshape(8, WIDTH)


def model(exponent: float = 2.5, shape: tuple[Any, ...] = ("n", WIDTH)) -> bytes:
    """A product, then something that is compiled with a constant in it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Elu", ["y"], ["z"], alpha=exponent),
        helper.make_node("ReduceSum", ["z", "axes"], ["s"]),
        helper.make_node("Div", ["z", "s"], ["out"]),
    ]
    random = np.random.default_rng(3)
    constants = [
        numpy_helper.from_array(random.random((WIDTH, WIDTH), np.float32), "w"),
        numpy_helper.from_array(np.array([1]), "axes"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def opened(source: Any, native: str = "1", config: dict[str, str] | None = None, **options: Any) -> Any:
    settings = sardonyx.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    for name, value in (config or {}).items():
        settings.add_session_config_entry(name, value)
    return sardonyx.InferenceSession(source, settings, providers=[("CPUExecutionProvider", {"native": native})])


FOLDER = Path(tempfile.mkdtemp())


def same(native: str = "1") -> Callable[[int], None]:
    path = FOLDER / "m.onnx"
    path.write_bytes(model())
    return lambda number: opened(str(path), native).run(None, {"x": X})


def numpy_only() -> Callable[[int], None]:
    return same("0")


def external() -> Callable[[int], None]:
    import onnx

    path = FOLDER / "e.onnx"
    onnx.save(onnx.load_from_string(model()), path, save_as_external_data=True, location="e.bin", size_threshold=0)
    return lambda number: opened(str(path)).run(None, {"x": X})


def ort() -> Callable[[int], None]:
    path = FOLDER / "m.ort"
    opened(model(), optimized_model_filepath=str(path))
    return lambda number: opened(str(path)).run(None, {"x": X})


def compiled() -> Callable[[int], None]:
    (FOLDER / "m.onnx").write_bytes(model())
    path = FOLDER / "m_ctx.onnx"
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), str(FOLDER / "m.onnx")).compile_to_file(str(path))
    return lambda number: opened(str(path), config={"session.allow_compiled_code": "1"}).run(None, {"x": X})


def new_kernels() -> Callable[[int], None]:
    """Code that was in no cache: each session compiles its own."""
    jit.RECENT_BYTES = 0
    return lambda number: opened(model(1 + number / 1000)).run(None, {"x": X})


def new_shapes() -> Callable[[int], None]:
    session = opened(model())
    return lambda number: session.run(None, {"x": np.resize(X, (1 + number, WIDTH))})


def profiled() -> Callable[[int], None]:
    def work(number: int) -> None:
        session = opened(model(), enable_profiling=True, profile_file_prefix=str(FOLDER / "profile"))
        session.run(None, {"x": X})
        os.unlink(session.end_profiling())

    return work


def bound() -> Callable[[int], None]:
    def work(number: int) -> None:
        session = opened(model())
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("out")
        session.run_with_iobinding(binding)
        binding.copy_outputs_to_cpu()

    return work


def with_run_options() -> Callable[[int], None]:
    def work(number: int) -> None:
        options = sardonyx.RunOptions()
        options.terminate = bool(number % 2)
        with contextlib.suppress(Exception):
            opened(model()).run(None, {"x": X}, options)

    return work


def bad_models() -> Callable[[int], None]:
    data = model()

    def work(number: int) -> None:
        for bad in (data[: len(data) // 2], data.replace(b"ReduceSum", b"ReduceSun"), b"", str(FOLDER / "none.onnx")):
            with contextlib.suppress(Exception):
                opened(bad)

    return work


def failing_runs() -> Callable[[int], None]:
    session = opened(model())

    def work(number: int) -> None:
        for bad in ({"x": X[:, :-1]}, {}, {"x": X.astype(np.int64)}, {"y": X}):
            for one in (session, opened(model())):
                with contextlib.suppress(Exception):
                    one.run(None, bad)

    return work


def containers() -> Callable[[int], None]:
    container = sardonyx.PrepackedWeightsContainer()
    return lambda number: sardonyx.InferenceSession(model(), prepacked_weights_container=container).run(None, {"x": X})


def fresh() -> Callable[[int], None]:
    """Prepared anew each time."""
    return lambda number: opened(model(), config={"sardonyx.remember": "off"}).run(None, {"x": X})


def in_a_hurry() -> Callable[[int], None]:
    os.environ["SARDONYX_HURRY"] = "1"
    return new_kernels()


def improved() -> Callable[[int], None]:
    """Compiled in a hurry and then well."""
    in_a_hurry()

    def work(number: int) -> None:
        session = opened(model(1 + number / 1000))
        session.run(None, {"x": X})
        later.finish()
        session.run(None, {"x": X})

    return work


def control_flow() -> Callable[[int], None]:
    text = """g (float[n, 4] x, bool c) => (float[n, 4] y, float[n, 4] z)
        <float[4] w = {1, 2, 3, 4}, int64 m = {3}, bool t = {1}>
    {
        y = If(c) <then_branch = a () => (float[n, 4] p) { p = Mul(x, w) }, else_branch = b () => (float[n, 4] q) { q = Add(x, w) }>
        z = Loop(m, t, x) <body = l (int64 i, bool u, float[n, 4] s) => (bool v, float[n, 4] r) { v = Identity(u) r = Mul(s, w) }>
    }"""
    source = parsed(text)

    def work(number: int) -> None:
        session = opened(source, config={"sardonyx.remember": "off"})
        for condition in (True, False):
            session.run(None, {"x": X[:, :4], "c": np.array(condition)})

    return work


def several_plans() -> Callable[[int], None]:
    """Plans for shapes that come again, for inner values, and an engine in the place of the first."""
    sizes = """g (float[n, k] x) => (float[n, k] y) <int64 one = {1}, int64 axis = {0}>
    {
        s = Shape(x)  r = Gather <axis = 0> (s, axis)  c = Equal(r, one)  h = Exp(x)
        y = If(c) <then_branch = a () => (float[n, k] p) { p = Neg(h) }, else_branch = b () => (float[n, k] q) { q = Sqrt(h) }>
    }"""
    names = "g (float[n] x, float[n] y) => (float[n] z) { a = Exp(x) z = Add(a, y) }"

    def work(number: int) -> None:
        session = opened(parsed(sizes), config={"sardonyx.remember": "off"})
        for _ in range(3):
            session.run(None, {"x": X})
        session.run(["h"], {"x": X})
        session.explain()
        other = opened(parsed(names), config={"sardonyx.remember": "off"})
        for length in (8, 1):
            other.run(None, {"x": X[0, :8], "y": X[0, :length]})

    return work


# --- counting


def counts() -> dict[str, int]:
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    rollup = Path("/proc/self/smaps_rollup").read_text()
    (private,) = re.findall(r"^Private_Dirty:\s+(\d+) kB", rollup, re.MULTILINE)
    return {
        "bytes": int(private) << 10,
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "files": len(os.listdir("/proc/self/fd")),
        "objects": len(gc.get_objects()),
    }


def main(kind: str, before: int, measured: int) -> None:
    work = globals()[kind]()
    for number in range(before):
        work(number)
    first = counts()
    for number in range(before, before + measured):
        work(number)
    last = counts()
    grown = {name: (last[name] - first[name]) / measured for name in first}
    print(json.dumps({**grown, "garbage": left_behind(lambda: work(before + measured))}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
