"""A 1×1 convolution and the depthwise one behind it, computed in one step, agree with NumPy, which computes one after the other."""

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.providers.native.kernels.conv import fused
from tests.providers.native.agreement import assert_agrees, change_budgets, native_plan, programs

TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16}
TYPES[ml_dtypes.bfloat16] = TensorProto.BFLOAT16
KERNEL = "conv and depthwise"


def random(*shape, dtype=np.float32, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def activation(kind, x, y):
    """Nodes from x to y; a constant per channel is `slope`."""
    if kind == "Swish":
        return [helper.make_node("Sigmoid", [x], [f"{x}_s"]), helper.make_node("Mul", [x, f"{x}_s"], [y])]
    if kind == "PRelu":
        return [helper.make_node("PRelu", [x, "slope"], [y])]
    if kind == "Clip":
        return [helper.make_node("Clip", [x, "low", "high"], [y])]
    return [helper.make_node(kind, [x], [y])] if kind else []


def block(
    channels,
    expanded,
    kernel=(3, 3),
    *,
    first=(1, 1),
    between="Clip",
    after="Clip",
    bias=True,
    dtype=np.float32,
    more=(),
    outputs=("Y",),
    sizes=("n", "h", "w"),
    **attributes,
):
    """A model of both convolutions on images of any size."""
    weights = {
        "W": (random(expanded, channels, *first) / np.sqrt(channels)).astype(dtype),
        "V": (random(expanded, 1, *kernel, seed=1) / np.sqrt(np.prod(kernel))).astype(dtype),
        "slope": random(expanded, 1, 1, dtype=dtype, seed=2),
        "low": np.array(0.25, dtype),
        "high": np.array(1.5, dtype),
    }
    biases = {"B": random(expanded, dtype=dtype, seed=3), "C": random(expanded, dtype=dtype, seed=4)} if bias else {}
    nodes = [
        helper.make_node("Conv", ["X", "W", *list(biases)[:1]], ["a" if between else "b"]),
        *activation(between, "a", "b"),
        helper.make_node("Conv", ["b", "V", *list(biases)[1:]], ["c" if after else "Y"], group=expanded, **attributes),
        *activation(after, "c", "Y"),
        *more,
    ]
    batch, *image = sizes
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("X", TYPES[dtype], [batch, channels, *image])],
        [helper.make_tensor_value_info(name, TYPES[dtype], None) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (weights | biases).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def image(channels, *sizes, batch=1, dtype=np.float32):
    return {"X": random(batch, channels, *sizes, dtype=dtype, seed=5)}


def kernels(model, **options):
    return [step.kernel.title for program in programs(native_plan(model, **options)) for step in program.program.steps]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_window(data):
    draw = data.draw
    width, stride = draw(st.sampled_from([(1, 1), (2, 3), (3, 1), (3, 2), (5, 2), (7, 1)]))  # each has code of its own
    kernel, strides = [draw(st.integers(1, 7)), width], [draw(st.integers(1, 3)), stride]
    pads = [draw(st.integers(0, 4)) for _ in range(4)]
    least = [max(1, size - pads[axis] - pads[axis + 2]) for axis, size in enumerate(kernel)]
    feeds = [
        image(3, *(draw(st.integers(size, 24)) for size in least), batch=draw(st.integers(0, 3)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    model = block(3, draw(st.sampled_from([5, 40])), kernel, strides=strides, pads=pads)
    assert KERNEL in kernels(model)
    assert_agrees(model, feeds)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_channels_and_activations(data):
    draw = data.draw
    channels, expanded = draw(st.integers(1, 40)), draw(st.sampled_from([2, 7, 16, 31, 33, 64, 95, 97]))
    kinds = [(None, "Relu"), ("Relu", None), ("Swish", "HardSwish"), ("PRelu", "Swish"), ("HardSwish", "PRelu")]
    between, after = draw(st.sampled_from(kinds))
    model = block(channels, expanded, between=between, after=after, bias=draw(st.booleans()), pads=[1, 1, 1, 1])
    assert KERNEL in kernels(model)
    assert_agrees(model, image(channels, *(draw(st.integers(1, 30)) for _ in range(2)), batch=draw(st.integers(1, 2))))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_high_image_is_cut_into_bands_that_share_rows(stride, monkeypatch):
    change_budgets(monkeypatch, band=1)
    model = block(8, 70, (5, 5), strides=[stride] * 2, pads=[2] * 4)
    assert_agrees(model, [image(8, 61, 33), image(8, 7, 3, batch=5), image(8, 1, 1)])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pads_that_depend_on_the_image(auto_pad):
    model = block(4, 24, strides=[2, 2], auto_pad=auto_pad)
    assert KERNEL in kernels(model)
    assert_agrees(model, [image(4, 9, 12), image(4, 12, 9)])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_other_floats(dtype):
    model = block(9, 33, between="Relu", after="Relu", dtype=dtype, pads=[1] * 4)
    assert KERNEL in kernels(model)
    assert_agrees(model, image(9, 13, 10, dtype=dtype), tolerance=2e-2 if dtype not in (np.float64,) else None)


def test_padding_is_zero_whatever_the_activation_makes_of_zero():
    model = block(2, 16, between="Clip", after=None, pads=[1] * 4)  # the least that Clip makes is 0.25
    assert KERNEL in kernels(model)
    assert_agrees(model, {"X": np.zeros((1, 2, 4, 4), np.float32)})


def test_what_is_no_number_stays_where_it_is():
    X = image(3, 12, 12)["X"]
    X[0, 1, 3, 4], X[0, 2, 9, 9] = np.nan, np.inf
    assert_agrees(block(3, 20, between="Relu", after=None, pads=[1] * 4), {"X": X})


def test_a_residual_behind_both():
    more = [helper.make_node("Add", ["Y", "X"], ["S"])]
    model = block(24, 24, after="Relu", pads=[1] * 4, more=more, outputs=("S",))
    assert KERNEL in kernels(model)
    assert_agrees(model, image(24, 10, 11, batch=2))


def test_a_product_by_another_image_in_between():
    model = block(6, 6, pads=[1] * 4)
    (index,) = (n for n, node in enumerate(model.graph.node) if node.op_type == "Clip" and node.output[0] == "b")
    model.graph.node[index].CopyFrom(helper.make_node("Mul", ["a", "X"], ["b"]))
    assert KERNEL in kernels(model)
    assert_agrees(model, [image(6, 9, 20), image(6, 20, 5)])


@pytest.mark.parametrize(
    "model",
    [
        block(4, 16, pads=[1] * 4, outputs=("Y", "b")),
        block(4, 16, pads=[1] * 4, more=[helper.make_node("GlobalMaxPool", ["b"], ["P"])], outputs=("Y", "P")),
        block(4, 16, pads=[2] * 4, dilations=[2, 2]),
        block(4, 16, (3, 9), pads=[1, 4, 1, 4]),
    ],
    ids=["wanted", "read twice", "dilated", "wide"],
)
def test_other_pairs_take_two_steps(model):
    assert KERNEL not in kernels(model)
    assert_agrees(model, image(4, 9, 11))


@pytest.mark.parametrize("sizes", [("n", "h", "w"), (1, 9, 12)], ids=["open", "known"])
@pytest.mark.parametrize("expanded", [1, 6])
@pytest.mark.parametrize("first", [(1, 2), (1, 5), (2, 3), (3, 1)])
def test_wider_windows_of_few_channels_take_two_steps(first, expanded, sizes):
    model = block(3, expanded, first=first, sizes=sizes)
    assert_agrees(model, image(3, 9, 12))
    assert KERNEL not in kernels(model)


def test_large_images():
    assert_agrees(block(5, 52, strides=[2, 2], pads=[1] * 4), image(5, 150, 300))


def test_threads_share_an_image(monkeypatch):
    monkeypatch.setattr(fused, "SECTION_ROWS", 3)
    model = block(8, 16, pads=[1] * 4)
    assert_agrees(model, [image(8, 41, 17), image(8, 4, 4), image(8, 41, 17, batch=0)])


def test_empty_images_have_pixels_of_padding():
    assert_agrees(block(8, 16, after=None, pads=[2] * 4), [image(8, 0, 5), image(8, 5, 0), image(8, 0, 0)])


def test_channels_last_and_activations_in_the_nodes():
    weights = {"W": random(40, 8, 1, 1) / 3, "B": random(40, seed=1), "V": random(40, 1, 3, 3) / 3}
    options = {"domain": "com.microsoft", "activation": "Relu"}
    nodes = [
        helper.make_node("NhwcFusedConv", ["X", "W", "B"], ["a"], **options),
        helper.make_node("NhwcFusedConv", ["a", "V"], ["Y"], group=40, pads=[1] * 4, strides=[2, 1], **options),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", "h", "w", 8])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert kernels(model) == [KERNEL]
    assert_agrees(model, {"X": random(2, 11, 9, 8, seed=2)})
