"""What stands between lowered nodes and machine code: sizes, slots in the arena, runs with any shapes and any number of threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.compiler.jit import Kernel, jit
from sardonyx.ir import TensorType, Value, dim
from sardonyx.providers.native.execution.memory import Workspace
from sardonyx.providers.native.program.sizes import ShapeMismatch, Sizes, UnboundSymbol
from sardonyx.providers.native.program.steps import Buffer, Step
from sardonyx.runtime.execution.executor import execute
from sardonyx.startup.hashing import blake2b
from tests.providers.native.agreement import assert_agrees, native_plan, programs

N, S = dim.symbol("N"), dim.symbol("S")


def tensor(*shape: dim.Dim) -> Value:
    return Value("x", TensorType(dtypes.float32, shape))


def test_sizes_come_from_the_shapes_of_inputs() -> None:
    sizes = Sizes([tensor(N, 4), tensor(2 * S + 1, N)])
    wanted = [N * S, dim.floordiv(N, 3), dim.maximum(N, S) + 1, 7, dim.mod(S, 4), N * N]
    numbers = [sizes(one) for one in wanted]
    found = sizes.compile()(((5, 4), (7, 5)))
    assert [found[number] for number in numbers] == [15, 1, 6, 7, 3, 25]


@pytest.mark.parametrize("shapes", [((5, 3), (7, 5)), ((5, 4), (7, 6)), ((5, 4), (6, 5)), ((5, 4, 1), (7, 5))])
def test_shapes_of_another_form_are_noticed(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ShapeMismatch):
        Sizes([tensor(N, 4), tensor(2 * S + 1, N)]).compile()(shapes)


def test_a_symbol_that_no_input_tells_is_refused() -> None:
    with pytest.raises(UnboundSymbol, match="S"):
        Sizes([tensor(N, N * S)])(S)


def test_a_size_whose_symbols_cannot_be_told_is_one_by_itself() -> None:
    H, W = dim.symbol("H"), dim.symbol("W")
    pixels = dim.floordiv(H, 2) * dim.floordiv(W, 2) + W
    sizes = Sizes([tensor(N, pixels), tensor(pixels, 3)])
    wanted = [N * pixels * 4, dim.ceildiv(pixels, 16), dim.minimum(pixels, 10)]
    numbers = [sizes(one) for one in wanted]
    found = sizes.compile()(((2, 33), (33, 3)))
    assert [found[number] for number in numbers] == [264, 3, 10]
    assert not sizes.knows(W)
    with pytest.raises(ShapeMismatch):
        sizes.compile()(((2, 33), (34, 3)))


def test_the_body_of_a_loop_is_compiled_where_sizes_cannot_be_told() -> None:
    """Inside, only the product of two sizes is seen. A text among the state keeps the loop in NumPy."""
    model = """
        <ir_version: 9, opset_import: ["" : 21]>
        g (float[H,W] x, int64 trips, string label) => (float[] total) <bool yes = {1}, int64[1] flat = {-1}, float zero = {0}> {
            row = Reshape (x, flat)
            total, last = Loop (trips, yes, zero, label)
                <body = b (int64 i, bool go, float sum, string text) => (bool next, float more, string same) {
                next = Identity (go)
                same = Identity (text)
                bent = Tanh (row)
                scaled = Mul (bent, row)
                part = ReduceSum <keepdims = 0> (scaled)
                more = Add (sum, part)
            }>
        }
    """
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    plan = native_plan(model)
    found = [program for step in plan.steps for body in step.bodies.values() for program in programs(body)]
    assert [step.kernel.title for program in found for step in program.program.steps] != []
    (total,) = execute(plan, {"x": x, "trips": np.array(3), "label": np.array("a", object)})
    np.testing.assert_allclose(total, 3 * (np.tanh(x) * x).sum(), rtol=1e-5)


def test_a_hostile_name_of_a_size_is_only_a_name() -> None:
    name = "__import__('os').abort()"
    size = dim.symbol(name)
    sizes = Sizes([tensor(size)])
    number = sizes(size * 2)
    assert sizes.compile()(((4,),))[number] == 8


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[list[list[int]], list[dim.Dim]]:
    """Steps as lists of the buffers that they name, and the sizes of these."""
    count = draw(st.integers(1, 12))
    sizes = [draw(st.sampled_from([64, 100, 4096, N, N * S, 2 * N + 8])) for _ in range(count)]
    steps = draw(st.lists(st.lists(st.integers(0, count - 1), max_size=4), min_size=1, max_size=20))
    return steps, sizes


@settings(max_examples=200, deadline=None)
@given(lifetimes())
def test_buffers_that_live_together_do_not_overlap(case: tuple[list[list[int]], list[dim.Dim]]) -> None:
    named, sizes = case
    buffers = [Buffer(str(number), size) for number, size in enumerate(sizes)]
    kernel = Kernel("none", "")
    steps = [Step(kernel, [buffers[one] for one in step], 1, 1, "") for step in named]
    workspace = Workspace(steps)
    symbols = {"N": 5, "S": 7}
    lengths = [dim.evaluate(size, symbols) for size in workspace.sizes]
    placement = workspace.place(lengths)
    assert placement.size == workspace.bytes_for(symbols)
    spans = {
        buffer: [number for number, step in enumerate(steps) if buffer in step.buffers()]
        for buffer in buffers
        if any(buffer in step.buffers() for step in steps)
    }
    for a, first in spans.items():
        assert lengths[a.index] == dim.evaluate(a.bytes, symbols)
        assert placement.offsets[a.index] + lengths[a.index] <= placement.size
        for b, second in spans.items():
            if a is not b and first[0] <= second[-1] and second[0] <= first[-1]:
                low, high = sorted([a, b], key=lambda one: placement.offsets[one.index])
                assert placement.offsets[low.index] + lengths[low.index] <= placement.offsets[high.index]


CHAIN = "g (float[N,S,8] x, float[8] b) => (float[N,S,8] y) { t = Add(x, b) u = Mul(t, x) v = Sub(u, t) y = Mul(v, v) }"


def feeds(n: int, s: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(n * 1000 + s)
    return {"x": generator.standard_normal((n, s, 8), np.float32), "b": generator.standard_normal(8, np.float32)}


def test_a_chain_of_elementwise_nodes_is_one_loop() -> None:
    assert_agrees(CHAIN, [feeds(3, 5), feeds(1, 1), feeds(0, 4), feeds(2, 1000)], steps=1)


def test_two_hundred_shapes_compile_once() -> None:
    plan = native_plan(CHAIN)
    execute(plan, feeds(1, 1))
    before = jit().compilations
    for number in range(200):
        given = feeds(1 + number % 7, 1 + number)
        t = given["x"] + given["b"]
        wanted = (t * given["x"] - t) ** 2
        np.testing.assert_allclose(execute(plan, given)[0], wanted, rtol=1e-5, atol=1e-5)
    assert jit().compilations == before


def test_threads_share_one_program() -> None:
    plan = native_plan(CHAIN, threads=2)
    wrong: list[Exception] = []

    def repeat(seed: int) -> None:
        try:
            for number in range(40):
                given = feeds(1 + seed, 1 + number % 9)
                t = given["x"] + given["b"]
                np.testing.assert_allclose(execute(plan, given)[0], (t * given["x"] - t) ** 2, rtol=1e-5, atol=1e-5)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=repeat, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_shapes_that_contradict_the_model_are_computed_in_numpy() -> None:
    text = "g (float[N] x, float[N] y) => (float[M] z) { t = Add(x, y) z = Mul(t, t) }"
    plan = native_plan(text)
    x, y = np.ones(3, np.float32), np.ones(1, np.float32)
    np.testing.assert_array_equal(execute(plan, {"x": x, "y": y})[0], np.full(3, 4, np.float32))


def test_strided_and_reversed_inputs_are_read_right() -> None:
    plan = native_plan(CHAIN)
    given = feeds(4, 6)
    for x in (given["x"][::-1], given["x"][:, ::2], given["x"].transpose(1, 0, 2), np.asfortranarray(given["x"])):
        t = x + given["b"]
        np.testing.assert_allclose(execute(plan, {"x": x, "b": given["b"]})[0], (t * x - t) ** 2, rtol=1e-5, atol=1e-5)


def test_the_workspace_is_what_the_arena_takes() -> None:
    (program,) = programs(native_plan("g (float[N,8] x) => (float[8,N] y) { t = Add(x, x) u = Transpose(t) y = Mul(u, u) }"))
    assert program.workspace.bytes_for({"N": 10}) == 320


def test_growing_shapes_find_room_in_the_places_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = native_plan("g (float[n,n] x) => (float[n,n] y) { a = MatMul(x, x) b = MatMul(a, x) y = MatMul(b, a) }", threads=2)
    (program,) = programs(plan)
    found = []
    place = type(program.argument_table.workspace).place
    monkeypatch.setattr(
        type(program.argument_table.workspace), "place", lambda self, sizes: found.append(1) or place(self, sizes)
    )
    for size in [*range(100, 140), 20, 21, 20, 300]:
        x = np.random.default_rng(size).standard_normal((size, size), np.float32)
        (y,) = execute(plan, {"x": x})
        np.testing.assert_allclose(y, x @ x @ x @ (x @ x), rtol=1e-3, atol=1e-2 * size)
    assert len(found) < 15
    assert program.argument_table.words_for(((20, 20),)).arena < program.argument_table.words_for(((300, 300),)).arena / 50


def test_what_the_cache_says_of_a_kernel_is_what_it_would_write() -> None:
    text = "g (float[N,8] x, float[8,8] w) => (float[N,8] y) { a = MatMul(x, w) b = Relu(a) c = Softmax(b) y = Add(c, x) }"
    for program in programs(native_plan(text)):
        assert program.program is not None
        for kernel in program.program.kernels:
            assert kernel.digest == blake2b(kernel.text.encode(), digest_size=16).hexdigest()
