"""Axes that a model squeezes if their size is 1: supposed to have it, and right all the same where they have not."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import sardonyx
from sardonyx import settings
from sardonyx.runtime.preparation.plan import all_steps
from tests.patience import HANG_SECONDS

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, length] x) => (float y, float[batch, D] z)
<int64[1] last = {-1}, int64[1] one = {1}, int64 two = {2}, int64[1] second = {1}, float[3] w = {1, -2, 3}, int64[3] wide = {-1, 1, 3}> {
    u = Unsqueeze(x, last) v = Mul(u, w) t = Tanh(v) h = Shape(t) n = Gather<axis=0>(h, second) c = Equal(n, one)
    s = If(c) <then_branch = yes () => (float[P, Q] a) { a = Squeeze(t, second) },
               else_branch = no () => (float[R, S, T] b) { b = Identity(t) }>
    k = Shape(s) r = Size(k) d = Equal(r, two)
    q = If(d) <then_branch = flat () => (float[E, F] e) { e = Exp(s) },
               else_branch = deep () => (float[G, H] f) { f = ReduceSum<keepdims=0>(s, second) }>
    z = Neg(q) y = ReduceMax<keepdims=0>(s) }"""
"""One row is squeezed; several are summed up."""


@pytest.fixture(scope="module")
def model() -> bytes:
    return onnx.parser.parse_model(TEXT).SerializeToString()


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(batch + length).standard_normal((batch, length)).astype(np.float32)}


SIZES = [(2, 1), (3, 4), (1, 1), (5, 1), (3, 4), (1, 2)]


def same(got: Any, wanted: Any) -> None:
    for mine, his in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, his, rtol=1e-5, atol=1e-6)
        assert mine.shape == his.shape


def test_all_sizes_give_what_onnxruntime_gives(model: bytes) -> None:
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    assert [step.in_numpy for step in all_steps(session._engine.plan)] == [False]
    for size in SIZES:
        for _ in range(3):
            same(session.run(None, feeds(*size)), peer.run(None, feeds(*size)))
            same(session.run(["z"], feeds(*size)), peer.run(["z"], feeds(*size)))


def test_nothing_to_squeeze_has_no_rank_of_its_own(model: bytes) -> None:
    session = sardonyx.InferenceSession(model)
    for size in ((0, 1), (0, 3)):
        (result,) = session.run(["q"], feeds(*size))
        assert result.shape == (0, 3)


def test_every_way_to_run_takes_all_sizes(model: bytes) -> None:
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    for size in SIZES[:2]:
        wanted = peer.run(None, feeds(*size))
        binding = session.io_binding()
        binding.bind_cpu_input("x", feeds(*size)["x"])
        for name in ("y", "z"):
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        same(binding.copy_outputs_to_cpu(), wanted)
        answers: queue.Queue[tuple[list[Any], str]] = queue.Queue()
        session.run_async(None, feeds(*size), lambda outputs, answers, error: answers.put((outputs, error)), answers)
        results, error = answers.get(timeout=HANG_SECONDS)
        assert error == ""
        same(results, wanted)


def test_threads_may_contradict_each_other(model: bytes) -> None:
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    with ThreadPoolExecutor(4) as workers:
        for size, got in zip(SIZES, workers.map(lambda size: session.run(None, feeds(*size)), SIZES)):
            same(got, peer.run(None, feeds(*size)))


def test_what_is_written_is_for_all_sizes(model: bytes, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    sardonyx.InferenceSession(model, options)
    written, peer = sardonyx.InferenceSession(options.optimized_model_filepath), onnxruntime.InferenceSession(model)
    for size in SIZES[:2]:
        same(written.run(None, feeds(*size)), peer.run(None, feeds(*size)))
    assert any(node.op_type == "If" for node in onnx.load(options.optimized_model_filepath).graph.node)


def test_the_setting_turns_it_off_and_outputs_are_described_alike(model: bytes) -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(settings.SUPPOSES_SIZES, "0")
    without, supposing = sardonyx.InferenceSession(model, options), sardonyx.InferenceSession(model)
    assert without._engine._suppositions is None and supposing._engine._suppositions is not None
    for one, other in zip(without.get_outputs(), supposing.get_outputs(), strict=True):
        assert (one.name, one.type, one.shape) == (other.name, other.type, other.shape)


SQUEEZED = """<ir_version: 8, opset_import: ["" : %d]>
g (float[batch, 1, length] x) => (%s) { n = Neg(x) s = Squeeze(n) %s }"""
"""All axes of size 1 are squeezed: the second one, and those that have it in a run."""


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(
    ("outputs", "behind"),
    [("y", "y = Exp(s)"), ("float[A, B] y", "y = Relu(s)"), ("y", "e = Exp(s) y = ReduceSum<keepdims=0>(e)")],
)
def test_axes_of_open_size_are_supposed_to_stay_when_none_is_named(outputs: str, behind: str, opset: int) -> None:
    model = onnx.parser.parse_model(SQUEEZED % (opset, outputs, behind)).SerializeToString()
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    assert [step.in_numpy for step in all_steps(session._engine.plan)] == [False]
    for batch, length in [(2, 3), (1, 3), (2, 1), (1, 1), (0, 4), (5, 7), (1, 3)]:
        given = {"x": np.random.default_rng(batch).standard_normal((batch, 1, length)).astype(np.float32)}
        for _ in range(2):
            same(session.run(None, given), peer.run(None, given))


def test_an_output_that_declares_fewer_axes_speaks_against_it() -> None:
    model = onnx.parser.parse_model(SQUEEZED % (17, "float[A] y", "y = Relu(s)")).SerializeToString()
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    assert session._engine._suppositions is None
    for batch, length in [(1, 3), (2, 3), (4, 1)]:
        given = {"x": np.ones((batch, 1, length), np.float32)}
        same(session.run(None, given), peer.run(None, given))


BY_RATE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, length] x, int64 rate) => (float y, int64 rank)
<int64[1] last = {-1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] second = {1}, int64 high = {16}, float[3] w = {1, -2, 3}> {
    c = Equal(rate, high)
    y, rank = If(c) <then_branch = high () => (float a, int64 p) {
            u = Unsqueeze(x, last) v = Mul(u, w) h = Shape(v) n = Gather<axis=0>(h, second) d = Equal(n, one)
            s = If(d) <then_branch = squeezes () => (float[Q, R] t) { t = Squeeze(v, second) },
                       else_branch = leaves () => (float[Q, R, S] t1) { t1 = Identity(v) }>
            a = ReduceSum<keepdims=0>(s) q = Shape(s) p = Size(q) },
        else_branch = low () => (float b, int64 p1) {
            e = Slice(x, second, two, second) f = Concat<axis=1>(x, e) g0 = Exp(f) g1 = Unsqueeze(g0, last) h1 = Shape(g1)
            n1 = Gather<axis=0>(h1, second) m = Equal(n1, one)
            s1 = If(m) <then_branch = squeezes1 () => (float[Q, R] t2) { t2 = Squeeze(g1, second) },
                        else_branch = leaves1 () => (float[Q, R, S] t3) { t3 = Identity(g1) }>
            r = ReduceSum<keepdims=0>(s1) b = Neg(r) q1 = Shape(s1) p1 = Size(q1) }> }"""
"""The rates squeeze other lengths: the high one x itself, the low one what has become of it."""


def test_a_size_is_supposed_for_the_branch_that_an_input_chooses() -> None:
    model = onnx.parser.parse_model(BY_RATE)
    session, peer = (
        sardonyx.InferenceSession(model.SerializeToString()),
        onnxruntime.InferenceSession(model.SerializeToString()),
    )
    assert [step.in_numpy for step in all_steps(session._engine.plan)] == [False]
    for rate in (16, 8, 16):
        for batch, length in [(2, 1), (3, 4), (1, 1), (3, 0), (2, 2)]:
            given = {**feeds(batch, length), "rate": np.array(rate)}
            wanted = peer.run(None, given)
            for _ in range(2):
                same(session.run(None, given), wanted)
                same(session.run(["rank"], given), wanted[1:])


def test_nothing_is_supposed_where_computed_data_chooses() -> None:
    text = BY_RATE.replace("c = Equal(rate, high)", "i = Mul(rate, rate) c = Equal(i, high)")
    model = onnx.parser.parse_model(text).SerializeToString()
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    assert session._engine._suppositions is None
    for rate in (4, 8):
        given = {**feeds(2, 3), "rate": np.array(rate)}
        same(session.run(None, given), peer.run(None, given))
