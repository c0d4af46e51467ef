"""Generated pools agree with NumPy's for all windows, images, layouts and types."""

import ml_dtypes
import numpy as np
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
    np.int8: TensorProto.INT8,
    np.uint8: TensorProto.UINT8,
}


def pool_model(op, rank=2, *, dtype=np.float32, channels_last=False, then=(), opset=22, **attributes):
    """A model of one pool over images of any sizes, whose channels lie last in memory if so wanted."""
    spatial = ["d", "h", "w"][-rank:]
    shape = ["n", *spatial, "c"] if channels_last else ["n", "c", *spatial]
    nodes = [helper.make_node("Transpose", ["X"], ["T"], perm=[0, rank + 1, *range(1, rank + 1)])] if channels_last else []
    nodes.append(helper.make_node(op, ["T" if channels_last else "X"], ["P" if then else "Y"], **attributes))
    graph = helper.make_graph(
        [*nodes, *then],
        "g",
        [helper.make_tensor_value_info("X", CODES[dtype], shape)],
        [helper.make_tensor_value_info("Y", CODES[dtype], None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def images(*shape, dtype=np.float32, channels_last=False, seed=0):
    X = (np.random.RandomState(seed).standard_normal(shape) * 20).astype(dtype)
    return {"X": np.ascontiguousarray(np.moveaxis(X, 1, -1)) if channels_last else X}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_window(data):
    draw = data.draw
    op = draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    strides, dilations = ([draw(st.integers(1, 3)) for _ in range(2)] for _ in range(2))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    pads = [draw(st.integers(0, span)) for span in spans * 2]
    sizes = [draw(st.integers(max(1, span - pads[axis] - pads[axis + 2]), 40)) for axis, span in enumerate(spans)]
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    attributes["ceil_mode"] = draw(st.integers(0, 1))
    if op == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    channels_last = draw(st.booleans())
    shape = [draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 17, 80])), *sizes]
    assert_agrees(
        pool_model(op, channels_last=channels_last, **attributes), images(*shape, channels_last=channels_last), opset=22
    )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_any_number_of_axes(op, rank, channels_last):
    model = pool_model(op, rank, channels_last=channels_last, kernel_shape=[3] * rank, strides=[2] * rank, pads=[1] * 2 * rank)
    sizes = [4, 9, 35][-rank:]
    assert_agrees(model, [images(batch, 20, *sizes, channels_last=channels_last) for batch in (0, 1, 3)])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_auto_pad(auto_pad, channels_last):
    model = pool_model("MaxPool", channels_last=channels_last, kernel_shape=[3, 4], strides=[2, 3], auto_pad=auto_pad)
    assert_agrees(model, [images(1, 20, *size, channels_last=channels_last) for size in [(3, 4), (8, 9), (13, 90)]])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", list(CODES), ids=lambda dtype: dtype.__name__)
def test_types(dtype, channels_last):
    feeds = [images(*shape, dtype=dtype, channels_last=channels_last) for shape in [(1, 70, 9, 40), (2, 1, 3, 3)]]
    model = pool_model("MaxPool", dtype=dtype, channels_last=channels_last, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    assert_agrees(model, feeds)
    if dtype not in (np.int8, np.uint8):
        assert_agrees(pool_model("AveragePool", dtype=dtype, channels_last=channels_last, kernel_shape=[2, 2]), feeds)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("channels_last", [False, True])
def test_norms(p, channels_last):
    model = pool_model("LpPool", channels_last=channels_last, kernel_shape=[2, 3], p=p)
    assert_agrees(model, images(1, 20, 6, 30, channels_last=channels_last), tolerance=1e-5)


@pytest.mark.parametrize(
    "attributes", [{"op": "LpPool", "kernel_shape": [2, 3], "p": 3}, {"op": "LRN", "size": 3, "beta": 0.6}]
)
def test_powers_of_doubles_are_left_to_numpy(attributes):
    then = [helper.make_node("Sqrt", ["P"], ["Q"]), helper.make_node("Neg", ["Q"], ["Y"])]
    feeds = {"X": np.abs(images(1, 4, 6, 30, dtype=np.float64)["X"])}
    assert_agrees(pool_model(dtype=np.float64, then=then, **attributes), feeds, all_native=False)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_nan_is_the_largest_and_infinities_count(channels_last):
    feeds = images(1, 20, 12, 40, channels_last=channels_last)
    flat = feeds["X"].reshape(-1)
    flat[::37], flat[5::41], flat[7::43] = np.nan, np.inf, -np.inf
    flat[: flat.size // 3] = -np.inf
    assert_agrees(pool_model("MaxPool", channels_last=channels_last, kernel_shape=[3, 3], strides=[1, 2]), feeds)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_in_the_padding_alone(op, channels_last):
    model = pool_model(op, channels_last=channels_last, kernel_shape=[2, 2], pads=[3, 3, 3, 3], strides=[1, 2])
    assert_agrees(model, images(1, 17, 3, 2, channels_last=channels_last))


def test_what_follows_is_taken_along():
    then = [helper.make_node("Mul", ["P", "P"], ["Q"]), helper.make_node("Sigmoid", ["Q"], ["Y"])]
    assert_agrees(pool_model("MaxPool", kernel_shape=[2, 2], strides=[2, 2], then=then), images(1, 3, 8, 40), steps=1)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_whole_images(op, channels_last):
    model = pool_model(op, channels_last=channels_last)
    shapes = [(1, 70, 7, 9), (3, 5, 1, 30), (0, 20, 3, 3), (2, 1, 2, 2), (1, 2100, 3, 2)]
    assert_agrees(model, [images(*shape, channels_last=channels_last) for shape in shapes], steps=1)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("size, beta", [(5, 0.75), (4, 0.6), (1, 0.5)])
def test_neighbouring_channels(size, beta, channels_last):
    model = pool_model("LRN", channels_last=channels_last, size=size, alpha=0.02, beta=beta, bias=1.5)
    shapes = [(1, 70, 4, 9), (2, 3, 1, 1), (0, 4, 2, 2), (1, 1100, 1, 2)]
    assert_agrees(model, [images(*shape, channels_last=channels_last) for shape in shapes], tolerance=1e-5)
