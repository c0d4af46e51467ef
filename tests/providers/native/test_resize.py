"""Generated resizing agrees with NumPy's for all modes, coordinates, sizes and layouts, known before or at run time only."""

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.providers.native import provider
from tests.providers.native.agreement import assert_agrees

CODES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
    np.uint8: TensorProto.UINT8,
    np.int8: TensorProto.INT8,
    np.uint16: TensorProto.UINT16,
    np.int16: TensorProto.INT16,
    np.int32: TensorProto.INT32,
    np.int64: TensorProto.INT64,
    np.uint32: TensorProto.UINT32,
    np.uint64: TensorProto.UINT64,
    np.bool_: TensorProto.BOOL,
}
COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
]
ROUNDINGS = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def resize_model(shape, *, scales=None, sizes=None, dtype=np.float32, channels_last=False, opset=19, op="Resize", **attributes):
    """A model that resizes images of a shape, some of it symbolic, whose channels lie last in memory if so wanted."""
    rank = len(shape)
    given = [shape[0], *shape[2:], shape[1]] if channels_last else shape
    nodes = [helper.make_node("Transpose", ["X"], ["T"], perm=[0, rank - 1, *range(1, rank - 1)])] if channels_last else []
    name = "T" if channels_last else "X"
    constants = {}
    if scales is not None:
        constants["scales"] = np.array(scales, np.float32)
    if sizes is not None:
        constants["sizes"] = np.array(sizes, np.int64)
    if op == "Upsample" or opset == 10:
        inputs = [name, "scales"]
    else:
        inputs = [name, "", "scales" if scales is not None else "", *(["sizes"] if sizes is not None else [])]
    nodes.append(helper.make_node(op, inputs, ["Y"], **attributes))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("X", CODES[dtype], given)],
        [helper.make_tensor_value_info("Y", CODES[dtype], None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def images(*shape, dtype=np.float32, channels_last=False):
    X = (np.random.RandomState(0).standard_normal(shape) * 20).astype(dtype)
    return {"X": np.ascontiguousarray(np.moveaxis(X, 1, -1)) if channels_last else X}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_size(data):
    draw = data.draw
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    attributes = {"mode": mode, "coordinate_transformation_mode": draw(st.sampled_from(COORDINATES))}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(ROUNDINGS))
    if mode == "cubic":
        attributes["exclude_outside"] = draw(st.integers(0, 1))
    channels_last = draw(st.booleans())
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    shape = [draw(st.integers(1, 2)), draw(st.sampled_from([1, 5, 17, 80])), height, width]
    is_known = draw(st.booleans())
    symbols = shape if is_known else ["n", shape[1], "h", "w"]
    if draw(st.booleans()):
        attributes["sizes"] = [*shape[:2], draw(st.integers(1, 20)), draw(st.integers(1, 60))]
        symbols = [*shape[:2], *symbols[2:]]
    else:
        fine = [0.3, 0.7, 1.7, 3.3] if is_known else []
        attributes["scales"] = [1, 1, *(draw(st.sampled_from([0.5, 1, 1.5, 2, 2.25, 4, *fine])) for _ in range(2))]
    model = resize_model(symbols, channels_last=channels_last, **attributes)
    assert_agrees(model, images(*shape, channels_last=channels_last), tolerance=2e-5 if mode == "cubic" else 4e-6)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("rank", [1, 3])
def test_one_and_three_spatial_axes(rank, mode, channels_last):
    model = resize_model(["n", 20, *"dhw"[-rank:]], scales=[1, 1, *[2] * rank], mode=mode, channels_last=channels_last)
    sizes = [3, 4, 9][-rank:]
    assert_agrees(model, [images(batch, 20, *sizes, channels_last=channels_last) for batch in (0, 2)])


@pytest.mark.parametrize("scales", [[2, 3], [1, 2, 2, 1], [1, 2, 1], [2, 1.5, 1], [1, 1, 1, 1], [1, 1, 2, 1]])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_any_axes(scales, mode):
    shape = [3, 5, 6, 20][-len(scales) :]
    assert_agrees(resize_model(shape, scales=scales, mode=mode), images(*shape))
    assert_agrees(resize_model(["a", "b", "c", "d"][-len(scales) :], scales=scales, mode=mode), images(*shape))


@pytest.mark.parametrize("dtype", list(CODES), ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("channels_last", [False, True])
def test_types(dtype, channels_last):
    feeds = images(1, 70, 5, 33, dtype=np.int8, channels_last=channels_last)
    feeds = {"X": feeds["X"].astype(dtype)}
    for mode in ["nearest", "linear"]:
        for shape in (["n", 70, "h", "w"], [1, 70, 5, 33]):
            model = resize_model(shape, scales=[1, 1, 2, 2], dtype=dtype, mode=mode, channels_last=channels_last)
            assert_agrees(model, feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [0.6, 2])
@pytest.mark.parametrize("op, opset", [("Resize", 10), ("Upsample", 9)])
def test_old_versions(op, opset, scale, mode):
    shape = [1, 3, 10, 20]
    assert_agrees(resize_model(shape, op=op, opset=opset, scales=[1, 1, scale, scale], mode=mode), images(*shape))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias(mode):
    model = resize_model([1, 3, 20, 30], sizes=[1, 3, 7, 13], mode=mode, antialias=1)
    assert_agrees(model, images(1, 3, 20, 30), tolerance=1e-5)


def test_kept_proportions():
    for policy in ("not_larger", "not_smaller"):
        model = resize_model([1, 3, 20, 30], sizes=[40, 45], axes=[2, 3], mode="linear", keep_aspect_ratio_policy=policy)
        assert_agrees(model, images(1, 3, 20, 30))


def test_infinities_and_nan():
    feeds = images(1, 3, 8, 20)
    feeds["X"].reshape(-1)[::17], feeds["X"].reshape(-1)[3::19] = np.inf, np.nan
    assert_agrees(resize_model([1, 3, 8, 20], scales=[1, 1, 2, 2], mode="linear"), feeds)


INTEGERS = [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.uint32, np.uint64, np.bool_]


def whole_numbers(shape, dtype, seed):
    """Elements of any size, with the extremes of their type among them."""
    random = np.random.default_rng(seed)
    if dtype is np.bool_:
        return {"X": random.random(shape) < 0.5}
    limits = np.iinfo(dtype)
    X = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    X[random.random(shape) < 0.2] = limits.max
    return {"X": X}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_integers_between_pixels_are_those_of_numpy_to_the_last_bit(data):
    draw = data.draw
    mode, dtype = draw(st.sampled_from(["linear", "cubic"])), draw(st.sampled_from(INTEGERS))
    attributes = {"mode": mode, "coordinate_transformation_mode": draw(st.sampled_from(COORDINATES))}
    attributes["exclude_outside"] = draw(st.integers(0, 1))
    shape = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    is_known = draw(st.booleans())
    symbols = shape if is_known else ["a", "b", "c", "d"][: len(shape)]
    if is_known:
        attributes["antialias"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attributes["sizes"] = [draw(st.sampled_from([1, 3, 17, 33, size])) for size in shape]
    else:
        fine = [0.3, 1.7] if is_known else []
        attributes["scales"] = [draw(st.sampled_from([0.5, 1, 1, 1.5, 2.25, *fine])) for _ in shape]
        attributes["scales"] = [scale if size * scale >= 1 else 1 for size, scale in zip(shape, attributes["scales"])]
    model = resize_model(symbols, dtype=dtype, **attributes)
    assert_agrees(model, whole_numbers(shape, dtype, draw(st.integers(0, 1000))), tolerance=0)


@pytest.mark.parametrize("shape", [[0, 3, 4, 4], [2, 3, 4, 0]])
def test_no_integers_between_pixels(shape):
    model = resize_model(["n", 3, "h", "w"], scales=[1, 1, 2, 2], dtype=np.uint8, mode="linear")
    assert_agrees(model, {"X": np.zeros(shape, np.uint8)})


@pytest.mark.parametrize("attributes", [{"sizes": [1, 3, 9, 70]}, {"scales": [1, 1, 2, 0.5]}])
def test_integers_of_open_sizes_are_resized_by_machine_code(attributes, monkeypatch):
    monkeypatch.setattr(provider.Interpreted, "__call__", None)  # what is compared with NumPy must not be NumPy's own
    model = resize_model([1, 3, "h", "w"], dtype=np.uint8, mode="linear", channels_last=True, **attributes)
    feeds = [images(1, 3, *sizes, dtype=np.uint8, channels_last=True) for sizes in ((5, 33), (20, 70), (9, 12))]
    assert_agrees(model, feeds, tolerance=0)
