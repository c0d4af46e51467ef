"""Generated convolutions agree with NumPy's for all windows, groups, channel counts, images and what follows them."""

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.providers.native.kernels.conv import winograd
from sardonyx.runtime.execution.executor import execute
from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import use_level

TYPES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
}
SYMBOLS = ["n", "h", "w"]


def random(*shape, dtype=np.float32, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def conv_model(
    channels,
    filters,
    kernel,
    *,
    sizes=None,
    group=1,
    dtype=np.float32,
    bias=True,
    then=(),
    fused=None,
    sum=False,
    opset=17,
    **attributes,
):
    """A model of one convolution with constant filters, whose images have these sizes or any, and nodes that follow it."""
    rank = len(kernel)
    spatial = ["d", "h", "w"][-rank:] if sizes is None else sizes
    scale = 1 / np.sqrt(channels // group * np.prod(kernel))
    weights = {"W": (random(filters, channels // group, *kernel) * scale).astype(dtype)}
    if bias:
        weights["B"] = random(filters, dtype=dtype, seed=1)
    inputs = ["X", "W", "B" if bias else "", "Z"] if sum else ["X", *weights]
    result = "Y" if not then else "T"
    op, domain = ("Conv", "") if fused is None else ("FusedConv", "com.microsoft")
    node = helper.make_node(op, inputs, [result], domain=domain, group=group, **attributes, **(fused or {}))
    values = [helper.make_tensor_value_info("X", TYPES[dtype], ["n", channels, *spatial])]
    if sum:
        values.append(helper.make_tensor_value_info("Z", TYPES[dtype], None))
    graph = helper.make_graph(
        [node, *then],
        "g",
        values,
        [helper.make_tensor_value_info("Y", TYPES[dtype], None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def image(channels, *sizes, batch=1, dtype=np.float32):
    return {"X": random(batch, channels, *sizes, dtype=dtype, seed=2)}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_window(data):
    draw = data.draw
    kernel = [draw(st.integers(1, 5)) for _ in range(2)]
    strides, dilations = ([draw(st.integers(1, 3)) for _ in range(2)] for _ in range(2))
    pads = [draw(st.integers(0, 4)) for _ in range(4)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    sizes = [draw(st.integers(max(1, span - pads[axis] - pads[axis + 2]), 20)) for axis, span in enumerate(spans)]
    group = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = (group * draw(st.integers(1, 24)) for _ in range(2))
    model = conv_model(channels, filters, kernel, group=group, strides=strides, dilations=dilations, pads=pads)
    assert_agrees(model, image(channels, *sizes, batch=draw(st.integers(1, 3))))


@pytest.mark.parametrize("level", levels())
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_few_channels(level, data):
    """Windows of one row lie in a row in memory: tiles of these know where their pixels are, whatever is left of a row."""
    draw = data.draw
    kernel, strides = ([draw(st.integers(*bounds)) for bounds in pair] for pair in (((1, 5), (2, 7)), ((1, 3), (1, 4))))
    dilations, pads = [draw(st.integers(1, 2)), 1], [draw(st.integers(0, 4)) for _ in range(4)]
    least = [max(1, (k - 1) * d + 1 - pads[axis] - pads[axis + 2]) for axis, (k, d) in enumerate(zip(kernel, dilations))]
    sizes = [draw(st.integers(least[0], 9)), draw(st.integers(least[1], 130))]
    channels, filters = draw(st.integers(1, 8)), draw(st.sampled_from([1, 8, 16, 17, 32, 48, 80]))
    then = [helper.make_node(draw(st.sampled_from(["Relu", "Erf", "Softplus"])), ["T"], ["Y"])]
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "then": then}
    model = conv_model(channels, filters, kernel, sizes=draw(st.sampled_from([None, sizes])), **attributes)
    with pytest.MonkeyPatch.context() as patch:
        use_level(patch, level)
        assert_agrees(model, image(channels, *sizes, batch=draw(st.integers(1, 2))))


def test_first_layers_are_tiled_by_rows():
    for sizes in (None, [9, 40]):
        (program,) = programs(native_plan(conv_model(3, 16, [3, 3], sizes=sizes, strides=[2, 2], pads=[1, 1, 1, 1])))
        (kernel,) = (step.kernel for step in program.program.steps if step.kernel.title == "conv")
        assert "step=6" in kernel.about


@pytest.mark.parametrize(
    "kernel, sizes, stride",
    [([16, 16], None, 16), ([3, 3], [40, 5], 1), ([3, 3], None, (1 << 31) - 1)],
    ids=["more products than a part of a sum has", "rows of few pixels", "memory for windows that nobody needs"],
)
def test_other_layers_of_few_channels_are_not(kernel, sizes, stride):
    model = conv_model(3, 16, kernel, sizes=sizes, strides=[1, stride])
    (program,) = programs(native_plan(model))
    (code,) = (step.kernel for step in program.program.steps if step.kernel.title == "conv")
    assert "step=None" in code.about
    assert_agrees(model, image(3, *(sizes or [20, 21])))


@pytest.mark.parametrize("filters", [1, 7, 16, 17, 31, 33, 48, 63, 70, 128])
@pytest.mark.parametrize("channels", [1, 5, 33])
def test_any_number_of_channels(channels, filters):
    feeds = [image(channels, 9, 11), image(channels, 1, 1), image(channels, 4, 40, batch=2)]
    assert_agrees(conv_model(channels, filters, [3, 3], pads=[1, 1, 1, 1]), feeds)
    assert_agrees(conv_model(channels, filters, [1, 1]), feeds)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_depthwise(data):
    draw = data.draw
    kernel = [draw(st.integers(1, 7)), draw(st.sampled_from([3, 5, 9]))]
    stride, dilation = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2]))
    pads = [draw(st.integers(0, 4)) for _ in range(4)]
    spans = [(k - 1) * dilation + 1 for k in kernel]
    sizes = [draw(st.integers(max(1, span - pads[axis] - pads[axis + 2]), 30)) for axis, span in enumerate(spans)]
    channels = draw(st.integers(2, 70))
    model = conv_model(channels, channels, kernel, group=channels, strides=[stride] * 2, dilations=[dilation] * 2, pads=pads)
    assert_agrees(model, image(channels, *sizes, batch=draw(st.integers(1, 2))))


@pytest.mark.parametrize("inputs, outputs", [(1, 2), (2, 2), (4, 4), (1, 8), (3, 4), (8, 8), (4, 2), (2, 3)])
@pytest.mark.parametrize("groups", [2, 7, 16, 18])
def test_small_groups(inputs, outputs, groups):
    model = conv_model(inputs * groups, outputs * groups, [3, 3], group=groups, pads=[1, 1, 1, 1], strides=[1, 2])
    assert_agrees(model, [image(inputs * groups, 6, 17), image(inputs * groups, 2, 3, batch=2)])


@pytest.mark.parametrize("rank", [1, 3])
def test_depthwise_of_one_and_three_axes(rank):
    model = conv_model(40, 40, [3] * rank, group=40, pads=[1] * 2 * rank, then=[helper.make_node("Sigmoid", ["T"], ["Y"])])
    assert_agrees(model, [image(40, *[4, 9, 12][-rank:], batch=batch) for batch in (0, 2)])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad(auto_pad, stride):
    model = conv_model(8, 20, [3, 4], strides=[stride, stride], auto_pad=auto_pad)
    assert_agrees(model, [image(8, height, width) for height, width in [(3, 4), (8, 9), (13, 30)]])


@pytest.mark.parametrize("rank", [1, 3])
def test_one_and_three_spatial_axes(rank):
    model = conv_model(6, 18, [3] * rank, strides=[2] * rank, pads=[1, 2, 1, 0, 1, 3][: 2 * rank], dilations=[1, 2, 1][:rank])
    assert_agrees(model, [image(6, *[7, 9, 12][-rank:], batch=batch) for batch in (0, 1, 3)])


@pytest.mark.parametrize("count", range(1, 16))
def test_every_number_of_pixels(count):
    assert_agrees(conv_model(16, 32, [1, 1]), image(16, 1, count))
    assert_agrees(conv_model(16, 16, [1, 1]), image(16, count, 1))


def test_pixels_that_would_meet_in_one_set_of_the_cache():
    assert_agrees(conv_model(1024, 72, [1, 1]), [image(1024, 3, 5), image(1024, 1, 1)])


def test_more_taps_than_the_table_holds():
    assert_agrees(conv_model(2, 20, [15, 13], pads=[7, 6, 7, 6]), image(2, 17, 19))


def test_long_kernels_of_one_axis():
    assert_agrees(conv_model(1, 66, [400], strides=[160]), [image(1, 1600), image(1, 400, batch=2)])
    assert_agrees(conv_model(1, 5, [300], pads=[150, 149]), image(1, 40))


def test_negative_pads_crop():
    assert_agrees(conv_model(4, 8, [3, 3], pads=[-1, 0, -2, 1]), image(4, 9, 9))


def test_empty_batch():
    assert_agrees(conv_model(4, 8, [3, 3]), image(4, 5, 5, batch=0))


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_types(dtype):
    model = conv_model(20, 40, [3, 3], dtype=dtype, pads=[1, 1, 1, 1], then=[helper.make_node("Relu", ["T"], ["Y"])])
    assert_agrees(model, [image(20, 8, 9, dtype=dtype), image(20, 1, 1, batch=2, dtype=dtype)])


ACTIVATIONS = [
    {"activation": "Relu"},
    {"activation": "Tanh"},
    {"activation": "Sigmoid"},
    {"activation": "LeakyRelu", "activation_params": [0.3]},
    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    {"activation": "Clip", "activation_params": [-0.5, 0.75]},
    {},
]


@pytest.mark.parametrize("fused", ACTIVATIONS, ids=lambda fused: fused.get("activation", "none"))
def test_fused_activations(fused):
    assert_agrees(conv_model(8, 24, [3, 3], fused=fused, pads=[1, 1, 1, 1]), image(8, 7, 9), steps=3)


@pytest.mark.parametrize("fused", [{}, {"activation": "Relu"}])
def test_fused_sums(fused):
    model = conv_model(8, 24, [3, 3], fused=fused, sum=True, pads=[1, 1, 1, 1])
    model.graph.input[1].type.tensor_type.shape.CopyFrom(
        helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 24, "h", "w"]).tensor_type.shape
    )
    assert_agrees(model, [{**image(8, 7, 9), "Z": random(1, 24, 7, 9, seed=3)}], steps=4)


def test_channels_last_in_the_model():
    weights = [random(24, 8, 3, 3) / 9, random(24, seed=1)]
    node = helper.make_node(
        "NhwcFusedConv", ["X", "W", "B"], ["Y"], domain="com.microsoft", pads=[1, 1, 1, 1], activation="Relu"
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", "h", "w", 8])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in zip("WB", weights)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert_agrees(model, {"X": random(2, 7, 9, 8, seed=2)}, steps=2)


def test_what_the_optimizer_fuses():
    then = [
        helper.make_node("Relu", ["T"], ["R"]),
        helper.make_node("Conv", ["R", "W", "B"], ["U"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["U", "R"], ["V"]),
        helper.make_node("Relu", ["V"], ["Y"]),
    ]
    model = conv_model(20, 20, [3, 3], pads=[1, 1, 1, 1], then=then)
    assert_agrees(model, image(20, 9, 8), level=2, steps=4, tolerance=1e-5)


@pytest.mark.parametrize("group", [1, 4])
def test_filters_that_are_computed(group):
    text = f"""g (float[n,8,h,w] X, float[20,{8 // group},3,2] W, float[20] B) => (float[n,20,h2,w2] Y) {{
        V = Neg(W)
        Y = Conv<group={group}, pads=[1,0,1,1]>(X, V, B)
    }}"""
    feeds = {**image(8, 7, 9, batch=2), "W": random(20, 8 // group, 3, 2), "B": random(20, seed=1)}
    assert_agrees(text, feeds, opset=17)


def test_bfloat16():
    model = conv_model(20, 40, [3, 3], dtype=ml_dtypes.bfloat16, pads=[1, 1, 1, 1], opset=22)
    assert_agrees(model, image(20, 8, 9, dtype=ml_dtypes.bfloat16))


def test_what_follows_is_taken_along():
    then = [
        helper.make_node("Mul", ["T", "T"], ["U"]),
        helper.make_node("Add", ["U", "X"], ["V"]),
        helper.make_node("HardSwish", ["V"], ["Y"]),
    ]
    assert_agrees(conv_model(24, 24, [3, 3], pads=[1, 1, 1, 1], then=then), image(24, 6, 10, batch=2), steps=3)


def test_chains_of_convolutions_stay_channels_last():
    then = [
        helper.make_node("Relu", ["T"], ["R"]),
        helper.make_node("Conv", ["R", "W"], ["U"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["U", "R"], ["V"]),
        helper.make_node("Conv", ["V", "W"], ["Y"]),
    ]
    assert_agrees(conv_model(20, 20, [3, 3], pads=[1, 1, 1, 1], then=then), image(20, 9, 8), steps=5, tolerance=1e-5)


def test_convolutions_write_into_what_joins_them():
    then = [
        helper.make_node("Conv", ["X", "W"], ["U"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["U"], ["V"]),
        helper.make_node("Concat", ["T", "V", "X"], ["C"], axis=1),
        helper.make_node("Relu", ["C"], ["Y"]),
    ]
    model = conv_model(12, 20, [3, 3], pads=[1, 1, 1, 1], then=then)
    assert_agrees(model, [image(12, 9, 8), image(12, 3, 5, batch=2)], steps=5)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 0, 1, 3]])
def test_transformed_tiles(pads):
    feeds = [image(24, height, width) for height, width in [(3, 3), (8, 9), (31, 18)]]
    assert_agrees(conv_model(24, 40, [3, 3], pads=pads), [*feeds, image(24, 6, 40, batch=3)], tolerance=1e-5)


@pytest.mark.parametrize("channels, filters", [(16, 16), (17, 70), (64, 33), (70, 128)])
def test_transformed_tiles_of_any_number_of_channels(channels, filters):
    then = [helper.make_node("Sigmoid", ["T"], ["S"]), helper.make_node("Mul", ["T", "S"], ["Y"])]
    model = conv_model(channels, filters, [3, 3], pads=[1, 1, 1, 1], then=then)
    assert_agrees(model, [image(channels, 13, 10), image(channels, 1, 1)], tolerance=1e-5)


@st.composite
def transformed_cases(draw):
    """Convolutions that transforms may take: kernel, strides, dilations, groups, channels, filters, pads, sizes."""
    rank = draw(st.integers(1, 3))
    longest = 9 if rank == 1 else 5 if rank == 2 else 3
    kernel = [draw(st.integers(1, longest)) for _ in range(rank)]
    strides = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)]
    dilations = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = draw(st.sampled_from([16, 17, 24, 32])), draw(st.sampled_from([16, 21, 40]))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]
    least = [max(1, span - pads[axis] - pads[axis + rank]) for axis, span in enumerate(spans)]
    sizes = [draw(st.integers(size, size + 13)) for size in least]
    return kernel, strides, dilations, groups, channels, filters, pads, sizes


@settings(max_examples=25, deadline=None)
@given(transformed_cases(), st.sampled_from([(4,), (6,), (4, 6)]), st.booleans())
def test_transforms_take_any_window(case, points, is_heavy):
    kernel, strides, dilations, groups, channels, filters, pads, sizes = case
    then = [helper.make_node("Erf", ["T"], ["E"]), helper.make_node("Mul", ["T", "E"], ["Y"])] if is_heavy else None
    model = conv_model(
        channels * groups,
        filters * groups,
        kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=groups,
        **({"then": then} if then else {}),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "POINTS", points)
        patch.setattr(winograd, "GAIN", 1e9)
        assert_agrees(model, image(channels * groups, *sizes, batch=2), tolerance=1e-5)


@pytest.mark.parametrize("points", [4, 6])
@pytest.mark.parametrize(
    "kernel, stride, dilation, bound",
    [
        ((3, 3), 1, 1, 2e-6),
        ((3, 3), 1, 3, 2e-6),
        ((3, 3), 2, 1, 4e-6),
        ((5, 5), 1, 1, 3e-6),
        ((7, 1), 1, 1, 2e-6),
        ((2, 4), 1, 1, 4e-6),
    ],
)
def test_transformed_sums_are_nearly_as_exact_as_direct_ones(kernel, stride, dilation, bound, points):
    X, W = random(1, 64, 32, 32).astype(np.float64), random(32, 64, *kernel, seed=1).astype(np.float64) / 24
    exact = sum_of_windows(X, W, stride, dilation)
    direct, transformed = (run_conv(X, W, points, stride, dilation) for points in ([], [points]))
    assert error(transformed, exact) <= 10 * error(direct, exact)
    assert error(transformed, exact) <= bound


def error(found, exact):
    return np.abs(found - exact).max() / np.abs(exact).max()


def sum_of_windows(X, W, stride, dilation):
    from numpy.lib.stride_tricks import sliding_window_view

    spans = [(size - 1) * dilation + 1 for size in W.shape[2:]]
    windows = sliding_window_view(X, spans, axis=(2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,ocij->nohw", windows, W, optimize=True)


def run_conv(X, W, points, stride, dilation):
    """A convolution by transforms of so many points only."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["X", "W"], ["Y"], strides=[stride] * 2, dilations=[dilation] * 2)],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(W.astype(np.float32), "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "POINTS", points)
        patch.setattr(winograd, "GAIN", 1e9)
        plan = native_plan(model)
    (program,) = programs(plan)
    assert any(step.kernel.title == "winograd" for step in program.program.steps) == bool(points)
    return execute(plan, {"X": X.astype(np.float32)})[0]


@pytest.mark.parametrize("channels, filters", [(257, 5), (520, 33), (769, 50)])
@pytest.mark.parametrize("kernel, size", [(1, 5), (2, 4), (3, 4)])
def test_sums_of_several_parts(channels, filters, kernel, size):
    model = conv_model(channels, filters, [kernel] * 2, pads=[0, 0, kernel - 1, kernel - 1], group=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "POINTS", ())
        assert_agrees(model, [image(channels, size, size), image(channels, 1, size + 13, batch=2)], tolerance=4e-6)


@pytest.mark.parametrize("channels", [64, 65, 130, 200])
@pytest.mark.parametrize("strides", [1, 2])
def test_transformed_sums_of_several_parts(channels, strides):
    """Some numbers of tiles have no code of their own: their last tile is taken several times, and must be added once."""
    model = conv_model(channels, 40, [3, 3], pads=[1, 1, 1, 1], strides=[strides] * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "GAIN", 1e9)
        assert_agrees(model, [image(channels, size, size + 3) for size in (3, 7, 12, 21)], tolerance=1e-5)


def test_infinities_stay_where_the_window_meets_them():
    X = random(1, 4, 9, 9)
    X[0, 1, 4, 4], X[0, 2, 0, 0] = np.inf, np.nan
    assert_agrees(conv_model(4, 8, [3, 3], pads=[1, 1, 1, 1]), {"X": X})


@pytest.mark.parametrize("kernel", [[1, 2], [1, 5], [2, 1], [1, 1]])
def test_windows_of_one_row_or_column_stay_in_their_rows(kernel):
    model = conv_model(1, 1, kernel)
    assert_agrees(model, [image(1, 2, 5), image(1, 7, 6), image(1, 40, 33, batch=2)])
