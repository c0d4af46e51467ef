"""Scratch memory of kernels: as much as a run's sizes and threads ask for, no byte written behind it, and the same results for all of them.

What programs may write over their inputs is tested here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.providers.arena import ALIGNMENT
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.execution.compiled import CompiledProgram, _State
from sardonyx.providers.native.execution.memory import outlived_inputs
from sardonyx.providers.native.program.parts import Batch
from sardonyx.providers.native.program.table import lowerings
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.memory import Kind
from sardonyx.runtime.preparation.plan import Plan, make_plan
from tests.providers.native.agreement import compare, model_of, native_plan, programs
from tests.providers.native.test_conv import conv_model, image
from tests.providers.native.test_fused_convolutions import block
from tests.providers.native.test_recurrent import layer
from tests.providers.native.test_trees import regressor, rows_of

THREADS = (1, 2, 5)
GUARD = 1 << 14
MARK = 0xA5


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run_guarded(plan: Plan, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """Run with marked bytes behind the arena, which must stay what they are."""
    (program,) = programs(plan)
    state = _State()
    arena = program.workspace.bytes_for(dict(symbols_of(plan, feeds)))
    state.arena = np.full(arena + GUARD, MARK, np.uint8)
    state.base = -(-state.arena.ctypes.data // ALIGNMENT) * ALIGNMENT
    program._idle[:] = [state]
    program._shapes.clear()
    program.argument_table._placed = None  # room to grow would hide what is written too far
    outputs = execute(plan, feeds)
    assert program._idle == [state] and state.shape is not None and state.shape.arena == arena
    behind = state.arena[state.base - state.arena.ctypes.data + arena :]
    assert behind.size > GUARD - 2 * ALIGNMENT and (behind == MARK).all(), "written behind the arena"
    return outputs


def symbols_of(plan: Plan, feeds: Mapping[str, np.ndarray]) -> list[tuple[str, int]]:
    return [
        (size.symbol.name, feeds[value.name].shape[axis])
        for value in plan.graph.inputs
        for axis, size in enumerate(value.type.shape)
        if not isinstance(size, int) and size.symbol is not None
    ]


def assert_guarded(source: Any, feeds: Sequence[Mapping[str, np.ndarray]], tolerance: float = 1e-5, opset: int = 21) -> None:
    reference = make_plan(model_of(source, opset).graph, [CPUExecutionProvider()])
    wanted = [execute(reference, given) for given in feeds]
    for threads in THREADS:
        plan = native_plan(source, threads=threads, opset=opset, level=1)
        for given_, expected in zip(feeds, wanted):
            for _ in range(3):
                compare(run_guarded(plan, given_), expected, tolerance)


def arena_bytes(source: Any, threads: int, opset: int = 21, **sizes: int) -> int:
    (program,) = programs(native_plan(source, threads=threads, opset=opset, level=1))
    return program.workspace.bytes_for(sizes)


# --- kernels with memory for each thread

FRAMES = """g (float[b,n] x) => (float[b,f,65,2] y) {
    s = Constant<value_int=16>() l = Constant<value_int=128>()
    y = STFT(x, s, , l)
}"""


@pytest.mark.parametrize("lengths", [(128, 200), (1000, 5000, 20000)])
def test_fourier_transforms(lengths):
    assert_guarded(FRAMES, [{"x": random(batch, length)} for length in lengths for batch in (1, 3)], opset=17)


def test_fourier_transforms_have_memory_for_as_many_threads_as_have_work():
    lanes = 16
    one, *more = (arena_bytes(FRAMES, threads, 17, b=1, n=128) for threads in THREADS)
    assert more == [one] * len(more) and one <= (130 + lanes) * lanes * 4
    assert arena_bytes(FRAMES, 5, 17, b=1, n=20000) == 5 * one


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3))
def test_transformed_convolutions(height, width, batch):
    assert_guarded(conv_model(24, 70, [3, 3], pads=[1, 1, 1, 1]), [image(24, height, width, batch=batch)])


@pytest.mark.parametrize("fixed", [True, False])
def test_transformed_convolutions_of_small_images_take_little(fixed):
    """Input of 9 tiles at 36 points and their sums, of all 64 filters or of a panel of 32: whoever computes which."""
    model = conv_model(28, 48, [3, 3])
    if fixed:
        for axis, size in zip(model.graph.input[0].type.tensor_type.shape.dim, (1, 28, 11, 11)):
            axis.dim_value = size
    for threads in THREADS:
        scratch = arena_bytes(model, threads, n=1, h=11, w=11) - 28 * 11 * 11 * 4 - 48 * 9 * 9 * 4
        assert scratch <= (10 * 36 * (32 + 32) if fixed else 9 * 36 * (32 + 64)) * 4 + 8 * ALIGNMENT


@pytest.mark.parametrize("size", [1, 5, 33])
def test_fused_convolutions(size):
    assert_guarded(block(24, 96, pads=[1, 1, 1, 1]), [{"X": random(batch, 24, size, 2 * size)} for batch in (1, 4)])


@pytest.mark.parametrize("steps", [1, 3, 8, 9, 16, 17])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrences_of_one_row(op, steps):
    model, feeds = layer(op, steps, 1, 12, 20, direction="bidirectional")
    assert_guarded(model, [feeds])


def test_recurrences_keep_the_inputs_of_as_many_steps_as_there_are():
    model, _ = layer("LSTM", 1, 1, 12, 32)
    sizes = [arena_bytes(model, 2, s=steps, b=1) for steps in (1, 2, 1000)]
    assert sizes[1] - sizes[0] <= 4 * 32 * 4 + ALIGNMENT and sizes[0] < sizes[2] <= sizes[0] + 16 * 4 * 32 * 4


@pytest.mark.parametrize("features, targets", [(5, 1), (5, 3), (300, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees(features, targets, dtype):
    source = regressor(7, features=features, targets=targets, dtype=dtype, trees=9 if features < 100 else 40, depth=5)
    rows = (0, 1, 8, 9, 16, 17, 24, 25, 200, 1030, 2100, 5130)
    assert_guarded(source, [{"X": rows_of(count, features, dtype)} for count in rows], tolerance=1e-6)


def test_keys_of_trees_are_for_as_many_rows_as_go_at_once():
    source = regressor(7, features=5)
    assert arena_bytes(source, 2, N=1) == ALIGNMENT
    keys = [arena_bytes(source, 2, N=rows) - rows * 8 for rows in (64 * 16 * 2, 64 * 16 * 200)]
    assert keys[0] == keys[1] > 0


# --- outputs over inputs


def test_inputs_that_are_read_no_more_when_an_output_begins():
    words = np.array([(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (6, 1), (7, 4)])  # steps of 3, 3 and 2 words; 2 inputs, 3 outputs
    counts = np.array([3, 3, 2])
    assert outlived_inputs(words, counts, 0 * counts, 2) == ((0, 1), (0, 2))
    assert outlived_inputs(words[:-2], counts, 0 * counts, 2) == ((0, 1), (1, 1))
    assert outlived_inputs(words[:-2], counts, 0 * counts, 2, Batch("N", [4, 0, 4, 4, 4], 0)) == ((0, 1),)
    assert outlived_inputs(words[:0], counts[:0], counts[:0], 2) == ()


CLUSTER = """g (float[N,8,8] x) => (float[N,8,8] d, float[N,8,8] e) {
    r = RandomNormalLike<seed=3.0>(x)
    n = Softmax(r)
    t = Transpose<perm=[0,2,1]>(n)
    d = Bernoulli<seed=4.0>(t)
    e = Bernoulli<seed=5.0>(n)
}"""
"""NumPy draws the random numbers here; the transposed result may lie where the first ones were."""


@pytest.fixture
def drawn_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("RandomNormalLike", "Bernoulli"):
        lowerings.candidates("", op)  # imports what is taken away
        monkeypatch.setitem(lowerings._entries, ("", op), [])


@pytest.mark.usefixtures("drawn_by_numpy")
def test_a_cluster_writes_over_an_operand_that_nobody_needs():
    plan = native_plan(CLUSTER)
    of = {one.name: one for one in plan.memory.allocations}
    (step,) = [one for one in plan.steps if isinstance(one.call, CompiledProgram)]
    assert of["t"].kind is Kind.REUSE and of["t"].buffer == of["r"].buffer and of["n"].buffer != of["r"].buffer
    assert [(step.inputs[a], step.outputs[b]) for a, b, _ in step.overlaid] == [(of["r"].slot, of["t"].slot)]


@pytest.mark.usefixtures("drawn_by_numpy")
@pytest.mark.parametrize("count", [0, 1, 7, 3000])
def test_results_over_operands_are_the_same(count):
    feeds = {"x": random(count, 8, 8)}
    reference = make_plan(model_of(CLUSTER).graph, [CPUExecutionProvider()])
    seen = []
    plan = native_plan(CLUSTER, threads=2)
    (step,) = [one for one in plan.steps if isinstance(one.call, CompiledProgram)]
    laid_over = step.call._memory.empty
    step.call._memory.empty = lambda outputs, destinations=None: seen.append(destinations) or laid_over(outputs, destinations)
    for _ in range(3):
        compare(execute(plan, feeds), execute(reference, feeds), 1e-4)
    assert len(seen) == 3 and all(any(target is not None for target in destinations) for destinations in seen)


@pytest.mark.usefixtures("drawn_by_numpy")
def test_an_operand_that_somebody_fetches_is_not_overwritten():
    feeds = {"x": random(5, 8, 8)}
    reference = make_plan(model_of(CLUSTER).graph, [CPUExecutionProvider()])
    names = ["r", "t", "n", "d"]
    compare(execute(native_plan(CLUSTER), feeds, names), execute(reference, feeds, names), 1e-4)
