"""Small models for tests of compiling ahead of time, and how they are compiled, run and compared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.settings import ALLOW_COMPILED_CODE

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "ai.onnx.ml" : 5]>'
random = np.random.default_rng(0)

DYNAMIC = """
g (float[N, S, 8] x, float[N, 1, T] m) => (float[N, S, T] y, float[N, S, 8] z)
<float[8, 16] w = {WEIGHTS}, float[8] b = {0, 1, 2, 3, 4, 5, 6, 7}, int64[1] last = {-1}>
{
    p = MatMul(x, w)
    a, c = Split<axis = 2, num_outputs = 2>(p)
    t = Transpose<perm = [0, 2, 1]>(c)
    s = MatMul(a, t)
    e = ReduceSum<keepdims = 1>(s, last)
    y = Add(m, e)
    z0 = Add(a, b)
    z = Gelu(z0)
}
""".replace("WEIGHTS", ", ".join(map(str, random.standard_normal(128).round(3))))
"""Three sizes that are known when it runs."""

MIXED = """
g (float[N, 4] x, int64[1] k) => (float[M, 4] y)
<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float zero = {0}>
{
    a = MatMul(x, w)
    b = Relu(a)
    rows = ReduceSum<keepdims = 0>(b, k)
    positive = Greater(rows, zero)
    found = Compress<axis = 0>(b, positive)
    c = Exp(found)
    d = Tanh(c)
    y = MatMul(d, w)
}
"""
"""Compress makes a size that depends on data, so NumPy computes it, between two programs."""

BRANCHING = """
g (bool flag, float[N] x) => (float[N] y)
{
    y = If (flag) <
        then_branch = yes () => (float[N] a) { a0 = Exp(x) a1 = Tanh(a0) a = Sqrt(a1) },
        else_branch = no () => (float[N] b) { b0 = Neg(x) b = Exp(b0) }
    >
}
"""


def write(path: Path, text: str) -> Path:
    path.write_bytes(onnx.parser.parse_model(HEADER + text).SerializeToString())
    return path


def options(*, allow: bool = True, threads: int = 0, **entries: str) -> sardonyx.SessionOptions:
    made = sardonyx.SessionOptions()
    made.intra_op_num_threads = threads
    if allow:
        made.add_session_config_entry(ALLOW_COMPILED_CODE, "1")
    for key, value in entries.items():
        made.add_session_config_entry(key.replace("__", "."), value)
    return made


def compile_model(path: Path, embed: bool = False, target: Path | None = None) -> Path:
    target = target or path.with_name(f"{path.stem}_ctx.onnx")
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), path, embed).compile_to_file(target)
    return target


def payload_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.bin")


def is_used(session: sardonyx.InferenceSession) -> bool:
    return session._engine._compiled is not None


def same(got: list[Any], wanted: list[Any]) -> None:
    for mine, his in zip(got, wanted, strict=True):
        assert mine.dtype == his.dtype and mine.shape == his.shape
        assert mine.tobytes() == his.tobytes() or np.array_equal(mine, his)


def check(path: Path, *feeds: dict[str, Any], embed: bool = False) -> sardonyx.InferenceSession:
    """The compiled model gives bit for bit what the model gives."""
    target = compile_model(path, embed)
    plain, compiled = sardonyx.InferenceSession(path), sardonyx.InferenceSession(target, options())
    assert is_used(compiled)
    for mine, his in zip(
        [*compiled.get_inputs(), *compiled.get_outputs()], [*plain.get_inputs(), *plain.get_outputs()], strict=True
    ):
        assert (mine.name, mine.type, mine.shape) == (his.name, his.type, his.shape)
    for one in feeds:
        same(compiled.run(None, one), plain.run(None, one))
    assert compiled._engine._others.of_source is None  # nothing was left to the source
    return compiled


def dynamic_feeds(n: int, s: int, t: int) -> dict[str, np.ndarray]:
    return {
        "x": random.standard_normal((n, s, 8)).astype(np.float32),
        "m": random.standard_normal((n, 1, t)).astype(np.float32),
    }


def conv_net(path: Path, channels: int = 16) -> Path:
    """Convolutions of several kinds, one of them by Winograd, pooling and a product."""
    sizes = {"w1": (channels, 3, 3, 3), "w2": (channels, channels, 3, 3), "w3": (channels, 1, 5, 5), "w4": (channels, 10)}
    weights = [numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name) for name, shape in sizes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"], group=channels, pads=[2, 2, 2, 2]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "w4"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )


def log_of(caplog: pytest.LogCaptureFixture, make: Callable[[], sardonyx.InferenceSession]) -> tuple[Any, str]:
    caplog.clear()
    session = make()
    return session, "\n".join(record.getMessage() for record in caplog.records)
