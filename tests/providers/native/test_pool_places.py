"""Generated MaxPool that tells places, and MaxUnpool, agree with NumPy's: windows of any form, layouts, types, NaN, ties."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import Fail
from sardonyx.providers.native import provider
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

EXACT = 1e-12
"""A tolerance that is none; with 0 NumPy would not find that a NaN of bfloat16 equals another."""
TYPES = {
    "float": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "double": np.float64,
    "uint8": np.uint8,
    "int8": np.int8,
}


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch, request):
    """What is compared with NumPy must not be NumPy's own."""
    if "numpy" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


def pool_text(name, axes, last, **attributes):
    space, made = ",".join("hwd"[:axes]), ",".join("pqr"[:axes])
    given = f"n,{space},c" if last else f"n,c,{space}"
    before = f"T = Transpose<perm={[0, axes + 1, *range(1, axes + 1)]}>(X)" if last else ""
    words = ", ".join(f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in attributes.items())
    return f"""g ({name}[{given}] X) => ({name}[n,c,{made}] Y, int64[n,c,{made}] I) {{
        {before} Y, I = MaxPool<{words}>({"T" if last else "X"})
    }}"""


def images(rs, shape, dtype=np.float32):
    """Few different numbers, so that there are ties, and some that are none."""
    X = rs.randint(-4, 5, shape).astype(dtype) if dtype != np.uint8 else rs.randint(0, 9, shape).astype(dtype)
    if dtype not in (np.uint8, np.int8):
        X[rs.rand(*shape) < 0.05] = np.nan
        X[rs.rand(*shape) < 0.1] = -np.inf
    return X


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_any_windows(name, last, data):
    draw = data.draw
    axes = draw(st.integers(1, 3))

    def each(*choices):
        return [draw(st.sampled_from(choices)) for _ in range(axes)]

    kernel, dilations = each(1, 2, 3), each(1, 2)
    pads = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
    padding = draw(st.sampled_from([{"pads": pads, "ceil_mode": 1}, {"pads": pads}, {"auto_pad": "SAME_LOWER"}]))
    text = pool_text(
        name,
        axes,
        last,
        kernel_shape=kernel,
        strides=each(1, 2, 3),
        dilations=dilations,
        storage_order=draw(st.integers(0, 1)),
        **padding,
    )
    rs = np.random.RandomState(draw(st.integers(0, 1000)))
    space = [(size - 1) * dilation + 1 + draw(st.integers(0, 20)) for size, dilation in zip(kernel, dilations)]
    batch, channels = draw(st.integers(0, 2)), draw(st.sampled_from([0, 1, 3, 18]))
    shape = [batch, *space, channels] if last else [batch, channels, *space]
    assert_agrees(text, {"X": images(rs, shape, TYPES[name])}, opset=22, tolerance=EXACT)


def test_both_results_are_used_by_others():
    text = """g (float[n,c,h,w] X) => (float[n,c,p,q] A, int64[n,c,p,q] B, float[n,c,p,q] C) {
        Y, I = MaxPool<kernel_shape=[2,2], strides=[2,2]>(X)
        A = Relu(Y) B = Add(I, I) F = Cast<to=1>(I) C = Mul(F, Y)
    }"""
    rs = np.random.RandomState(0)
    assert_agrees(text, [{"X": rs.randn(*shape).astype(np.float32)} for shape in ((2, 3, 8, 9), (1, 5, 70, 70))])


@pytest.mark.parametrize("name", ["float", "float16", "bfloat16", "double"])
def test_unpooling(name):
    text = f"""g ({name}[n,c,h,w] X, int64[n,c,h,w] I) => ({name}[n,c,p,q] Y) {{
        Y = MaxUnpool<kernel_shape=[2,3], strides=[2,2], pads=[0,1,0,0]>(X, I)
    }}"""
    rs, feeds = np.random.RandomState(0), []
    for n, c, h, w in ((2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 2, 2), (3, 20, 9, 9)):
        room = 2 * h * 2 * w
        planes = np.arange(n * c).reshape(n, c, 1, 1) * room
        feeds.append({"X": images(rs, (n, c, h, w), TYPES[name]), "I": planes + rs.randint(0, room, (n, c, h, w))})
    assert_agrees(text, feeds, opset=22, tolerance=EXACT)


def test_what_was_pooled_is_put_back_where_it_was():
    text = """g (float[n,c,h,w] X) => (float[n,c,p,q] Z) {
        Y, I = MaxPool<kernel_shape=[2,2], strides=[2,2]>(X)
        E = Exp(Y)
        Z = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(E, I)
    }"""
    rs = np.random.RandomState(0)
    assert_agrees(text, [{"X": rs.randn(2, c, 8, 8).astype(np.float32)} for c in (1, 3, 40)])


UNPOOL = (
    "g (float[n,c,h,w] X, int64[n,c,h,w] I) => (float[n,c,p,q] Y) { Y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(X, I) }"
)


def test_places_in_other_images_are_put_by_numpy():
    X = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
    assert_agrees(UNPOOL, {"X": X, "I": np.arange(63, 47, -1).reshape(1, 4, 2, 2)})


def test_places_outside_raise_what_numpy_raises():
    plan = native_plan(UNPOOL)
    assert programs(plan)
    with pytest.raises(Fail, match="lies outside the output"):
        execute(plan, {"X": np.ones((1, 1, 1, 1), np.float32), "I": np.full((1, 1, 1, 1), 4)})
