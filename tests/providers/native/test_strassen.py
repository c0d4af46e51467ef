"""Strassen's product agrees with NumPy on all numbers of pixels, channels and filters, nearly as exactly as the direct sum on even data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.compiler.jit import host
from sardonyx.providers.native.kernels.conv import strassen
from sardonyx.providers.native.kernels.conv.direct import PIXELS
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, change_budgets, native_plan, programs
from tests.providers.native.test_conv import conv_model, error, image, random

FAST = {"accuracy": "fast"}
pytestmark = pytest.mark.skipif(host().name not in PIXELS, reason="there is no such code for this feature set")


def pointwise(channels, filters, *sizes, **options):
    """A pointwise convolution of images whose sizes are known."""
    model = conv_model(channels, filters, [1] * len(sizes), **options)
    for dimension, size in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], sizes):
        dimension.dim_value = size
    return model


def fast_plan(model):
    return native_plan(model, options=FAST)


def kernels(plan):
    return [step.kernel.title for program in programs(plan) for step in program.program.steps]


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(strassen, "GAIN", 1e9)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    channels=st.sampled_from([32, 64, 160]),
    filters=st.sampled_from([64, 192]),
    batch=st.integers(0, 3),
    bias=st.booleans(),
    following=st.sampled_from(["", "Relu", "Erf"]),
    scratch=st.sampled_from([1, 1 << 16, 1 << 20]),
)
def test_any_sizes(sizes, channels, filters, batch, bias, following, scratch):
    then = [helper.make_node(following, ["T"], ["Y"])] if following else []
    model = pointwise(channels, filters, *sizes, bias=bias, then=then)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strassen, "GAIN", 1e9)
        change_budgets(patch, strassen_sums=scratch)
        assert "strassen" in kernels(fast_plan(model))
        assert_agrees(model, image(channels, *sizes, batch=batch), tolerance=6e-6, options=FAST)


@pytest.mark.parametrize("strides", [[2, 2], [1, 3], [3, 1], [2]])
def test_strides(always, strides):
    sizes = [11, 10][: len(strides)]
    model = pointwise(64, 64, *sizes, strides=strides)
    assert "strassen" in kernels(fast_plan(model))
    assert_agrees(model, image(64, *sizes, batch=2), tolerance=6e-6, options=FAST)


def test_sums_with_another_tensor(always):
    model = pointwise(64, 128, 9, 7, fused={"activation": "Relu"}, sum=True)
    model.graph.input[1].CopyFrom(helper.make_tensor_value_info("Z", TensorProto.FLOAT, ["n", 128, 9, 7]))
    feeds = {**image(64, 9, 7, batch=2), "Z": random(2, 128, 9, 7, seed=5)}
    assert_agrees(model, feeds, tolerance=6e-6, options=FAST)


@pytest.mark.parametrize("channels, filters, size", [(256, 128, 14), (1024, 64, 14), (32, 256, 20)])
def test_products_are_nearly_as_exact_as_direct_sums(monkeypatch, channels, filters, size):
    model = pointwise(channels, filters, size, size, bias=False)
    X = image(channels, size, size)["X"]
    W = random(filters, channels) * np.float32(1 / np.sqrt(channels))
    exact = np.einsum("nchw,oc->nohw", X.astype(np.float64), W.astype(np.float64))
    errors = {}
    for gain, title in ((1e-9, "conv"), (1e9, "strassen")):
        monkeypatch.setattr(strassen, "GAIN", gain)
        plan = fast_plan(model)
        assert title in kernels(plan)
        errors[title] = error(execute(plan, {"X": X})[0], exact)
    assert errors["strassen"] <= 10 * errors["conv"]
    assert errors["strassen"] <= 4e-6


def test_it_is_taken_where_it_pays():
    assert "strassen" in kernels(fast_plan(pointwise(256, 256, 28, 28)))
    assert "strassen" not in kernels(fast_plan(pointwise(256, 256, 3, 3)))  # most of a tile would be empty
    assert "strassen" not in kernels(fast_plan(pointwise(32, 64, 28, 28)))  # sums would cost more than products


BUDGET = 768 << 10


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("tiles", [1, 2, 7, 28, 113])
@pytest.mark.parametrize("tile_bytes", [1 << 12, 1 << 17, 1 << 21])
def test_blocks_fit_and_are_enough(tiles, tile_bytes, threads):
    limit, chunk = strassen._blocks(tiles, 5, tile_bytes, threads, BUDGET)
    assert 1 <= limit <= tiles and 1 <= chunk <= 5
    assert limit == 1 or limit * tile_bytes <= BUDGET
    assert -(-tiles // limit) * -(-5 // chunk) >= min(threads, tiles)
