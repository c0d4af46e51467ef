"""Generated transposed convolutions agree with NumPy's for all windows, groups, channel counts, images and types."""

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.providers.native.agreement import assert_agrees

CODES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
}


def random(*shape, dtype=np.float32, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def transposed_model(channels, filters, kernel, *, group=1, dtype=np.float32, bias=True, then=(), known=None, **attributes):
    """A model of one transposed convolution with constant filters; `filters` counts those of all groups."""
    rank = len(kernel)
    weights = {"W": (random(channels, filters // group, *kernel) / np.sqrt(channels)).astype(dtype)}
    if bias:
        weights["B"] = random(filters, dtype=dtype, seed=1)
    node = helper.make_node("ConvTranspose", ["X", *weights], ["T" if then else "Y"], group=group, **attributes)
    graph = helper.make_graph(
        [node, *then],
        "g",
        [helper.make_tensor_value_info("X", CODES[dtype], known or ["n", channels, *"dhw"[-rank:]])],
        [helper.make_tensor_value_info("Y", CODES[dtype], None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def images(*shape, dtype=np.float32):
    return {"X": random(*shape, dtype=dtype, seed=2)}


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_window(data):
    draw = data.draw
    kernel, strides, dilations = ([draw(st.integers(1, limit)) for _ in range(2)] for limit in (4, 4, 3))
    extra = [draw(st.integers(0, stride - 1)) for stride in strides]
    sizes = [draw(st.integers(1, 9)), draw(st.integers(1, 24))]
    full = [(i - 1) * s + (k - 1) * d + 1 + e for i, s, k, d, e in zip(sizes, strides, kernel, dilations, extra)]
    pads = [draw(st.integers(0, size // 2)) for size in full * 2]
    group = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = group * draw(st.integers(1, 9)), group * draw(st.sampled_from([1, 3, 8, 21, 70]))
    model = transposed_model(
        channels,
        filters,
        kernel,
        group=group,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=extra,
        bias=draw(st.booleans()),
    )
    assert_agrees(model, images(draw(st.integers(1, 2)), channels, *sizes))


@pytest.mark.parametrize("filters", [1, 3, 4, 20, 64])
@pytest.mark.parametrize("kernel", [[2, 2], [3, 2], [1, 4]])
def test_windows_side_by_side(kernel, filters):
    then = [helper.make_node("Relu", ["T"], ["U"]), helper.make_node("Add", ["U", "T"], ["Y"])]
    model = transposed_model(10, filters, kernel, strides=kernel, then=then)
    assert_agrees(model, [images(batch, 10, 5, 17) for batch in (0, 1, 3)])


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("filters", [2, 24])
def test_one_and_three_spatial_axes(rank, filters):
    sizes = [3, 4, 9][-rank:]
    for stride, size in [(2, 3), (2, 2)]:
        model = transposed_model(6, filters, [size] * rank, strides=[stride] * rank)
        assert_agrees(model, [images(batch, 6, *sizes) for batch in (1, 2)])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad(auto_pad):
    model = transposed_model(6, 20, [3, 4], strides=[2, 3], auto_pad=auto_pad)
    assert_agrees(model, [images(1, 6, 4, 9), images(1, 6, 1, 1)])


@pytest.mark.parametrize("size", [11, 13, 20])
def test_wanted_sizes(size):
    model = transposed_model(6, 20, [3, 3], strides=[2, 2], output_shape=[size, size], known=["n", 6, 6, 6])
    assert_agrees(model, images(1, 6, 6, 6))


@pytest.mark.parametrize("dtype", list(CODES), ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("filters", [2, 24])
def test_types(dtype, filters):
    for size in (2, 3):
        model = transposed_model(8, filters, [size, size], dtype=dtype, strides=[2, 2])
        assert_agrees(model, images(1, 8, 5, 20, dtype=dtype))


def test_infinities_reach_only_what_their_windows_cover():
    X = images(1, 4, 6, 6)
    X["X"][0, 1, 2, 2], X["X"][0, 2, 5, 5] = np.inf, np.nan
    assert_agrees(transposed_model(4, 20, [3, 3], strides=[2, 2]), X)


def test_results_may_lie_in_a_larger_one():
    then = [
        helper.make_node("Relu", ["T"], ["U"]),
        helper.make_node("MaxPool", ["T"], ["P"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["U", "P"], ["V"], axis=1),
        helper.make_node("MaxPool", ["V"], ["Y"], kernel_shape=[2, 2]),
    ]
    for size in (2, 3):
        assert_agrees(transposed_model(6, 20, [size, size], strides=[2, 2], then=then), images(2, 6, 5, 7))


def with_computed_filters(model, feeds):
    """The same model with filters and bias for inputs, and what it is to be fed."""
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del model.graph.initializer[:]
    return model, {**feeds, **arrays}


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize(
    ("channels", "filters", "group", "kernel", "attributes"),
    [
        (5, 11, 1, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        (16, 24, 1, (2, 2), {"strides": [2, 2]}),
        (8, 8, 8, (3, 3), {"strides": [2, 2]}),
        (6, 4, 2, (4, 1), {"strides": [3, 1], "dilations": [2, 1]}),
        (4, 3, 1, (5,), {"strides": [2]}),
        (3, 9, 1, (1, 2, 3), {}),
    ],
)
def test_computed_filters(channels, filters, group, kernel, attributes, dtype):
    model = transposed_model(channels, filters, kernel, group=group, dtype=dtype, **attributes)
    assert_agrees(*with_computed_filters(model, images(2, channels, *(5, 4, 3)[: len(kernel)], dtype=dtype)), opset=22)


def test_computed_filters_without_bias_behind_other_nodes():
    model = transposed_model(4, 6, (3, 3), bias=False, strides=[2, 2])
    model, feeds = with_computed_filters(model, images(1, 4, 5, 6))
    model.graph.node[0].input[1] = "scaled"
    model.graph.node.insert(0, helper.make_node("Tanh", ["W"], ["scaled"]))
    assert_agrees(model, feeds, opset=22)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((3, 3), {"strides": [2, 2]}),
        ((2, 2), {"strides": [4, 4]}),
        ((4,), {"strides": [2], "pads": [1, 2]}),
        ((3, 2), {"strides": [1, 3], "auto_pad": "SAME_UPPER"}),
        ((5, 3), {"strides": [3, 2], "output_shape": [9, 11]}),
        ((3, 3), {"strides": [2, 2], "dilations": [2, 1]}),
    ],
)
def test_depthwise(kernel, attributes, dtype):
    """Each phase of the stride is a convolution of its own, with constant filters and with computed ones."""
    feeds = images(2, 8, *(5, 4)[: len(kernel)], dtype=dtype)
    assert_agrees(transposed_model(8, 8, kernel, group=8, dtype=dtype, **attributes), feeds, opset=22)
    model = transposed_model(8, 8, kernel, group=8, dtype=dtype, bias=False, **attributes)
    assert_agrees(*with_computed_filters(model, feeds), opset=22)
