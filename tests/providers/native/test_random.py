"""Random numbers of generated code are those of NumPy's legacy generator, whichever provider draws them and with how many threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx import dtypes, errors, formats
from sardonyx.providers import random_state
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import compare, model_of, native_plan

BLOCK = 312
"""How many numbers the generator makes at a time."""
ALMOST = 4e-16
"""Logarithms may differ in the last bit."""


def assert_draws_alike(
    source: str, feeds: Mapping[str, np.ndarray] | None = None, *, opset: int = 22, tolerance: float = 0.0, runs: int = 2
) -> list[Any]:
    """Check that both providers draw the same numbers, run for run, behind the same seed of the process; returns those of the last run."""
    results = []
    reference = make_plan(model_of(source, opset).graph, [CPUExecutionProvider()])
    natives = [native_plan(source, threads=threads, opset=opset) for threads in (1, 2)]
    for plan in natives:
        left = [step.node.op_type for step in plan.steps if not isinstance(step.call, CompiledProgram)]
        assert not left, f"left to NumPy: {left}"
    for plan in (reference, *natives):
        random_state.set_seed(11)
        results.append([execute(plan, feeds or {}) for _ in range(runs)])
    for native in results[1:]:
        for mine, his in zip(native, results[0], strict=True):
            assert [array.dtype for array in mine] == [array.dtype for array in his]
            compare([*map(_wide, mine)], [*map(_wide, his)], tolerance)
    return list(results[1][-1])


def _wide(array: np.ndarray) -> np.ndarray:
    """Narrow types are compared as others, which know that NaN is NaN."""
    return array.astype(np.float64) if array.dtype.kind in "Vf" else array


@pytest.mark.parametrize("count", [0, 1, 2, 7, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3])
@pytest.mark.parametrize("seed", [0, 7, 2**24 - 1])
def test_the_stream_is_that_of_the_seed(count: int, seed: int) -> None:
    source = "g () => (double[N] y) {{ y = {}<shape=[{}], dtype=11, seed={}.0>() }}"
    (uniform,) = assert_draws_alike(source.format("RandomUniform", count, seed))
    np.testing.assert_array_equal(uniform, np.random.RandomState(seed).uniform(0, 1, count))
    (normal,) = assert_draws_alike(source.format("RandomNormal", count, seed), tolerance=ALMOST)
    np.testing.assert_allclose(normal, np.random.RandomState(seed).normal(0, 1, count), rtol=ALMOST, atol=ALMOST)


@pytest.mark.parametrize("op", ["RandomNormal<mean=3.0, scale=0.25, {}>()", "RandomUniform<low=-2.0, high=5.5, {}>()"])
@pytest.mark.parametrize("dtype", sorted(dtypes.FLOATS, key=str), ids=str)
def test_types_bounds_and_moments(op: str, dtype: dtypes.ElementType) -> None:
    drawn = op.format(f"shape=[3, 700], dtype={dtype.code}")
    assert_draws_alike(f"g () => ({dtype}[3,700] y) {{ y = {drawn} }}", tolerance=ALMOST if dtype is dtypes.float64 else 0.0)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(0, 40), m=st.integers(0, 40))
def test_as_many_as_another_tensor_has(n: int, m: int) -> None:
    x = np.zeros((n, m), np.int32)
    source = "g (int32[N,M] x) => (float[N,M] a, double[N,M] b) { a = RandomNormalLike<dtype=1>(x) b = RandomUniformLike<dtype=11>(x) }"
    assert_draws_alike(source, {"x": x})


def test_seeds_of_the_process_are_counted_whoever_draws() -> None:
    source = "g () => (float[4] y) { y = RandomUniform<shape=[4]>() }"
    plans = {"native": native_plan(source, opset=22), "numpy": make_plan(model_of(source, 22).graph, [CPUExecutionProvider()])}
    streams = []
    for order in ("numpy numpy numpy numpy", "native native native native", "native numpy numpy native"):
        random_state.set_seed(2**64 - 3)
        streams.append([execute(plans[who], {})[0].tolist() for who in order.split()])
    assert streams[0] == streams[1] == streams[2]
    assert len({tuple(numbers) for numbers in streams[0]}) == 4


def test_threads_that_draw_at_once_get_different_seeds() -> None:
    plan = native_plan("g () => (double[1] y) { y = RandomUniform<shape=[1], dtype=11>() }", opset=22)
    found: list[float] = []
    workers = [threading.Thread(target=lambda: found.extend(execute(plan, {})[0][0] for _ in range(200))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(found)) == 800


def test_a_loop_draws_in_every_turn() -> None:
    source = """g (int64 count) => (float[T,3] y) <bool always = {1}> {
        y = Loop<body = b (int64 i, bool go) => (bool on, float[3] noise) {
            on = Identity(go) noise = RandomNormal<shape=[3]>() }>(count, always)
    }"""
    (drawn,) = assert_draws_alike(source, {"count": np.array(5)})
    assert len(np.unique(drawn)) == 15


def test_a_batch_that_is_cut_into_parts_has_one_draw() -> None:
    source = """g (float[N,3] x) => (float[N,3] y) {
        noise = RandomNormal<shape=[3]>() y = Add(x, noise) }"""
    (drawn,) = assert_draws_alike(source, {"x": np.zeros((5000, 3), np.float32)})
    assert (drawn == drawn[0]).all()


@pytest.mark.parametrize("attributes", ["scale=-1.0", "scale=-0.0", "seed=nan"])
def test_what_numpy_refuses_is_left_to_it(attributes: str) -> None:
    model = f'<ir_version: 10, opset_import: ["": 22]> g () => (float[2] y) {{ y = RandomNormal<shape=[2], {attributes}>() }}'
    plan = native_plan(model, opset=22)
    with pytest.raises((*errors.CODED, ValueError)):
        execute(plan, {})


# --- Bernoulli, Multinomial


@settings(max_examples=15, deadline=None)
@given(shape=st.lists(st.integers(0, 12), min_size=1, max_size=3), seed=st.integers(0, 1000))
def test_bernoulli(shape: list[int], seed: int) -> None:
    likelihood = np.random.default_rng(seed).uniform(-0.2, 1.2, shape).astype(np.float32)
    names = ",".join("ABC"[: len(shape)])
    (drawn,) = assert_draws_alike(
        f"g (float[{names}] p) => (float[{names}] y) {{ y = Bernoulli<seed={seed}.0>(p) }}", {"p": likelihood}
    )
    np.testing.assert_array_equal(drawn, np.random.RandomState(seed).random_sample(shape) < likelihood)


@pytest.mark.parametrize("dtype", ["float16", "float", "double", "bfloat16"])
@pytest.mark.parametrize("to", ["int32", "bool", "float16", "int8"])
def test_bernoulli_of_all_types(dtype: str, to: str) -> None:
    types = {str(one): one for one in dtypes.ALL}
    feeds = {"p": np.array([0, 0.5, 1, np.nan, -1, 2] * 50).astype(types[dtype].numpy)}
    assert_draws_alike(f"g ({dtype}[N] p) => ({to}[N] y) {{ y = Bernoulli<dtype={types[to].code}>(p) }}", feeds)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(0, 5), classes=st.integers(1, 40), samples=st.integers(0, 30))
def test_multinomial(rows: int, classes: int, samples: int) -> None:
    logits = np.random.default_rng(rows * 100 + classes).normal(0, 4, (rows, classes)).astype(np.float32)
    source = f"g (float[R,C] x) => (int64[R,{samples}] y) {{ y = Multinomial<sample_size={samples}, dtype=7>(x) }}"
    (drawn,) = assert_draws_alike(source, {"x": logits})
    assert drawn.min(initial=0) >= 0 and drawn.max(initial=0) < classes


def test_multinomial_of_logits_that_are_no_numbers() -> None:
    logits = np.array([[0, np.nan, 1], [0, np.inf, 1], [-np.inf] * 3, [0, -np.inf, 0], [700, 900, 800]])
    assert_draws_alike("g (double[R,C] x) => (int32[R,20] y) { y = Multinomial<sample_size=20>(x) }", {"x": logits})


def test_multinomial_without_classes_is_refused() -> None:
    plan = native_plan("g (float[R,C] x) => (int32[R,2] y) { y = Multinomial<sample_size=2>(x) }", opset=22)
    with pytest.raises(errors.CODED, match="classes"):
        execute(plan, {"x": np.zeros((2, 0), np.float32)})


# --- Dropout

SWITCHED = "g ({0}[N,M] x, {1} r, bool t) => ({0}[N,M] y, bool[N,M] m) {{ y, m = Dropout{2}(x, r, t) }}"


@settings(max_examples=20, deadline=None)
@given(n=st.integers(0, 30), m=st.integers(0, 30), ratio=st.floats(0, 0.9990234375, width=32), training=st.booleans())
def test_dropout(n: int, m: int, ratio: float, training: bool) -> None:
    x = np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)
    feeds = {"x": x, "r": np.array(ratio, np.float32), "t": np.array(training)}
    _, mask = assert_draws_alike(SWITCHED.format("float", "float", "<seed=9>"), feeds)
    np.testing.assert_array_equal(mask, (np.random.RandomState(9).uniform(0, 1, x.shape) >= np.float32(ratio)) | (not training))


@pytest.mark.parametrize("dtype", sorted(dtypes.FLOATS | dtypes.FLOAT8 - {dtypes.float8e8m0}, key=str), ids=str)
def test_dropout_of_all_types(dtype: dtypes.ElementType) -> None:
    numbers = np.array([0, -0.0, 1, 3.5, -400, np.inf, -np.inf, np.nan] * 40, np.float32).reshape(20, 16)
    feeds = {"x": numbers.astype(dtype.numpy), "r": np.array(0.25, np.float32), "t": np.array(True)}
    with np.errstate(invalid="ignore", over="ignore"):
        assert_draws_alike(SWITCHED.format(dtype, "float", ""), feeds)


@pytest.mark.parametrize("ratio", [1.0, -0.1, np.nan, np.inf])
def test_a_ratio_out_of_range_is_refused_in_training_alone(ratio: float) -> None:
    feeds = {"x": np.ones((2, 3), np.float32), "r": np.array(ratio, np.float32), "t": np.array(False)}
    assert_draws_alike(SWITCHED.format("float", "float", ""), feeds)
    plan = native_plan(SWITCHED.format("float", "float", ""), opset=22)
    with pytest.raises(errors.CODED, match="range"):
        execute(plan, feeds | {"t": np.array(True)})


def test_dropout_of_old_opsets() -> None:
    x = np.random.default_rng(0).standard_normal((5, 60)).astype(np.float32)
    for attributes in ("ratio=0.25", "is_test=1"):
        source = f"g (float[N,M] x) => (float[N,M] y, float[N,M] m) {{ y, m = Dropout<{attributes}>(x) }}"
        assert_draws_alike(source, {"x": x}, opset=6)


def test_a_saved_program_draws_from_the_process(tmp_path: Any) -> None:
    source = '<ir_version: 10, opset_import: ["": 22]> g () => (float[4] y) { y = RandomUniform<shape=[4]>() }'
    path, compiled = tmp_path / "model.onnx", tmp_path / "compiled.onnx"
    formats.save(model_of(source), path)
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), str(path)).compile_to_file(str(compiled))
    runs = []
    for file in (path, compiled):
        sardonyx.set_seed(4)
        session = sardonyx.InferenceSession(str(file))
        runs.append([session.run(None, {})[0].tolist() for _ in range(2)])
    assert runs[0] == runs[1] and runs[0][0] != runs[0][1]
