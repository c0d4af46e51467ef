"""Results that go past the caches: the same numbers as otherwise, wherever they are wanted."""

from __future__ import annotations

import numpy as np
import pytest

from tests.providers.native.agreement import assert_agrees, change_budgets, compare, native_plan, programs

MODELS = {
    "elements": "agraph (float[60,33] x) => (float[60,33] y) { a = Mul(x, x)  y = Exp(a) }",
    "rows": "agraph (float[9,48] x, float[9,1] b) => (float[9,48] y) { y = Add(x, b) }",
    "halves": "agraph (float16[40,64] x) => (float16[40,64] y) { y = Sigmoid(x) }",
    "softmax": "agraph (float[7,160] x) => (float[7,160] y) { y = Softmax<axis=-1>(x) }",
    "odd softmax": "agraph (float[7,161] x) => (float[7,161] y) { y = Softmax<axis=-1>(x) }",
    "logarithms": "agraph (float[3,5,256] x) => (float[3,5,256] y) { y = LogSoftmax<axis=-1>(x) }",
    "normalization": """agraph (float[9,80] x, float[80] b) => (float[9,80] y) {
        z = Sigmoid(x)
        y = LayerNormalization<axis=-1>(z, b, b)
    }""",
    "transposition": "agraph (float[64,48] x) => (float[48,64] y) { y = Transpose(x) }",
    "odd transposition": "agraph (float[50,35] x) => (float[35,50] y) { y = Transpose(x) }",
    "transposed halves": "agraph (float16[64,96] x) => (float16[96,64] y) { t = Transpose(x)  y = Add(t, t) }",
    "transposed sum": "agraph (float[32,64] x, float[64,32] b) => (float[64,32] y) { t = Transpose(x)  y = Add(t, b) }",
    "long transposed chain": """agraph (float[32,64] x, float[64,32] b) => (float[64,32] y) {
        t = Transpose(x)
        a = Add(t, b)
        c = Exp(a)
        d = Mul(c, t)
        e = Neg(d)
        g = Tanh(e)
        y = Sub(g, b)
    }""",
}


@pytest.fixture(autouse=True)
def all_results_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    change_budgets(monkeypatch, far=1)


def feeds_for(text: str) -> dict[str, np.ndarray]:
    inputs = programs(native_plan(text))[0].program.inputs
    rng = np.random.default_rng(1)
    return {one.name: rng.standard_normal(one.type.shape).astype(one.type.dtype.numpy) for one in inputs}


@pytest.mark.parametrize("name", MODELS)
def test_what_streams_is_the_same(name: str) -> None:
    text = MODELS[name]
    kernels = [kernel.text for one in programs(native_plan(text)) for kernel in one.program.kernels]
    assert any("!nontemporal" in kernel for kernel in kernels)
    assert_agrees(text, feeds_for(text))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("offset", (0, 4, 32))
def test_memory_for_results_may_lie_anywhere(name: str, offset: int) -> None:
    (program,) = programs(native_plan(MODELS[name]))
    feeds = list(feeds_for(MODELS[name]).values())
    (wanted,) = program(feeds)
    memory = np.zeros(wanted.nbytes + 192, np.uint8)
    start = -memory.ctypes.data % 64 + 64 + offset
    target = memory[start : start + wanted.nbytes].view(wanted.dtype).reshape(wanted.shape)
    (found,) = program(feeds, destinations=[target])
    assert found is target
    compare([found], [wanted], 1e-7)
    assert not memory[:start].any() and not memory[start + wanted.nbytes :].any()


def test_sizes_that_are_not_known_do_not_stream() -> None:
    (program,) = programs(native_plan("agraph (float[n,64] x) => (float[n,64] y) { y = Exp(x) }"))
    assert not any("!nontemporal" in kernel.text for kernel in program.program.kernels)
